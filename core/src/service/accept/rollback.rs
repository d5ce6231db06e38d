//! Rollbacks: a return to a good version as a new revision.

use std::{collections::BTreeSet, sync::Arc};

use crate::{
    action::Action,
    app::AppId,
    configuration::{VariableName, Variables},
    deploy::{Deploy, Revision, Trigger},
    ledger::{
        Admission, AppState, NewDeploy, OtherDeploys, Revoked, configuration,
        rollback::{self, Target},
    },
    ports::Page,
    request::{Refusal, RollbackRequest},
    service::{ATTEMPTS, Accepted, Authorized, Deployer, Outcome, accept::submit::Declined},
};

/// The number of entries per page of the search for the last good version.
const SEARCH_PAGE: usize = 40;
/// The most entries that a search looks at: some stores read each by itself.
const SEARCHED: usize = 1_000;

impl Deployer {
    /// Rolls back: to the revision that the request names, or to the last good version before what is on the cluster.
    /// Unfinished deploys end superseded, and what was on the cluster is held.
    /// A dropped call may have been recorded or not: see [Cancellation](Deployer#cancellation).
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn rollback(&self, access: &Authorized, request: RollbackRequest) -> Outcome<Accepted> {
        access.check(Action::Rollback)?;
        let mut searched = None;
        for _ in 0..ATTEMPTS {
            let read = self.state(access).await?;
            let (past_releases, with_configuration) = (request.past_releases, request.with_configuration);
            let (with_revoked, without_release) = (request.with_revoked, request.without_release);
            let target = match self.target(access, &read, &request, &mut searched).await {
                Ok(target) if with_configuration => {
                    self.check_kept(access, &read, &target).await.map(|revoked| (target, revoked))
                }
                target => target.map(|target| (target, Vec::new())),
            };
            let is_proven = match &target {
                Ok((target, _)) => self.is_proven(&read, target).await?,
                Err(_) => false,
            };
            if let Err(away @ Refusal::StoreUnavailable { .. }) = target {
                return Err(away);
            }
            let (admission_id, cause) = (self.admission_id(), access.cause_of(Trigger::Rollback));
            let accepted = self.admit(access, admission_id, request.key.clone(), move |state| {
                if !means_the_same(&read, state) {
                    return Err(Declined::Outdated);
                }
                let (target, revoked) = target.clone()?;
                let variables = if with_configuration { names_of(&revoked) } else { state.revoked_of_current() };
                if target.lacks_release() && !without_release {
                    return Err(Refusal::NotReleased { target: target.revision }.into());
                }
                let released = state.released_since(target.revision);
                if !released.is_empty() && !past_releases {
                    let target = target.revision;
                    return Err(Refusal::ReleaseBetween { target, released }.into());
                }
                if !variables.is_empty() && !with_revoked {
                    return Err(Refusal::ConfigurationRevoked { target: target.revision, variables }.into());
                }
                let deploy = rollback::deploy(state, &target, &cause)?;
                let deploy = NewDeploy { is_unproven: !is_proven, ..deploy };
                let deploy = if with_configuration { rollback::with_configuration(deploy, &target) } else { deploy };
                let admission = Admission {
                    others: OtherDeploys::EndSuperseded,
                    hold: rollback::hold(state, &target),
                    revoked,
                    ..Admission::plain(admission_id, deploy)
                };
                Ok((admission, ()))
            });
            if let Some((accepted, _)) = accepted.await? {
                return Ok(accepted);
            }
        }
        Err(Refusal::Busy)
    }

    /// Returns the entry that a rollback would return to by now.
    ///
    /// # Errors
    /// [`Refusal::NothingToRollBackTo`], [`Refusal::RevisionNotFound`], [`Refusal::CurrentChanged`], [`Refusal::AppNotFound`];
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn rollback_target(&self, access: &Authorized, request: &RollbackRequest) -> Outcome<Arc<Deploy>> {
        access.check(Action::Rollback)?;
        self.target(access, &self.state(access).await?, request, &mut None).await
    }

    /// Returns the entry that a rollback returns to. What an earlier attempt has searched for is not searched for again.
    async fn target(
        &self,
        access: &Authorized,
        state: &AppState,
        request: &RollbackRequest,
        searched: &mut Option<(Target, Arc<Deploy>)>,
    ) -> Outcome<Arc<Deploy>> {
        state.expect_current(request.if_current)?;
        if let Some(revision) = request.revision {
            return Ok(Arc::new(self.entry_of(state, revision).await?));
        }
        let target = rollback::default_target(state);
        if let Some((_, found)) = searched.as_ref().filter(|(known, _)| *known == target) {
            return Ok(found.clone());
        }
        match &target {
            Target::Entry(entry) => Ok(entry.clone()),
            Target::Before { below, other_than } => {
                let with_configuration = request.with_configuration;
                let found = self.newest_other(access, state, (*below, other_than), with_configuration).await?;
                let found = Arc::new(found);
                *searched = Some((target, found.clone()));
                Ok(found)
            }
            Target::None => Err(no_success(&access.id, state.latest)),
        }
    }

    /// Returns whether the version of a rollback's target is known to meet the requirements, or has succeeded: the target itself,
    /// which may be a return that failed, or the version that it returned to.
    async fn is_proven(&self, state: &AppState, target: &Deploy) -> Outcome<bool> {
        if target.is_proven(&state.app) || target.effective == target.revision {
            return Ok(target.is_proven(&state.app));
        }
        match self.entry_of(state, target.effective).await {
            Ok(version) => Ok(version.is_proven(&state.app)),
            Err(Refusal::RevisionNotFound(_)) => Ok(false),
            Err(refusal) => Err(refusal),
        }
    }

    /// Returns the revoked values that the configuration of a rollback's target has, if it is still stored.
    async fn check_kept(&self, access: &Authorized, state: &AppState, target: &Deploy) -> Outcome<Vec<Revoked>> {
        if !configuration::is_decided(target) {
            return Err(Refusal::NothingToRollBackTo(format!(
                "Revision {} never began, and has no configuration. Its image alone can be returned to.",
                target.revision
            )));
        }
        let Some(id) = target.configuration else {
            if !access.allows(Action::Change) {
                let _turn = self.variables_turn(access).await;
                self.check_same_settings(access, state, &Variables::default()).await?;
            }
            return Ok(Vec::new());
        };
        let forgotten = || {
            let forgotten = Refusal::ConfigurationForgotten(target.revision);
            Refusal::NothingToRollBackTo(format!("{forgotten} Its image alone can be returned to."))
        };
        let stored = match &self.ports.configurations {
            Some(store) => {
                let _turn = self.rollback_turn(access).await;
                store.list(access.uid).await.map_err(Refusal::of_store)?
            }
            None => Vec::new(),
        };
        if stored.iter().all(|one| one.id != id) {
            return Err(forgotten());
        }
        if state.revoked.is_empty() && access.allows(Action::Change) {
            return Ok(Vec::new());
        }
        let _turn = self.variables_turn(access).await;
        let Some(variables) = self.kept_variables(access, Some(id)).await? else { return Err(forgotten()) };
        if !access.allows(Action::Change) {
            self.check_same_settings(access, state, &variables).await?;
        }
        Ok(state.revoked_with(id, &variables))
    }

    /// Returns `Ok` unless a rollback would change what instances are made with, such as the volumes of a machine, or withdraw
    /// such a change, which waits: that is for those who may change the app.
    async fn check_same_settings(&self, access: &Authorized, state: &AppState, target: &Variables) -> Outcome<()> {
        let current = self.current_variables(access, state).await?;
        if !self.are_made_alike(&current, target) {
            return access.check(Action::Change);
        }
        self.check_staged_settings(access, state, &current).await
    }

    /// Returns the newest entry below a revision that succeeded with another image, or another configuration if that counts, of
    /// the newest [`SEARCHED`]. Versions whose verification was revoked are left out, and earlier entries of theirs too. The
    /// first page waits for other rollbacks of the environment alone; a search beyond it, for the turn of a long list.
    async fn newest_other(
        &self,
        access: &Authorized,
        state: &AppState,
        (below, top): (Revision, &Deploy),
        with_configuration: bool,
    ) -> Outcome<Deploy> {
        // Entries of the version itself may have run with another configuration.
        let mut before = Some(if with_configuration { below.next() } else { below });
        let mut renamed = None;
        let mut revoked: Vec<Deploy> = Vec::new();
        let mut short = Some(self.rollback_turn(access).await);
        let mut long = None;
        for _ in 0..SEARCHED / SEARCH_PAGE {
            let page = Page { before, succeeded: true, limit: SEARCH_PAGE };
            let entries = self.ports.history.page(access.uid, page).await.map_err(Refusal::of_store)?;
            before = entries.last().map(|entry| entry.revision);
            let full = entries.len() == SEARCH_PAGE;
            for entry in entries {
                // A return to a revoked version makes it no better.
                if state.is_revoked(entry.revision) || state.is_revoked(entry.effective) {
                    revoked.push(entry);
                    continue;
                }
                if revoked.iter().any(|newer| newer.runs_as(&entry)) {
                    continue;
                }
                let is_configured_otherwise = with_configuration && entry.configuration != top.configuration;
                if !entry.same_image(top) || is_configured_otherwise {
                    return Ok(entry);
                }
                if renamed.is_none() && name(&entry) != name(top) {
                    renamed = Some(entry);
                }
            }
            if !full {
                return Err(no_other_image(&access.id, below, top, renamed.as_ref()));
            }
            drop(short.take());
            if long.is_none() {
                long = Some(self.history_turn(access, SEARCHED).await);
            }
        }
        Err(too_many_of_one_image(&access.id, below, top))
    }
}

/// Returns the variables of revoked values, each once.
fn names_of(revoked: &[Revoked]) -> Vec<VariableName> {
    revoked.iter().map(|revoked| revoked.name.clone()).collect::<BTreeSet<_>>().into_iter().collect()
}

/// Returns the refusal of a rollback of an app of which no version has succeeded.
fn no_success(id: &AppId, latest: Option<Revision>) -> Refusal {
    let way = match latest {
        Some(latest) if latest > Revision::FIRST => {
            "Name an earlier revision that has an image to return to it all the same, or deploy another image."
        }
        Some(_) | None => "Deploy another image.",
    };
    Refusal::NothingToRollBackTo(format!(
        "No deploy of {id} has succeeded yet, so that there is no version to return to. {way}"
    ))
}

/// Returns the refusal of a rollback that has looked at every entry below a revision; `renamed` is one of the same bits
/// under another name.
fn no_other_image(id: &AppId, below: Revision, other_than: &Deploy, renamed: Option<&Deploy>) -> Refusal {
    let image = other_than.image.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string);
    let same_bits = renamed.map_or_else(String::new, |entry| {
        let digest = entry.digest.as_ref().map_or_else(String::new, |digest| format!(", {digest}"));
        format!(" Revision {} ({}) has the same bits under another name{digest}.", entry.revision, name(entry))
    });
    Refusal::NothingToRollBackTo(format!(
        "{id} has no deploy before revision {below} that succeeded with another image than that of revision {} \
         ({image}), which is on the cluster.{same_bits} Name a revision of the history to return to it all the same, or \
         deploy another image.",
        other_than.revision
    ))
}

/// Returns the refusal of a rollback that has looked at as many entries below a revision as it may.
fn too_many_of_one_image(id: &AppId, below: Revision, other_than: &Deploy) -> Refusal {
    Refusal::NothingToRollBackTo(format!(
        "The last {SEARCHED} deploys of {id} before revision {below} that succeeded have the image of revision {} ({}), which \
         is on the cluster, and a rollback looks no further. Name the revision to return to, as the history shows it, or \
         deploy another image.",
        other_than.revision,
        name(other_than)
    ))
}

/// Returns the image of an entry as it was posted.
fn name(entry: &Deploy) -> String {
    entry.image.clone().map_or_else(String::new, |image| image.unpinned().to_string())
}

/// Returns whether a rollback means the same version on both states.
fn means_the_same(read: &AppState, state: &AppState) -> bool {
    read.latest == state.latest
        && read.current == state.current
        && read.on_cluster() == state.on_cluster()
        && read.revoked == state.revoked
        && read.revocations().eq(state.revocations())
        && read.staged == state.staged
        && read.app.required() == state.app.required()
}
