//! A builder on a git host of its own, with a build command that does what the commit's `build.txt` says.

#![allow(unreachable_pub, reason = "a test program's module")]

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use rollhook_command::{CommandBuilds, Settings, Tool};
use rollhook_conformance::samples;
use rollhook_core::{
    app::AppUid,
    ports::{BuildFailure, BuildSpec, BuildState, BuildTrigger, DeployId, Started},
    source::{AllowedSources, GitSource},
};
use rollhook_testing::{
    fixtures::{GitHost, GitRepository},
    process::build_user,
    until_async,
};

const COMMAND: &str = r#"#!/bin/sh
env | sort
case "$(cat build.txt)" in
fail*) echo "something is broken" >&2; exit 3 ;;
hang*)
    sleep 600 &
    echo "child $!"
    setsid sh -c 'echo "stray $$"; exec sleep 600' &
    sleep 600 ;;
escape*)
    setsid env -i PATH="$PATH" sh -c 'echo "stray $$"; exec sleep 600' &
    sleep 600 ;;
leave*) sleep 600 & echo "child $!" ;;
stubborn*) trap '' TERM; while :; do sleep 1; done ;;
esac
echo "head $(git rev-parse HEAD)"
echo "$ROLLHOOK_IMAGE_REPOSITORY@sha256:$(cat build.txt | sha256sum | cut -c1-64)"
"#;

/// Everything that a test of the builder needs; gone when it is dropped.
pub struct Bench {
    pub directory: tempfile::TempDir,
    pub host: GitHost,
    pub repository: GitRepository,
    pub settings: Settings,
}

impl Bench {
    pub fn new() -> Self {
        Self::with(None)
    }

    /// With a host that wants this `Authorization`.
    pub fn with(authorization: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = GitHost::start_with(authorization);
        let repository = host.repository("api");
        let command = directory.path().join("build-command");
        fs::write(&command, COMMAND).unwrap();
        fs::set_permissions(&command, fs::Permissions::from_mode(0o755)).unwrap();
        let user = build_user(directory.path());
        let builds = directory.path().join("builds");
        let tool = Tool::Program { path: command, user };
        let settings = Settings { sources: AllowedSources::all(), ..Settings::new(tool, builds) };
        Self { directory, host, repository, settings }
    }

    pub async fn open(&self) -> Arc<CommandBuilds> {
        Arc::new(CommandBuilds::open(self.settings.clone()).await.unwrap())
    }

    /// The settings with the same program for another user.
    pub fn settings_for(&self, user: Option<&str>) -> Settings {
        let tool = Tool::Program { path: self.path("build-command"), user: user.map(str::to_owned) };
        Settings { tool, ..self.settings.clone() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn source(&self) -> GitSource {
        GitSource { url: self.host.url("api").parse().unwrap(), ..samples::git_source() }
    }

    pub fn order(&self, revision: u64, commit: &str) -> BuildSpec {
        let stamp = DeployId { app: AppUid::from_bits(0xa11), revision: samples::revision(revision) };
        let app = samples::app("shop", "test", "api").id;
        BuildSpec::new(app, stamp, self.source(), commit.parse().unwrap())
    }
}

/// The build once it has ended.
pub async fn ended(builds: &CommandBuilds, build: DeployId) -> BuildState {
    let observed = async || Some(builds.observe(build).await.unwrap()).filter(|state| !state.is_under_way());
    until_async("the build ends", observed).await
}

pub async fn built(builds: &CommandBuilds, order: &BuildSpec) -> String {
    assert_eq!(builds.start(order).await.unwrap(), Started::Known);
    match ended(builds, order.id).await {
        BuildState::Built { commit, .. } => commit.to_string(),
        other @ (BuildState::Waiting | BuildState::Running | BuildState::Failed(_) | BuildState::Unknown) => {
            panic!("{other:?} {}", log(builds, order.id).await)
        }
    }
}

pub async fn failed(builds: &CommandBuilds, order: &BuildSpec) -> BuildFailure {
    assert_eq!(builds.start(order).await.unwrap(), Started::Known);
    match ended(builds, order.id).await {
        BuildState::Failed(failure) => failure,
        other @ (BuildState::Waiting | BuildState::Running | BuildState::Built { .. } | BuildState::Unknown) => {
            panic!("{other:?} {}", log(builds, order.id).await)
        }
    }
}

pub async fn log(builds: &CommandBuilds, build: DeployId) -> String {
    String::from_utf8_lossy(&builds.log(build, 0).await.unwrap().unwrap_or_default()).into_owned()
}

/// The number behind a word in the log, once it is there.
pub async fn told(builds: &CommandBuilds, build: DeployId, word: &str) -> u32 {
    let number = |line: &str| line.strip_prefix(word)?.trim().parse().ok();
    until_async(word, async || log(builds, build).await.lines().find_map(number)).await
}

/// Whether a process is there; one that only waits to be waited for is not.
pub fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}
