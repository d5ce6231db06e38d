//! Metrics for Prometheus. Labels come from fixed sets, so that callers cannot create series; those of apps are bounded.
//!
//! `docs/metrics.md` lists them, which a test holds equal to `/metrics`.

mod apps;
mod gauges;
mod progress;
mod register;
mod text;

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use http::Method;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge, histogram::Histogram},
    registry::Registry,
};
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    deploy::{Deploy, Status, Trigger},
    ledger::AppState,
    ports::{Applied, ConfirmedCommit, DeployObserver, Rng},
    service::Deployer,
};
use rollhook_wiring::SystemRng;

pub(crate) use self::text::MediaType;
use self::{
    apps::Apps,
    gauges::Gauges,
    progress::{Phase, Progress},
    register::{buckets_of_calls, buckets_of_deploys, buckets_of_driver, buckets_of_store, put, timed},
};

const TRIGGERS: [Trigger; 7] = [
    Trigger::Webhook,
    Trigger::Manual,
    Trigger::Promotion,
    Trigger::Rollback,
    Trigger::Git,
    Trigger::Registry,
    Trigger::Config,
];
const ENDS: [Status; 4] = [Status::Succeeded, Status::Failed, Status::Superseded, Status::Cancelled];

/// Labels and their values.
type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram>;

/// The metrics of this process.
pub(crate) struct Metrics {
    registry: Registry,
    calls: Counters<3>,
    durations: Histograms<1>,
    webhook_answers: Family<[(&'static str, u16); 1], Counter>,
    auth_failures: Counters<1>,
    accepted: Counters<1>,
    ended: Counters<2>,
    restores: Counter,
    queued: Histograms<0>,
    built: Histograms<1>,
    released: Histograms<1>,
    rolled_out: Histograms<1>,
    verified: Histograms<1>,
    verdicts: Counters<2>,
    revoked: Counter,
    store: Histograms<2>,
    driver: Histograms<2>,
    applies: Counters<1>,
    sources: Counters<1>,
    connections: Gauge,
    ignored_forwards: Counter,
    gauges: Gauges,
    apps: Apps,
    progress: Progress,
    /// The begin of the ids of this process's calls.
    prefix: u32,
    calls_begun: AtomicU64,
}

impl Metrics {
    /// Returns the metrics of a replica of this name, of which at most `apps` apps have metrics of their own.
    pub(crate) fn new(replica: &str, apps: usize) -> Self {
        let mut registry = Registry::with_prefix("rollhook");
        let r = &mut registry;
        let version: Family<Labels<1>, Gauge> = Family::default();
        version.get_or_create(&[("version", env!("CARGO_PKG_VERSION"))]).set(1);
        put(r, "build_info", "1, labelled with the version of this server", &version);
        let metrics = Self {
            calls: put(r, "http_requests", "HTTP calls answered", &Family::default()),
            durations: timed(r, "http_request_duration", "Time to answer", buckets_of_calls),
            webhook_answers: put(r, "webhook_answers", "Answers to webhook calls by status code", &Family::default()),
            auth_failures: put(r, "auth_failures", "Calls that were answered 401", &Family::default()),
            accepted: put(r, "deploys_accepted", "Deploys accepted by this replica", &Family::default()),
            ended: put(r, "deploys_ended", "Deploys whose end this replica recorded", &Family::default()),
            restores: put(
                r,
                "restores",
                "Rollbacks by which this replica began to put failed rollouts right",
                &Counter::default(),
            ),
            queued: timed(
                r,
                "deploy_queue_duration",
                "Time from a deploy's accept until its build, release command or rollout begins",
                buckets_of_deploys,
            ),
            built: timed(
                r,
                "deploy_build_duration",
                "Time of builds, without waiting for a build slot",
                buckets_of_deploys,
            ),
            released: timed(
                r,
                "deploy_release_duration",
                "Time of release commands until their end was recorded, with the pull of the image",
                buckets_of_deploys,
            ),
            rolled_out: timed(
                r,
                "deploy_rollout_duration",
                "Time of rollouts until their end was recorded",
                buckets_of_deploys,
            ),
            verified: timed(
                r,
                "deploy_verification_duration",
                "Time in which checks measured deploys, until its end was recorded",
                buckets_of_deploys,
            ),
            verdicts: put(r, "check_verdicts", "Verdicts of checks on deploys that have ended", &Family::default()),
            revoked: put(
                r,
                "verifications_revoked",
                "Deploys that failed a check while they were watched after their success",
                &Counter::default(),
            ),
            store: timed(r, "store_call_duration", "Time of calls to the history", buckets_of_store),
            driver: timed(r, "driver_call_duration", "Time of calls to the rollout driver", buckets_of_driver),
            applies: put(r, "rollout_applies", "Answers of the rollout driver to applies", &Family::default()),
            sources: put(r, "source_reads", "Branches that were read at their source", &Family::default()),
            connections: put(r, "http_connections", "Open connections", &Gauge::default()),
            ignored_forwards: put(
                r,
                "ignored_forwards",
                "Calls whose X-Forwarded-For was ignored: no --trusted-proxy names their peer",
                &Counter::default(),
            ),
            gauges: Gauges::new(r),
            apps: Apps::new(r, apps),
            progress: Progress::new(replica),
            prefix: random(),
            calls_begun: AtomicU64::default(),
            registry,
        };
        metrics.begin_at_zero();
        metrics
    }

    /// Makes the series that alerts look at: an increase from nothing to 1 is none to Prometheus.
    fn begin_at_zero(&self) {
        for trigger in TRIGGERS {
            drop(self.accepted.get_or_create(&[("trigger", trigger.as_str())]));
            for status in ENDS {
                drop(self.ended.get_or_create(&[("trigger", trigger.as_str()), ("status", status.as_str())]));
            }
        }
        for outcome in ["done", "newer", "refused", "error"] {
            drop(self.applies.get_or_create(&[("outcome", outcome)]));
        }
    }

    /// Returns an id that no other call of any replica has.
    pub(crate) fn new_request_id(&self) -> String {
        format!("{:08x}-{:x}", self.prefix, self.calls_begun.fetch_add(1, Ordering::Relaxed))
    }

    pub(crate) fn answered(&self, route: &'static str, method: &Method, status: u16, took: Duration) {
        let status = match status / 100 {
            1 => "1xx",
            2 => "2xx",
            3 => "3xx",
            4 => "4xx",
            _ => "5xx",
        };
        self.calls.get_or_create(&[("route", route), ("method", known(method)), ("status", status)]).inc();
        self.durations.get_or_create(&[("route", route)]).observe(took.as_secs_f64());
    }

    /// Counts an answer to a webhook call.
    pub(crate) fn webhook_answered(&self, status: u16) {
        self.webhook_answers.get_or_create(&[("code", status)]).inc();
    }

    pub(crate) fn auth_failed(&self, route: &'static str) {
        self.auth_failures.get_or_create(&[("route", route)]).inc();
    }

    fn accepted(&self, app: &AppId, uid: AppUid, deploy: &Deploy) {
        self.accepted.get_or_create(&[("trigger", deploy.trigger.as_str())]).inc();
        if deploy.is_restore() {
            self.restores.inc();
        }
        self.apps.accepted(app, uid);
    }

    fn ended(&self, app: &AppId, uid: AppUid, deploy: &Deploy) {
        let (trigger, status) = (deploy.trigger.as_str(), deploy.status().as_str());
        self.ended.get_or_create(&[("trigger", trigger), ("status", status)]).inc();
        for result in deploy.verification.iter().flat_map(|verification| &verification.checks) {
            let Some(verdict) = result.verdict else { continue };
            self.verdicts.get_or_create(&[("mode", result.mode.as_str()), ("verdict", verdict.as_str())]).inc();
        }
        self.apps.ended(app, uid, deploy);
    }

    /// Counts a phase of a deploy that is over.
    fn phase_ended(&self, phase: Phase) {
        match phase {
            Phase::Queued(took) => self.queued.get_or_create(&[]).observe(took.as_secs_f64()),
            Phase::Built(status, took) => {
                self.built.get_or_create(&[("status", status.as_str())]).observe(took.as_secs_f64());
            }
            Phase::Released(status, took) => {
                self.released.get_or_create(&[("status", status.as_str())]).observe(took.as_secs_f64());
            }
            Phase::RolledOut(status, took) => {
                self.rolled_out.get_or_create(&[("status", status.as_str())]).observe(took.as_secs_f64());
            }
            Phase::Verified(status, took) => {
                self.verified.get_or_create(&[("status", status.as_str())]).observe(took.as_secs_f64());
            }
        }
    }

    pub(crate) fn store<T>(&self, call: &'static str, result: &Result<T>, took: Duration) {
        let outcome = if result.is_ok() { "ok" } else { "error" };
        self.store.get_or_create(&[("call", call), ("outcome", outcome)]).observe(took.as_secs_f64());
    }

    pub(crate) fn driver<T>(&self, call: &'static str, result: &Result<T>, took: Duration) {
        let outcome = if result.is_ok() { "ok" } else { "error" };
        self.driver.get_or_create(&[("call", call), ("outcome", outcome)]).observe(took.as_secs_f64());
    }

    /// Counts an answer of the rollout driver to an apply; `newer`: the workload carried a later revision, so that
    /// nothing was changed.
    pub(crate) fn applied(&self, applied: &Result<Applied>) {
        let outcome = match applied {
            Ok(Applied::Done) => "done",
            Ok(Applied::Newer(_)) => "newer",
            Ok(Applied::Refused { .. }) => "refused",
            Err(_) => "error",
        };
        self.applies.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// Counts a reading of a branch at its source.
    pub(crate) fn source_read<T>(&self, head: &Result<T>) {
        let outcome = match head {
            Ok(_) => "done",
            Err(Error::Denied { .. } | Error::Invalid { .. }) => "refused",
            Err(Error::Unavailable { .. } | Error::NotFound(_) | Error::Conflict(_) | Error::Corrupt { .. }) => "error",
        };
        self.sources.get_or_create(&[("outcome", outcome)]).inc();
    }

    /// The metrics that are read when they are asked for.
    pub(crate) fn gauges(&self) -> &Gauges {
        &self.gauges
    }

    /// The number of calls whose `X-Forwarded-For` was ignored.
    pub(crate) fn ignored_forwards(&self) -> &Counter {
        &self.ignored_forwards
    }

    pub(crate) fn connected(&self) {
        self.connections.inc();
    }

    pub(crate) fn disconnected(&self) {
        self.connections.dec();
    }

    /// Reads what is known of apps and the engine now.
    pub(crate) fn look(&self, deployer: &Deployer) {
        self.gauges.look(deployer);
        self.gauges.under_way(&self.progress.under_way(deployer.time()));
    }

    /// Returns all metrics as a scraper that accepts these media types reads them.
    pub(crate) fn text(&self, accept: &str) -> (MediaType, String) {
        text::render(&self.registry, accept)
    }
}

impl DeployObserver for Metrics {
    fn committed(&self, commit: &ConfirmedCommit<'_>) {
        let app = commit.app();
        for (before, deploy) in commit.deploys() {
            match before {
                None => self.accepted(&app.id, app.uid, deploy),
                Some(before) => Phase::ended(before, deploy).into_iter().for_each(|phase| self.phase_ended(phase)),
            }
            if deploy.is_terminal() {
                self.ended(&app.id, app.uid, deploy);
            }
        }
        if commit.revoked().is_some() {
            self.revoked.inc();
        }
        self.progress.seen(&commit.change.state);
    }

    fn loaded(&self, state: &AppState) {
        self.progress.seen(state);
    }

    fn removed(&self, app: AppUid) {
        self.apps.removed(app);
        self.progress.removed(app);
    }
}

fn random() -> u32 {
    let mut bytes = [0; 4];
    SystemRng.fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

/// Returns the method's name, or "other" for an unknown one.
fn known(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests;
