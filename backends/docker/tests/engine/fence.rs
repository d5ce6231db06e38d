//! A process that was stopped in the middle of a call, and wakes up after a newer deploy has ended.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rollhook_conformance::{report, samples};
use rollhook_core::{
    Error,
    app::{AppUid, Target},
    deploy::Scale,
    ports::{Applied, DeployId, Phase, Purpose, RolloutDriver, RolloutSpec, TargetRequest, Validated},
};
use rollhook_docker::DockerMachine;
use serde_json::Value;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{UnixListener, UnixStream},
    sync::watch,
};

use crate::{bed::Bed, conformance::run};

/// The steps of a deploy that change something, by what their request begins with and contains.
const STEPS: [&str; 6] = ["/volumes/create", "/containers/create", "/start", "/rename", "/stop", "?force=true"];

/// The end of the name of the volume by which a deploy claims that it may end the containers from before it.
const REPLACES: &str = ".replaces";

/// A way to the engine on which one kind of request waits until it is let through.
pub(crate) struct Held {
    pub(crate) socket: PathBuf,
    /// Whether a request waits.
    waits: watch::Receiver<bool>,
    pub(crate) release: watch::Sender<bool>,
    _directory: TempDir,
}

impl Held {
    pub(crate) fn new(engine: PathBuf, step: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("docker.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let (told, waits) = watch::channel(false);
        let (release, released) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass(client, engine.clone(), step, told.clone(), released.clone()));
            }
        });
        Self { socket, waits, release, _directory: directory }
    }

    /// Waits until a request is held.
    pub(crate) async fn waits(&self) {
        let mut waits = self.waits.clone();
        tokio::time::timeout(Duration::from_secs(60), waits.wait_for(|waits| *waits))
            .await
            .expect("no step is held")
            .unwrap();
    }
}

/// Passes one request on, and its answer back; a request that is held arrives even if its caller is gone by then.
async fn pass(
    mut client: UnixStream,
    engine: PathBuf,
    step: &'static str,
    told: watch::Sender<bool>,
    mut released: watch::Receiver<bool>,
) {
    let mut head = vec![0; 64 * 1024];
    let length = client.read(&mut head).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&head[..length]).into_owned();
    let line = text.lines().next().unwrap_or_default();
    let is_it = if step == REPLACES { text.contains(step) } else { line.contains(step) };
    if is_it && !line.starts_with("GET") && !*released.borrow() {
        told.send_replace(true);
        drop(released.wait_for(|released| *released).await);
    }
    let Ok(mut engine) = UnixStream::connect(engine).await else { return };
    if engine.write_all(&head[..length]).await.is_ok() {
        drop(copy_bidirectional(&mut client, &mut engine).await);
    }
}

/// The deploys of one container.
pub(crate) struct Deploys {
    pub(crate) bed: Bed,
    pub(crate) name: String,
    target: Target,
}

impl Deploys {
    pub(crate) async fn of(bed: Bed, driver: &DockerMachine) -> Self {
        Self::over(bed, driver, "app:v1").await
    }

    /// The deploys of a container that a person runs of this image.
    pub(crate) async fn over(bed: Bed, driver: &DockerMachine, image: &str) -> Self {
        let name = bed.name("fence");
        let network = bed.docker.network();
        bed.docker.run(&["run", "-d", "--name", &name, "--network", &network, "--restart", "always", image]);
        let Validated::Adopt { settings, .. } = driver.validate(&request(&name)).await.unwrap() else {
            panic!("not adopted")
        };
        Self { bed, name, target: Target { settings, ..Target::default() } }
    }

    /// The deploys of a container that the first of them makes by this template.
    pub(crate) async fn making(bed: Bed, driver: &DockerMachine, template: Value) -> Self {
        let name = bed.name("made");
        let mut request = TargetRequest { image: "app:v1".parse().ok(), ..request(&name) };
        request.settings.insert("template".to_owned(), template);
        let Validated::Create { settings, .. } = driver.validate(&request).await.unwrap() else { panic!("not made") };
        Self { bed, name, target: Target { settings, ..Target::default() } }
    }

    pub(crate) fn spec(&self, revision: u64, image: &str) -> RolloutSpec {
        let app = format!("shop-test/{}", self.name).parse().unwrap();
        let id = DeployId { app: AppUid::from_bits(0xa11), revision: samples::revision(revision) };
        RolloutSpec::new(app, id, self.target.clone(), image.parse().unwrap())
    }

    pub(crate) async fn complete(&self, driver: &DockerMachine, revision: u64, image: &str) {
        self.completes(driver, self.spec(revision, image)).await;
    }

    /// The restore of revision 1.
    fn restore(&self, revision: u64, image: &str) -> RolloutSpec {
        self.spec(revision, image).with(|spec| spec.purpose = Purpose::Restore { to: samples::revision(1) })
    }

    pub(crate) async fn completes(&self, driver: &DockerMachine, spec: RolloutSpec) {
        let revision = spec.id.revision;
        assert_eq!(patiently(async || driver.apply(&spec).await).await, Applied::Done);
        for _ in 0..240 {
            if matches!(patiently(async || driver.observe(&spec).await).await.phase, Phase::Complete { .. }) {
                return;
            }
            pause().await;
        }
        panic!("revision {revision} does not complete");
    }

    /// The images of the containers that run.
    pub(crate) fn running(&self) -> Vec<String> {
        let found = self.bed.containers(&self.name, &[]);
        let found = found.iter().filter_map(|id| self.bed.inspect(id));
        found.map(|found| found["Config"]["Image"].as_str().unwrap().to_owned()).collect()
    }
}

/// The registration of an app whose container has its name.
fn request(name: &str) -> TargetRequest {
    TargetRequest {
        app: format!("shop-test/{name}").parse().unwrap(),
        settings: Default::default(),
        image: None,
        built: false,
        take_over: false,
        registered: None,
        others: Vec::new(),
    }
}

/// Repeats a call that an engine under load did not answer in time, as the callers of the port do.
pub(crate) async fn patiently<T>(call: impl AsyncFn() -> Result<T, Error>) -> T {
    for _ in 0..10 {
        match call().await {
            Ok(answer) => return answer,
            Err(Error::Unavailable { .. } | Error::Conflict(_)) => pause().await,
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the engine stays away")
}

pub(crate) async fn pause() {
    tokio::time::sleep(Duration::from_millis(250)).await;
}

/// Takes the steps of a deploy until one is held.
pub(crate) async fn until_held(driver: Arc<DockerMachine>, spec: RolloutSpec, held: &Held) {
    let driving = tokio::spawn(async move {
        drop(driver.apply(&spec).await);
        loop {
            drop(driver.observe(&spec).await);
            pause().await;
        }
    });
    held.waits().await;
    driving.abort();
}

/// A process is stopped at each of these steps of a deploy, and wakes up after a newer one: it changes nothing.
fn wakes_up(case: &'static str, steps: &'static [&'static str], older: Scale, newer: Scale) {
    run(async {
        for step in steps {
            let Some(bed) = lent(case) else { return };
            let held = Held::new(bed.socket(), step);
            let (stopped, other) = (Arc::new(DockerMachine::at(held.socket.clone())), DockerMachine::at(bed.socket()));
            let deploys = Deploys::of(bed, &other).await;
            let first = deploys.spec(1, "app:v1").with(|spec| spec.scale = older);
            until_held(stopped.clone(), first.clone(), &held).await;
            deploys.completes(&other, deploys.spec(2, "app:v2").with(|spec| spec.scale = newer)).await;

            held.release.send_replace(true);
            let wanted: &[&str] = if newer == Scale::Stop { &[] } else { &["app:v2"] };
            for _ in 0..8 {
                drop(stopped.observe(&first).await);
                pause().await;
                assert_eq!(deploys.running(), wanted, "{step} of the older deploy took effect");
            }
            let late = patiently(async || stopped.apply(&first).await).await;
            assert_eq!(late, Applied::Newer(samples::revision(2)), "{step}");
            // The next deploy removes all that the older one may have left.
            deploys.completes(&other, deploys.spec(3, "app:v1").with(|spec| spec.scale = Scale::Start)).await;
            assert_eq!(deploys.running(), ["app:v1"], "{step}");
            assert_eq!(deploys.bed.containers(&deploys.name, &["-a"]).len(), 1, "{step}");
            let claims = deploys.bed.docker.run(&["volume", "ls", "-q", "--filter", &format!("name={}", deploys.name)]);
            assert_eq!(claims, "", "{step}");
        }
    });
}

#[test]
fn stopped_process_that_wakes_up_changes_nothing_after_a_newer_deploy() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/fence::stopped_process_that_wakes_up_changes_nothing");
    wakes_up(case, &STEPS, Scale::Keep, Scale::Keep);
}

#[test]
fn stopped_process_that_wakes_up_starts_nothing_after_a_stop() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/fence::stopped_process_that_wakes_up_starts_nothing_after_a_stop");
    wakes_up(case, &STEPS, Scale::Keep, Scale::Stop);
}

#[test]
fn stopped_process_that_wakes_up_stops_nothing_after_a_start() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/fence::stopped_process_that_wakes_up_stops_nothing_after_a_start");
    let of_a_stop = &["/volumes/create", "/containers/create", "/stop", "/rename", "?force=true"];
    wakes_up(case, of_a_stop, Scale::Stop, Scale::Start);
}

/// The lent engine, or a report of why the case cannot run.
pub(crate) fn lent(case: &str) -> Option<Bed> {
    match Bed::lent() {
        Ok(bed) => Some(bed),
        Err(reason) => {
            report(case, Err(rollhook_conformance::Lack::Skip(reason)));
            None
        }
    }
}

#[test]
fn healthy_container_beside_a_crash_is_kept() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/fence::healthy_container_beside_a_crash_is_kept");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        deploys.complete(&driver, 1, "app:v1").await;
        let before = deploys.bed.containers(&deploys.name, &["-a"]);
        for (revision, image) in [(2, "app:crash"), (4, "app:hang")] {
            let failed = deploys.spec(revision, image);
            assert_eq!(patiently(async || driver.apply(&failed).await).await, Applied::Done);
            for _ in 0..240 {
                drop(patiently(async || driver.observe(&failed).await).await);
                if deploys.bed.containers(&deploys.name, &["-a"]).len() == 2 {
                    break;
                }
                pause().await;
            }
            deploys.completes(&driver, deploys.restore(revision + 1, "app:v1")).await;
            assert_eq!(deploys.bed.containers(&deploys.name, &["-a"]), before, "{image}");
            let late = patiently(async || driver.apply(&failed).await).await;
            assert_eq!(late, Applied::Newer(samples::revision(revision + 1)));
        }
    });
}

#[test]
fn restore_keeps_no_container_that_a_stopped_process_may_end() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/fence::restore_keeps_no_container_that_a_stopped_process_may_end");
    run(async {
        // Before its claim the process has touched nothing, and after it, it may touch the old container at any time.
        for (step, is_kept) in [(REPLACES, true), ("/rename", false), ("/stop", false)] {
            let Some(bed) = lent(case) else { return };
            let held = Held::new(bed.socket(), step);
            let (stopped, other) = (Arc::new(DockerMachine::at(held.socket.clone())), DockerMachine::at(bed.socket()));
            let deploys = Deploys::of(bed, &other).await;
            deploys.complete(&other, 1, "app:v1").await;
            let before = deploys.bed.containers(&deploys.name, &[]);
            let failed = deploys.spec(2, "app:v2");
            until_held(stopped.clone(), failed.clone(), &held).await;
            deploys.completes(&other, deploys.restore(3, "app:v1")).await;
            let restored = deploys.bed.containers(&deploys.name, &[]);
            assert_eq!(restored == before, is_kept, "{step}: {before:?} {restored:?}");

            held.release.send_replace(true);
            for _ in 0..8 {
                drop(stopped.observe(&failed).await);
                pause().await;
                let running = deploys.bed.containers(&deploys.name, &[]);
                assert_eq!(running, restored, "{step} of the failed deploy took effect");
            }
            deploys.complete(&other, 4, "app:v2").await;
            assert_eq!(deploys.bed.containers(&deploys.name, &["-a"]).len(), 1, "{step}");
        }
    });
}
