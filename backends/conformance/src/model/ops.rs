//! The calls that are made of a store, chosen at random.

use std::time::Duration;

use proptest::{collection::vec, option, prelude::*};

/// How many apps the calls are about.
pub(super) const APPS: u8 = 3;
/// How many replicas claim them.
pub(super) const REPLICAS: u8 = 3;
/// How long a claim lasts.
pub(super) const TTL: Duration = Duration::from_secs(3600);

/// One call; numbers choose among what is there when it is made.
#[derive(Clone, Debug)]
pub enum Op {
    /// An accept.
    Admit(Accept),
    /// A change of entries.
    Record(Change),
    /// A sign of life and a wish for work, or for none at all.
    Claim {
        /// Which replica.
        replica: u8,
        /// Whether it gives up.
        zero: bool,
    },
    /// A replica's process is another from now on.
    Restart {
        /// Which replica.
        replica: u8,
    },
    /// A change of policy.
    Update {
        /// Which app.
        app: u8,
        /// Whether it was decided on what is stored.
        fresh: bool,
    },
    /// The app is removed, and another of its name registered.
    Recreate {
        /// Which app.
        app: u8,
    },
    /// A part of the history is read.
    Page {
        /// Which app.
        app: u8,
        /// Below which revision.
        before: Option<u8>,
        /// Whether only those that succeeded.
        succeeded: bool,
        /// How many.
        limit: u8,
    },
    /// Time passes, for a store whose clock can be moved.
    Pass(Pass),
}

/// An accept's choices.
#[derive(Clone, Debug)]
pub struct Accept {
    /// Which app.
    pub app: u8,
    /// Under which key, for which request.
    pub key: Option<(u8, u8)>,
    /// Whether it was decided on the app as it is stored.
    pub fresh: bool,
    /// The newest revision that it was decided on: none given, the right one, or another.
    pub after: After,
    /// Whether it supersedes.
    pub supersede: bool,
    /// Whether it holds.
    pub hold: bool,
    /// Whether it is a plain deploy, a person's rollback or a restore.
    pub kind: Kind,
}

/// What an accept says of the newest revision.
#[derive(Clone, Copy, Debug)]
pub enum After {
    /// Nothing.
    Unsaid,
    /// The truth.
    Right,
    /// Something else.
    Wrong,
}

/// What an accept is.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// A webhook's deploy.
    Deploy,
    /// A person's rollback.
    Rollback,
    /// The service's own.
    Restore,
}

/// A record's choices.
#[derive(Clone, Debug)]
pub struct Change {
    /// Which app.
    pub app: u8,
    /// Entries, the step beyond the stored one, and the state.
    pub entries: Vec<(u8, u8, Next)>,
    /// Under which replica's claim.
    pub claim: Option<u8>,
    /// Whether the oldest hold is lifted.
    pub lift: bool,
    /// Whether the engine sees nothing left to do.
    pub rest: bool,
}

/// An entry's next state.
#[derive(Clone, Copy, Debug)]
pub enum Next {
    /// Rolling out, having touched the cluster.
    RollingOut,
    /// Succeeded.
    Succeeded,
    /// Failed.
    Failed,
    /// Failed, having changed nothing.
    Refused,
    /// Cancelled.
    Cancelled,
}

/// How much time passes; none of it, nor few of them together, comes near a time at which something expires.
#[derive(Clone, Copy, Debug)]
pub enum Pass {
    /// Less than half a claim.
    Short,
    /// More than a claim.
    Claim,
    /// More than an `Idempotency-Key`.
    Day,
}

impl Pass {
    pub(super) const fn time(self) -> Duration {
        match self {
            Self::Short => Duration::from_secs(25 * 60 + 1),
            Self::Claim => Duration::from_secs(70 * 60 + 1),
            Self::Day => Duration::from_secs(25 * 3600 + 1),
        }
    }
}

/// Sequences of calls, mostly such as an engine and its callers make.
pub fn sequences() -> impl Strategy<Value = Vec<Op>> {
    vec(op(), 1..60)
}

fn op() -> impl Strategy<Value = Op> {
    let app = || 0..APPS;
    let replica = || 0..REPLICAS;
    prop_oneof![
        8 => accept().prop_map(Op::Admit),
        8 => change().prop_map(Op::Record),
        6 => (replica(), weighted(0.15)).prop_map(|(replica, zero)| Op::Claim { replica, zero }),
        1 => replica().prop_map(|replica| Op::Restart { replica }),
        1 => (app(), weighted(0.7)).prop_map(|(app, fresh)| Op::Update { app, fresh }),
        1 => app().prop_map(|app| Op::Recreate { app }),
        2 => (app(), option::of(1..20_u8), any::<bool>(), 0..6_u8)
            .prop_map(|(app, before, succeeded, limit)| Op::Page { app, before, succeeded, limit }),
        3 => prop_oneof![3 => Just(Pass::Short), 2 => Just(Pass::Claim), 1 => Just(Pass::Day)].prop_map(Op::Pass),
    ]
}

fn accept() -> impl Strategy<Value = Accept> {
    let after = prop_oneof![6 => Just(After::Unsaid), 3 => Just(After::Right), 1 => Just(After::Wrong)];
    let kind = prop_oneof![4 => Just(Kind::Deploy), 1 => Just(Kind::Rollback), 1 => Just(Kind::Restore)];
    let key = option::of((0..4_u8, prop_oneof![4 => Just(1_u8), 1 => Just(2_u8)]));
    (0..APPS, key, weighted(0.9), after, weighted(0.2), weighted(0.2), kind).prop_map(
        |(app, key, fresh, after, supersede, hold, kind)| Accept { app, key, fresh, after, supersede, hold, kind },
    )
}

fn change() -> impl Strategy<Value = Change> {
    let next = prop_oneof![
        Just(Next::RollingOut),
        Just(Next::Succeeded),
        Just(Next::Failed),
        Just(Next::Refused),
        Just(Next::Cancelled),
    ];
    let step = prop_oneof![9 => Just(1_u8), 1 => 0..3_u8];
    let entries = vec((0..20_u8, step, next), 0..3);
    (0..APPS, entries, option::of(0..REPLICAS), weighted(0.2), weighted(0.4))
        .prop_map(|(app, entries, claim, lift, rest)| Change { app, entries, claim, lift, rest })
}

fn weighted(probability: f64) -> impl Strategy<Value = bool> {
    proptest::bool::weighted(probability)
}
