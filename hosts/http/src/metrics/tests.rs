use std::{collections::BTreeMap, fs, path::Path, time::SystemTime};

use rollhook_conformance::samples;
use rollhook_core::{
    check::{Check, Verdict},
    deploy::{Deploy, ReleaseMark, Revision, State, Verification},
    disk::DiskSpace,
    ledger::{AppState, Change, Record},
    time::Timestamp,
};

use super::{progress::DeploysUnderWay, *};
use crate::disks::Disk;

fn text(metrics: &Metrics) -> String {
    metrics.text("").1
}

#[test]
fn a_made_up_method_makes_no_series() {
    let metrics = Metrics::new("one", 0);
    for method in ["BREW", "PUT", "X-1"] {
        metrics.answered("/healthz", &Method::from_bytes(method.as_bytes()).unwrap(), 405, Duration::ZERO);
    }
    let text = text(&metrics);
    let series = text.lines().filter(|line| line.starts_with("rollhook_http_requests_total"));
    assert_eq!(
        series.collect::<Vec<_>>(),
        [r#"rollhook_http_requests_total{route="/healthz",method="other",status="4xx"} 3"#]
    );
}

#[test]
fn ids_are_all_different() {
    let metrics = Metrics::new("one", 0);
    assert_ne!(metrics.new_request_id(), metrics.new_request_id());
}

/// An app with one accepted deploy of this image, driven by a replica of this name.
fn accepted(replica: &str) -> (Change, Deploy) {
    let app = samples::app("shop", "test", "api");
    let created_at = app.created_at;
    let mut change = Change::on(AppState::new(app));
    let deploy = samples::admit(&mut change, samples::admission(samples::deploy("v1")), created_at);
    change.state.lease = Some(samples::replica(replica, 1));
    (change, deploy)
}

fn recorded(change: Change, state: State, now: Timestamp) -> Change {
    let mut change = Change::on(change.state);
    let moved = change.state.unfinished[0].moved(state);
    change.record(Record { changes: vec![moved], ..Record::default() }, now).unwrap();
    change
}

/// The counts and sums of the histograms of phases.
fn phases(metrics: &Metrics) -> Vec<String> {
    let text = text(metrics);
    let is_phase = |line: &&str| {
        ["queue", "build", "release", "rollout"].iter().any(|it| line.contains(&format!("_{it}_duration")))
    };
    let lines = text.lines().filter(|line| line.contains("_sum") || line.contains("_count")).filter(is_phase);
    lines.map(str::to_owned).collect()
}

fn commit<'a>(before: &'a AppState, change: &'a Change) -> ConfirmedCommit<'a> {
    ConfirmedCommit { before: Some(before), change, took: Duration::ZERO }
}

#[test]
fn the_phases_of_a_deploy_are_timed_as_they_are_committed() {
    let after = |seconds: u64| samples::app("shop", "test", "api").created_at.after(Duration::from_secs(seconds));
    let rolling_out = || State::RollingOut { since: after(5), outage: Default::default() };
    let metrics = Metrics::new("one", 0);
    let (accepted, _) = accepted("one");
    let before = AppState::new(samples::app("shop", "test", "api"));
    metrics.committed(&commit(&before, &accepted));
    assert!(text(&metrics).contains("rollhook_deploys_accepted_total{trigger=\"webhook\"} 1\n"), "{}", text(&metrics));
    assert_eq!(phases(&metrics), Vec::<String>::new());
    let rolling = recorded(accepted.clone(), rolling_out(), after(5));
    metrics.committed(&commit(&accepted.state, &rolling));
    let ended = recorded(rolling.clone(), samples::succeeded(), after(65));
    metrics.committed(&commit(&rolling.state, &ended));
    let expected = [
        "rollhook_deploy_queue_duration_seconds_sum{} 5.0",
        "rollhook_deploy_queue_duration_seconds_count{} 1",
        "rollhook_deploy_rollout_duration_seconds_sum{status=\"succeeded\"} 60.0",
        "rollhook_deploy_rollout_duration_seconds_count{status=\"succeeded\"} 1",
    ];
    assert_eq!(phases(&metrics), expected);
    let counted = "rollhook_deploys_ended_total{trigger=\"webhook\",status=\"succeeded\"} 1\n";
    assert!(text(&metrics).contains(counted), "{}", text(&metrics));
}

#[test]
fn time_of_a_release_command_is_measured_by_its_end() {
    let at = |seconds: u64| samples::app("shop", "test", "api").created_at.after(Duration::from_secs(seconds));
    let (_, deploy) = accepted("one");
    let outage = Default::default();
    let releasing = deploy.moved(State::Releasing { since: at(5), command: vec!["migrate".to_owned()], outage });
    let ended = |release, state| {
        let after = Deploy { release, updated_at: at(25), ..releasing.moved(state) };
        Phase::ended(&releasing, &after)
    };
    let took = Duration::from_secs(20);
    let done = |status| Some(Phase::Released(status, took));
    let rolling_out = State::RollingOut { since: at(25), outage };
    let superseded = State::Superseded { by: Revision::FIRST.next(), rollback: false, newer: None };
    assert_eq!(ended(Some(ReleaseMark::Done), rolling_out), done(Status::Succeeded));
    assert_eq!(ended(Some(ReleaseMark::Done), superseded.clone()), done(Status::Succeeded));
    assert_eq!(ended(None, superseded), done(Status::Superseded));
    assert_eq!(ended(Some(ReleaseMark::MayHaveRun), samples::failed()), done(Status::Failed));
    assert_eq!(ended(Some(ReleaseMark::MayHaveRun), releasing.state.clone()), None);
}

#[test]
fn deploys_are_under_way_where_they_are_driven() {
    let under_way = |replica: &str| {
        let progress = Progress::new("one");
        let (change, deploy) = accepted(replica);
        progress.seen(&change.state);
        let under_way = progress.under_way(deploy.created_at.after(Duration::from_secs(60)));
        let ended = recorded(change, samples::succeeded(), deploy.created_at);
        progress.seen(&ended.state);
        assert_eq!(progress.under_way(deploy.created_at).statuses, Vec::new());
        (under_way.statuses, under_way.oldest)
    };
    assert_eq!(under_way("one"), (vec![Status::Queued], Duration::from_secs(60)));
    assert_eq!(under_way("two"), (Vec::new(), Duration::ZERO), "the other replica shows it");
}

#[test]
fn disk_that_can_no_longer_be_seen_has_no_metrics() {
    let metrics = Metrics::new("one", 0);
    metrics.gauges().disk(Disk::Store, Some((DiskSpace { free: 1, size: 2, device: 3 }, false)));
    assert!(text(&metrics).contains("rollhook_disk_free_bytes{of=\"store\"} 1\n"), "{}", text(&metrics));
    assert!(text(&metrics).contains("rollhook_disk_low{of=\"store\"} 0\n"));
    metrics.gauges().disk(Disk::Store, None);
    assert!(!text(&metrics).contains("{of="), "{}", text(&metrics));
}

/// The deploy, which one check has passed.
fn verified(deploy: &Deploy) -> Deploy {
    let check = Check::new("errors".parse().unwrap(), "http".parse().unwrap(), Default::default());
    let mut verification = Verification::begin(&[check], deploy.created_at);
    verification.checks[0].verdict = Some(Verdict::Pass);
    Deploy { verification: Some(Box::new(verification)), ..deploy.clone() }
}

#[test]
fn verification_is_measured_apart_from_the_rollout() {
    let at = |seconds: u64| samples::app("shop", "test", "api").created_at.after(Duration::from_secs(seconds));
    let (_, deploy) = accepted("one");
    let rolling = deploy.moved(State::RollingOut { since: at(5), outage: Default::default() });
    let begun = |deploy: &Deploy| {
        let mut begun = verified(deploy);
        begun.verification.as_mut().unwrap().since = at(15);
        Deploy { updated_at: at(15), ..begun }
    };
    let verifying = begun(&rolling.moved(rolling.state.clone()));
    assert_eq!(Phase::ended(&rolling, &verifying), Some(Phase::RolledOut(Status::Succeeded, Duration::from_secs(10))));
    assert_eq!(Phase::ended(&verifying, &verifying.moved(verifying.state.clone())), None, "a measurement ends nothing");
    let failed = Deploy { updated_at: at(45), ..verifying.moved(samples::failed()) };
    assert_eq!(Phase::ended(&verifying, &failed), Some(Phase::Verified(Status::Failed, Duration::from_secs(30))));
    let skipped = Deploy { updated_at: at(15), ..begun(&rolling.moved(samples::succeeded())) };
    assert_eq!(Phase::ended(&rolling, &skipped), Some(Phase::RolledOut(Status::Succeeded, Duration::from_secs(10))));
}

/// A replica that has seen everything once.
fn of_everything() -> Metrics {
    let metrics = Metrics::new("one", 1);
    let (took, done) = (Duration::from_secs(1), Ok(Applied::Done));
    metrics.answered("/metrics", &Method::GET, 200, took);
    metrics.webhook_answered(202);
    metrics.auth_failed("/api/v1/apps");
    metrics.store("commit", &Ok(()), took);
    metrics.driver("apply", &done, took);
    metrics.source_read(&Ok(()));
    metrics.gauges().key_written(SystemTime::UNIX_EPOCH + took);
    metrics.gauges().disk(Disk::Images, Some((DiskSpace { free: 1, size: 2, device: 3 }, true)));
    let done = Status::Succeeded;
    for phase in [
        Phase::Queued(took),
        Phase::Built(done, took),
        Phase::Released(done, took),
        Phase::RolledOut(done, took),
        Phase::Verified(done, took),
    ] {
        metrics.phase_ended(phase);
    }
    let (change, deploy) = accepted("one");
    metrics.accepted(&change.state.app.id, change.state.app.uid, &deploy);
    metrics.ended(&change.state.app.id, change.state.app.uid, &verified(&deploy.moved(samples::succeeded())));
    metrics.gauges().under_way(&DeploysUnderWay::default());
    assert_eq!(deploy.revision, Revision::FIRST);
    metrics
}

/// The rows of a table of all metrics: name, type, labels and help.
fn rows(text: &str) -> Vec<String> {
    let mut kinds = BTreeMap::new();
    let mut helps = BTreeMap::new();
    for line in text.lines() {
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
            kinds.insert(name, kind);
        } else if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            helps.insert(name, help.trim_end_matches('.'));
        }
    }
    let row =
        |(name, kind): (&&str, &&str)| format!("| `{name}` | {kind} | {} | {} |", labels_of(text, name), helps[name]);
    kinds.iter().map(row).collect()
}

/// The label names of a metric's first sample.
fn labels_of(text: &str, name: &str) -> String {
    let sample = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    let labels = sample.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map_or("", |(labels, _)| labels);
    let names = labels.split("\",").filter_map(|label| label.split_once('=')).map(|(name, _)| name);
    names.filter(|name| *name != "le").map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}

#[test]
fn the_table_in_the_documentation_lists_all_metrics() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let page = fs::read_to_string(file).unwrap();
    let documented: Vec<&str> = page.lines().filter(|line| line.starts_with("| `rollhook_")).collect();
    let rows = rows(&text(&of_everything()));
    assert_eq!(documented, rows, "the table should be:\n{}", rows.join("\n"));
}
