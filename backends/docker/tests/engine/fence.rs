//! A process that was stopped in the middle of a call, and wakes up after a newer deploy has ended.

use std::{path::PathBuf, sync::Arc, time::Duration};

use rollhook_conformance::{report, samples};
use rollhook_core::{
    Error,
    app::{AppUid, Target},
    ports::{Applied, DeployId, Phase, Purpose, RolloutDriver, RolloutSpec, TargetRequest, Validated},
};
use rollhook_docker::DockerMachine;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional},
    net::{UnixListener, UnixStream},
    sync::watch,
};

use crate::{bed::Bed, conformance::run};

/// The steps of a deploy that change something, by what their request begins with and contains.
const STEPS: [&str; 6] = ["/volumes/create", "/containers/create", "/start", "/rename", "/stop", "?force=true"];

/// A way to the engine on which one kind of request waits until it is let through.
struct Held {
    socket: PathBuf,
    /// Whether a request waits.
    waits: watch::Receiver<bool>,
    release: watch::Sender<bool>,
    _directory: TempDir,
}

impl Held {
    fn new(engine: PathBuf, step: &'static str) -> Self {
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
    let line = String::from_utf8_lossy(&head[..length]).lines().next().unwrap_or_default().to_owned();
    if line.contains(step) && !line.starts_with("GET") && !*released.borrow() {
        told.send_replace(true);
        drop(released.wait_for(|released| *released).await);
    }
    let Ok(mut engine) = UnixStream::connect(engine).await else { return };
    if engine.write_all(&head[..length]).await.is_ok() {
        drop(copy_bidirectional(&mut client, &mut engine).await);
    }
}

/// The deploys of one container.
struct Deploys {
    bed: Bed,
    name: String,
    target: Target,
}

impl Deploys {
    async fn of(bed: Bed, driver: &DockerMachine) -> Self {
        let name = bed.name("fence");
        let network = bed.docker.network();
        bed.docker.run(&["run", "-d", "--name", &name, "--network", &network, "--restart", "always", "app:v1"]);
        let request = TargetRequest {
            app: format!("shop-test/{name}").parse().unwrap(),
            settings: Default::default(),
            image: None,
            built: false,
            take_over: false,
            registered: None,
            others: Vec::new(),
        };
        let Validated::Adopt { settings, .. } = driver.validate(&request).await.unwrap() else { panic!("not adopted") };
        Self { bed, name, target: Target { settings, ..Target::default() } }
    }

    fn spec(&self, revision: u64, image: &str) -> RolloutSpec {
        RolloutSpec {
            app: format!("shop-test/{}", self.name).parse().unwrap(),
            id: DeployId { app: AppUid::from_bits(0xa11), revision: samples::revision(revision) },
            target: self.target.clone(),
            image: image.parse().unwrap(),
            adopted: false,
            settle: Duration::ZERO,
            purpose: Purpose::Deploy,
            cause: format!("revision {revision}"),
        }
    }

    async fn complete(&self, driver: &DockerMachine, revision: u64, image: &str) {
        let spec = self.spec(revision, image);
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
    fn running(&self) -> Vec<String> {
        let found = self.bed.containers(&self.name, &[]);
        let found = found.iter().filter_map(|id| self.bed.inspect(id));
        found.map(|found| found["Config"]["Image"].as_str().unwrap().to_owned()).collect()
    }
}

/// Repeats a call that an engine under load did not answer in time, as the callers of the port do.
async fn patiently<T>(call: impl AsyncFn() -> Result<T, Error>) -> T {
    for _ in 0..10 {
        match call().await {
            Ok(answer) => return answer,
            Err(Error::Unavailable { .. } | Error::Conflict(_)) => pause().await,
            Err(error) => panic!("{error:?}"),
        }
    }
    panic!("the engine stays away")
}

async fn pause() {
    tokio::time::sleep(Duration::from_millis(250)).await;
}

/// Takes the steps of a deploy until one is held.
async fn until_held(driver: Arc<DockerMachine>, spec: RolloutSpec, held: &Held) {
    let driving = tokio::spawn(async move {
        drop(driver.apply(&spec).await);
        loop {
            drop(driver.observe(&spec).await);
            pause().await;
        }
    });
    let mut waits = held.waits.clone();
    tokio::time::timeout(Duration::from_secs(60), waits.wait_for(|waits| *waits))
        .await
        .expect("no step is held")
        .unwrap();
    driving.abort();
}

#[test]
fn stopped_process_that_wakes_up_changes_nothing_after_a_newer_deploy() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/fence::stopped_process_that_wakes_up_changes_nothing");
    run(async {
        for step in STEPS {
            let bed = match Bed::lent() {
                Ok(bed) => bed,
                Err(reason) => return report(case, Err(rollhook_conformance::Lack::Skip(reason))),
            };
            let held = Held::new(bed.socket(), step);
            let (stopped, other) = (Arc::new(DockerMachine::at(held.socket.clone())), DockerMachine::at(bed.socket()));
            let deploys = Deploys::of(bed, &other).await;
            let first = deploys.spec(1, "app:v1");
            until_held(stopped.clone(), first.clone(), &held).await;
            deploys.complete(&other, 2, "app:v2").await;

            held.release.send_replace(true);
            for _ in 0..8 {
                drop(stopped.observe(&first).await);
                pause().await;
                assert_eq!(deploys.running(), ["app:v2"], "{step} of the older deploy took effect");
            }
            let late = patiently(async || stopped.apply(&first).await).await;
            assert_eq!(late, Applied::Newer(samples::revision(2)), "{step}");
            // The next deploy removes all that the older one may have left.
            deploys.complete(&other, 3, "app:v1").await;
            assert_eq!(deploys.bed.containers(&deploys.name, &["-a"]).len(), 1, "{step}");
            let claims = deploys.bed.docker.run(&["volume", "ls", "-q", "--filter", &format!("name={}", deploys.name)]);
            assert_eq!(claims, "", "{step}");
        }
    });
}
