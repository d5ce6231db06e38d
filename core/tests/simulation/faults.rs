//! Troubles that wait for a replica's calls: what strikes, which call, and the how manieth.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rollhook_conformance::{Fault, Plan};

use crate::environment::Environment;

/// A fault that may strike a replica at one of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// The call fails, and was not done.
    Before,
    /// The call is done, and its answer is lost.
    Lost,
    /// The call is done later.
    Slow(Duration),
    /// The call's answer comes later.
    Late(Duration),
    /// The process dies, with the call done or not.
    Crash { done: bool },
    /// The process stops for a while, with the call done or not.
    Pause { done: bool, time: Duration },
    /// The caller is told that it failed, and it is done later: an order that is still under way.
    Adrift(Duration),
    /// A read is answered with what the replica was answered before.
    Stale,
    /// The builder will not do it, now or later.
    Refused,
}

impl InjectedFault {
    const fn kind(self) -> &'static str {
        match self {
            Self::Before => "fault: failed before",
            Self::Lost => "fault: answer lost",
            Self::Slow(_) => "fault: done late",
            Self::Late(_) => "fault: answered late",
            Self::Crash { done: false } => "fault: crash before a call",
            Self::Crash { done: true } => "fault: crash after a call",
            Self::Pause { time, .. } if time.as_secs() < 15 => "fault: pause",
            Self::Pause { .. } => "fault: pause beyond the lease",
            Self::Adrift(_) => "fault: an order under way",
            Self::Stale => "fault: stale read",
            Self::Refused => "fault: refused",
        }
    }

    /// For how long an answer may have been under way.
    const fn time(self) -> Duration {
        match self {
            Self::Slow(time) | Self::Late(time) | Self::Pause { time, .. } => time,
            Self::Before | Self::Lost | Self::Crash { .. } | Self::Adrift(_) | Self::Stale | Self::Refused => {
                Duration::ZERO
            }
        }
    }

    fn fits(self, call: &str) -> bool {
        match self {
            Self::Adrift(_) => matches!(call, "rollouts.apply" | "builds.start"),
            Self::Refused => call == "builds.start",
            Self::Stale => matches!(call, "history.load" | "branches.head"),
            Self::Before | Self::Lost | Self::Slow(_) | Self::Late(_) | Self::Crash { .. } | Self::Pause { .. } => true,
        }
    }
}

/// The fate of a replica whose call was struck.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Crash,
    Pause(Duration),
}

struct Armed {
    call: &'static str,
    left: u8,
    fault: InjectedFault,
}

/// The troubles that wait for one replica's calls.
#[derive(Default)]
pub(crate) struct Faults {
    armed: Mutex<Vec<Armed>>,
    signal: Mutex<Option<Signal>>,
    adrift: Mutex<Option<Duration>>,
    stale: Mutex<bool>,
    refused: Mutex<bool>,
    /// Whether the answer to the observation that follows is lost.
    unseen: Mutex<bool>,
    /// For how long from now its heartbeats are not what they should be.
    disturbed: Mutex<Option<Duration>>,
}

impl Faults {
    /// This fault strikes the call of this name (empty: any) that comes after `nth` others.
    pub(crate) fn arm(&self, call: &'static str, nth: u8, fault: InjectedFault) {
        self.armed.lock().unwrap().push(Armed { call, left: nth, fault });
    }

    pub(crate) fn disarm(&self) {
        self.armed.lock().unwrap().clear();
    }

    pub(crate) fn signal(&self) -> Option<Signal> {
        self.signal.lock().unwrap().take()
    }

    pub(crate) fn adrift(&self) -> Option<Duration> {
        self.adrift.lock().unwrap().take()
    }

    pub(crate) fn stale(&self) -> bool {
        std::mem::take(&mut *self.stale.lock().unwrap())
    }

    pub(crate) fn refused(&self) -> bool {
        std::mem::take(&mut *self.refused.lock().unwrap())
    }

    pub(crate) fn unseen(&self) -> bool {
        std::mem::take(&mut *self.unseen.lock().unwrap())
    }

    pub(crate) fn disturbed(&self) -> Option<Duration> {
        self.disturbed.lock().unwrap().take()
    }

    /// The plan by which the replica's ports fail. A call that nothing strikes gives way to others before it is done.
    pub(crate) fn plan(self: &Arc<Self>, environment: Arc<Environment>, name: String) -> Plan {
        let faults = Arc::clone(self);
        Arc::new(move |call| {
            let Some(fault) = faults.strikes(call) else { return Fault::Slow(Duration::ZERO) };
            environment.journal.count(fault.kind());
            if let InjectedFault::Crash { .. } = fault {
                environment.journal.count(format!("crash at {call}"));
            }
            environment.journal.log(&name, || format!("{call} meets {fault:?}"));
            environment.is_late(fault.time());
            if matches!(call, "builds.running" | "builds.cancel") {
                environment.builder_is_deaf();
            }
            faults.befall(call, fault)
        })
    }

    fn strikes(&self, call: &str) -> Option<InjectedFault> {
        let mut armed = self.armed.lock().unwrap();
        let mut struck = None;
        for (index, waiting) in armed.iter_mut().enumerate() {
            let meant = waiting.call.is_empty() || waiting.call == call;
            if !meant || !waiting.fault.fits(call) {
                continue;
            }
            match waiting.left.checked_sub(1) {
                Some(left) => waiting.left = left,
                None => struck = struck.or(Some(index)),
            }
        }
        struck.map(|index| armed.remove(index).fault)
    }

    fn befall(&self, call: &str, fault: InjectedFault) -> Fault {
        // What a replica takes an app with: while one of these calls hangs, it may not be able to.
        if matches!(call, "history.heartbeat" | "history.work" | "history.load" | "history.commit") {
            *self.disturbed.lock().unwrap() = Some(fault.time());
        }
        let at = |done| if done { Fault::Late(Duration::ZERO) } else { Fault::Slow(Duration::ZERO) };
        match fault {
            InjectedFault::Before => Fault::Before,
            InjectedFault::Lost => {
                *self.unseen.lock().unwrap() = call == "rollouts.observe";
                Fault::Lost
            }
            InjectedFault::Slow(time) => Fault::Slow(time),
            InjectedFault::Late(time) => Fault::Late(time),
            InjectedFault::Crash { done } => {
                *self.signal.lock().unwrap() = Some(Signal::Crash);
                at(done)
            }
            InjectedFault::Pause { done, time } => {
                *self.signal.lock().unwrap() = Some(Signal::Pause(time));
                at(done)
            }
            InjectedFault::Adrift(time) => {
                *self.adrift.lock().unwrap() = Some(time);
                at(false)
            }
            InjectedFault::Refused => {
                *self.refused.lock().unwrap() = true;
                at(false)
            }
            InjectedFault::Stale => {
                *self.stale.lock().unwrap() = true;
                at(false)
            }
        }
    }
}
