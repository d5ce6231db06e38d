//! A control group for each build: no process leaves it, whatever it does to its environment, group or session, so that
//! all that a build has started is found there.
//!
//! Version 2 alone: there, a process that is not root cannot move itself to a group that it may not write to.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The begin of the names of builds' groups.
const PREFIX: &str = "rollhook-build-";
/// The file that lists a group's processes, and moves those that are written to it.
pub(crate) const PROCESSES: &str = "cgroup.procs";
/// The file that ends all processes of a group (Linux 5.14).
const KILL: &str = "cgroup.kill";

/// The control group of this process, below which those of builds are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Groups(PathBuf);

impl Groups {
    /// Finds the control group of this process; `None` if there is none of version 2.
    pub(crate) fn find() -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
        path(&own, &mounts).map(Self)
    }

    /// Returns the group of a build.
    pub(crate) fn of(&self, run: &str) -> Group {
        Group(self.0.join(format!("{PREFIX}{run}")))
    }
}

/// The control group of a build, which may be missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group(PathBuf);

impl Group {
    /// Makes the group.
    ///
    /// # Errors
    /// If the system refuses, as it does where the groups are another user's, or can only be read.
    pub(crate) fn make(&self) -> io::Result<()> {
        match fs::create_dir(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            made => made,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Kills the group's processes. Returns whether none is left, and the group is gone.
    pub(crate) fn end(&self) -> bool {
        // Without the file, each process is killed by its number.
        let _ = fs::write(self.0.join(KILL), "1");
        match remove(&self.0) {
            Ok(()) => true,
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }

    /// The numbers of the group's processes.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let listed = fs::read_to_string(self.0.join(PROCESSES)).unwrap_or_default();
        listed.lines().filter_map(|pid| pid.parse().ok()).collect()
    }
}

/// Removes a group, and those that a build has made below it. Their files go with them.
fn remove(group: &Path) -> io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

/// Returns the directory of a process's control group, given its `cgroup` and `mountinfo`.
fn path(own: &str, mounts: &str) -> Option<PathBuf> {
    let own = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    let mut fields = mount.split(' ');
    let (root, point) = (fields.nth(3)?, fields.next()?);
    // What is mounted may be a part of the tree, as it is in containers.
    let below = format!("/{own}");
    let below = Path::new(&below).strip_prefix(root).ok()?;
    Some(Path::new(point).join(below))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_group_is_found_where_it_is_mounted() {
        let path = |own: &str, mounts: &str| path(own, mounts).map(|path| path.display().to_string());
        let unified = "31 23 0:28 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let service = "0::/system.slice/rollhook.service\n";
        assert_eq!(path(service, unified).unwrap(), "/sys/fs/cgroup/system.slice/rollhook.service");
        assert_eq!(path("0::/\n", unified).unwrap(), "/sys/fs/cgroup/");
        let hybrid = "8:pids:/x\n0::/\n";
        let mounts = "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(path(hybrid, mounts).unwrap(), "/sys/fs/cgroup/unified/");
        let part = "31 23 0:28 /docker/1 /sys/fs/cgroup ro - cgroup2 cgroup rw\n";
        assert_eq!(path("0::/docker/1/a\n", part).unwrap(), "/sys/fs/cgroup/a");
        assert_eq!(path("0::/elsewhere\n", part), None);
        assert_eq!(path("8:pids:/x\n", mounts), None);
        assert_eq!(path(service, "39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n"), None);
    }
}
