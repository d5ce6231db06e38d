//! The driver: performs what the engine says, as the service does, with the weather for a cluster.

use rollhook_core::{
    app::{AppUid, OnFailure},
    deploy::{Actor, Deploy, Evidence, Reason, Revision, Status, Trigger},
    engine::{CallError, Effect, Event, State, step},
    image::{Digest, ImageRef},
    ledger::{
        Admission, Admitted, ExpectedLatest, KeyLookup, Record, Refused,
        restore::{self, Owed},
        rollback,
    },
    ports::{Applied, DeployId, Observation, PastLives, Phase, RolloutFailure, RolloutSpec},
    request::Cause,
    time::Timestamp,
};

use crate::{
    choices::{Call, Few, Ill, Image, Weather},
    world::World,
};

/// What the driver does while nothing happens.
#[derive(Debug)]
pub(crate) enum Waiting {
    /// It looks at the cluster by then at the latest.
    Watch(Box<RolloutSpec>, Timestamp),
    Wait(Timestamp),
    /// Nothing is left to do.
    Rest,
}

/// More effects than these without a pause are a loop.
const EFFECTS_MAX: usize = 64;

impl World {
    /// A driver reads the app: the one that runs, or a new one.
    pub(crate) fn read(&mut self) {
        let view = self.view();
        if self.driver.is_none() {
            self.driver = Some(State::new(view.clone(), self.now()));
        }
        self.fresh = true;
        self.drive(Event::Loaded(Box::new(view)));
    }

    pub(crate) fn pass(&mut self, millis: i64) {
        self.later(millis);
        match std::mem::replace(&mut self.waiting, Waiting::Rest) {
            Waiting::Watch(order, _) => {
                let seen = self.look(&order);
                self.drive(Event::Observed(seen));
            }
            Waiting::Wait(_) => self.drive(Event::Woke),
            Waiting::Rest => {}
        }
    }

    /// The cluster is well, nobody asks for anything: everything ends, and then nothing moves any more.
    pub(crate) fn ends(&mut self) {
        (self.weather, self.fuse, self.lose_answer) = (Weather::FAIR, None, false);
        self.driver = None;
        self.read();
        for _ in 0..100 {
            let until = match &self.waiting {
                Waiting::Watch(_, until) | Waiting::Wait(until) => *until,
                Waiting::Rest => break,
            };
            self.pass(until.as_millis() - self.now().as_millis());
            self.keeps_the_rules();
        }
        let history = self.history();
        assert!(matches!(self.waiting, Waiting::Rest), "it never ends: {:?}", self.waiting);
        assert!(history.iter().all(Deploy::is_terminal));
        self.driver = None;
        self.read();
        assert!(matches!(self.waiting, Waiting::Rest) && self.history() == history, "stepping again did something");
    }

    fn drive(&mut self, first: Event) {
        let mut event = first;
        for _ in 0..EFFECTS_MAX {
            let Some(state) = self.driver.take() else { return };
            let (state, effect) = step(state, event, self.now());
            let next = self.perform(&state, effect);
            if self.burnt() {
                return;
            }
            self.driver = Some(state);
            match next {
                Some(next) => event = next,
                None => return,
            }
        }
        panic!("the driver goes round in circles");
    }

    /// Whether the driver is killed now.
    fn burnt(&mut self) -> bool {
        match self.fuse {
            Some(0) => (self.fuse, self.waiting) = (None, Waiting::Rest),
            Some(left) => {
                self.fuse = Some(left - 1);
                return false;
            }
            None => return false,
        }
        true
    }

    fn perform(&mut self, state: &State, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Record(record) => return Some(self.record(record)),
            Effect::Apply(order) => return Some(Event::Applied(self.apply(&order))),
            Effect::Observe(order) => return Some(Event::Observed(self.look(&order))),
            Effect::Collect(..) => return Some(Event::Collected(self.weather.complete.then(Evidence::default))),
            Effect::Restore(current) => self.restore(state, &current),
            Effect::PrepareRelease(_)
            | Effect::StartRelease(_)
            | Effect::ObserveRelease(_)
            | Effect::CancelRelease(_)
            | Effect::ReadTurns { .. } => panic!("an app without a release command runs one: {effect:?}"),
            Effect::Resolve(_) => panic!("an image that is known is looked up: {effect:?}"),
            Effect::Measure(_) => panic!("an app without checks measures them: {effect:?}"),
            Effect::FindBuild
            | Effect::StartBuild(_)
            | Effect::RecordBuilt(_)
            | Effect::ObserveBuild(_)
            | Effect::CancelBuild(_)
            | Effect::ReadHead(_)
            | Effect::Detect(..) => {
                panic!("an image app is built: {effect:?}")
            }
            Effect::Load => {}
            Effect::Watch(order, until) => {
                assert!(until > self.now(), "it watches for no time");
                self.waiting = Waiting::Watch(Box::new(order), until);
                return None;
            }
            Effect::Wait(until) => {
                assert!(until > self.now(), "it waits for no time");
                self.waiting = Waiting::Wait(until);
                return None;
            }
            Effect::Stop => {
                self.waiting = Waiting::Rest;
                return None;
            }
        }
        Some(self.reload())
    }

    fn reload(&mut self) -> Event {
        self.fresh = true;
        Event::Loaded(Box::new(self.view()))
    }

    fn record(&mut self, record: Record) -> Event {
        let history = self.history();
        let policy = self.view().app.policy.clone();
        if self.fresh {
            for change in &record.changes {
                let stored = history.iter().find(|deploy| deploy.revision == change.revision).expect("it is stored");
                self.witness.vouches(stored, change, &policy, self.now());
            }
        }
        match self.commit(|change, now| change.record(record, now)) {
            Ok(()) if std::mem::take(&mut self.lose_answer) => self.reload(),
            Ok(()) => {
                self.fresh = true;
                Event::Recorded(Box::new(self.view()))
            }
            Err(refused) => {
                assert_eq!((refused, self.fresh), (Refused::Outdated, false), "though nobody else wrote");
                self.reload()
            }
        }
    }

    /// Rule 12, read off the whole history.
    fn restore(&mut self, state: &State, current: &Deploy) {
        let cause = Cause { trigger: Trigger::Rollback, actor: Actor::Service };
        let deploy = rollback::deploy(state.app_state(), current, &cause).expect("what succeeded has an image");
        let admission = Admission {
            expected: ExpectedLatest::Exactly(state.app_state().latest),
            ..Admission::plain(self.admission_id(), deploy)
        };
        let history = self.history();
        let admitted = self.commit(|change, now| {
            let owed = matches!(restore::owed(&change.state), Owed::Restore(owed) if owed.revision == current.revision);
            owed.then(|| change.admit(admission, KeyLookup::Unread, now))
        });
        assert!(
            matches!(admitted, Some(Admitted::New { .. })) || !self.fresh,
            "a restore was not accepted: {admitted:?}"
        );
        if let Some(Admitted::New { deploy, .. }) = admitted {
            let top = history.iter().rev().find(|deploy| deploy.touched).expect("something failed on the cluster");
            assert!(matches!(top.status(), Status::Failed | Status::Cancelled | Status::Superseded), "{top:?}");
            assert!(!top.is_restore(), "a restore is not restored");
            assert!(
                history.iter().all(|other| other.is_terminal() || other.revision < top.revision),
                "a newer one waits"
            );
            assert_eq!(state.app_state().app.policy.on_failure, OnFailure::Restore);
            let good = history.iter().rev().find(|deploy| deploy.status() == Status::Succeeded).expect("a good one");
            assert_eq!((&deploy.image, deploy.effective), (&good.pinned_image(), good.effective));
        }
    }

    fn apply(&mut self, order: &RolloutSpec) -> Result<Applied, CallError> {
        let revision = order.id.revision;
        self.witness.orders(order, self.now());
        if self.fresh {
            let stored = self.history().into_iter().find(|deploy| deploy.revision == revision).expect("it is stored");
            assert!(
                stored.touched && stored.status() == Status::RollingOut,
                "touched before it was recorded: {stored:?}"
            );
            assert_eq!(stored.image.as_ref(), Some(&order.image));
        }
        let newer = self.newer(revision);
        let refused = newer.is_some() || matches!(self.weather.call, Call::Denied | Call::Refused);
        // A killed driver does not learn that it was refused.
        if !refused || self.fuse == Some(0) {
            self.witness.may_have_changed(revision);
        }
        if let Some(newer) = newer {
            self.witness.is_newer_than(revision);
            return Ok(Applied::Newer(newer));
        }
        match self.weather.call {
            Call::Answered | Call::Foreign | Call::Newer(_) => {
                self.witness.did(revision);
                Ok(Applied::Done)
            }
            Call::Away => Err(CallError::Unavailable),
            Call::Denied => Err(CallError::Refused("The cluster does not allow it.".into())),
            Call::Refused => {
                let message = "The workload is not one.".into();
                Ok(Applied::Refused { reason: Reason::new("not-possible"), message })
            }
        }
    }

    /// The newer revision that another driver has brought the workload to.
    fn newer(&self, revision: Revision) -> Option<Revision> {
        let Call::Newer(by) = self.weather.call else { return None };
        let newer = (0..=by).fold(revision, |revision, _| revision.next());
        let view = self.view();
        let known = view.unfinished.iter().chain(view.on_cluster()).any(|deploy| deploy.revision == newer);
        known.then_some(newer)
    }

    fn look(&mut self, order: &RolloutSpec) -> Result<Observation, CallError> {
        let weather = self.weather;
        let revision = order.id.revision;
        let stamp = match weather.call {
            Call::Away => return Err(CallError::Unavailable),
            Call::Denied => return Err(CallError::Refused("The cluster does not show it.".into())),
            Call::Newer(_) => DeployId { revision: self.newer(revision).unwrap_or(revision), ..order.id },
            // Another registration's numbers say nothing, as high as they may be.
            Call::Foreign => DeployId { app: AppUid::from_bits(8), revision },
            Call::Answered | Call::Refused => order.id,
        };
        let digest = weather.digest.map(Few::digest);
        let phase = if weather.complete { Phase::Complete { digest, note: None } } else { Phase::Progressing };
        let seen = Observation::new(Some(stamp), phase, weather.progress.to_string(), "as the weather is");
        let seen = seen.with(|seen| {
            seen.restarts = weather.restarts.into();
            seen.past_lives = weather.lived.map(|lived| lives(&weather, lived)).into_iter().collect();
            seen.down_for = weather.down.map(|down| std::time::Duration::from_secs(down.into()));
            seen.failure = weather.failure.map(failure);
        });
        self.witness.saw(revision, seen.clone(), self.now());
        Ok(seen)
    }
}

fn lives(weather: &Weather, lived: u8) -> PastLives {
    let last = std::time::Duration::from_secs(lived.into());
    let count = u32::from(weather.restarts).max(1);
    PastLives { instance: "api-1".into(), count, last, all: last * count, ended_ago: std::time::Duration::ZERO }
}

fn failure(ill: Ill) -> RolloutFailure {
    let reason = Reason::new(&format!("{ill:?}"));
    RolloutFailure { kind: ill.kind(), reason, container: None, message: "The pod fails.".into() }
}

impl Few {
    fn digest(self) -> Digest {
        format!("sha256:{}", self.name().repeat(64)).parse().expect("a digest")
    }
}

impl Image {
    pub(crate) fn reference(self) -> ImageRef {
        let image: ImageRef = format!("registry.example.com/api:{}", self.tag.name()).parse().expect("an image");
        match self.digest() {
            Some(digest) => image.pinned(digest),
            None => image,
        }
    }

    pub(crate) fn digest(self) -> Option<Digest> {
        self.digest.map(Few::digest)
    }
}
