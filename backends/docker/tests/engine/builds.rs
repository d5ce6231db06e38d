//! The build suite on a real engine, and the promises of its builder.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_command::{CommandBuilds, Settings, Tool};
use rollhook_conformance::{Builders, Can, Lack, Made, samples};
use rollhook_core::{
    app::AppUid,
    deploy::{Commit, Reason},
    image::ImageRef,
    ports::{
        BuildFailure, BuildSpec, BuildState, BuildTrigger, DeployId, RolloutDriver, Started, TargetRequest, Validated,
    },
    source::{AllowedSources, GitSource},
};
use rollhook_docker::{BuildLimits, DockerMachine, EngineBuilder};
use rollhook_testing::{
    fixtures::{GitHost, GitRepository},
    skip, test_name, until, until_async,
};
use serde_json::json;

use crate::{bed::Bed, fence::Deploys};

/// A builder on the lent engine, with a git host of its own.
struct Engine {
    bed: Bed,
    directory: tempfile::TempDir,
    host: GitHost,
    repository: GitRepository,
    builds: Arc<CommandBuilds>,
    commits: Vec<(Made, String)>,
}

impl Engine {
    async fn fresh() -> Can<Self> {
        let mut engine = Self::on(Bed::lent().map_err(Lack::Skip)?, None).await;
        for (made, step) in [
            (Made::Good, "RUN echo good"),
            (Made::Failing, "RUN echo something is broken && exit 3"),
            (Made::Hanging, "RUN sleep 600"),
            (Made::Another, "RUN echo another"),
        ] {
            let commit = engine.commit(step);
            engine.commits.push((made, commit));
        }
        let short = engine.commits[0].1[..9].to_owned();
        engine.commits.push((Made::Short, short));
        engine.commits.push((Made::Missing, "0123456789".repeat(4)));
        Ok(engine)
    }

    async fn on(bed: Bed, memory: Option<&str>) -> Self {
        Self::within(bed, BuildLimits::parse(memory, Some("1")).unwrap()).await
    }

    async fn within(bed: Bed, limits: BuildLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let host = GitHost::start();
        let repository = host.repository("api");
        let builds = open(&bed, &directory, limits).await;
        Self { bed, directory, host, repository, builds, commits: Vec::new() }
    }

    /// Commits a Dockerfile with this step, and returns the commit. Its images are this test's alone: the engine's
    /// cache would give equal ones of several tests one id, and the first to end would remove all of them.
    fn commit(&self, step: &str) -> String {
        let label = self.bed.name("built");
        self.repository.commit("Dockerfile", &format!("FROM app:v1\nLABEL of={label}\n{step}\n"))
    }

    fn spec(&self, revision: u64, commit: &str) -> BuildSpec {
        let id = DeployId { app: AppUid::from_bits(0xa11), revision: samples::revision(revision) };
        let app = samples::app("shop", "test", "api").id;
        BuildSpec::new(app, id, self.git_source(), commit.parse().unwrap())
    }

    fn git_source(&self) -> GitSource {
        let image_repository = format!("{}/api", self.bed.name("built")).parse().unwrap();
        GitSource { url: self.host.url("api").parse().unwrap(), image_repository, ..samples::git_source() }
    }

    async fn ended(&self, spec: &BuildSpec) -> BuildState {
        assert_eq!(self.builds.start(spec).await.unwrap(), Started::Known);
        let observed = async || Some(self.builds.observe(spec.id).await.unwrap()).filter(|state| !state.is_under_way());
        until_async("the build ends", observed).await
    }

    async fn failed(&self, spec: &BuildSpec) -> BuildFailure {
        match self.ended(spec).await {
            BuildState::Failed(failure) => failure,
            other @ (BuildState::Waiting | BuildState::Running | BuildState::Built { .. } | BuildState::Unknown) => {
                panic!("{other:?} {}", self.log(spec).await)
            }
        }
    }

    async fn log(&self, spec: &BuildSpec) -> String {
        String::from_utf8(self.builds.log(spec.id, 0).await.unwrap().unwrap()).unwrap()
    }

    async fn built(&self, spec: &BuildSpec) -> ImageRef {
        match self.ended(spec).await {
            BuildState::Built { image, .. } => image,
            other @ (BuildState::Waiting | BuildState::Running | BuildState::Failed(_) | BuildState::Unknown) => {
                panic!("{other:?} {}", self.log(spec).await)
            }
        }
    }

    /// Returns whether a container runs with this in its command.
    fn runs(&self, text: &str) -> bool {
        self.bed.docker.run(&["ps", "--no-trunc", "--format", "{{.Command}}"]).contains(text)
    }
}

async fn open(bed: &Bed, directory: &tempfile::TempDir, limits: BuildLimits) -> Arc<CommandBuilds> {
    let tool = Tool::Engine(Arc::new(EngineBuilder::at(bed.socket(), limits)));
    let settings = Settings::new(tool, directory.path().join("builds"));
    let settings = Settings { sources: AllowedSources::all(), at_once: 2, ..settings };
    Arc::new(CommandBuilds::open(settings).await.unwrap())
}

impl Drop for Engine {
    fn drop(&mut self) {
        let repository = self.git_source().image_repository;
        let images = self.bed.docker.run(&["images", "-q", repository.as_str()]);
        let mut remove: Vec<&str> = vec!["rmi", "-f"];
        remove.extend(images.lines());
        if remove.len() > 2 {
            drop(self.bed.docker.try_run(&remove));
        }
    }
}

#[async_trait]
impl Builders for Engine {
    fn builds(&self) -> Arc<dyn BuildTrigger> {
        self.builds.clone()
    }

    async fn restarted(&self) -> Can<Arc<dyn BuildTrigger>> {
        self.builds.close().await;
        Ok(open(&self.bed, &self.directory, BuildLimits::default()).await)
    }

    fn source(&self) -> GitSource {
        self.git_source()
    }

    fn commit(&self, made: Made) -> Can<Commit> {
        if made == Made::Ambiguous {
            return Ok(self.repository.ambiguous().parse().unwrap());
        }
        Ok(self.commits.iter().find(|(known, _)| *known == made).unwrap().1.parse().unwrap())
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(test)
}

rollhook_conformance::builds!(run, Engine::fresh().await);

/// The engine; without one, the test is reported as skipped.
async fn lent(memory: Option<&str>, test: &str) -> Option<Engine> {
    let bed = Bed::lent().inspect_err(|reason| skip(test, reason)).ok()?;
    Some(Engine::on(bed, memory).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_of_a_build_has_limited_memory_and_no_docker() {
    let Some(engine) = lent(Some("64m"), &test_name!()).await else { return };
    let limit = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2> /dev/null";
    let socket = "test ! -e /var/run/docker.sock";
    let spec = engine.spec(1, &engine.commit(&format!("RUN {limit}; {socket}")));
    let state = engine.ended(&spec).await;
    let log = engine.log(&spec).await;
    assert!(matches!(state, BuildState::Built { .. }), "{state:?} {log}");
    assert!(log.lines().any(|line| line == (64 << 20).to_string()), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_that_needs_more_memory_is_killed_and_told() {
    let Some(engine) = lent(Some("64m"), &test_name!()).await else { return };
    let spec = engine.spec(1, &engine.commit("RUN x=0123456789abcdef; while :; do x=$x$x; done"));
    let failure = engine.failed(&spec).await;
    assert!(failure.message.contains("--build-memory"), "{failure:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_build_ends_on_the_engine() {
    let Some(engine) = lent(None, &test_name!()).await else { return };
    let marker = engine.bed.name("cancelled");
    let spec = engine.spec(1, &engine.commit(&format!("RUN sleep 600; echo {marker}")));
    engine.builds.start(&spec).await.unwrap();
    until("the step runs", || engine.runs(&marker));
    engine.builds.cancel(spec.id).await.unwrap();
    let failure = engine.failed(&spec).await;
    until("the step has ended", || !engine.runs(&marker));
    assert_eq!(failure.reason.as_str(), Reason::CANCELLED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn step_whose_labels_name_a_target_is_no_container_of_it() {
    let Some(engine) = lent(None, &test_name!()).await else { return };
    let name = engine.bed.name("other");
    let marker = engine.bed.name("labelled");
    let labels = format!(
        "LABEL dev.rollhook.target=container/{name} dev.rollhook.deploy={} dev.rollhook.name=none \
         com.docker.compose.project={name} com.docker.compose.service={name}",
        DeployId { app: AppUid::from_bits(0xb0b), revision: samples::revision(9) }
    );
    let spec = engine.spec(1, &engine.commit(&format!("{labels}\nRUN sleep 600; echo {marker}")));
    engine.builds.start(&spec).await.unwrap();
    until("the step runs", || engine.runs(&marker));
    let driver = DockerMachine::at(engine.bed.socket());
    for settings in [json!({}), json!({ "kind": "compose", "name": name })] {
        let request = TargetRequest {
            app: format!("shop-test/{name}").parse().unwrap(),
            settings: serde_json::from_value(settings.clone()).unwrap(),
            image: None,
            built: false,
            take_over: false,
            registered: None,
            others: Vec::new(),
        };
        let validated = driver.validate(&request).await.unwrap();
        assert!(!matches!(validated, Validated::Adopt { .. }), "{settings}: {validated:?}");
    }
    engine.builds.cancel(spec.id).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn build_of_a_server_that_stops_ends_and_begins_anew() {
    let Some(mut engine) = lent(None, &test_name!()).await else { return };
    let marker = engine.bed.name("interrupted");
    let spec = engine.spec(1, &engine.commit(&format!("RUN sleep 600; echo {marker}")));
    engine.builds.start(&spec).await.unwrap();
    until("the step runs", || engine.runs(&marker));
    engine.builds.close().await;
    until("the step has ended", || !engine.runs(&marker));
    engine.builds = open(&engine.bed, &engine.directory, BuildLimits::default()).await;
    assert_eq!(engine.builds.observe(spec.id).await.unwrap(), BuildState::Unknown);
    engine.builds.start(&spec).await.unwrap();
    until("the step runs again", || engine.runs(&marker));
    engine.builds.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn context_dockerfile_and_dockerignore_of_the_app_are_honoured() {
    let Some(engine) = lent(None, &test_name!()).await else { return };
    let repository = &engine.repository;
    repository.commit("outside", "outside");
    repository.commit("web/.dockerignore", "*.secret\n");
    repository.commit("web/a.secret", "hunter2");
    repository.commit("web/kept", "kept");
    let check = "RUN test -e /all/kept && test ! -e /all/a.secret && test ! -e /all/outside";
    let commit = repository.commit(
        "web/deploy/Dockerfile.prod",
        &format!("FROM app:v1\nCOPY . /all\nLABEL of={}\n{check}\n", engine.bed.name("built")),
    );
    let mut spec = engine.spec(1, &commit);
    spec.source.context = "web".parse().unwrap();
    spec.source.dockerfile = "deploy/Dockerfile.prod".parse().unwrap();
    let state = engine.ended(&spec).await;
    let BuildState::Built { image, .. } = state else { panic!("{state:?} {}", engine.log(&spec).await) };
    let tagged = format!("{}:{commit}", spec.source.image_repository);
    let id = engine.bed.docker.run(&["image", "inspect", "--format", "{{.Id}}", &tagged]);
    assert_eq!(image.digest().unwrap().to_string(), id.trim());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failure_says_what_is_wrong_with_the_repository() {
    let Some(engine) = lent(None, &test_name!()).await else { return };
    let cases = [
        ("RUN exit 3", "Step 3/3 of the Dockerfile failed with exit code 3"),
        ("RUN --mount=type=cache,target=/c true", "Line 3 of Dockerfile needs BuildKit (RUN --mount)"),
        ("COPY <<EOF /motd\nhello\nEOF", "Line 3 of Dockerfile needs BuildKit (COPY <<EOF)"),
        ("COPY nothing-here /", "nothing-here"),
        ("FROM 127.0.0.1:1/nothing:v1", "127.0.0.1:1"),
    ];
    for (revision, (step, told)) in (1..).zip(cases) {
        let failure = engine.failed(&engine.spec(revision, &engine.commit(step))).await;
        assert_eq!(failure.reason.as_str(), Reason::BUILD_FAILED, "{step}");
        assert!(failure.message.contains(told), "{step}: {failure:?}");
    }
}

/// The engine without limits of builds, whose BuildKit is used.
async fn unlimited(test: &str) -> Option<Engine> {
    let bed = Bed::lent().inspect_err(|reason| skip(test, reason)).ok()?;
    Some(Engine::within(bed, BuildLimits::default()).await)
}

/// Returns whether a process of this machine has this in its command: BuildKit's steps are no containers.
fn is_a_process(text: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut commands = processes.filter_map(|process| std::fs::read(process.path().join("cmdline")).ok());
    commands.any(|command| String::from_utf8_lossy(&command).contains(text))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buildkit_builds_what_needs_it() {
    let Some(engine) = unlimited(&test_name!()).await else { return };
    engine.repository.commit("web/.dockerignore", "*.secret\n");
    engine.repository.commit("web/a.secret", "hunter2");
    engine.repository.commit("web/greet", "#!/bin/sh\necho greetings\n");
    let label = engine.bed.name("built");
    let step = "RUN --mount=type=cache,target=/c echo begins && test ! -e /a.secret && /greet > /greeting";
    let dockerfile = format!("FROM app:v1\nLABEL of={label}\nCOPY --chmod=755 . /\n{step}\n");
    let commit = engine.repository.commit("web/deploy/Dockerfile.prod", &dockerfile);
    let in_web = |revision| {
        let mut spec = engine.spec(revision, &commit);
        spec.source.context = "web".parse().unwrap();
        spec.source.dockerfile = "deploy/Dockerfile.prod".parse().unwrap();
        spec
    };
    let image = engine.built(&in_web(1)).await;
    let log = engine.log(&in_web(1)).await;
    assert!(
        log.contains("[rollhook: Docker's BuildKit builds it, which line 3 of deploy/Dockerfile.prod needs"),
        "{log}"
    );
    assert_eq!(log.lines().filter(|line| line.ends_with(step)).count(), 1, "{log}");
    assert!(log.lines().any(|line| line == "begins"), "{log}");
    let id = image.digest().unwrap().to_string();
    let tagged = format!("{}:{commit}", image.repository());
    assert_eq!(engine.bed.docker.run(&["image", "inspect", "--format", "{{.Id}}", &tagged]).trim(), id);
    let greeting = engine.bed.docker.run(&["run", "--rm", "--network", "none", &id, "cat", "/greeting"]);
    assert_eq!(greeting.trim(), "greetings");

    let again = engine.built(&in_web(2)).await;
    let log = engine.log(&in_web(2)).await;
    assert!(log.lines().any(|line| line == "CACHED"), "{log}");
    assert_eq!(again.repository(), image.repository());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_of_buildkit_is_deployed_and_collected() {
    let Some(engine) = unlimited(&test_name!()).await else { return };
    let spec = engine.spec(1, &engine.commit("RUN --mount=type=cache,target=/c true"));
    let image = engine.built(&spec).await;
    let driver = DockerMachine::at(engine.bed.socket());
    let deploys = Deploys::of(Bed::lent().unwrap(), &driver).await;
    deploys.complete(&driver, 1, &image.to_string()).await;
    let app = samples::app("shop", "test", "api");
    let stored = driver.stored_images().unwrap();
    let id = image.digest().unwrap().to_string();
    let is_there = || engine.bed.docker.try_run(&["image", "inspect", &id]).is_some();
    stored.discard(&app, std::slice::from_ref(&image)).await.unwrap();
    assert!(is_there(), "it runs");
    deploys.complete(&driver, 2, "app:v2").await;
    stored.discard(&app, std::slice::from_ref(&image)).await.unwrap();
    assert!(!is_there());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn here_document_is_built_by_an_engine_that_knows_it() {
    let Some(engine) = unlimited(&test_name!()).await else { return };
    let step = "COPY <<EOF /motd\nhello\nEOF\nRUN <<EOF\ncat /motd\necho from a here-document\nEOF";
    let spec = engine.spec(1, &engine.commit(step));
    let version = engine.bed.docker.run(&["version", "--format", "{{.Server.APIVersion}}"]);
    let minor: u32 = version.trim().strip_prefix("1.").unwrap().parse().unwrap();
    if minor < 42 {
        let failure = engine.failed(&spec).await;
        assert!(failure.message.contains("Line 3 of Dockerfile has a here-document (COPY <<EOF)"), "{failure:?}");
        return;
    }
    engine.built(&spec).await;
    let log = engine.log(&spec).await;
    assert!(log.lines().any(|line| line == "from a here-document"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn buildkits_failure_is_in_the_log_with_its_output() {
    let Some(engine) = unlimited(&test_name!()).await else { return };
    let step = "RUN --mount=type=cache,target=/c echo something is broken && exit 3";
    let spec = engine.spec(1, &engine.commit(step));
    let failure = engine.failed(&spec).await;
    assert_eq!(failure.reason.as_str(), Reason::BUILD_FAILED);
    assert!(failure.message.contains("Step 2/2 of the Dockerfile failed with exit code 3"), "{failure:?}");
    let log = engine.log(&spec).await;
    assert!(log.lines().any(|line| line == "something is broken"), "{log}");
    assert!(log.lines().any(|line| line.starts_with("ERROR: ") && line.ends_with("exit code: 3")), "{log}");
    for (revision, step, told) in [
        (2, "COPY --chmod=755 nothing-here /", "nothing-here"),
        (3, "FROM 127.0.0.1:1/nothing:v1\nCOPY --chmod=755 a /", "127.0.0.1:1"),
        (4, "COPY --chmod=755 a /\nNONSENSE", "NONSENSE"),
    ] {
        let failure = engine.failed(&engine.spec(revision, &engine.commit(step))).await;
        assert!(failure.message.contains(told), "{step}: {failure:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cancelled_build_ends_in_buildkit() {
    let Some(engine) = unlimited(&test_name!()).await else { return };
    let marker = engine.bed.name("cancelled-in-buildkit");
    let step = format!("RUN --mount=type=cache,target=/c sleep 600; echo {marker}");
    let spec = engine.spec(1, &engine.commit(&step));
    engine.builds.start(&spec).await.unwrap();
    until("the step runs", || is_a_process(&marker));
    engine.builds.cancel(spec.id).await.unwrap();
    let failure = engine.failed(&spec).await;
    until("the step has ended", || !is_a_process(&marker));
    assert_eq!(failure.reason.as_str(), Reason::CANCELLED);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_of_a_registry_is_pulled_before_buildkit_needs_it() {
    let Some(engine) = unlimited(&test_name!()).await else { return };
    let docker = &engine.bed.docker;
    let base = format!("{}/{}:v1", docker.registry(), engine.bed.name("base"));
    docker.run(&["tag", "app:v1", &base]);
    docker.run(&["push", &base]);
    docker.run(&["rmi", &base]);
    let label = engine.bed.name("built");
    let registry = docker.registry();
    let dockerfile = format!(
        "ARG REGISTRY={registry}\nFROM $REGISTRY/{}:v1 AS base\nLABEL of={label}\nRUN --mount=type=cache,target=/c true\n",
        engine.bed.name("base")
    );
    let spec = engine.spec(1, &engine.repository.commit("Dockerfile", &dockerfile));
    engine.built(&spec).await;
    let log = engine.log(&spec).await;
    assert!(log.contains(&format!("[rollhook: pulling {base}]")), "{log}");
    docker.run(&["rmi", &base]);
}
