//! The course of a rollout, as a function of the time since it began.

use std::{collections::BTreeMap, time::Duration};

use rollhook_core::{
    deploy::Reason,
    image::{Digest, ImageRef},
    ports::{PastLives, RolloutFailure, RolloutFailureKind},
};

use crate::sha256;

/// The time between restarts of a crashing container.
pub(super) const RESTART_EVERY: Duration = Duration::from_secs(10);

/// The course of a rollout of an image.
///
/// The default is a rollout that completes after the cluster's delay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Script {
    /// The time until it completes or fails; `None`: the cluster's delay.
    pub delay: Option<Duration>,
    /// The failure after the delay, in place of completion; its container defaults to the deploy's first.
    pub failure: Option<RolloutFailure>,
    /// The time after which the failure is over, so that the rollout completes.
    pub heals_after: Option<Duration>,
    /// Whether it neither completes nor fails.
    pub hangs: bool,
    /// The time from completion to the death of the containers: they restart at once, and are crash-looping after 10 s.
    pub dies_after: Option<Duration>,
    /// The time between restarts of ready containers, which are ready again at once; with `dies_after`, the first one
    /// comes after that time.
    pub restarts_every: Option<Duration>,
    /// Whether the old pods end before the new ones start.
    pub stops_first: bool,
    /// The time from completion to the end of the old pods, which terminate for as long.
    pub terminates_for: Duration,
}

impl Script {
    /// Returns a rollout that completes.
    pub fn completes() -> Self {
        Self::default()
    }

    /// Returns a rollout that never gets ready, without a failure.
    pub fn hangs() -> Self {
        Self { hangs: true, ..Self::default() }
    }

    /// Returns a rollout whose image cannot be pulled.
    pub fn missing() -> Self {
        Self::fails(RolloutFailureKind::Final, "ImagePullBackOff", "the image cannot be pulled: manifest unknown")
    }

    /// Returns a rollout whose container crashes again and again.
    pub fn crashes() -> Self {
        Self::fails(
            RolloutFailureKind::Crash,
            "CrashLoopBackOff",
            "the container exits with code 1 right after its start",
        )
    }

    /// Returns a rollout that completes, and dies this long after.
    pub fn dies_after(time: Duration) -> Self {
        Self { dies_after: Some(time), ..Self::default() }
    }

    /// Returns a rollout that completes, and restarts this often from then on.
    pub fn restarts_every(time: Duration) -> Self {
        Self { restarts_every: Some(time), ..Self::default() }
    }

    /// Returns a rollout that completes, dies this long after, and again after each further life of this length.
    pub fn relapses(first: Duration, every: Duration) -> Self {
        Self { dies_after: Some(first), restarts_every: Some(every), ..Self::default() }
    }

    /// Returns a rollout that fails so, in the deploy's first container.
    pub fn fails(kind: RolloutFailureKind, reason: &str, message: &str) -> Self {
        let failure =
            RolloutFailure { kind, reason: Reason::new(reason), container: None, message: message.to_owned() };
        Self { failure: Some(failure), ..Self::default() }
    }

    /// The same, after this delay.
    #[must_use]
    pub fn after(self, delay: Duration) -> Self {
        Self { delay: Some(delay), ..self }
    }

    /// The same, for which the old pods have to end first.
    #[must_use]
    pub fn stopping_first(self) -> Self {
        Self { stops_first: true, ..self }
    }

    /// The same, whose old pods terminate for this long after completion.
    #[must_use]
    pub fn terminating_for(self, time: Duration) -> Self {
        Self { terminates_for: time, ..self }
    }

    /// The same, healed this long after the failure began.
    #[must_use]
    pub fn healing_after(self, time: Duration) -> Self {
        Self { heals_after: Some(time), ..self }
    }
}

/// The state of a rollout at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Scene {
    pub(super) ready: u32,
    pub(super) complete: bool,
    pub(super) restarts: u32,
    /// The past lives of a pod, which has no name here.
    pub(super) past_lives: Option<PastLives>,
    /// For how long none has served.
    pub(super) down_for: Option<Duration>,
    pub(super) failure: Option<RolloutFailure>,
    /// Whether old pods still terminate.
    pub(super) terminates: bool,
    /// The time until the next change.
    pub(super) next: Option<Duration>,
}

impl Script {
    /// Returns the state of a workload of `pods` pods after `age`.
    pub(super) fn scene(&self, age: Duration, pods: u32, default_delay: Duration) -> Scene {
        let scene = self.at(age, pods, default_delay);
        let down_for = (self.stops_first && scene.ready == 0).then_some(age);
        let ended_at = self.delay.unwrap_or(default_delay) + self.terminates_for;
        let terminates_for = ended_at.checked_sub(age).filter(|left| scene.complete && !left.is_zero());
        let next = scene.next.into_iter().chain(terminates_for).min();
        Scene { down_for, terminates: terminates_for.is_some(), next, ..scene }
    }

    fn at(&self, age: Duration, pods: u32, default_delay: Duration) -> Scene {
        let delay = self.delay.unwrap_or(default_delay);
        if pods == 0 {
            let next = delay.checked_sub(age).filter(|left| !left.is_zero());
            return Scene { complete: next.is_none(), next, ..Scene::default() };
        }
        if self.hangs {
            return Scene::default();
        }
        if age < delay {
            return starting(age, delay, if self.failure.is_some() { 0 } else { pods });
        }
        let past = age - delay;
        let Some(failure) = &self.failure else { return self.running(past, pods, delay) };
        let is_crash = failure.kind == RolloutFailureKind::Crash;
        match self.heals_after.filter(|heals| past >= *heals) {
            None => {
                let restart = is_crash.then(|| RESTART_EVERY - remainder(past));
                Scene {
                    failure: Some(failure.clone()),
                    next: restart.into_iter().chain(self.heals_after.map(|heals| heals - past)).min(),
                    ..if is_crash { crashed(past, past) } else { Scene::default() }
                }
            }
            Some(heals) if is_crash => Scene { ready: pods, complete: true, ..crashed(heals, past) },
            Some(_) => self.running(past, pods, delay),
        }
    }

    /// Returns the number of old pods that a rollout of this age has ended: one for each of its own that was ever ready,
    /// or all where they have to end first.
    pub(super) fn replaced(&self, age: Duration, pods: u32, default_delay: Duration) -> u32 {
        let delay = self.delay.unwrap_or(default_delay);
        let has_failed = |past: Duration| self.failure.is_some() && self.heals_after.is_none_or(|heals| past < heals);
        match age.checked_sub(delay) {
            _ if self.stops_first => pods,
            _ if self.hangs => 0,
            Some(past) if has_failed(past) => 0,
            Some(_) => pods,
            None => self.scene(age, pods, default_delay).ready,
        }
    }

    fn running(&self, past: Duration, pods: u32, delay: Duration) -> Scene {
        let complete = Scene { ready: pods, complete: true, ..Scene::default() };
        let Some(first) = self.dies_after.or(self.restarts_every) else { return complete };
        let Some(dead) = past.checked_sub(first) else { return Scene { next: Some(first - past), ..complete } };
        let every = self.restarts_every.unwrap_or(RESTART_EVERY);
        let again = count(dead, every);
        let next = Some(every * (again + 1) - dead);
        let last = if again == 0 { delay + first } else { every };
        let lives = lives(again + 1, last, delay + first + every * again, dead - every * again);
        let restarted = Scene { restarts: again + 1, past_lives: Some(lives), next, ..complete };
        if self.restarts_every.is_some() || dead < RESTART_EVERY {
            return restarted;
        }
        Scene { ready: 0, complete: false, failure: Self::crashes().failure, ..restarted }
    }
}

/// The state of a container that has ended right after each start until `until`, seen at `past`.
fn crashed(until: Duration, past: Duration) -> Scene {
    let restarts = restarts(until);
    let lives = lives(1 + restarts, Duration::ZERO, RESTART_EVERY * restarts, past - RESTART_EVERY * restarts);
    Scene { restarts: 1 + restarts, past_lives: Some(lives), ..Scene::default() }
}

fn lives(count: u32, last: Duration, all: Duration, ended_ago: Duration) -> PastLives {
    PastLives { instance: String::new(), count, last, all, ended_ago }
}

/// Pods get ready one after the other, evenly over the delay, the last one at its end.
fn starting(age: Duration, delay: Duration, pods: u32) -> Scene {
    let ready = u32::try_from(age.as_millis() * u128::from(pods) / delay.as_millis().max(1)).unwrap_or(0);
    let next_ready = if pods == 0 { delay } else { delay * (ready + 1) / pods };
    let next = next_ready.min(delay).saturating_sub(age).max(Duration::from_millis(1));
    Scene { ready, next: Some(next), ..Scene::default() }
}

fn restarts(crashing_for: Duration) -> u32 {
    count(crashing_for, RESTART_EVERY)
}

fn count(time: Duration, every: Duration) -> u32 {
    u32::try_from(time.as_millis() / every.as_millis().max(1)).unwrap_or(u32::MAX - 1)
}

fn remainder(crashing_for: Duration) -> Duration {
    crashing_for - RESTART_EVERY * restarts(crashing_for)
}

/// The scripts of images, and the digests of their tags.
#[derive(Default)]
pub(super) struct Scripts {
    /// Pattern and script; the last that fits counts.
    given: Vec<(String, Script)>,
    /// The number of pushes to a name.
    pushes: BTreeMap<String, u64>,
}

impl Scripts {
    pub(super) fn add(&mut self, pattern: &str, script: Script) {
        self.given.retain(|(known, _)| known != pattern);
        self.given.push((pattern.to_owned(), script));
    }

    pub(super) fn of(&self, image: &ImageRef, digest: &Digest) -> Script {
        let name = name(image);
        let fits = |pattern: &str| pattern == digest.as_str() || name.contains(pattern);
        if let Some((_, script)) = self.given.iter().rev().find(|(pattern, _)| fits(pattern)) {
            return script.clone();
        }
        match ["missing", "crash", "hang"].into_iter().find(|word| fits(word)) {
            Some("missing") => Script::missing(),
            Some("crash") => Script::crashes(),
            Some(_) => Script::hangs(),
            None => Script::completes(),
        }
    }

    pub(super) fn push(&mut self, image: &ImageRef) -> Digest {
        let name = name(image);
        let pushed = self.pushes.entry(name.clone()).or_default();
        *pushed += 1;
        made_up(&name, *pushed)
    }

    pub(super) fn digest(&self, image: &ImageRef) -> Digest {
        let name = name(image);
        image.digest().cloned().unwrap_or_else(|| made_up(&name, self.pushes.get(&name).copied().unwrap_or_default()))
    }
}

/// Returns the full name of an image, without its digest.
fn name(image: &ImageRef) -> String {
    match image.tag() {
        Some(tag) => format!("{}:{tag}", image.canonical_repository()),
        None => image.canonical_repository(),
    }
}

#[expect(clippy::expect_used, reason = "64 hexadecimal digits are a digest")]
fn made_up(name: &str, generation: u64) -> Digest {
    format!("sha256:{}", sha256(&format!("{name} {generation}"))).parse().expect("64 hexadecimal digits are a digest")
}
