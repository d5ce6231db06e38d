//! The operations on a store, chosen at random.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*};

/// How many apps the operations are about.
pub(super) const APPS: u8 = 3;
/// How many replicas drive them.
pub(super) const REPLICAS: u8 = 3;
/// How many idempotency keys are used.
pub(super) const KEYS: u8 = 4;
/// For how long a heartbeat counts.
pub(super) const TTL: Duration = Duration::from_secs(3600);

/// One operation; numbers choose among what is there when it is performed.
#[derive(Clone, Debug)]
pub enum Op {
    /// One client changes some apps.
    Change(Vec<Step>),
    /// Two clients change apps at the same time.
    Race(Vec<Step>, Vec<Step>),
    /// A replica gives a heartbeat and takes all free work.
    Claim {
        /// The replica's number.
        replica: u8,
    },
    /// A replica says that it lives no longer.
    Release {
        /// The replica's number.
        replica: u8,
    },
    /// A replica's process is another from now on.
    Restart {
        /// The replica's number.
        replica: u8,
    },
    /// The app is removed, and another of its name registered.
    Recreate {
        /// The app's number.
        app: u8,
        /// Whether it is polled.
        polled: bool,
    },
    /// A part of the history is read.
    Page {
        /// The app's number.
        app: u8,
        /// The revision that the part ends below.
        before: Option<u8>,
        /// Whether only deploys that succeeded.
        succeeded: bool,
        /// The most deploys to read.
        limit: u8,
    },
    /// Time passes, for a store whose clock can be moved.
    Pass(Pass),
}

/// One function of the ledger, on one app.
#[derive(Clone, Debug)]
pub struct Step {
    /// The app's number.
    pub app: u8,
    /// The function.
    pub what: What,
}

/// A function of the ledger.
#[derive(Clone, Debug)]
pub enum What {
    /// Accepts deploys.
    Admit(Accept),
    /// Records what has become of deploys.
    Record(Move),
    /// Records the image of a deploy that waits for one.
    Built {
        /// The deploy's number.
        deploy: u8,
        /// The replica that records it.
        driver: u8,
    },
    /// Replaces source and policy.
    Configure {
        /// Whether the app is polled from then on.
        polled: bool,
        /// Whether a failed rollout is put right from then on.
        restore: bool,
    },
    /// Releases all holds.
    ReleaseHolds,
    /// Forgets the highest sequence.
    ForgetSequence,
    /// Sets or ends a lock.
    Lock {
        /// The number of the environment's change, if the lock is the environment's.
        environment: Option<u8>,
        /// `None`: the lock ends; else its time in minutes, without an end if that is 0.
        minutes: Option<u8>,
    },
    /// Copies the requirement on the project or the environment, or its end.
    Require {
        /// Whether it is the environment's.
        of_environment: bool,
        /// The number of the change.
        sequence: u8,
        /// Whether signatures are required from then on.
        is_required: bool,
    },
    /// Forgets old deploys.
    Forget {
        /// How many of the newest archived ones are kept.
        keep: u8,
    },
}

/// An accept's choices.
#[derive(Clone, Debug)]
pub struct Accept {
    /// Under which key, for which request, and whether the key was read before.
    pub key: Option<(u8, u8, bool)>,
    /// The newest revision that is expected.
    pub expected: Expected,
    /// Whether it ends the others.
    pub supersede: bool,
    /// Whether it holds.
    pub hold: bool,
    /// The image's number.
    pub image: u8,
    /// The place among the webhook's deploys, of one of these.
    pub sequence: Option<u8>,
    /// The kind of the deploy.
    pub kind: Kind,
    /// The replica that drives the app if none does.
    pub driver: Option<u8>,
    /// How many of it are accepted; several have no key.
    pub times: u8,
}

/// The newest revision that an accept expects.
#[derive(Clone, Copy, Debug)]
pub enum Expected {
    /// None in particular.
    Any,
    /// The newest one.
    Right,
    /// Another one.
    Wrong,
}

/// The kind of a deploy that is accepted.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A webhook's deploy of an image.
    Deploy,
    /// A webhook's deploy of a commit.
    Build,
    /// A person's rollback.
    Rollback,
    /// The service's own rollback.
    Restore,
}

/// A record's choices.
#[derive(Clone, Debug)]
pub struct Move {
    /// The deploys: number, steps to go on, next state.
    pub deploys: Vec<(u8, u8, Next)>,
    /// The replica that records it.
    pub driver: Driver,
    /// Whether the oldest hold is released.
    pub release_hold: bool,
    /// Whether the driver sees nothing left to do.
    pub idle: bool,
}

/// The replica that records.
#[derive(Clone, Copy, Debug)]
pub enum Driver {
    /// No replica: a person cancels.
    None,
    /// The replica that has the lease.
    Holder,
    /// This replica, whether it has the lease or not.
    Replica(u8),
}

/// A deploy's next state.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// Being built.
    Building,
    /// Rolling out, having touched the cluster.
    RollingOut,
    /// Succeeded.
    Succeeded,
    /// Failed, with evidence.
    Failed,
    /// Failed, having changed nothing.
    Refused,
    /// Cancelled.
    Cancelled,
    /// Superseded by the newest unfinished one.
    Superseded,
}

/// How much time passes; none of it, nor few of them together, comes near a time at which something expires.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// Less than half of a heartbeat's time.
    Short,
    /// More than a heartbeat's time.
    Heartbeat,
    /// More than the time of an `Idempotency-Key`.
    Day,
}

impl Pass {
    pub(super) const fn time(self) -> Duration {
        match self {
            Self::Short => Duration::from_secs(25 * 60 + 1),
            Self::Heartbeat => Duration::from_secs(70 * 60 + 1),
            Self::Day => Duration::from_secs(25 * 3600 + 1),
        }
    }
}

/// Sequences of operations, mostly such as drivers and callers perform.
pub fn sequences() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..60)
}

fn op() -> impl Strategy<Value = Op> {
    let app = || 0..APPS;
    let replica = || 0..REPLICAS;
    let pass = prop_oneof![3 => Just(Pass::Short), 2 => Just(Pass::Heartbeat), 1 => Just(Pass::Day)];
    prop_oneof![
        16 => vec(step(), 1..4).prop_map(Op::Change),
        4 => (vec(step(), 1..4), vec(step(), 1..4)).prop_map(|(one, two)| Op::Race(one, two)),
        5 => replica().prop_map(|replica| Op::Claim { replica }),
        1 => replica().prop_map(|replica| Op::Release { replica }),
        1 => replica().prop_map(|replica| Op::Restart { replica }),
        1 => (app(), any::<bool>()).prop_map(|(app, polled)| Op::Recreate { app, polled }),
        2 => (app(), option::of(1..20_u8), any::<bool>(), 0..6_u8)
            .prop_map(|(app, before, succeeded, limit)| Op::Page { app, before, succeeded, limit }),
        3 => pass.prop_map(Op::Pass),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let what = prop_oneof![
        8 => accept().prop_map(What::Admit),
        14 => movement().prop_map(What::Record),
        3 => (any::<u8>(), 0..REPLICAS).prop_map(|(deploy, driver)| What::Built { deploy, driver }),
        1 => (weighted(0.3), weighted(0.7)).prop_map(|(polled, restore)| What::Configure { polled, restore }),
        1 => Just(What::ReleaseHolds),
        1 => Just(What::ForgetSequence),
        1 => (option::of(0..6_u8), option::weighted(0.4, 0..3_u8))
            .prop_map(|(environment, minutes)| What::Lock { environment, minutes }),
        1 => (any::<bool>(), 0..6_u8, weighted(0.4))
            .prop_map(|(of_environment, sequence, is_required)| What::Require { of_environment, sequence, is_required }),
        1 => (0..4_u8).prop_map(|keep| What::Forget { keep }),
    ];
    (0..APPS, what).prop_map(|(app, what)| Step { app, what })
}

fn accept() -> impl Strategy<Value = Accept> {
    let expected = prop_oneof![6 => Just(Expected::Any), 3 => Just(Expected::Right), 1 => Just(Expected::Wrong)];
    let kind = prop_oneof![
        4 => Just(Kind::Deploy),
        1 => Just(Kind::Build),
        1 => Just(Kind::Rollback),
        1 => Just(Kind::Restore),
    ];
    let key = option::of((0..KEYS, prop_oneof![4 => Just(1_u8), 1 => Just(2_u8)], any::<bool>()));
    let times = prop_oneof![60 => Just(1_u8), 1 => Just(101_u8)];
    let choices = (expected, weighted(0.2), weighted(0.2), 0..4_u8, kind, option::of(0..REPLICAS), times);
    let sequence = option::weighted(0.4, 1..6_u8);
    (key, choices, sequence).prop_map(|(key, (expected, supersede, hold, image, kind, driver, times), sequence)| {
        Accept { key, expected, supersede, hold, image, sequence, kind, driver, times }
    })
}

fn movement() -> impl Strategy<Value = Move> {
    let next = prop_oneof![
        1 => Just(Next::Building),
        3 => Just(Next::RollingOut),
        4 => Just(Next::Succeeded),
        4 => Just(Next::Failed),
        1 => Just(Next::Refused),
        1 => Just(Next::Cancelled),
        1 => Just(Next::Superseded),
    ];
    let steps = prop_oneof![12 => Just(1_u8), 1 => 0..3_u8];
    let driver = prop_oneof![
        2 => Just(Driver::None),
        4 => Just(Driver::Holder),
        1 => (0..REPLICAS).prop_map(Driver::Replica),
    ];
    let deploys = prop_oneof![1 => vec((any::<u8>(), steps.clone(), next.clone()), 0..3), 2 => vec((any::<u8>(), steps, next), 1..2)];
    (deploys, driver, weighted(0.2), weighted(0.5)).prop_map(|(deploys, driver, release_hold, idle)| Move {
        deploys,
        driver,
        release_hold,
        idle,
    })
}

fn weighted(probability: f64) -> impl Strategy<Value = bool> {
    proptest::bool::weighted(probability)
}
