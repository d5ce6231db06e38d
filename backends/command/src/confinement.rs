//! Confines the build command: code of a repository runs in it, with whatever it may read and use up.
//!
//! `setsid`, `prlimit` and `setpriv` (util-linux) become the program, so that session, limits and user are set before its
//! first instruction. In the server's own session, the program could open the terminal from which the server was started
//! (`/dev/tty`), whoever owns it.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::fs::{PermissionsExt, lchown},
    path::{Path, PathBuf},
    process::Stdio,
};

use rustix::process::{Resource, geteuid, getrlimit};
use tokio::process::Command;

use crate::{
    builder::Error,
    cgroup::{Groups, PROCESSES},
    process::Owner,
};

/// The largest file that a build may write.
const FILE_MAX: u64 = 20 << 30;
/// The most processes and threads that the builds' user may have, of all builds.
const PROCESSES_MAX: u64 = 4096;
/// Moves itself to the control group of the first argument, and becomes the program of the others.
const ENTER: &str = r#"echo 0 > "$0" && exec "$@""#;
/// Others may enter a directory, and not list it.
const ENTERED_BY_OTHERS: u32 = 0o711;

/// The confinement of build commands.
#[derive(Debug)]
pub(crate) struct Confinement {
    kind: Kind,
    /// The control groups, if this process may make one for each build.
    groups: Option<Groups>,
}

/// What a build command is confined to.
#[derive(Debug)]
enum Kind {
    /// The container that a build has to itself.
    Container,
    /// The server's own user.
    Limits,
    /// Another user of this machine.
    User(User),
}

/// A user of this machine.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct User {
    name: String,
    uid: u32,
    gid: u32,
    home: PathBuf,
}

impl Confinement {
    /// Finds the user, and tries whether it can run the program in the builds' directory.
    pub(crate) async fn open(user: Option<&str>, program: &Path, directory: &Path) -> Result<Self, Error> {
        let kind = match user {
            Some(name) => Kind::User(User::find(name).await?),
            None => Kind::Limits,
        };
        let root = match &kind {
            Kind::User(user) => user.uid == 0,
            Kind::Container | Kind::Limits => geteuid().is_root(),
        };
        if root {
            return Err(Error::Root);
        }
        if user.is_some() {
            enterable(directory).map_err(|source| Error::Directory { path: directory.to_owned(), source })?;
        }
        let mut confinement = Self { kind, groups: None };
        confinement.probe(program, directory).await?;
        confinement.groups = usable().await;
        if confinement.groups.is_none() {
            tracing::info!(
                "no control groups can be made for builds: their processes are found by environment and user"
            );
        }
        Ok(confinement)
    }

    /// The confinement of the only build of a container.
    pub(crate) const fn container() -> Self {
        Self { kind: Kind::Container, groups: None }
    }

    /// Returns a command that becomes the program; of the server's environment it has what finds programs. That of a build
    /// is in the control group of its number, if there are control groups.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>, run: Option<&str>) -> Command {
        let mut command = Command::new(if self.leads_session() { OsStr::new("setsid") } else { program.as_ref() });
        // A group that cannot be made now ends the build, which cannot enter it.
        let group = self.groups.as_ref().zip(run).map(|(groups, run)| groups.of(run));
        if let Some(group) = group.inspect(|group| drop(group.make())) {
            command.args(["sh", "-c", ENTER]).arg(group.path().join(PROCESSES));
        }
        command.env_clear().envs(["PATH", "HOME", "LANG"].into_iter().filter_map(passed));
        match &self.kind {
            Kind::Container => &mut command,
            Kind::Limits => command.arg("prlimit").arg(limit("fsize", Resource::Fsize, FILE_MAX)).arg(program),
            Kind::User(User { name, uid, gid, home }) => command
                .arg("prlimit")
                .arg(limit("fsize", Resource::Fsize, FILE_MAX))
                .arg(limit("nproc", Resource::Nproc, PROCESSES_MAX))
                .args(["setpriv", &format!("--reuid={uid}"), &format!("--regid={gid}"), "--init-groups"])
                .args(["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--"])
                .arg(program)
                .envs([("USER", OsStr::new(name)), ("LOGNAME", OsStr::new(name)), ("HOME", home.as_os_str())]),
        };
        command
    }

    /// Returns whether the command becomes the leader of a session. It must not lead a process group before: `setsid` would
    /// leave the program to a second process.
    pub(crate) const fn leads_session(&self) -> bool {
        !matches!(self.kind, Kind::Container)
    }

    /// The user that the program becomes; `None`: the server's own.
    pub(crate) fn owner(&self) -> Option<Owner> {
        match &self.kind {
            Kind::User(User { uid, gid, .. }) => Some(Owner { uid: *uid, gid: *gid }),
            Kind::Container | Kind::Limits => None,
        }
    }

    /// Gives a checkout, and the way to it from the builds' directory, to the user of builds.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn hand_over(&self, checkout: &Path, directory: &Path) -> io::Result<()> {
        let Kind::User(user) = &self.kind else { return Ok(()) };
        checkout.ancestors().skip(1).take_while(|above| *above != directory).try_for_each(enterable)?;
        give(checkout, user)
    }

    async fn probe(&self, program: &Path, directory: &Path) -> Result<(), Error> {
        let script =
            r#"cd -- "$1" 2> /dev/null && [ -x "$2" ] || { echo "it cannot enter $1 or run $2" >&2; exit 1; }"#;
        let mut command = self.command("sh", None);
        command.args(["-c", script, "sh"]).arg(directory).arg(program);
        match command.stdin(Stdio::null()).output().await {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(Error::Confinement(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
            Err(error) => Err(Error::Confinement(format!("setsid and prlimit (of util-linux) are needed: {error}"))),
        }
    }
}

impl User {
    async fn find(name: &str) -> Result<Self, Error> {
        let unknown = || Error::NoUser(name.to_owned());
        if name.starts_with('-') {
            return Err(unknown());
        }
        let found = Command::new("getent").args(["passwd", name]).stdin(Stdio::null()).output().await;
        let found = found.map_err(|error| Error::Confinement(format!("getent is needed: {error}")))?;
        Self::parse(&String::from_utf8_lossy(&found.stdout)).ok_or_else(unknown)
    }

    /// Returns the user of a line of `/etc/passwd`.
    fn parse(line: &str) -> Option<Self> {
        let fields: Vec<_> = line.trim_end().split(':').collect();
        let &[name, _, uid, gid, _, home, _] = fields.as_slice() else { return None };
        Some(Self { name: name.to_owned(), uid: uid.parse().ok()?, gid: gid.parse().ok()?, home: home.into() })
    }
}

/// Returns the control groups, if a process can be put into a new one.
async fn usable() -> Option<Groups> {
    let groups = Groups::find()?;
    let group = groups.of(&format!("probe-{}", std::process::id()));
    group.make().ok()?;
    let mut enter = Command::new("sh");
    enter.args(["-c", ENTER]).arg(group.path().join(PROCESSES)).arg("true").stdin(Stdio::null());
    let entered = enter.output().await.is_ok_and(|output| output.status.success());
    (group.end() && entered).then_some(groups)
}

/// Returns a variable of the server's environment.
fn passed(name: &str) -> Option<(&str, OsString)> {
    std::env::var_os(name).map(|value| (name, value))
}

/// Returns the option of `prlimit` that sets a limit, unless the server itself has a lower one.
fn limit(name: &str, resource: Resource, most: u64) -> String {
    format!("--{name}={}", getrlimit(resource).maximum.map_or(most, |own| own.min(most)))
}

fn enterable(directory: &Path) -> io::Result<()> {
    fs::set_permissions(directory, fs::Permissions::from_mode(ENTERED_BY_OTHERS))
}

/// Gives a file or a tree to a user: a directory after all that is in it, so that nothing is replaced meanwhile by a
/// link that leads elsewhere.
fn give(path: &Path, user: &User) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user)?;
        }
    }
    lchown(path, Some(user.uid), Some(user.gid))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_is_read_from_a_line_of_passwd() {
        let user = User::parse("build:x:1001:1002:Builds,,,:/var/lib/build:/usr/sbin/nologin\n").unwrap();
        let expected = User { name: "build".to_owned(), uid: 1001, gid: 1002, home: "/var/lib/build".into() };
        assert_eq!(user, expected);
        for line in ["", "build", "build:x:-1:1:::", "build:x:1001:1002:Builds:/home"] {
            assert_eq!(User::parse(line), None, "{line}");
        }
    }

    #[test]
    fn session_limits_and_user_are_set_before_the_program_starts() {
        let words = |kind: Kind| {
            let command = Confinement { kind, groups: None }.command("/srv/build", Some("1")).into_std();
            let words = [command.get_program()].into_iter().chain(command.get_args());
            words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(words(Kind::Container), ["/srv/build"]);
        let own = words(Kind::Limits);
        assert!(
            own[..2] == ["setsid", "prlimit"] && own[2].starts_with("--fsize=") && own[3..] == ["/srv/build"],
            "{own:?}"
        );
        let other = words(Kind::User(User::parse("build:x:1001:1002::/home/build:/bin/sh").unwrap()));
        assert!(other[2].starts_with("--fsize=") && other[3].starts_with("--nproc="), "{other:?}");
        let user = ["setpriv", "--reuid=1001", "--regid=1002", "--init-groups"];
        let none = ["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all", "--", "/srv/build"];
        assert_eq!(other[4..], [&user[..], &none[..]].concat());
    }
}
