//! Configuration: which one a deploy runs with, and which stored ones may go.
//!
//! The configuration is the current version's own. A deploy that brings another one makes it the app's by succeeding, so that
//! there is nothing to take back where it fails. Until a first version has succeeded there is nothing to go back to: the
//! configuration is that of the version which failed last, and a change of it deploys that version once more. One that is staged
//! waits for the next deploy.

use std::{collections::BTreeSet, sync::Arc};

use serde::{Deserialize, Serialize};

use super::{AppState, Brought, Change, NewDeploy, redeploy};
use crate::{
    configuration::{ConfigurationId, VariableName, Variables, listed},
    deploy::{Deploy, Revision, Status, Trigger},
    ports::StoredConfiguration,
    request::{Cause, IdempotencyKey, Refusal},
    time::Timestamp,
};

/// What a person is about to do, in a refusal.
const PURPOSE: &str = "change the configuration of what runs";

/// The most configurations that are kept for the history of an app, beside those that it runs or is to run.
const KEPT: usize = 100;
/// The most bytes of them.
pub const KEPT_BYTES: u64 = 8 << 20;
/// The most bytes of them in an environment whose apps have all the bytes that they may have.
pub const KEPT_BYTES_IF_FULL: u64 = 256 << 10;
/// The most keys of staged changes that an app remembers, and the most revoked values; the oldest goes first.
const STAGED_KEYS: usize = 20;
const REVOKED: usize = 100;
/// The time for which a configuration is kept though nothing names it yet: it is stored before the commit that does.
const YOUNG: std::time::Duration = std::time::Duration::from_secs(60);

/// An idempotency key under which a change was staged, which makes no deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StagedKey {
    /// The key, with the hash of its request.
    pub key: IdempotencyKey,
    /// The time from which on the key is free.
    pub expires_at: Timestamp,
}

/// A value of a variable that was revoked, as it has leaked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The name of the variable.
    pub name: VariableName,
    /// The [mark](Variables::mark) of the value.
    pub value: String,
    /// The configurations of the app's deploys that have the value: that of the current version and the staged one when it was
    /// revoked, and those that were made or brought back since.
    pub configurations: Vec<ConfigurationId>,
}

/// Returns `Ok` if the configuration can be changed now: another change, or another version, may be on its way.
///
/// # Errors
/// [`Refusal::NotRedeployable`], [`Refusal::CurrentChanged`].
pub fn check(state: &AppState, is_staged: bool, if_current: Option<Revision>, cause: &Cause) -> Result<(), Refusal> {
    state.expect_current(if_current)?;
    if !is_staged {
        return again(state, if_current, cause).map(drop);
    }
    match state.unfinished.iter().find(|deploy| deploy.configures) {
        Some(other) => Err(Refusal::NotRedeployable(format!(
            "Revision {} changes the configuration: wait for its end, or cancel it, before you {PURPOSE}.",
            other.revision
        ))),
        None => Ok(()),
    }
}

/// Returns the deploy that brings a configuration: the current image once more, or that of a [first version which
/// failed](AppState::failed_first).
///
/// # Errors
/// Those of [`redeploy::deploy`].
pub fn deploy(
    state: &AppState,
    configuration: ConfigurationId,
    if_current: Option<Revision>,
    cause: &Cause,
) -> Result<NewDeploy, Refusal> {
    let again = again(state, if_current, cause)?;
    Ok(NewDeploy { configuration: Some(Brought(Some(configuration))), effective: None, ..again })
}

fn again(state: &AppState, if_current: Option<Revision>, cause: &Cause) -> Result<NewDeploy, Refusal> {
    match state.failed_first() {
        Some(failed) => {
            redeploy::check(state, if_current, PURPOSE)?;
            redeploy::repeat(&state.app, failed, cause)
        }
        None => redeploy::again(state, if_current, cause, PURPOSE),
    }
}

/// Returns the configuration that a deploy runs with which begins now. A rollback and a redeploy take what the current version
/// runs with, and not what waits for the next version; an adopted version runs as it is.
pub fn of(state: &AppState, deploy: &Deploy) -> Option<ConfigurationId> {
    if deploy.configures || deploy.adopted {
        return deploy.configuration;
    }
    let is_return = deploy.trigger == Trigger::Rollback || deploy.is_redeploy();
    // A restore returns to the last good version as it ran.
    let returned_to = if deploy.is_restore() { state.last_good() } else { state.current.as_ref() };
    match returned_to {
        Some(current) if is_return => current.configuration,
        Some(_) | None => state.next_configuration(),
    }
}

/// Returns whether the entry has a configuration, be it none: one that never began was given none.
pub fn is_decided(entry: &Deploy) -> bool {
    entry.configures || entry.touched || entry.release.is_some() || entry.status() == Status::Succeeded
}

/// Passes a configuration on to the deploy that supersedes the one which was to bring it, unless that one brings its own.
pub(super) fn pass_on(from: &Deploy, to: &mut Deploy) {
    if from.configures && !to.configures {
        (to.configuration, to.configures) = (from.configuration, true);
    }
}

impl AppState {
    /// The configuration that the next deploy runs with, and that a change of it begins from.
    pub fn next_configuration(&self) -> Option<ConfigurationId> {
        self.staged.or_else(|| self.configured()?.configuration)
    }

    /// The version whose configuration is the app's: the current one; until one has succeeded, the one that ended last on the
    /// cluster, also if a newer one took its place.
    pub fn configured(&self) -> Option<&Arc<Deploy>> {
        self.current.as_ref().or(self.ended_on_cluster.as_ref())
    }

    /// The version that failed or was cancelled last on the cluster; `None` once one has succeeded.
    pub fn failed_first(&self) -> Option<&Arc<Deploy>> {
        let failed = |ended: &&Arc<Deploy>| matches!(ended.status(), Status::Failed | Status::Cancelled);
        self.ended_on_cluster.as_ref().filter(failed).filter(|_| self.current.is_none())
    }

    /// Returns whether a change was staged under this key; `false` without one.
    ///
    /// # Errors
    /// [`Refusal::KeyReused`] if that was by another request.
    pub fn has_staged<'a>(&self, key: impl Into<Option<&'a IdempotencyKey>>, now: Timestamp) -> Result<bool, Refusal> {
        let Some(key) = key.into() else { return Ok(false) };
        let is_same = |used: &&StagedKey| (used.key.header, &used.key.key) == (key.header, &key.key);
        match self.staged_keys.iter().rev().find(is_same).filter(|used| used.expires_at > now) {
            Some(used) if used.key.request == key.request => Ok(true),
            Some(_) => Err(Refusal::KeyReused),
            None => Ok(false),
        }
    }

    /// Returns the revoked values that a configuration has, with that configuration among those which have them. Of these, the
    /// ones that no deploy of the app runs or is to run with are forgotten.
    pub fn revoked_with(&self, id: ConfigurationId, variables: &Variables) -> Vec<Revoked> {
        if self.revoked.is_empty() {
            return Vec::new();
        }
        let in_use = self.configurations();
        let has = |revoked: &&Revoked| variables.mark(&revoked.name).as_ref() == Some(&revoked.value);
        let with = |revoked: &Revoked| {
            let known = revoked.configurations.iter().copied().filter(|known| *known != id && in_use.contains(known));
            Revoked { configurations: known.chain([id]).collect(), ..revoked.clone() }
        };
        self.revoked.iter().filter(has).map(with).collect()
    }

    /// Returns the variables whose revoked values a rollback of the image alone brings back: the current version has them, and
    /// what is on the cluster has another configuration.
    pub fn revoked_of_current(&self) -> Vec<VariableName> {
        let configuration = |deploy: &Arc<Deploy>| deploy.configuration;
        match self.current.as_ref().and_then(configuration) {
            Some(current) if self.on_cluster().and_then(configuration) != Some(current) => {
                self.revoked_in(current).into_iter().cloned().collect()
            }
            Some(_) | None => Vec::new(),
        }
    }

    /// Returns a remark on a restore or a rollback that brings a value back which was revoked after its version began: the
    /// version before must not be left away for that, and nobody is to overlook it.
    pub fn remark_on_revoked(&self, back: &Deploy) -> Option<String> {
        let id = back.configuration.filter(|_| back.trigger == Trigger::Rollback)?;
        let names: Vec<&str> = self.revoked_in(id).into_iter().map(VariableName::as_str).collect();
        (!names.is_empty()).then(|| format!("the revoked values of {} are back with it", listed(names)))
    }

    /// The variables with revoked values in a configuration.
    fn revoked_in(&self, id: ConfigurationId) -> BTreeSet<&VariableName> {
        let revoked = self.revoked.iter().filter(|revoked| revoked.configurations.contains(&id));
        revoked.map(|revoked| &revoked.name).collect()
    }

    /// The configurations that the app runs or is to run with, and those that keep the secrets of its checks.
    pub fn configurations(&self) -> BTreeSet<ConfigurationId> {
        let secrets = self.app.policy.checks.iter().filter_map(|check| check.secret);
        self.deployed_configurations().chain(self.staged).chain(secrets).collect()
    }

    /// The configurations of its deploys, as far as they are not archived alone.
    pub fn deployed_configurations(&self) -> impl Iterator<Item = ConfigurationId> {
        let deploys =
            self.unfinished.iter().chain(&self.current).chain(&self.ended_on_cluster).chain(&self.good_before);
        deploys.filter_map(|deploy| deploy.configuration)
    }
}

impl Change {
    /// Replaces the configuration that waits for the next deploy, and remembers the key of the call.
    pub fn stage(&mut self, configuration: ConfigurationId, key: Option<&IdempotencyKey>, now: Timestamp) {
        // As for the keys of deploys, by the store's clock.
        let until = key.map(|key| now.after(key.header.kept_for()));
        self.touch(now);
        self.state.staged = Some(configuration);
        let keys = &mut self.state.staged_keys;
        keys.retain(|used| used.expires_at > now);
        keys.extend(key.cloned().zip(until).map(|(key, expires_at)| StagedKey { key, expires_at }));
        let surplus = keys.len().saturating_sub(STAGED_KEYS);
        keys.drain(..surplus);
    }

    /// Withdraws the configuration that waits for the next deploy.
    pub fn discard(&mut self, now: Timestamp) {
        self.touch(now);
        self.state.staged = None;
    }

    /// Remembers revoked values.
    pub fn revoke(&mut self, revoked: Vec<Revoked>, now: Timestamp) {
        if revoked.is_empty() {
            return;
        }
        self.touch(now);
        let known = &mut self.state.revoked;
        known.retain(|one| revoked.iter().all(|new| (&new.name, &new.value) != (&one.name, &one.value)));
        known.extend(revoked);
        let surplus = known.len().saturating_sub(REVOKED);
        known.drain(..surplus);
    }
}

/// Returns the stored configurations that may go: those beyond the newest that are kept, which have at most these bytes, and
/// those that no entry names any more. `named` are all that archived entries name, if they are known.
pub fn surplus(
    state: &AppState,
    named: Option<&BTreeSet<ConfigurationId>>,
    kept_bytes: u64,
    mut stored: Vec<StoredConfiguration>,
    now: Timestamp,
) -> Vec<ConfigurationId> {
    let in_use = state.configurations();
    stored.sort_unstable_by_key(|one| std::cmp::Reverse((one.created_at, one.id)));
    let (mut kept, mut bytes) = (0, 0);
    stored.retain(|one| {
        if in_use.contains(&one.id) {
            return false;
        }
        let is_young = now.since(one.created_at) < YOUNG;
        let is_named = named.is_none_or(|named| named.contains(&one.id)) || is_young;
        kept += usize::from(is_named);
        bytes += if is_named { one.bytes } else { 0 };
        !is_named || kept > KEPT || bytes > kept_bytes
    });
    stored.into_iter().map(|one| one.id).collect()
}
