//! The wait of a release command for its turn in its group. See [`crate::ledger::release_turns`].

use std::time::Duration;

use super::{Effect, State, record_all};
use crate::{
    deploy::{Outage, State as Stored},
    ledger::{Record, ReleaseTurn, release_turns::OtherTurn},
    time::Timestamp,
};

/// The interval of reads of the other apps of the group.
const INTERVAL: Duration = Duration::from_secs(3);

/// Returns the next effect of a deploy whose release command waits for its turn.
pub(super) fn next(state: &State, turn: &ReleaseTurn, now: Timestamp) -> Effect {
    if state.turns_read_at > now {
        return Effect::Wait(state.turns_read_at);
    }
    // A list from memory may lack what others have written: it says who is ahead, and never that nobody is.
    Effect::ReadTurns { group: turn.group.clone(), is_fresh: turn.number.is_none() }
}

/// Processes the turns of the other apps; `None` if they could not be read. Returns the effect that has to come next, if
/// there is one.
pub(super) fn read(
    state: &mut State,
    others: Option<Vec<OtherTurn>>,
    is_fresh: bool,
    now: Timestamp,
) -> Option<Effect> {
    state.turns_read_at = now.after(INTERVAL);
    let others = others?;
    let deploy = state.app_state.releasing()?;
    let Stored::Releasing { command, .. } = &deploy.state else { return None };
    let turn = state.app_state.awaited_turn(deploy.revision)?;
    let record =
        |turn, changes| Some(record_all(state, Record { changes, release_turn: Some(turn), ..Record::default() }));
    let ahead = turn.ahead(state.app_state.app.uid, &others).filter(|_| turn.number.is_some());
    let effect = match (turn.number, ahead) {
        (None, _) if is_fresh => record(turn.numbered(&others), Vec::new()),
        (_, Some(ahead)) if turn.waits_for.as_ref() == Some(ahead) => return None,
        (_, Some(ahead)) => return record(ReleaseTurn { waits_for: Some(ahead.clone()), ..turn.clone() }, Vec::new()),
        (_, None) if !is_fresh => Some(Effect::ReadTurns { group: turn.group.clone(), is_fresh: true }),
        (_, None) => {
            // The command's time begins with its turn.
            let begins = Stored::Releasing { since: now, command: command.clone(), outage: Outage::default() };
            let turn = ReleaseTurn { has_come: true, waits_for: None, ..turn.clone() };
            record(turn, vec![deploy.moved(begins)])
        }
    };
    state.turns_read_at = now;
    effect
}
