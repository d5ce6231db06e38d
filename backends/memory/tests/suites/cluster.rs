//! The courses of the simulated cluster's scripts, step by step.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;
use rollhook_conformance::{ManualClock, block_on, samples};
use rollhook_core::{
    app::{AppId, AppUid},
    deploy::Reason,
    image::ImageRef,
    ports::{Applied, DeployId, Observation, Phase, RolloutDriver, RolloutFailureKind, RolloutSpec},
};
use rollhook_memory::{Script, SimulatedCluster};

struct Bench {
    clock: Arc<ManualClock>,
    cluster: SimulatedCluster,
    app: AppId,
}

impl Bench {
    /// A cluster with a workload of two pods, whose rollouts take four seconds.
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let cluster = SimulatedCluster::new(clock.clone(), Duration::from_secs(4));
        let app = samples::app("shop", "test", "api").id;
        cluster.seed(&app, &samples::target("api"), &samples::image("v0"));
        Self { clock, cluster, app }
    }

    fn order(&self, revision: u64, image: ImageRef) -> RolloutSpec {
        let id = DeployId { app: AppUid::from_bits(1), revision: samples::revision(revision) };
        RolloutSpec::new(self.app.clone(), id, samples::target("api"), image)
    }

    fn applied(&self, revision: u64, image: ImageRef) -> RolloutSpec {
        let order = self.order(revision, image);
        assert_eq!(block_on(self.cluster.apply(&order)).unwrap(), Applied::Done);
        order
    }

    fn see(&self, order: &RolloutSpec) -> Observation {
        block_on(self.cluster.observe(order)).unwrap()
    }

    fn digest(&self, order: &RolloutSpec) -> String {
        match self.see(order).phase {
            Phase::Complete { digest, .. } => digest.unwrap().to_string(),
            Phase::Progressing => panic!("not complete"),
        }
    }

    fn after(&self, seconds: u64) {
        self.clock.advance(Duration::from_secs(seconds));
    }
}

fn is_complete(seen: &Observation) -> bool {
    matches!(seen.phase, Phase::Complete { .. })
}

#[test]
fn pods_get_ready_one_by_one() {
    let bench = Bench::new();
    let order = bench.applied(1, samples::image("v1"));
    let mut progress = Vec::new();
    for _ in 0..5 {
        let seen = bench.see(&order);
        progress.push((seen.progress.clone(), is_complete(&seen)));
        bench.after(1);
    }
    let expected = [("0/2", false), ("0/2", false), ("1/2", false), ("1/2", false), ("2/2", true)];
    assert_eq!(progress, expected.map(|(text, complete)| (text.to_owned(), complete)));
}

#[test]
fn words_in_an_image_choose_its_script() {
    let bench = Bench::new();
    for (revision, tag, kind) in
        [(1, "is-missing", RolloutFailureKind::Final), (2, "crashes", RolloutFailureKind::Crash)]
    {
        let order = bench.applied(revision, samples::image(tag));
        assert_eq!(bench.see(&order).failure, None, "not before the delay");
        bench.after(4);
        let failure = bench.see(&order).failure.unwrap();
        assert_eq!((failure.kind, failure.container.as_deref()), (kind, Some("app")));
    }
    let order = bench.applied(3, samples::image("hanging"));
    bench.after(3600);
    let seen = bench.see(&order);
    assert!(!is_complete(&seen) && seen.failure.is_none() && seen.progress == "0/2", "{seen:?}");
}

#[test]
fn a_crash_counts_restarts() {
    let bench = Bench::new();
    let order = bench.applied(1, samples::image("crash"));
    bench.after(4);
    assert_eq!(bench.see(&order).restarts, 1);
    bench.after(25);
    assert_eq!(bench.see(&order).restarts, 3);
    let failure = bench.see(&order).failure;
    let evidence = block_on(bench.cluster.evidence(&order, failure.as_ref())).unwrap();
    assert_eq!(evidence.state.as_deref(), Some("waiting: CrashLoopBackOff"));
    assert!(!evidence.log.is_empty() && !evidence.events.is_empty());
}

#[test]
fn one_that_dies_after_completing_is_seen_to() {
    let bench = Bench::new();
    bench.cluster.script("v1", Script::dies_after(Duration::from_secs(3)));
    let order = bench.applied(1, samples::image("v1"));
    bench.after(6);
    let seen = bench.see(&order);
    assert!(is_complete(&seen) && seen.restarts == 0, "{seen:?}");
    bench.after(1);
    let seen = bench.see(&order);
    assert!(is_complete(&seen) && seen.restarts == 1, "without a readiness probe it counts as available: {seen:?}");
    bench.after(10);
    let seen = bench.see(&order);
    assert!(!is_complete(&seen) && seen.failure.is_some_and(|failure| failure.kind == RolloutFailureKind::Crash));
}

#[test]
fn trouble_may_heal() {
    let bench = Bench::new();
    bench.cluster.script("flaky", Script::missing().after(Duration::ZERO).healing_after(Duration::from_secs(5)));
    let order = bench.applied(1, samples::image("flaky"));
    assert!(bench.see(&order).failure.is_some());
    bench.after(5);
    assert!(is_complete(&bench.see(&order)));
}

#[test]
fn a_tag_moves_and_a_digest_stays() {
    let bench = Bench::new();
    let latest = samples::image("latest");
    let first = bench.applied(1, latest.clone());
    bench.after(4);
    let good = bench.digest(&first);
    let pushed = bench.cluster.push(&latest);
    bench.cluster.script(pushed.as_str(), Script::crashes());
    assert_eq!(bench.digest(&first), good, "what runs keeps its bits");

    let second = bench.applied(2, latest.clone());
    bench.after(4);
    assert!(bench.see(&second).failure.is_some(), "the same tag, other bits");
    let third = bench.applied(3, latest.pinned(good.parse().unwrap()));
    bench.after(4);
    assert_eq!(bench.digest(&third), good);
}

#[test]
fn rollouts_go_on_while_nobody_can_see_them() {
    let bench = Bench::new();
    let order = bench.applied(1, samples::image("v1"));
    bench.cluster.set_reachable(false);
    bench.after(4);
    assert!(block_on(bench.cluster.observe(&order)).is_err_and(|error| error.is_unavailable()));
    bench.cluster.set_reachable(true);
    assert!(is_complete(&bench.see(&order)));
}

#[test]
fn changed_returns_at_the_next_moment_and_when_somebody_acts() {
    let bench = Bench::new();
    let order = bench.applied(1, samples::image("v1"));
    let mut changed = bench.cluster.changed(&order);
    assert!(changed.as_mut().now_or_never().is_none());
    bench.after(1);
    assert!(changed.as_mut().now_or_never().is_none(), "nothing to be seen yet");
    bench.after(1);
    assert!(changed.now_or_never().is_some(), "a pod got ready");
    bench.after(2);
    let mut changed = bench.cluster.changed(&order);
    bench.after(3600);
    assert!(changed.as_mut().now_or_never().is_none(), "all is done");
    bench.applied(2, samples::image("v2"));
    assert!(changed.now_or_never().is_some(), "another order came");
}

#[test]
fn others_meddle() {
    let bench = Bench::new();
    let target = samples::target("api");
    let order = bench.applied(1, samples::image("v1"));
    assert!(bench.cluster.meddle(&bench.app, &target, &samples::image("v0")));
    let seen = bench.see(&order);
    assert_eq!(seen.failure.unwrap().reason.as_str(), Reason::REVERTED);
    assert!(!is_complete(&bench.see(&order)));

    let order = bench.applied(2, samples::image("v2"));
    assert!(bench.cluster.scale(&bench.app, &target, 0));
    bench.after(4);
    assert!(matches!(bench.see(&order).phase, Phase::Complete { digest: None, note: Some(_) }));

    assert!(bench.cluster.set_unsupported(&bench.app, &target, Some("its update strategy is OnDelete")));
    let refused = bench.order(3, samples::image("v3"));
    let answer = block_on(bench.cluster.apply(&refused)).unwrap();
    assert!(matches!(answer, Applied::Refused { .. }), "{answer:?}");

    assert!(bench.cluster.delete(&bench.app, &target));
    assert_eq!(bench.see(&order).failure.unwrap().reason.as_str(), Reason::TARGET_MISSING);
}

#[test]
fn effects_and_refusals_are_remembered_in_order() {
    let bench = Bench::new();
    let two = bench.applied(2, samples::image("v2"));
    bench.after(1);
    bench.applied(2, samples::image("v2"));
    let one = bench.order(1, samples::image("v1"));
    let answer = block_on(bench.cluster.apply(&one)).unwrap();
    assert_eq!(answer, Applied::Newer(two.id.revision));
    let three = bench.applied(3, samples::image("v3"));
    let effects = bench.cluster.effects_on(&bench.app, &samples::target("api"));
    let seen: Vec<_> = effects.iter().map(|effect| (effect.stamp, effect.at.as_secs())).collect();
    assert_eq!(seen, [(two.id, 0), (three.id, 1)]);
    assert_eq!(bench.cluster.effects(), effects);
    let [refused] = &bench.cluster.refused()[..] else { panic!("one was refused") };
    assert_eq!((refused.stamp, &refused.answer), (one.id, &answer));
}
