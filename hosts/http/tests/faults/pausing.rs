//! A replica that stops itself just before its rollout driver is given an order: this test program, run again.

use std::{
    fs,
    future::pending,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Duration,
};

use async_trait::async_trait;
use clap::Parser;
use rollhook_core::{
    Result,
    app::App,
    deploy::Evidence,
    ports::{
        Applied, DriverIdentity, Observation, RolloutDriver, RolloutFailure, RolloutSpec, TargetRequest, Validated,
    },
};
use rollhook_server::{Args, Config, RateLimit, Server};
use rollhook_testing::{Start, process::signal, until};
use rollhook_wiring::admin;
use tokio::{net::TcpListener, runtime::Runtime};

/// Names the file whose presence stops the replica at its next order.
const TRIGGER: &str = "FAULTS_TRIGGER";

/// Serves where this program was started as a replica, and else is no test of anything.
#[test]
fn the_program_is_a_replica_where_it_is_started_as_one() {
    let Some(trigger) = std::env::var_os(TRIGGER) else { return };
    tracing_subscriber::fmt().with_writer(io::stderr).with_ansi(false).init();
    Runtime::new().unwrap().block_on(serve(trigger.into()));
}

/// Returns the recipe of a replica that is this program.
pub fn by_this_program(replica: Start, trigger: &Path) -> Start {
    let test = "pausing::the_program_is_a_replica_where_it_is_started_as_one";
    let replica = replica.instead(std::env::current_exe().unwrap()).arguments([test, "--exact", "--nocapture"]);
    replica.variable(TRIGGER, trigger)
}

/// Has the replica with this trigger stop at its next order, and says for which app and revision that was.
pub fn at_next_order(trigger: &Path) -> (String, u64) {
    // Stopped or not, it goes no further before this file is gone.
    fs::write(trigger.with_extension("held"), "").unwrap();
    fs::write(trigger, "").unwrap();
    let told = trigger.with_extension("told");
    until("a driver is given an order", || told.exists());
    let text = fs::read_to_string(&told).unwrap();
    fs::remove_file(told).unwrap();
    let (app, revision) = text.split_once(' ').unwrap();
    (app.to_owned(), revision.parse().unwrap())
}

/// Lets it go on; it must be continued as well.
pub fn release(trigger: &Path) {
    fs::remove_file(trigger.with_extension("held")).unwrap();
}

/// Whether the order was dropped before the driver had carried it out.
pub fn was_dropped(trigger: &Path) -> bool {
    trigger.with_extension("dropped").exists()
}

async fn serve(trigger: PathBuf) {
    let args = Args::parse_from(["replica"]).serve;
    let listener = TcpListener::bind(args.listen).await.unwrap();
    let opened = rollhook_wiring::open(&args.backends).await.unwrap();
    let rollouts = Arc::new(Pausing { inner: opened.ports.rollouts.clone(), trigger });
    let base_url = format!("http://{}", args.listen);
    let config = Config {
        base_url: base_url.clone(),
        rate_limit: RateLimit::Off,
        deploys_per_hour: args.deploys_per_hour,
        trusted_proxies: Vec::new(),
        min_poll: args.min_poll,
        metrics_per_app: 0,
        notice: None,
    };
    let server = Server::new(
        listener,
        config,
        (opened.ports.with(|ports| ports.rollouts = rollouts), opened.management),
        &base_url,
    );
    admin::ensure(server.management(), &opened.store, args.admin_token_file.as_deref()).await.unwrap();
    // The test's own name may stand on the line.
    println!("\nlistening on {base_url}");
    server.serve(pending()).await.unwrap();
}

/// An order that was held up; leaves a file when it is dropped before its end.
struct Held {
    dropped: PathBuf,
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = fs::write(&self.dropped, "");
    }
}

/// The decorator.
struct Pausing {
    inner: Arc<dyn RolloutDriver>,
    trigger: PathBuf,
}

#[async_trait]
impl RolloutDriver for Pausing {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.inner.identity().await
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        self.inner.validate(request).await
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        let mut held = None;
        if fs::remove_file(&self.trigger).is_ok() {
            held = Some(Held { dropped: self.trigger.with_extension("dropped") });
            let draft = self.trigger.with_extension("draft");
            fs::write(&draft, format!("{} {}", order.app.name, order.id.revision)).unwrap();
            fs::rename(draft, self.trigger.with_extension("told")).unwrap();
            signal(std::process::id(), "STOP");
            // The signal was sent, and may take a moment.
            while self.trigger.with_extension("held").exists() {
                thread::sleep(Duration::from_millis(10));
            }
        }
        let applied = self.inner.apply(order).await;
        held.into_iter().for_each(std::mem::forget);
        applied
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        self.inner.observe(order).await
    }

    async fn changed(&self, order: &RolloutSpec) {
        self.inner.changed(order).await;
    }

    async fn evidence(&self, order: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        self.inner.evidence(order, failure).await
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.inner.forget(app).await
    }
}
