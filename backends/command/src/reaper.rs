//! Kills the processes of a build. Its control group has them all. Where there is none, they are found by the build's
//! number in their environment, by their process group, and by the user that builds have to themselves.

use std::{collections::HashMap, fs, time::Duration};

use rustix::process::{Pid, Signal, kill_process};

use crate::{cgroup::Groups, environment::MARKER};

/// The number of attempts to kill all; each kills the processes that the one before missed.
const ATTEMPTS: u32 = 100;
const BETWEEN: Duration = Duration::from_millis(20);

/// The first process of a build.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct First {
    /// The build's process group, whose leader has ended and was waited for.
    pub(crate) group: Option<u32>,
    /// The user of builds, and the time at which the process began.
    pub(crate) begun: Option<(u32, u64)>,
}

/// Kills all processes of a build, and returns once they are gone. `first` is unknown of a build that an earlier process
/// has left.
pub(crate) async fn end(run: &str, first: First) {
    for _ in 0..ATTEMPTS {
        let wanted = run.to_owned();
        let killed = tokio::task::spawn_blocking(move || kill(&wanted, first)).await.unwrap_or_default();
        if killed == 0 {
            return;
        }
        tokio::time::sleep(BETWEEN).await;
    }
    tracing::warn!(run, "killing the processes of a build failed");
}

/// Kills the processes that are found; returns how many there are, or 1 for a group that is not gone yet.
fn kill(run: &str, first: First) -> usize {
    let group = Groups::find().map(|groups| groups.of(run)).filter(|group| group.path().is_dir());
    let is_gone = group.as_ref().is_none_or(crate::cgroup::Group::end);
    let mut found = group.as_ref().map(crate::cgroup::Group::processes).unwrap_or_default();
    found.extend(find(run, First { begun: first.begun.filter(|_| group.is_none()), ..first }));
    for pid in found.iter().copied().filter_map(Pid::from_raw) {
        // The process may be gone by now.
        let _ = kill_process(pid, Signal::KILL);
    }
    found.len().max(usize::from(!is_gone))
}

fn find(run: &str, first: First) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let all: HashMap<i32, Process> = pids.filter_map(|pid| Some((pid, Process::read(pid)?))).collect();
    // The group's number is free for another one once its leader and all members are gone; if a process has that number
    // again, the group is not the build's any more.
    let group = first.group.filter(|group| fs::metadata(format!("/proc/{group}")).is_err());
    let is_of_build = |pid: i32, process: &Process| {
        let number = number(pid);
        number.as_deref() == Some(run.as_bytes())
            || (group.is_some() && group == Some(process.group))
            || (number.is_none() && first.begun.is_some_and(|begun| process.is_left_by(begun, &all)))
    };
    all.iter().filter(|(pid, process)| is_of_build(**pid, process)).map(|(pid, _)| *pid).collect()
}

/// Returns the number of the build that a process has in its environment; `None` for processes of other users, which
/// cannot be read.
fn number(pid: i32) -> Option<Vec<u8>> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| entry.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"=")).map(<[u8]>::to_vec)
}

/// Returns the time at which a process began, in the system's own ticks.
pub(crate) fn begun(pid: u32) -> Option<u64> {
    Process::read(i32::try_from(pid).ok()?).map(|process| process.begun)
}

/// A living process.
struct Process {
    parent: i32,
    group: u32,
    begun: u64,
    user: u32,
}

impl Process {
    /// Reads a process; `None` for one that has ended.
    fn read(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name in parentheses may hold anything, parentheses too.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        if fields.next()? == "Z" {
            return None;
        }
        let (parent, group) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
        let begun = fields.nth(16)?.parse().ok()?;
        // A process may hide its owner from the directory's, and not from this file.
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let user =
            status.lines().find_map(|line| line.strip_prefix("Uid:"))?.split_whitespace().next()?.parse().ok()?;
        Some(Self { parent, group, begun, user })
    }

    /// Returns whether the process is one that began with a build of this user or later, and is nobody's that this user had
    /// before, such as an engine's.
    fn is_left_by(&self, (user, since): (u32, u64), all: &HashMap<i32, Self>) -> bool {
        let mut process = self;
        for _ in 0..=all.len() {
            if process.user != user {
                return !std::ptr::eq(process, self);
            }
            if process.begun < since {
                return false;
            }
            let Some(parent) = all.get(&process.parent) else { return true };
            process = parent;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_the_builds_user_are_left_by_a_build_unless_the_user_had_their_parent_before() {
        let process = |parent, user, begun| Process { parent, group: 1, begun, user };
        let all: HashMap<i32, Process> = [
            (1, process(0, 0, 1)),
            (10, process(1, 0, 5)),
            // An engine of the user, and what it runs.
            (20, process(1, 1001, 50)),
            (21, process(20, 1001, 120)),
            // A build's own process, one that left it, and a child of that.
            (30, process(10, 1001, 100)),
            (31, process(1, 1001, 110)),
            (32, process(31, 1001, 111)),
            (33, process(404, 1001, 111)),
            (40, process(1, 1002, 120)),
        ]
        .into();
        let mut left: Vec<i32> =
            all.iter().filter(|(_, process)| process.is_left_by((1001, 100), &all)).map(|(pid, _)| *pid).collect();
        left.sort_unstable();
        assert_eq!(left, [30, 31, 32, 33]);
    }

    #[test]
    fn process_of_the_builds_user_is_found_without_number_and_group() {
        if !rustix::process::geteuid().is_root() {
            return rollhook_testing::skip(
                &rollhook_testing::test_name!(),
                "only root starts processes of other users",
            );
        }
        let mut stray = std::process::Command::new("setpriv");
        stray.args(["--reuid=65534", "--clear-groups", "setsid", "sleep", "600"]).env_clear();
        let mut stray = stray.env("PATH", "/usr/bin:/bin").spawn().unwrap();
        let pid = i32::try_from(stray.id()).unwrap();
        rollhook_testing::until("it is the other user's", || Process::read(pid).is_some_and(|own| own.user == 65534));
        let since = begun(stray.id()).unwrap();
        let found = |begun| find("1", First { group: None, begun }).contains(&pid);
        assert!(found(Some((65534, since))) && found(Some((65534, since - 1))));
        assert!(!found(None) && !found(Some((65534, since + 1))) && !found(Some((65533, since))));
        stray.kill().unwrap();
        stray.wait().unwrap();
    }

    #[test]
    fn own_process_is_read() {
        let own = Process::read(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert_eq!(own.user, rustix::process::getuid().as_raw());
        assert!(own.parent > 0 && own.begun > 0);
    }
}
