//! A job of CI that runs the script: a shell, its tools and its environment.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
};

use rollhook_testing::{App, Ended, Server, process::is_installed, skip};
use tempfile::TempDir;

pub(crate) const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/ci");

/// The shells that the script is written for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shell {
    Dash,
    Bash,
    /// busybox's shell, with its own awk, sed and others.
    Busybox,
}

/// Runs a case in every shell, at the same time. A shell that this machine lacks is reported.
pub(crate) fn in_every_shell(test: &str, case: impl Fn(Shell) + Sync) {
    if !is_installed("curl") {
        return skip(test, "there is no curl");
    }
    thread::scope(|scope| {
        for (shell, program) in [(Shell::Dash, "dash"), (Shell::Bash, "bash"), (Shell::Busybox, "busybox")] {
            if Command::new(program)
                .args(if shell == Shell::Busybox { ["true", ""] } else { ["-c", ":"] })
                .output()
                .is_ok()
            {
                let case = &case;
                scope.spawn(move || case(shell));
            } else {
                skip(test, &format!("there is no {program}"));
            }
        }
    });
}

/// A job, which posts the image `v2` unless told otherwise.
pub(crate) struct Job {
    shell: Shell,
    pub(crate) directory: TempDir,
    variables: BTreeMap<String, String>,
    options: Vec<String>,
}

impl Job {
    pub(crate) fn new(shell: Shell, url: &str, token: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bin = directory.path().join("bin");
        fs::create_dir(&bin).unwrap();
        // A trace would print the token; the script does not read this file.
        fs::write(directory.path().join(".curlrc"), "trace-ascii = \"-\"\nverbose\n").unwrap();
        let tools =
            ["awk", "cat", "cp", "date", "env", "git", "mktemp", "mv", "rm", "sed", "sleep", "tail", "tr", "wc"];
        for tool in tools {
            let program = if shell == Shell::Busybox && tool != "git" { "busybox" } else { tool };
            if let Some(program) = found(program) {
                symlink(program, bin.join(tool)).unwrap();
            }
        }
        symlink(found("curl").unwrap(), bin.join("curl")).unwrap();
        let job = Self { shell, directory, variables: BTreeMap::new(), options: Vec::new() };
        let (path, home) = (bin.display().to_string(), job.directory.path().display().to_string());
        let job = job.with("PATH", &path).with("HOME", &home).with("CURL_HOME", &home).with("TMPDIR", &home);
        let job = job.with("SERVICE_WEBHOOK_URL", url).with("SERVICE_WEBHOOK_TOKEN", token);
        job.with("IMAGE", "r.example.com/api:v2").with("COMMIT", "0123456789abcdef").with("DEPLOY_RETRY", "30")
    }

    pub(crate) fn of(shell: Shell, server: &Server, app: &App) -> Self {
        Self::new(shell, &format!("http://{}{}", server.address, app.hook), &app.token)
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn without(mut self, name: &str) -> Self {
        self.variables.remove(name);
        self
    }

    /// Traces, as people do who look for a fault.
    pub(crate) fn traced(mut self) -> Self {
        self.options.push("-x".to_owned());
        self
    }

    /// Exports each variable that the script sets, as `set -a` does.
    pub(crate) fn exporting(mut self) -> Self {
        self.options.push("-a".to_owned());
        self
    }

    /// Is a job of GitHub, with its files.
    pub(crate) fn on_github(self) -> Self {
        let (output, summary) = (self.file("output"), self.file("summary"));
        let job = self.with("GITHUB_ACTIONS", "true").with("GITHUB_RUN_ID", "33").with("GITHUB_RUN_ATTEMPT", "2");
        job.with("GITHUB_JOB", "deploy").with("GITHUB_OUTPUT", &output).with("GITHUB_STEP_SUMMARY", &summary)
    }

    /// Puts another program in a tool's place; `$REAL` is the tool.
    pub(crate) fn replace(&self, tool: &str, script: &str) {
        let place = self.directory.path().join("bin").join(tool);
        let real = fs::read_link(&place).unwrap();
        fs::remove_file(&place).unwrap();
        fs::write(&place, format!("#!/bin/sh\nREAL='{}'\n{script}\n", real.display())).unwrap();
        fs::set_permissions(&place, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Returns functions by which busybox's shell calls replaced tools: it runs its own, whatever the path says.
    fn own_applets(&self) -> String {
        let tools = ["date", "sleep"].into_iter().filter(|_| self.shell == Shell::Busybox);
        let bin = self.directory.path().join("bin");
        tools
            .filter(|tool| !bin.join(tool).is_symlink())
            .map(|tool| format!("{tool}() {{ \"$HOME/bin/{tool}\" \"$@\"; }}\n"))
            .collect()
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.file(name)).unwrap_or_default()
    }

    pub(crate) fn start(&self) -> Child {
        let mut command = match self.shell {
            Shell::Dash => Command::new(found("dash").unwrap()),
            Shell::Bash => Command::new(found("bash").unwrap()),
            Shell::Busybox => Command::new(found("busybox").unwrap()),
        };
        let script = Path::new(PACKAGING).join("deploy.sh");
        command.args((self.shell == Shell::Busybox).then_some("sh")).args(&self.options);
        match self.own_applets() {
            functions if functions.is_empty() => command.arg(script),
            functions => command.arg("-c").arg(format!("{functions}. {}", script.display())),
        };
        command.env_clear().envs(&self.variables);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    pub(crate) fn run(&self) -> Ended {
        let ended: Ended = self.start().wait_with_output().unwrap().into();
        let left = fs::read_dir(self.directory.path()).unwrap();
        let left = left.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("rollhook."));
        assert_eq!(left.count(), 0, "the script removes its files");
        ended
    }
}

/// Returns where a program is.
fn found(program: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(program))
        .find(|path| path.exists())
}
