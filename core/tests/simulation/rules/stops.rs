//! Stops and starts: only where a person asked for one, and never lost on the way.

use rollhook_core::deploy::{Deploy, Scale, State, Status, Trigger};

use super::{Known, model};
use crate::journal::Journal;

impl Known {
    /// Only a redeploy stops or starts, and only an app that is stopped is started; a rollback or a restore takes back what did
    /// not succeed.
    pub(super) fn scaled(&self, before: &[Deploy], new: &Deploy, journal: &Journal) {
        let takes_back = match new.is_restore() {
            true => "stop: a restore took one back",
            false => "stop: a rollback took one back",
        };
        let right = match new.scale {
            Scale::Keep => true,
            Scale::Stop | Scale::Start if new.trigger == Trigger::Rollback => {
                journal.count(takes_back);
                let was_stopped = model::current(before).is_some_and(|current| {
                    let until = before.iter().position(|entry| entry.revision == current.revision).unwrap_or_default();
                    model::is_stopped(&before[..=until])
                });
                let is_back = was_stopped == (new.scale == Scale::Stop);
                is_back && self.tops.iter().any(|top| !top.scale.is_keep() && top.status() != Status::Succeeded)
            }
            Scale::Stop => new.is_redeploy(),
            Scale::Start => new.is_redeploy() && model::is_stopped(before),
        };
        journal.expect(right, || format!("revision {} is to {}, and nobody asked for it", new.revision, new.scale));
    }
}

/// Returns the entries as they were, with the stops and starts that were passed on to them. One that a deploy supersedes is
/// passed on to that deploy.
pub(super) fn passed_on(before: &[Deploy], history: &[Deploy], journal: &Journal) -> Vec<Deploy> {
    let superseded = |old: &Deploy, new: &Deploy| {
        let State::Superseded { by, rollback: false, .. } = new.state else { return None };
        (!old.is_terminal() && !old.scale.is_keep()).then_some((by, old.scale))
    };
    let passed: Vec<_> = before.iter().zip(history).filter_map(|(old, new)| superseded(old, new)).collect();
    for (by, scale) in &passed {
        journal.count("stop: one that was superseded was passed on");
        let at = by.get() as usize - 1;
        let had_ended = before.get(at).is_some_and(Deploy::is_terminal);
        let has_it = history.get(at).is_some_and(|by| !by.scale.is_keep());
        journal.expect(has_it || had_ended, || format!("a {scale} was lost: revision {by} superseded it"));
    }
    let was = |(old, new): (&Deploy, &Deploy)| {
        let may_change = old.scale.is_keep() && passed.contains(&(old.revision, new.scale));
        Deploy { scale: if may_change { new.scale } else { old.scale }, ..old.clone() }
    };
    before.iter().zip(history).map(was).collect()
}

/// Counts what becomes of stops and starts.
pub(super) fn count_ends(old: &Deploy, new: &Deploy, view: &rollhook_core::ledger::AppState, journal: &Journal) {
    let has_succeeded = new.status() == Status::Succeeded && old.status() != Status::Succeeded;
    match new.scale {
        Scale::Keep | Scale::Stop | Scale::Start if !has_succeeded => {}
        Scale::Stop => journal.count("stop: an app was stopped"),
        Scale::Start => journal.count("stop: an app was started"),
        Scale::Keep => journal.count_if(view.stopped.is_some(), "stop: a deploy of a stopped app left it so"),
    }
}
