//! What a complete list changes in what is known.

use std::{collections::BTreeMap, sync::Arc};

use k8s_openapi::api::coordination::v1::Lease;
use rollhook_core::app::AppUid;

use super::{Known, Mirror, SeenLease};
use crate::store::{crd::AppObject, version::version};

impl Mirror {
    /// All apps, and in which version they are known.
    pub(crate) fn known_apps(&self) -> BTreeMap<AppUid, u64> {
        self.lock().apps.iter().map(|(uid, app)| (*uid, version(&app.metadata))).collect()
    }

    /// All entries, and in which version they are known.
    pub(crate) fn known_entries(&self) -> BTreeMap<(AppUid, u64), u64> {
        let state = self.lock();
        let of = |(uid, entries): (&AppUid, &BTreeMap<u64, Known>)| {
            let uid = *uid;
            entries.iter().map(move |(revision, known)| ((uid, *revision), known.version)).collect::<Vec<_>>()
        };
        state.entries.iter().flat_map(of).collect()
    }

    /// All Leases, and in which version they are known.
    pub(crate) fn known_leases(&self) -> BTreeMap<String, u64> {
        self.lock().leases.iter().map(|(name, seen)| (name.clone(), seen.version)).collect()
    }

    /// A list is complete, which began when these were known. It is right about all of them, also where it is older: then
    /// the cluster's store was restored from a copy. What was seen since is left where the list is not newer.
    pub(crate) fn settle_apps(&self, before: &BTreeMap<AppUid, u64>, listed: BTreeMap<AppUid, AppObject>) {
        let mut state = self.lock();
        for (uid, known) in before.iter().filter(|(uid, _)| !listed.contains_key(uid)) {
            state.forget_app(*uid, *known);
        }
        for (uid, app) in listed {
            let present = state.apps.get(&uid).map(|app| version(&app.metadata));
            if is_news(present, before.get(&uid), version(&app.metadata)) {
                state.insert_app(uid, app);
            }
        }
    }

    /// See [`Mirror::settle_apps`].
    pub(crate) fn settle_entries(&self, before: &BTreeMap<(AppUid, u64), u64>, listed: BTreeMap<(AppUid, u64), Known>) {
        let mut state = self.lock();
        for ((uid, revision), known) in before.iter().filter(|(name, _)| !listed.contains_key(name)) {
            let Some(entries) = state.entries.get_mut(uid) else { continue };
            if entries.get(revision).is_some_and(|present| present.version == *known) {
                entries.remove(revision);
            }
        }
        for ((uid, revision), known) in listed {
            let entries = state.entries.entry(uid).or_default();
            let present = entries.get(&revision).map(|present| present.version);
            if is_news(present, before.get(&(uid, revision)), known.version) {
                entries.insert(revision, known);
            }
        }
        state.entries.retain(|_, entries| !entries.is_empty());
        // What it says of entries that are gone may have come from another past; to read them again costs little.
        state.complete.clear();
    }

    /// See [`Mirror::settle_apps`].
    pub(crate) fn settle_leases(&self, before: &BTreeMap<String, u64>, listed: BTreeMap<String, Lease>) {
        let changed = self.clock.elapsed();
        let leases = &mut self.lock().leases;
        leases.retain(|name, seen| listed.contains_key(name) || before.get(name) != Some(&seen.version));
        for (name, lease) in listed {
            let seen = SeenLease::new(Arc::new(lease), changed);
            if is_news(leases.get(&name).map(|seen| seen.version), before.get(&name), seen.version) {
                leases.insert(name, seen);
            }
        }
    }
}

/// Whether what a list names is to replace what is known now, by what was known when the list began.
fn is_news(present: Option<u64>, before: Option<&u64>, listed: u64) -> bool {
    present.is_none_or(|present| listed > present || (listed < present && before == Some(&present)))
}
