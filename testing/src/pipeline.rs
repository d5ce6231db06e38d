//! The jobs that `webhook enable` prints, run as CI systems run them.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    process::{Command, Stdio},
};

use crate::Ended;

/// A CI system that `webhook enable` prints a job for.
#[derive(Clone, Copy, Debug)]
pub enum CiSystem {
    /// GitLab CI.
    GitLab,
    /// GitHub Actions.
    GitHub,
    /// Any system that runs a shell.
    Shell,
}

/// A job as a pipeline's file describes it.
pub struct Job {
    system: CiSystem,
    /// The job's commands.
    pub script: String,
    variables: BTreeMap<String, String>,
}

impl Job {
    /// Returns the job for this system out of what `webhook enable` printed.
    pub fn read(system: CiSystem, enabled: &str) -> Self {
        let sections: Vec<_> = enabled.split("\n--- ").collect();
        let (title, begin, mark) = match system {
            CiSystem::GitLab => ("GitLab CI", "  script:\n", "    - "),
            CiSystem::GitHub => ("GitHub Actions", "        run: |\n", "          "),
            CiSystem::Shell => ("Anything else", " ---\n", ""),
        };
        let section = sections.iter().find(|section| section.starts_with(title)).unwrap();
        let (head, script) = section.split_once(begin).unwrap();
        let script: String =
            script.lines().map_while(|line| line.strip_prefix(mark)).map(|line| format!("{line}\n")).collect();
        let variable = |line: &str| {
            let (name, value) = line.split(" #").next()?.trim().split_once(": ")?;
            name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_').then(|| (name.into(), value.into()))
        };
        Self { system, script, variables: head.lines().filter_map(variable).collect() }
    }

    /// Runs the job for a commit, with the variables that the system sets, and the job's own.
    pub fn run(&self, url: &str, token: &str, commit: &str) -> Ended {
        let directory = tempfile::tempdir().unwrap();
        let mut command = clean(if let CiSystem::GitHub = self.system { "bash" } else { "sh" });
        if let CiSystem::GitHub = self.system {
            command.args(["--noprofile", "--norc", "-eo", "pipefail"]);
        }
        // GitLab ends a job at the first line that fails.
        command.args(["-e", "-c", &self.script]).current_dir(directory.path());
        command.env("SERVICE_WEBHOOK_URL", url).env("SERVICE_WEBHOOK_TOKEN", token);
        for (name, value) in &self.variables {
            if name.starts_with("SERVICE_") {
                assert_eq!(value.split('.').nth(1), Some(format!("{name} }}}}").as_str()), "{value}");
                continue;
            }
            command.env(name, value.replace("$CI_COMMIT_SHORT_SHA", commit));
        }
        match self.system {
            CiSystem::GitLab => {
                command.envs([("CI_PIPELINE_ID", "7"), ("CI_JOB_ID", commit), ("CI_COMMIT_SHA", commit)])
            }
            // The tag is the first seven digits.
            CiSystem::GitHub => command.envs([("GITHUB_RUN_ID", commit), ("GITHUB_SHA", &format!("{commit}89abcdef"))]),
            CiSystem::Shell => command.env("COMMIT", commit),
        };
        command.output().unwrap().into()
    }
}

/// Returns a value that `webhook enable` printed, such as that of `URL    https://…`.
pub fn printed<'a>(enabled: &'a str, name: &str) -> &'a str {
    enabled.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim()
}

/// A program that sees nothing of the environment of these tests but where programs are.
pub fn clean(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).stdin(Stdio::null());
    command
}
