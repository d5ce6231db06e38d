//! Remembered states: bounded in bytes, the least recently used goes first.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::Arc,
    time::Duration,
};

use crate::{
    app::{App, AppUid},
    deploy::Deploy,
    ledger::AppState,
    ports::Version,
};

/// The most memory that remembered states may take, roughly.
const BYTES_MAX: usize = 8 << 20;

/// The state of the last read or commit.
pub(super) struct Known {
    pub(super) state: Arc<AppState>,
    pub(super) version: Version,
    /// The time of the read, by this process's own clock.
    pub(super) read_at: Duration,
    /// Whether a later read has shown a lower version.
    is_doubted: bool,
    used: u64,
    /// The rough size of the state.
    bytes: usize,
}

/// The remembered states: see the module.
#[derive(Default)]
pub(super) struct States {
    known: HashMap<AppUid, Known>,
    by_use: BTreeMap<u64, AppUid>,
    uses: u64,
    bytes: usize,
}

impl States {
    pub(super) fn get(&self, app: AppUid) -> Option<&Known> {
        self.known.get(&app)
    }

    /// Returns a state for a change, and marks it as used.
    pub(super) fn used(&mut self, app: AppUid) -> Option<&Known> {
        let known = self.known.get_mut(&app)?;
        self.uses += 1;
        self.by_use.remove(&known.used);
        self.by_use.insert(self.uses, app);
        known.used = self.uses;
        Some(known)
    }

    pub(super) fn forget(&mut self, app: AppUid) {
        if let Some(known) = self.known.remove(&app) {
            self.by_use.remove(&known.used);
            self.bytes -= known.bytes;
        }
    }

    /// Remembers a state, unless a newer one is known. Returns the newer of both.
    ///
    /// A read that began before the newer state was known is outdated. One that began after it may have been answered
    /// by what lags behind; the second of these in succession is believed: the store was set back, as by restoring a
    /// backup.
    pub(super) fn remember(&mut self, state: Arc<AppState>, version: Version, read_at: Duration) -> Arc<AppState> {
        let app = state.app.uid;
        let read_at = match self.known.get_mut(&app) {
            Some(known) if known.version > version => {
                let is_later = read_at > known.read_at;
                if !is_later || !std::mem::replace(&mut known.is_doubted, true) {
                    return Arc::clone(&known.state);
                }
                tracing::warn!(app = %state.app.id, "the store was set back: going on with the older state");
                read_at
            }
            Some(known) => known.read_at.max(read_at),
            None => read_at,
        };
        self.forget(app);
        self.uses += 1;
        let bytes = bytes_of(&state);
        self.bytes += bytes;
        self.by_use.insert(self.uses, app);
        let known = Known { state: Arc::clone(&state), version, read_at, is_doubted: false, used: self.uses, bytes };
        self.known.insert(app, known);
        while self.bytes > BYTES_MAX
            && let Some((_, app)) = self.by_use.first_key_value()
        {
            self.forget(*app);
        }
        state
    }
}

/// Returns the rough size of a state: of what each has, and of its texts, lists and maps by their serialized form.
fn bytes_of(state: &AppState) -> usize {
    let ended = [&state.current, &state.ended_on_cluster, &state.ended_off_cluster, &state.good_before];
    let deploys = state.unfinished.len() + ended.into_iter().flatten().count();
    let mut serialized = Length(0);
    drop(serde_json::to_writer(&mut serialized, state));
    size_of::<AppState>() + size_of::<App>() + size_of::<Deploy>() * deploys + 2 * serialized.0
}

/// The number of bytes that were written.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::git_state;

    fn app(number: u128) -> AppUid {
        AppUid::from_bits(number)
    }

    fn remember(states: &mut States, number: u128, revisions: &[u64]) {
        let mut state = git_state(revisions);
        Arc::make_mut(&mut state.app).uid = app(number);
        states.remember(Arc::new(state), Version(revisions.len() as u64), Duration::ZERO);
    }

    #[test]
    fn forgotten_states_take_nothing() {
        let mut states = States::default();
        remember(&mut states, 1, &[1]);
        let one = states.bytes;
        remember(&mut states, 2, &[1, 2]);
        assert!(states.bytes > 2 * one + size_of::<Deploy>());
        states.forget(app(2));
        assert_eq!(states.bytes, one);
        remember(&mut states, 1, &[1, 2]);
        states.forget(app(1));
        assert_eq!((states.bytes, states.by_use.len()), (0, 0));
    }

    #[test]
    fn states_that_were_not_used_for_longest_are_forgotten() {
        let mut states = States::default();
        remember(&mut states, 0, &[1]);
        let each = states.bytes;
        let count = (BYTES_MAX / each) as u128;
        (1..count).for_each(|number| remember(&mut states, number, &[1]));
        assert!(states.used(app(0)).is_some());
        remember(&mut states, count, &[1]);
        assert!(states.get(app(0)).is_some() && states.get(app(1)).is_none() && states.get(app(2)).is_some());
        assert!(states.bytes <= BYTES_MAX);
    }
}
