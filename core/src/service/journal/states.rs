//! Remembered states: bounded in bytes, the least recently used goes first.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use crate::{
    app::{App, AppUid, settings_bytes},
    deploy::{Deploy, Watch},
    ledger::AppState,
    ports::Version,
    requirement::Requirement,
};

/// The most memory that remembered states may take, roughly.
const BYTES_MAX: usize = 8 << 20;
/// The rough size of a state beside its settings and deploys, which add to it: its names, and the nodes of its maps.
const STATE_BYTES: usize = size_of::<AppState>() + size_of::<App>() + 1500;
/// The rough size of a deploy, with its texts.
const DEPLOY_BYTES: usize = size_of::<Deploy>() + 300;
/// A stored measurement, with its message.
const MEASUREMENT_BYTES: usize = 400;

/// The state of the last read or commit.
pub(super) struct Known {
    pub(super) state: Arc<AppState>,
    pub(super) version: Version,
    /// The time of the read, by this process's own clock.
    pub(super) read_at: Duration,
    /// Whether a later read has shown a lower version.
    is_doubted: bool,
    used: u64,
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
            self.bytes = self.bytes.saturating_sub(weight(&known.state));
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
        self.bytes += weight(&state);
        self.by_use.insert(self.uses, app);
        self.known
            .insert(app, Known { state: Arc::clone(&state), version, read_at, is_doubted: false, used: self.uses });
        while self.bytes > BYTES_MAX
            && let Some((_, app)) = self.by_use.pop_first()
        {
            if let Some(known) = self.known.remove(&app) {
                self.bytes = self.bytes.saturating_sub(weight(&known.state));
            }
        }
        state
    }
}

fn watch_weight(watch: &Watch) -> usize {
    let measurements: usize = watch.measured.checks.iter().map(|check| check.measurements.len()).sum();
    size_of::<Watch>() + watch.text_bytes() + MEASUREMENT_BYTES * measurements
}

fn weight(state: &AppState) -> usize {
    let target = &state.app.target;
    let settings = settings_bytes(&target.settings) + target.requested.as_ref().map_or(0, settings_bytes);
    let repositories: usize = state.app.policy.repositories.as_slice().iter().map(String::len).sum();
    let words: usize = state.runs.newest_first().map(|run| run.bytes()).sum();
    let signed = state.app.requirements.in_force().map(|(_, requirement)| requirement).chain(&state.app.policy.signed);
    let signed: usize = signed.map(Requirement::text_bytes).sum();
    let checks: usize = state.app.policy.checks.iter().map(|check| settings_bytes(&check.settings)).sum();
    let verified = state.unfinished.iter().filter_map(|deploy| deploy.verification.as_deref());
    let measured: usize = verified.flat_map(|all| &all.checks).map(|check| check.measurements.len()).sum();
    let watched: usize = state.watches.iter().map(watch_weight).sum();
    let ended = [&state.current, &state.ended_on_cluster, &state.ended_off_cluster, &state.good_before];
    let deploys = state.unfinished.len() + ended.into_iter().flatten().count();
    let deploys = DEPLOY_BYTES * deploys + MEASUREMENT_BYTES * measured;
    STATE_BYTES + settings + repositories + words + signed + checks + watched + deploys
}
