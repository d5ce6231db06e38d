//! The checks of an app: what is asked of them, setting and removing one, and trying one out.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{FutureExt, select_biased};

use crate::{
    action::Action,
    app::{Policy, settings_bytes},
    check::{CHECKS_MAX, Check, CheckName, CheckSecret, EVERY, FAILURES, TIMEOUT, VERIFY_FOR_MAX},
    configuration::ConfigurationId,
    ledger::AppState,
    ports::{DeployId, MeasureSpec, Measured, Verifier},
    request::{Field, Refusal},
    service::{Authorized, Deployer, Outcome, accept::apps::checked, unwritten},
    time::Timestamp,
};

/// The most bytes of the settings of all checks of an app.
const CHECK_BYTES_MAX: usize = 16 * 1024;

/// Returns `Ok` if the checks can be kept in memory, and come to verdicts. What their settings say is the verifier's.
pub(super) fn check(policy: &Policy) -> Outcome<()> {
    let refuse = |rule: String| Err(Refusal::InvalidField(Field::PolicyChecks, rule));
    let checks = &policy.checks;
    let bytes: usize = checks.iter().map(|check| settings_bytes(&check.settings)).sum();
    if checks.len() > CHECKS_MAX || bytes > CHECK_BYTES_MAX {
        return refuse(format!("must be at most {CHECKS_MAX}, with {CHECK_BYTES_MAX} bytes in all."));
    }
    for (index, check) in checks.iter().enumerate() {
        let name = &check.name;
        if checks.iter().take(index).any(|other| other.name == *name) {
            return refuse(format!("two of them have the name {name}."));
        }
        if !EVERY.contains(&check.every) {
            return refuse(format!("{name} must be measured every 1s to 1h."));
        }
        if !FAILURES.contains(&check.failures) {
            return refuse(format!(
                "{name} must fail after {} to {} measurements in a row.",
                FAILURES.start(),
                FAILURES.end()
            ));
        }
        if !TIMEOUT.contains(&check.timeout) {
            return refuse(format!("a measurement of {name} must take at most 1s to 20s."));
        }
    }
    if policy.verify_for > VERIFY_FOR_MAX {
        return Err(Refusal::InvalidField(Field::PolicyVerifyFor, "must be at most 24h.".to_owned()));
    }
    Ok(())
}

/// The checks that apps may have here.
#[derive(Clone)]
pub(super) struct CheckRules(Option<Arc<dyn Verifier>>);

impl CheckRules {
    /// Returns a policy whose checks have all of their settings. One that is stored already stays as it is: another version of
    /// the service may have set it.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], with the check's name.
    pub(super) fn completed(&self, policy: Policy, stored: &[Check]) -> Outcome<Policy> {
        let complete = |check: Check| {
            if stored.contains(&check) {
                return Ok(check);
            }
            self.with_kept_secret(self.complete(check)?, stored)
        };
        let checks = policy.checks.into_iter().map(complete).collect::<Outcome<_>>()?;
        Ok(Policy { checks, ..policy })
    }

    fn complete(&self, check: Check) -> Outcome<Check> {
        let refuse = |why: String| Refusal::InvalidField(Field::PolicyChecks, format!("{}: {why}", check.name));
        let verifier = self.0.as_ref().ok_or_else(|| refuse(NO_VERIFIER.to_owned()))?;
        // What is too long to be kept is too long to be read.
        if settings_bytes(&check.settings) > CHECK_BYTES_MAX {
            return Err(refuse(format!("its settings must have at most {CHECK_BYTES_MAX} bytes.")));
        }
        let settings = verifier.check(&check.kind, &check.settings).map_err(refuse)?;
        Ok(Check { settings, ..check })
    }

    /// Returns the place that the secret of a check is for; `None`: it has none.
    fn secret_for(&self, check: &Check) -> Option<String> {
        self.0.as_ref()?.secret_for(&check.kind, &check.settings)
    }

    /// Returns a check, which is complete, with the secret of the stored one of its name: that is kept for as long as it is for the
    /// same place.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`] if none is kept, and the check has one.
    fn with_kept_secret(&self, check: Check, stored: &[Check]) -> Outcome<Check> {
        let Some(place) = self.secret_for(&check) else { return Ok(Check { secret: None, ..check }) };
        let is_its = |known: &&Check| {
            known.name == check.name && known.kind == check.kind && self.secret_for(known).as_ref() == Some(&place)
        };
        match stored.iter().find(is_its).and_then(|known| known.secret) {
            Some(id) => Ok(Check { secret: Some(id), ..check }),
            None => Err(Refusal::InvalidField(
                Field::CheckSecret,
                format!("must be given: {} has none that is kept for {place}.", check.name),
            )),
        }
    }
}

const NO_VERIFIER: &str = "this service measures no checks.";

impl Deployer {
    pub(super) fn check_rules(&self) -> CheckRules {
        CheckRules(self.ports.verifier.clone())
    }

    /// Sets a check of an app, in place of the one of its name. Returns the check with all of its settings. Without a secret, that
    /// of the one in its place stays, as long as it is for the same place (see
    /// [`Verifier::secret_for`](crate::ports::Verifier::secret_for)).
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is
    /// away.
    pub async fn set_check(&self, access: &Authorized, check: Check, secret: Option<CheckSecret>) -> Outcome<Check> {
        access.check(Action::Change)?;
        let (rules, name) = (self.check_rules(), check.name.clone());
        let kept = match secret {
            Some(secret) => Some(self.keep_secret(access, rules.complete(check.clone())?, &secret).await?),
            None => None,
        };
        let made = kept.as_ref().and_then(|kept| kept.secret);
        let changed = self.change_checks(access, move |checks| {
            let is_as_before = |known: &&Check| Check { secret: None, ..(*known).clone() } == check;
            let complete = match (&kept, checks.iter().find(is_as_before)) {
                (Some(kept), _) => kept.clone(),
                (None, Some(known)) => known.clone(),
                (None, None) => rules.with_kept_secret(rules.complete(check.clone())?, checks)?,
            };
            match checks.iter_mut().find(|known| known.name == complete.name) {
                Some(known) => *known = complete,
                None => checks.push(complete),
            }
            Ok(())
        });
        let changed = changed.await;
        let is_unknown = matches!(&changed, Err(Refusal::StoreUnavailable { .. }));
        if let Some(made) = made.filter(|_| changed.is_err() && !is_unknown) {
            self.discard_secrets(access, &[made]).await;
        }
        named(&changed?, &name)
    }

    /// Stores the secret of a check, which is complete, and returns the check with it.
    async fn keep_secret(&self, access: &Authorized, check: Check, secret: &CheckSecret) -> Outcome<Check> {
        let refuse = |why: String| Refusal::InvalidField(Field::CheckSecret, why);
        let verifier = self.ports.verifier.as_ref().ok_or_else(|| refuse(NO_VERIFIER.to_owned()))?;
        verifier.check_secret(&check.kind, &check.settings, secret).map_err(refuse)?;
        let place = self.check_rules().secret_for(&check);
        let place = place.ok_or_else(|| refuse(format!("the settings of {} have no use for one.", check.name)))?;
        let store = self.ports.configurations.as_ref();
        let store = store.ok_or_else(|| refuse("this service has no store that keeps one.".to_owned()))?;
        let id = ConfigurationId(self.ports.rng.bits());
        let put = store.put(access.uid, id, &secret.kept(&check.name, &place, self.salt())).await;
        put.map_err(|error| unwritten(&access.id, error))?;
        Ok(Check { secret: Some(id), ..check })
    }

    /// Removes secrets that no check has any more; one that stays is removed with the configurations of the history.
    async fn discard_secrets(&self, access: &Authorized, ids: &[ConfigurationId]) {
        let Some(store) = self.ports.configurations.as_ref().filter(|_| !ids.is_empty()) else { return };
        if let Err(error) = store.remove(access.uid, ids).await {
            tracing::warn!(app = %access.id, error = %error.chain(), "removing the secret of a check failed");
        }
    }

    /// Removes a check of an app.
    ///
    /// # Errors
    /// [`Refusal::CheckNotFound`], [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is
    /// away.
    pub async fn remove_check(&self, access: &Authorized, name: &CheckName) -> Outcome<()> {
        access.check(Action::Change)?;
        let name = name.clone();
        let changed = self.change_checks(access, move |checks| {
            let before = checks.len();
            checks.retain(|check| check.name != name);
            if checks.len() < before { Ok(()) } else { Err(Refusal::CheckNotFound(name.clone())) }
        });
        changed.await.map(drop)
    }

    async fn change_checks(
        &self,
        access: &Authorized,
        mut change: impl FnMut(&mut Vec<Check>) -> Outcome<()> + Send + 'static,
    ) -> Outcome<AppState> {
        let before = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&before);
        let changed = self.update_app(access, move |next, now| {
            let app = &next.state.app;
            let (source, mut policy) = (app.source.clone(), app.policy.clone());
            *noted.lock().unwrap_or_else(PoisonError::into_inner) = secrets(&policy.checks);
            change(&mut policy.checks)?;
            next.configure(source, checked(policy)?, now);
            Ok(())
        });
        let state = changed.await?;
        self.changed_here(state.app.uid);
        let mut gone = std::mem::take(&mut *before.lock().unwrap_or_else(PoisonError::into_inner));
        let left = secrets(&state.app.policy.checks);
        gone.retain(|id| !left.contains(id));
        self.discard_secrets(access, &gone).await;
        Ok(state)
    }

    /// Measures a check once, of the version that is current. Nothing is decided by it, and nothing recorded. It takes as long
    /// as the check's [`timeout`](Check::timeout) at most.
    ///
    /// # Errors
    /// [`Refusal::CheckNotFound`], [`Refusal::NothingRuns`], [`Refusal::AppNotFound`]; [`Refusal::InvalidField`] where no checks
    /// are measured; [`Refusal::Busy`] if this process cannot measure now; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn test_check(&self, access: &Authorized, name: &CheckName) -> Outcome<Measured> {
        access.check(Action::TestCheck)?;
        let state = self.state(access).await?;
        let check = named(&state, name)?;
        let refuse = |why: &str| Refusal::InvalidField(Field::PolicyChecks, format!("{name}: {why}"));
        if self.ports.verifier.is_none() {
            return Err(refuse(NO_VERIFIER));
        }
        let spec = tried(&state, check, self.store_time().await?)?;
        // It may have to wait for those of its environment.
        let patience = spec.check.timeout * 2;
        select_biased! {
            answer = self.measure_once(spec).fuse() => answer.measured.map_err(|_| Refusal::Busy),
            () = self.ports.clock.sleep(patience).fuse() => Err(Refusal::Busy),
        }
    }
}

/// Returns the ids of the secrets that checks have.
fn secrets(checks: &[Check]) -> Vec<ConfigurationId> {
    checks.iter().filter_map(|check| check.secret).collect()
}

fn named(state: &AppState, name: &CheckName) -> Outcome<Check> {
    let check = state.app.policy.checks.iter().find(|check| check.name == *name);
    check.cloned().ok_or_else(|| Refusal::CheckNotFound(name.clone()))
}

/// Returns the specification by which a person tries out a check.
fn tried(state: &AppState, check: Check, now: Timestamp) -> Outcome<MeasureSpec> {
    let app = &state.app;
    let current = state.current.as_ref().and_then(|deploy| Some((deploy, deploy.image.clone()?)));
    let (deploy, image) = current.ok_or_else(|| Refusal::NothingRuns(app.id.clone()))?;
    let since = deploy.updated_at;
    let window = check.window(now.since(since));
    let id = DeployId { app: app.uid, revision: deploy.revision };
    let spec = MeasureSpec::new(&app.id, id, (app.target.clone(), image), check, now);
    Ok(MeasureSpec { commit: deploy.commit.clone(), since, rollout_began: deploy.created_at, window, ..spec })
}
