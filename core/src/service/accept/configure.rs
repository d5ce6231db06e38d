//! Changes of the configuration: each is a revision of the image that runs, or waits for the next deploy.

use std::{cmp::Reverse, collections::BTreeSet, sync::Arc};

use crate::{
    action::Action,
    app::AppUid,
    configuration::{Configuration, ConfigurationId, ENVIRONMENT_BYTES_MAX, SALT_BYTES, VariableName, Variables},
    deploy::Trigger,
    error::{Entity, Error, Result},
    ledger::{Admission, AppState, Revoked, configuration},
    ports::ConfigurationStore,
    request::{ConfigureRequest, IdempotencyKey, Refusal},
    service::{ATTEMPTS, Accepted, Authorized, Deployer, Outcome, accept::submit::Declined, unwritten},
};

/// A change of the configuration that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Configured {
    /// The deploy that brings it.
    Deploy(Box<Accepted>),
    /// It waits for the next deploy: the caller asked for that, or no version has succeeded or failed yet.
    Staged {
        /// Whether an earlier call with the same key has staged it.
        replayed: bool,
    },
    /// The app has just this configuration already.
    Unchanged,
}

impl Deployer {
    /// Changes an app's configuration, as a deploy of the image that runs, or for the next deploy. Until a version has succeeded,
    /// the one that failed last is deployed once more.
    /// A dropped call may have been recorded or not: see [Cancellation](Deployer#cancellation).
    ///
    /// # Errors
    /// [`Refusal::CannotBeConfigured`] where the target's environment cannot be set, [`Refusal::ConfigurationsFull`],
    /// [`Refusal::InvalidField`] and [`Refusal::InvalidSetting`] for a change that cannot be made; those of [`Deployer::redeploy`].
    /// Nothing was recorded, unless it says
    /// that it may have been.
    pub async fn configure(&self, access: &Authorized, request: ConfigureRequest) -> Outcome<Configured> {
        access.check(Action::Configure)?;
        let store = self.configurations()?;
        if let Some(key) = &request.key
            && let Some(accepted) = self.repeated(access, key).await?
        {
            return Ok(Configured::Deploy(Box::new(accepted)));
        }
        for _ in 0..ATTEMPTS {
            let state = self.state(access).await?;
            if state.has_staged(request.key.as_ref(), self.time())? {
                return Ok(Configured::Staged { replayed: true });
            }
            if let Some(why) = self.ports.rollouts.unconfigurable(&state.app.target) {
                return Err(Refusal::CannotBeConfigured(why));
            }
            let base = state.next_configuration();
            let made_with = self.checked_settings(access, &state, &request.change).await?;
            // All of the app's variables are read and written.
            let _turn = self.variables_turn(access).await;
            let before = self.base_variables(access, base).await?;
            let mut variables = request.change.apply(before.clone())?;
            if let Some(made_with) = made_with {
                variables.settings = made_with;
            }
            let has_version = state.current.is_some() || state.failed_first().is_some();
            let is_staged = request.staged || !has_version;
            configuration::check(&state, is_staged, request.if_current, &access.cause_of(Trigger::Config))?;
            if variables == before && (is_staged || state.staged.is_none()) {
                return Ok(Configured::Unchanged);
            }
            let revoked = self.revoked(access, &state, (base, &before), &request).await?;
            self.forget_configurations(&state, None).await.map_err(Refusal::of_store)?;
            let id = ConfigurationId(self.ports.rng.bits());
            let is_full = self.put_if_it_fits(store, &state, id, (&before, &variables)).await?;
            let made = (id, Arc::new(variables));
            let accepted = if is_staged {
                self.stage(store, access, (base, made), (request.key.clone(), revoked)).await
            } else {
                self.admit_configuration(access, base, made, (&request, revoked)).await
            };
            if matches!(accepted, Ok(None))
                || matches!(&accepted, Err(refusal) if !matches!(refusal, Refusal::StoreUnavailable { .. }))
            {
                discard(store, access, id).await;
            }
            if let Some(configured) = accepted? {
                if is_full {
                    self.forget_most(access).await;
                }
                return Ok(configured);
            }
        }
        Err(Refusal::Busy)
    }

    /// Stores a configuration. Returns whether the environment is full, so that older ones of the app have to make room. Changes of
    /// one environment take turns here, so that many at once do not all take the same room.
    ///
    /// # Errors
    /// Those of [`Deployer::is_full`]; those of the store.
    async fn put_if_it_fits(
        &self,
        store: &dyn ConfigurationStore,
        state: &AppState,
        id: ConfigurationId,
        (before, variables): (&Variables, &Variables),
    ) -> Outcome<bool> {
        let app = &state.app;
        let turns = self.configuration_turns.of(app.id.namespace.clone());
        let _turn = turns.lock().await;
        let is_full = self.is_full(store, state, (before, variables)).await?;
        let put = store.put(app.uid, id, variables).await;
        put.map_err(|error| unwritten(&app.id, error))?;
        Ok(is_full)
    }

    /// Returns whether the environment is full. A change that takes nothing more than the configuration before it fits even so,
    /// as nothing could be unset otherwise; but those of many apps together take no more than as much again.
    ///
    /// # Errors
    /// [`Refusal::ConfigurationsFull`] if there would be too many bytes even so.
    async fn is_full(
        &self,
        store: &dyn ConfigurationStore,
        state: &AppState,
        (before, variables): (&Variables, &Variables),
    ) -> Outcome<bool> {
        let bytes = |variables: &Variables| u64::try_from(variables.to_text().len()).unwrap_or(u64::MAX);
        let (more, app) = (bytes(variables), &state.app);
        let all = store.bytes_of(&app.id.namespace).await.map_err(Refusal::of_store)?.saturating_add(more);
        if all <= ENVIRONMENT_BYTES_MAX {
            return Ok(false);
        }
        let stored = store.list(app.uid).await.map_err(Refusal::of_store)?;
        let surplus =
            configuration::surplus(state, None, configuration::KEPT_BYTES_IF_FULL, stored.clone(), self.time());
        let freed: u64 = stored.iter().filter(|one| surplus.contains(&one.id)).map(|one| one.bytes).sum();
        let left = all.saturating_sub(freed);
        let most = if more <= bytes(before) { 2 * ENVIRONMENT_BYTES_MAX } else { ENVIRONMENT_BYTES_MAX };
        if left <= most { Ok(true) } else { Err(Refusal::ConfigurationsFull) }
    }

    /// Removes most of the app's older configurations; what stays is removed by its next change.
    async fn forget_most(&self, access: &Authorized) {
        let forgotten = async {
            let state = self.state(access).await?;
            self.forget_beyond(&state, None, configuration::KEPT_BYTES_IF_FULL).await.map_err(Refusal::of_store)
        };
        if let Err(refusal) = forgotten.await {
            tracing::warn!(app = %access.id, error = %refusal, "removing old configurations failed");
        }
    }

    /// Keeps a configuration for the next deploy, in place of one that waited. Returns `None` if it was made from one that is not
    /// the app's any more.
    async fn stage(
        &self,
        store: &dyn ConfigurationStore,
        access: &Authorized,
        (base, (id, variables)): (Option<ConfigurationId>, (ConfigurationId, Arc<Variables>)),
        (key, revoked): (Option<IdempotencyKey>, Vec<Revoked>),
    ) -> Outcome<Option<Configured>> {
        let staged = self.update_app(access, move |change, now| {
            if change.state.next_configuration() != base || change.state.has_staged(key.as_ref(), now)? {
                return Err(Refusal::Busy);
            }
            let revoked = with_known(&change.state, &revoked, id, &variables);
            change.stage(id, key.as_ref(), now);
            change.revoke(revoked, now);
            Ok(())
        });
        match staged.await {
            Ok(state) => {
                tracing::info!(app = %access.id, actor = %access.actor(), "configuration waits for the next deploy");
                discard_waiting(store, access, &state, base).await;
                Ok(Some(Configured::Staged { replayed: false }))
            }
            Err(Refusal::Busy) => Ok(None),
            Err(refusal) => Err(refusal),
        }
    }

    /// Withdraws what waits for the next deploy. Returns `false` if nothing does. A deploy that has begun with it goes on.
    ///
    /// # Errors
    /// [`Refusal::NotAllowed`] of [`Action::Change`] if what waits changes what instances are made with;
    /// [`Refusal::AppNotFound`]; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn discard_configuration(&self, access: &Authorized) -> Outcome<bool> {
        access.check(Action::Configure)?;
        let store = self.configurations()?;
        for _ in 0..ATTEMPTS {
            let state = self.state(access).await?;
            let Some(staged) = state.staged else { return Ok(false) };
            if !access.allows(Action::Change) {
                let _turn = self.variables_turn(access).await;
                let current = self.current_variables(access, &state).await?;
                self.check_staged_settings(access, &state, &current).await?;
            }
            let updated = self.update_app(access, move |change, now| {
                if change.state.staged != Some(staged) {
                    return Err(Refusal::Busy);
                }
                change.discard(now);
                Ok(())
            });
            match updated.await {
                Ok(state) => {
                    tracing::info!(app = %access.id, actor = %access.actor(), "withdrew the configuration that waited");
                    discard_waiting(store, access, &state, Some(staged)).await;
                    return Ok(true);
                }
                Err(Refusal::Busy) => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Err(Refusal::Busy)
    }

    /// Accepts the deploy of a configuration. Returns `None` if it was made from one that is not the app's any more.
    async fn admit_configuration(
        &self,
        access: &Authorized,
        base: Option<ConfigurationId>,
        (id, variables): (ConfigurationId, Arc<Variables>),
        (request, revoked): (&ConfigureRequest, Vec<Revoked>),
    ) -> Outcome<Option<Configured>> {
        let (admission_id, cause) = (self.admission_id(), access.cause_of(Trigger::Config));
        let (if_current, key, now) = (request.if_current, request.key.clone(), self.time());
        let accepted = self.admit(access, admission_id, request.key.clone(), move |state| {
            if state.next_configuration() != base || state.has_staged(key.as_ref(), now)? {
                return Err(Declined::Outdated);
            }
            let deploy = configuration::deploy(state, id, if_current, &cause)?;
            let revoked = with_known(state, &revoked, id, &variables);
            Ok((Admission { revoked, ..Admission::plain(admission_id, deploy) }, ()))
        });
        Ok(accepted.await?.map(|(accepted, _)| Configured::Deploy(Box::new(accepted))))
    }

    /// Removes the app's configurations that may go; `named` are those of all archived entries, if they are known.
    pub(crate) async fn forget_configurations(
        &self,
        state: &AppState,
        named: Option<&BTreeSet<ConfigurationId>>,
    ) -> Result<()> {
        self.forget_beyond(state, named, configuration::KEPT_BYTES).await
    }

    async fn forget_beyond(
        &self,
        state: &AppState,
        named: Option<&BTreeSet<ConfigurationId>>,
        kept_bytes: u64,
    ) -> Result<()> {
        let Some(store) = &self.ports.configurations else { return Ok(()) };
        let stored = store.list(state.app.uid).await?;
        let surplus = configuration::surplus(state, named, kept_bytes, stored, self.time());
        if surplus.is_empty() { Ok(()) } else { store.remove(state.app.uid, &surplus).await }
    }

    /// Returns the variables of a configuration; `None` of none.
    ///
    /// # Errors
    /// `NotFound` if they are no longer stored; those of the store.
    pub(crate) async fn variables(&self, app: AppUid, id: Option<ConfigurationId>) -> Result<Option<Variables>> {
        let Some(id) = id else { return Ok(None) };
        let stored = match &self.ports.configurations {
            Some(store) => store.get(app, id).await?,
            None => None,
        };
        stored.map(Some).ok_or(Error::NotFound(Entity::Object))
    }

    /// Returns the variables of a configuration; `None` of none, and of one that is no longer stored.
    pub(super) async fn kept_variables(
        &self,
        access: &Authorized,
        id: Option<ConfigurationId>,
    ) -> Outcome<Option<Variables>> {
        match self.variables(access.uid, id).await {
            Err(Error::NotFound(_)) => Ok(None),
            read => read.map_err(Refusal::of_store),
        }
    }

    /// Returns the variables that a change begins from. What is lost is set anew, from the beginning.
    pub(super) async fn base_variables(
        &self,
        access: &Authorized,
        base: Option<ConfigurationId>,
    ) -> Outcome<Variables> {
        match self.kept_variables(access, base).await? {
            Some(before) => Ok(before),
            None => self.no_variables(access).await,
        }
    }

    /// Returns a configuration with its variables.
    ///
    /// # Errors
    /// As [`Deployer::variables`].
    pub(crate) async fn filled(&self, app: AppUid, of: Option<&Configuration>) -> Result<Option<Configuration>> {
        let variables = self.variables(app, of.map(|of| of.id)).await?;
        let before = match self.variables(app, of.and_then(|of| of.before)).await {
            // All of them count as new.
            Err(Error::NotFound(_) | Error::Corrupt { .. } | Error::Denied { .. }) => None,
            read => read?,
        };
        Ok(of.zip(variables).map(|(of, variables)| of.filled(variables, before.as_ref())))
    }

    /// Returns the values that a change revokes: those of the variables that it removes, with the configurations of the app that
    /// have them.
    async fn revoked(
        &self,
        access: &Authorized,
        state: &AppState,
        (base, before): (Option<ConfigurationId>, &Variables),
        request: &ConfigureRequest,
    ) -> Outcome<Vec<Revoked>> {
        if !request.revoked {
            return Ok(Vec::new());
        }
        let current = state.current.as_ref().and_then(|current| current.configuration);
        let of_current = self.kept_variables(access, current.filter(|_| current != base)).await?;
        let known = [(base, Some(before)), (current, of_current.as_ref())];
        let revoke = |name: &VariableName| {
            let value = before.mark(name)?;
            let has =
                |variables: &Option<&Variables>| variables.is_some_and(|it| it.mark(name).as_ref() == Some(&value));
            let having = known.iter().filter(|(_, variables)| has(variables)).filter_map(|(id, _)| *id);
            Some(Revoked { name: name.clone(), value: value.clone(), configurations: having.collect() })
        };
        Ok(request.change.unset.iter().filter_map(revoke).collect())
    }

    /// Returns no variables, with the key of the fingerprints that the app had before.
    pub(super) async fn no_variables(&self, access: &Authorized) -> Outcome<Variables> {
        let store = self.configurations()?;
        let mut stored = store.list(access.uid).await.map_err(Refusal::of_store)?;
        stored.sort_unstable_by_key(|one| Reverse((one.created_at, one.id)));
        for one in stored {
            match store.get(access.uid, one.id).await {
                Ok(Some(before)) => return Ok(before.emptied()),
                // One of which the store knows nothing more, or whose key is gone: those before it have the same.
                Ok(None) | Err(Error::Corrupt { .. } | Error::Denied { .. }) => {}
                Err(error) => return Err(Refusal::of_store(error)),
            }
        }
        Ok(Variables::empty(self.salt()))
    }

    /// Returns the store of configurations.
    fn configurations(&self) -> Outcome<&dyn ConfigurationStore> {
        let none = || Refusal::CannotBeConfigured("This service has no store of configurations.".to_owned());
        self.ports.configurations.as_deref().ok_or_else(none)
    }

    pub(super) fn salt(&self) -> [u8; SALT_BYTES] {
        let mut salt = [0; SALT_BYTES];
        self.ports.rng.fill(&mut salt);
        salt
    }
}

/// Returns the values that a change revokes, and those of the configuration it makes that were revoked before: a restore to that
/// configuration says so.
fn with_known(state: &AppState, revoked: &[Revoked], id: ConfigurationId, variables: &Variables) -> Vec<Revoked> {
    let is_new = |known: &Revoked| revoked.iter().all(|new| (&new.name, &new.value) != (&known.name, &known.value));
    let known = state.revoked_with(id, variables).into_iter().filter(is_new);
    revoked.iter().cloned().chain(known).collect()
}

/// Removes a configuration that nothing needs; one that stays is removed with those of the history.
async fn discard(store: &dyn ConfigurationStore, access: &Authorized, id: ConfigurationId) {
    if let Err(error) = store.remove(access.uid, &[id]).await {
        tracing::warn!(app = %access.id, error = %error.chain(), "removing an unused configuration failed");
    }
}

/// Removes the configuration that waited until this state, unless a deploy has begun with it: none does from now on.
async fn discard_waiting(
    store: &dyn ConfigurationStore,
    access: &Authorized,
    state: &AppState,
    waited: Option<ConfigurationId>,
) {
    if let Some(waited) = waited.filter(|waited| !state.deployed_configurations().any(|id| id == *waited)) {
        discard(store, access, waited).await;
    }
}
