//! The build suite on a real engine, and the promises of its builder.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_command::{CommandBuilds, Settings, Tool};
use rollhook_conformance::{Builders, Can, Lack, Made, samples};
use rollhook_core::{
    app::AppUid,
    deploy::{Commit, Reason},
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

use crate::bed::Bed;

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
        let directory = tempfile::tempdir().unwrap();
        let host = GitHost::start();
        let repository = host.repository("api");
        let limits = BuildLimits::parse(memory, Some("1")).unwrap();
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
