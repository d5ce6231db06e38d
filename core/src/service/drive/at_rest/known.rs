//! The known conditions of apps at rest, and the apps to be looked at.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use event_listener::{Event, EventListener};
use futures_util::lock;

use super::{Condition, next_looks::NextLooks};
use crate::{
    app::{App, AppUid, Target},
    engine::health::Health,
    ports::{AtRest, RolloutSpec},
    service::read::SharedValues,
    text,
    time::Timestamp,
};

/// The least time between two looks at an app, however often it changes.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// The time for which callers that ask for an app's condition are answered by the last look, unless a change was reported
/// since.
const ANSWERED_FOR: Duration = Duration::from_millis(500);
/// The pause before an app that is being deployed is looked at again, unless its deploy ends here.
const UNDER_WAY: Duration = Duration::from_secs(60);
/// The pause before a look that failed is repeated.
const RETRY: Duration = Duration::from_secs(30);

/// The known conditions of apps, and the apps to be looked at.
#[derive(Default)]
pub(crate) struct KnownConditions {
    state: Mutex<State>,
    /// The locks of looks: one at an app at a time.
    locks: SharedValues<AppUid, lock::Mutex<()>>,
    arrived: Event,
    /// Wakes the follower of observations, if there is one.
    observed: Event,
}

#[derive(Default)]
struct State {
    /// Whether the rollout driver reads targets at rest, and this process looks at them.
    watching: bool,
    next_looks: NextLooks,
    /// The apps that have their turn: they wait for a look or are looked at. `true`: another look follows.
    turns: BTreeMap<AppUid, bool>,
    /// The apps that were looked at.
    apps: BTreeMap<AppUid, Looked>,
    /// The apps of which a change was reported since the last look at them began.
    changed: BTreeSet<AppUid>,
    /// The times of looks that failed, as long as another one would follow too soon.
    failed: BTreeMap<AppUid, Duration>,
    /// The apps that were looked at since the follower last took them; `None` without a follower.
    unseen: Option<BTreeSet<AppUid>>,
}

/// The last look at an app.
#[derive(Default)]
struct Looked {
    at: Duration,
    /// Whether a deploy was under way, whose driver looks at the target.
    is_aside: bool,
    /// The mark of the deploy after which the target was looked at.
    after: Option<[u8; 32]>,
    health: Option<Health>,
    /// The mark of the target that was last looked at.
    target: Option<[u8; 32]>,
    /// Whether the health is that of the deploy's own instances, rather than of a version before that serves on.
    is_of_deploy: bool,
    condition: Condition,
}

impl State {
    /// Returns the earliest time of the next look at an app.
    fn rests_until(&self, app: AppUid) -> Duration {
        let last = self.apps.get(&app).map(|looked| looked.at).max(self.failed.get(&app).copied());
        last.map_or(Duration::ZERO, |last| last + LOOK_INTERVAL)
    }
}

impl KnownConditions {
    /// Begins to have apps looked at: also those whose turn another run has left.
    pub(super) fn begin(&self) {
        let state = &mut *self.lock();
        state.watching = true;
        for app in std::mem::take(&mut state.turns).into_keys() {
            state.next_looks.put(app, Duration::ZERO);
        }
    }

    /// Has an app looked at, if this process looks at apps.
    pub(crate) fn put(&self, app: AppUid) {
        self.put_at(app, Duration::ZERO);
    }

    /// Queues a look at an app whose target has changed, as the rollout driver reports, unless a deploy is under way.
    pub(super) fn put_changed(&self, app: AppUid) {
        let mut state = self.lock();
        if !state.apps.get(&app).is_some_and(|looked| looked.is_aside) {
            state.changed.insert(app);
            drop(state);
            self.put(app);
        }
    }

    /// Has an app looked at that was not looked at before.
    pub(crate) fn put_new(&self, app: AppUid) {
        if !self.is_known(app) {
            self.put(app);
        }
    }

    /// Has an app looked at again.
    pub(super) fn put_later(&self, app: AppUid, now: Duration) {
        self.put_at(app, now + RETRY);
    }

    /// Notes that a look at an app failed, and has it looked at again.
    pub(super) fn note_failure(&self, app: AppUid, now: Duration) {
        let mut state = self.lock();
        state.failed.retain(|_, at| now < *at + LOOK_INTERVAL);
        state.failed.insert(app, now);
        drop(state);
        self.put_later(app, now);
    }

    /// Returns the lock of looks at an app.
    pub(super) fn lock_of(&self, app: AppUid) -> Arc<lock::Mutex<()>> {
        self.locks.of(app)
    }

    /// Returns whether the target is another than at the last look.
    pub(super) fn has_moved(&self, app: AppUid, target: &Target) -> bool {
        let before = self.lock().apps.get(&app).and_then(|looked| looked.target);
        before.is_some_and(|before| before != mark_of_target(target))
    }

    /// Returns what a look has just found after this deploy, which may have failed; what was known if that look failed.
    /// `None`: the app is to be looked at.
    pub(super) fn recent(&self, app: AppUid, after: (&RolloutSpec, bool), now: Duration) -> Option<Condition> {
        let state = &mut *self.lock();
        let looked = state.apps.get(&app);
        if state.failed.get(&app).is_some_and(|at| now < *at + LOOK_INTERVAL) {
            return Some(looked.map(|looked| looked.condition.clone()).unwrap_or_default());
        }
        let is_good = |looked: &&Looked| now < looked.at + ANSWERED_FOR && looked.after == Some(mark(after));
        match looked.filter(is_good) {
            Some(looked) if !state.changed.contains(&app) => Some(looked.condition.clone()),
            Some(_) | None => {
                state.changed.remove(&app);
                None
            }
        }
    }

    fn put_at(&self, app: AppUid, at: Duration) {
        let state = &mut *self.lock();
        if state.watching && state.next_looks.put(app, at.max(state.rests_until(app))) {
            self.arrived.notify(usize::MAX);
        }
    }

    pub(super) fn is_known(&self, app: AppUid) -> bool {
        self.lock().apps.contains_key(&app)
    }

    pub(super) fn listen(&self) -> EventListener {
        self.arrived.listen()
    }

    /// Returns the time of the next look.
    pub(super) fn next_due(&self) -> Option<Duration> {
        self.lock().next_looks.first()
    }

    /// Takes the apps that are to be looked at now: each has its turn from now on. One that has its turn already is looked at
    /// once more after it.
    pub(super) fn take_due(&self, now: Duration) -> Vec<AppUid> {
        let state = &mut *self.lock();
        let mut taken = Vec::new();
        while let Some(app) = state.next_looks.take(now) {
            let rests_until = state.rests_until(app);
            if rests_until > now {
                state.next_looks.put(app, rests_until);
                continue;
            }
            match state.turns.entry(app) {
                Entry::Occupied(mut follows) => drop(follows.insert(true)),
                Entry::Vacant(turn) => {
                    turn.insert(false);
                    taken.push(app);
                }
            }
        }
        taken
    }

    /// Notes that an app's turn has ended.
    pub(super) fn turn_ended(&self, app: AppUid) {
        let state = &mut *self.lock();
        if state.turns.remove(&app) == Some(true) {
            state.next_looks.put(app, Duration::ZERO);
        }
    }

    /// Returns the last condition of an app; `None` if it was not looked at.
    pub(super) fn of(&self, app: AppUid) -> Option<Condition> {
        self.lock().apps.get(&app).map(|looked| looked.condition.clone())
    }

    pub(super) fn count(&self, is_counted: impl Fn(&Condition) -> bool) -> usize {
        self.lock().apps.values().filter(|looked| is_counted(&looked.condition)).count()
    }

    /// Notes how an app's target was found after this deploy, which may have failed, and logs what is news. Returns the app's
    /// condition.
    pub(super) fn note(
        &self,
        app: &App,
        (spec, has_failed): (&RolloutSpec, bool),
        found: AtRest,
        (now, time): (Duration, Timestamp),
    ) -> Condition {
        let state = &mut *self.lock();
        state.failed.remove(&app.uid);
        let looked = state.apps.entry(app.uid).or_default();
        let (revision, is_of_deploy) = (spec.id.revision, found.is_of(spec));
        let AtRest { image, drift, seen, references } = found;
        let is_same = looked.is_of_deploy == is_of_deploy && drift.is_none();
        let known = looked.health.take().filter(|health| health.revision == revision && is_same);
        let mut health = known.unwrap_or_else(|| Health::new(revision));
        // A newer deploy has begun, and is shown as such.
        let is_outdated = seen.deploy.is_some_and(|id| id.app == app.uid && id.revision > revision);
        if drift.is_none() && !is_outdated {
            health.observed(&seen, &app.policy, now, time);
        }
        // The failure tells of the deploy's own instances, and not of those that serve in place of them.
        let degraded = health.degraded().filter(|_| !(has_failed && is_of_deploy)).cloned();
        let is_proven = health.is_proven(now);
        let condition = Condition { image, drift, degraded, is_proven, workloads: seen.workloads, references };
        log_news(app, &looked.condition, &condition);
        let (due, health) = (health.due(now), Some(health));
        let after = Some(mark((spec, has_failed)));
        *looked = Looked {
            at: now,
            is_aside: false,
            after,
            health,
            target: Some(mark_of_target(&spec.target)),
            is_of_deploy,
            condition: condition.clone(),
        };
        // A process that does not look at apps yet may do so later.
        if due.is_some_and(|due| state.next_looks.put(app.uid, due)) {
            self.arrived.notify(usize::MAX);
        }
        if let Some(unseen) = &mut state.unseen {
            unseen.insert(app.uid);
            self.observed.notify(usize::MAX);
        }
        condition
    }

    /// What was known of an app's target is over. While a deploy is under way, the app is looked at again now and then:
    /// another process may drive it, and its end may change nothing on the target.
    pub(super) fn set_aside(&self, app: AppUid, is_under_way: bool, now: Duration) {
        if !is_under_way {
            // Its first deploy is still to come: that change has it looked at.
            self.lock().apps.remove(&app);
            return;
        }
        let mut state = self.lock();
        let target = state.apps.get(&app).and_then(|looked| looked.target);
        state.apps.insert(app, Looked { at: now, is_aside: true, target, ..Looked::default() });
        drop(state);
        self.put_at(app, now + UNDER_WAY);
    }

    /// Forgets an app that is gone. A look at it that is under way would note it anew, so that another one follows, which finds
    /// no app.
    pub(crate) fn forget(&self, app: AppUid, now: Duration) {
        let mut state = self.lock();
        state.apps.remove(&app);
        state.changed.remove(&app);
        state.next_looks.remove(app);
        state.turns.entry(app).and_modify(|follows| *follows = false);
        state.failed.remove(&app);
        drop(state);
        if self.locks.get(&app).is_some() {
            self.put_later(app, now);
        }
    }

    pub(super) fn take_observed(&self) -> BTreeSet<AppUid> {
        self.lock().unseen.replace(BTreeSet::new()).unwrap_or_default()
    }

    pub(super) fn forget_observed(&self) {
        self.lock().unseen = None;
    }

    pub(super) fn observed(&self) -> EventListener {
        self.observed.listen()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns a mark that is the same for the same deploy, target and outcome: to keep them for each app would take memory.
fn mark((spec, has_failed): (&RolloutSpec, bool)) -> [u8; 32] {
    text::hash_of([format!("{spec:?}").as_str(), if has_failed { "failed" } else { "" }])
}

fn mark_of_target(target: &Target) -> [u8; 32] {
    text::hash_of([format!("{:?}", target.settings).as_str()])
}

/// Logs the begin and the end of drift and of trouble, a line each.
fn log_news(app: &App, before: &Condition, condition: &Condition) {
    match (&before.drift, &condition.drift) {
        (before, Some(drift)) if before.as_ref() != Some(drift) => {
            let image = drift.image.as_ref().map(ToString::to_string);
            tracing::warn!(app = %app.id, image, detail = drift.message, "found drift: another party changed the target");
        }
        (Some(_), None) => tracing::info!(app = %app.id, "drift ended: the target is as its current deploy left it"),
        (_, Some(_)) | (None, None) => {}
    }
    match (&before.degraded, &condition.degraded) {
        (None, Some(degraded)) => {
            let (reason, detail) = (&degraded.reason, &degraded.message);
            tracing::warn!(app = %app.id, %reason, detail, "an app is degraded: its instances do not run as they should");
        }
        (Some(_), None) => tracing::info!(app = %app.id, "an app is degraded no more"),
        (Some(_), Some(_)) | (None, None) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        app::Policy,
        ports::{DeployId, Observation, Phase},
        tests::{NOW, git_app, revision},
    };

    #[test]
    fn app_that_waits_for_its_turn_is_looked_at_again_after_it() {
        let [one, two] = [1, 2].map(AppUid::from_bits);
        let known = KnownConditions::default();
        known.begin();
        known.put(one);
        known.put_later(two, Duration::ZERO);
        let at = Duration::from_secs;
        assert_eq!(known.take_due(at(1)), [one]);
        known.put(one);
        assert!(known.take_due(at(1)).is_empty(), "its turn has not ended");
        assert_eq!(known.next_due(), Some(RETRY), "the other app's");
        known.turn_ended(one);
        assert_eq!(known.take_due(at(1)), [one]);
        known.turn_ended(one);
        assert_eq!(known.take_due(RETRY), [two]);
        assert_eq!(known.next_due(), None);
    }

    #[test]
    fn app_that_was_just_looked_at_rests() {
        let one = AppUid::from_bits(1);
        let known = KnownConditions::default();
        known.begin();
        known.note_failure(one, Duration::ZERO);
        known.put(one);
        assert!(known.take_due(Duration::ZERO).is_empty());
        assert_eq!(known.next_due(), Some(LOOK_INTERVAL));
        assert_eq!(known.take_due(LOOK_INTERVAL), [one]);
    }

    #[test]
    fn apps_that_are_due_later_are_left() {
        let known = KnownConditions::default();
        known.begin();
        for number in 0..100_000 {
            known.put_later(AppUid::from_bits(number), Duration::from_secs(1));
        }
        known.put(AppUid::from_bits(7));
        assert_eq!(known.take_due(Duration::from_secs(1)), [AppUid::from_bits(7)]);
        assert!(known.take_due(Duration::from_secs(1)).is_empty());
    }

    #[test]
    fn app_whose_turn_another_run_has_left_is_looked_at() {
        let one = AppUid::from_bits(1);
        let known = KnownConditions::default();
        known.begin();
        known.put(one);
        assert_eq!(known.take_due(Duration::ZERO), [one]);
        known.begin();
        assert_eq!(known.take_due(Duration::ZERO), [one]);
    }

    #[test]
    fn app_that_goes_while_it_is_looked_at_is_looked_for_once_more() {
        let one = AppUid::from_bits(1);
        let known = KnownConditions::default();
        known.begin();
        known.put(one);
        assert_eq!(known.take_due(Duration::ZERO), [one]);
        let lock = known.lock_of(one);
        known.put(one);
        known.forget(one, Duration::ZERO);
        drop(lock);
        known.turn_ended(one);
        assert!(known.take_due(Duration::from_secs(1)).is_empty());
        assert_eq!(known.take_due(RETRY), [one]);
        known.forget(one, RETRY);
        assert_eq!(known.next_due(), None);
    }

    #[test]
    fn version_before_that_serves_on_has_a_health_of_its_own() {
        let app = git_app(1, Policy::default());
        let id = |number| Some(DeployId { app: app.uid, revision: revision(number) });
        let image = "registry.example.com/api:v2".parse().unwrap();
        let spec = RolloutSpec::new(app.id.clone(), id(2).unwrap(), app.target.clone(), image);
        let known = KnownConditions::default();
        let look = |seconds, deploy, phase: Phase| {
            let found = AtRest::new(None, Observation::new(deploy, phase, "", ""));
            known.note(&app, (&spec, true), found, (Duration::from_secs(seconds), NOW))
        };
        let complete = Phase::Complete { digest: None, note: None };
        assert!(!look(0, id(1), complete.clone()).is_proven && look(600, id(1), complete.clone()).is_proven);
        assert!(!look(700, id(2), complete.clone()).is_proven, "the deploy's own instances run since now");
        assert!(look(1300, id(2), complete).is_proven);
        let is_degraded = |seconds, deploy| look(seconds, deploy, Phase::Progressing).degraded.is_some();
        assert!(!is_degraded(1400, id(2)) && !is_degraded(2000, id(2)), "its failure tells of it");
        assert!(!is_degraded(2100, id(1)) && is_degraded(2700, id(1)), "nothing else tells of what serves");
    }
}
