//! What may happen, in choices small enough to be read.

use arbitrary::Arbitrary;
use rollhook_core::ports::RolloutFailureKind;

/// An app's rules, and what happens to it.
#[derive(Arbitrary, Debug)]
pub(crate) struct Scenario {
    pub(crate) rules: Rules,
    pub(crate) choices: Vec<Choice>,
}

/// A policy.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) leave: bool,
    pub(crate) hold_all: bool,
    pub(crate) settle: u8,
}

#[derive(Arbitrary, Debug)]
pub(crate) enum Choice {
    Deploy(Image, By),
    /// By default, or to a revision counted from the newest.
    Rollback(Option<u8>),
    Cancel(u8),
    ReleaseHolds,
    Rules(Rules),
    /// What the cluster answers from now on.
    Cluster(Weather),
    Pass(Span),
    /// The driver reads the app anew; one that was killed is another from then on.
    Read,
    /// Whether the driver hears of what people ask for: on another replica it does not, at first.
    Deaf(bool),
    /// The driver is killed after its next effects, its last call's answer unread.
    Kill {
        after: u8,
    },
    /// The store's next answer to the driver is lost.
    LoseAnswer,
}

/// Few images, so that the same ones come back, with a digest or without.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Image {
    pub(crate) tag: Few,
    pub(crate) digest: Option<Few>,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Few {
    A,
    B,
    C,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Ci,
    Person,
    /// The service found it itself.
    Found,
}

/// What the cluster answers.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) struct Weather {
    pub(crate) call: Call,
    pub(crate) complete: bool,
    pub(crate) digest: Option<Few>,
    pub(crate) failure: Option<Ill>,
    pub(crate) restarts: u8,
    /// The seconds that an instance lived for before it ended.
    pub(crate) lived: Option<u8>,
    /// The seconds for which the old instance has been away, where it had to stop first.
    pub(crate) down: Option<u8>,
    /// A text that differs is progress.
    pub(crate) progress: u8,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Answered,
    Away,
    /// The cluster will not do it.
    Denied,
    /// The workload cannot be brought to the order.
    Refused,
    /// The workload is this many revisions further, where another driver may have brought it there.
    Newer(u8),
    /// The workload carries another registration's stamp.
    Foreign,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    Image,
    Crash,
    Unhealthy,
    Config,
    Capacity,
    Final,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
pub(crate) enum Span {
    Millis(u16),
    Seconds(u8),
    Minutes(u8),
}

impl Span {
    pub(crate) fn millis(self) -> i64 {
        match self {
            Self::Millis(millis) => millis.into(),
            Self::Seconds(seconds) => i64::from(seconds) * 1000,
            Self::Minutes(minutes) => i64::from(minutes) * 60_000,
        }
    }
}

impl Weather {
    /// Everything rolls out.
    pub(crate) const FAIR: Self = Self {
        call: Call::Answered,
        complete: true,
        digest: None,
        failure: None,
        restarts: 0,
        lived: None,
        down: None,
        progress: 0,
    };
}

impl Few {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::B => "b",
            Self::C => "c",
        }
    }
}

impl Ill {
    pub(crate) const fn kind(self) -> RolloutFailureKind {
        match self {
            Self::Image => RolloutFailureKind::Image,
            Self::Crash => RolloutFailureKind::Crash,
            Self::Unhealthy => RolloutFailureKind::Unhealthy,
            Self::Config => RolloutFailureKind::Config,
            Self::Capacity => RolloutFailureKind::Capacity,
            Self::Final => RolloutFailureKind::Final,
        }
    }
}
