//! The checks of an app: what is asked of them, setting and removing one, and trying one out.

use std::sync::Arc;

use futures_util::{FutureExt, select_biased};

use crate::{
    action::Action,
    app::{Policy, settings_bytes},
    check::{CHECKS_MAX, Check, CheckName, EVERY, FAILURES, TIMEOUT, VERIFY_FOR_MAX, WATCH_FOR_MAX},
    ledger::AppState,
    ports::{DeployId, MeasureSpec, Measured, Verifier},
    request::{Field, Refusal},
    service::{Authorized, Deployer, Outcome, accept::apps::checked},
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
    if policy.watch_for > WATCH_FOR_MAX {
        return Err(Refusal::InvalidField(Field::PolicyWatchFor, "must be at most 24h.".to_owned()));
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
        let complete = |check: Check| if stored.contains(&check) { Ok(check) } else { self.complete(check) };
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
}

const NO_VERIFIER: &str = "this service measures no checks.";

impl Deployer {
    pub(super) fn check_rules(&self) -> CheckRules {
        CheckRules(self.ports.verifier.clone())
    }

    /// Sets a check of an app, in place of the one of its name. Returns the check with all of its settings.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], [`Refusal::AppNotFound`], [`Refusal::Busy`]; [`Refusal::StoreUnavailable`] while the store is
    /// away.
    pub async fn set_check(&self, access: &Authorized, check: Check) -> Outcome<Check> {
        access.check(Action::Change)?;
        let (rules, name) = (self.check_rules(), check.name.clone());
        let changed = self.change_checks(access, move |checks| {
            let complete = if checks.contains(&check) { check.clone() } else { rules.complete(check.clone())? };
            match checks.iter_mut().find(|known| known.name == complete.name) {
                Some(known) => *known = complete,
                None => checks.push(complete),
            }
            Ok(())
        });
        named(&changed.await?, &name)
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
        let changed = self.update_app(access, move |next, now| {
            let app = &next.state.app;
            let (source, mut policy) = (app.source.clone(), app.policy.clone());
            change(&mut policy.checks)?;
            next.configure(source, checked(policy)?, now);
            Ok(())
        });
        let state = changed.await?;
        self.changed_here(state.app.uid);
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
    Ok(MeasureSpec { since, rollout_began: deploy.created_at, window, ..spec })
}
