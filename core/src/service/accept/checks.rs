//! The checks of an app: what is asked of them, setting and removing one, and trying one out.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt, select_biased};

use crate::{
    action::Action,
    app::{App, Policy, settings_bytes},
    check::{
        CHECKS_MAX, Check, CheckKind, CheckName, CheckSecret, EVERY, FAILURES, TIMEOUT_MIN, VERIFY_FOR_MAX,
        WATCH_FOR_MAX,
    },
    configuration::{Configuration, ConfigurationId},
    ledger::AppState,
    ports::{CheckRun, CheckSetting, DeployId, KindOfCheck, MeasureSpec, Measured, Verifier},
    request::{Field, Refusal},
    service::{
        Authorized, Deployer, NO_RUNNER, Outcome,
        accept::apps::{check_command, checked},
        drive::WhenDropped,
        unwritten,
    },
    slots::Rank,
    text::quoted,
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
        let longest = check.kind.longest_timeout();
        if !(TIMEOUT_MIN..=longest).contains(&check.timeout) {
            let (kind, longest) = (&check.kind, longest.as_secs());
            return refuse(format!(
                "a measurement of {name} must take at most 1s to {longest}s, as all of kind {kind}."
            ));
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
pub(super) struct CheckRules {
    verifier: Option<Arc<dyn Verifier>>,
    runs_commands: bool,
    /// Whether the platform names the addresses of instances.
    names_addresses: bool,
}

/// The settings of checks that run a command.
const COMMAND_SETTINGS: &[CheckSetting] =
    &[CheckSetting { name: Check::COMMAND_SETTING, about: "The program and its arguments.", required: true }];

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
        // What is too long to be kept is too long to be read.
        if settings_bytes(&check.settings) > CHECK_BYTES_MAX {
            return Err(refuse(format!("its settings must have at most {CHECK_BYTES_MAX} bytes.")));
        }
        if check.kind.is_command() {
            self.check_command(&check).map_err(refuse)?;
            return Ok(check);
        }
        let verifier = self.verifier.as_ref().ok_or_else(|| refuse(NO_VERIFIER.to_owned()))?;
        let kinds: Vec<_> = self.kinds().into_iter().map(|known| known.kind.to_string()).collect();
        if !kinds.iter().any(|known| known == check.kind.as_str()) {
            return Err(refuse(format!("the kind {} is unknown here; there are {}.", check.kind, kinds.join(", "))));
        }
        let settings = verifier.check(&check.kind, &check.settings).map_err(refuse)?;
        if verifier.instance_port(&check.kind, &settings).is_some() && !self.names_addresses {
            return Err(refuse("the platform of this service names no addresses of instances.".to_owned()));
        }
        Ok(Check { settings, ..check })
    }

    /// Returns the place that the secret of a check is for; `None`: it has none.
    fn secret_for(&self, check: &Check) -> Option<String> {
        self.verifier.as_ref()?.secret_for(&check.kind, &check.settings)
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

    /// Returns `Ok` if the command of a check can be stored and run.
    ///
    /// # Errors
    /// What is wrong with it, as a sentence.
    fn check_command(&self, check: &Check) -> std::result::Result<(), String> {
        const SETTING: &str = Check::COMMAND_SETTING;
        if !self.runs_commands {
            return Err(NO_RUNNER.to_owned());
        }
        if let Some(other) = check.settings.keys().find(|name| *name != SETTING) {
            return Err(format!("{} has no setting {}; it has {SETTING}.", check.kind, quoted(other)));
        }
        let command = check.command();
        let command = command.ok_or_else(|| format!("{SETTING} must be a list of a program and its arguments."))?;
        match check_command(Field::PolicyChecks, &command) {
            Err(Refusal::InvalidField(_, rule)) => Err(format!("{SETTING} {rule}")),
            Err(_) | Ok(()) => Ok(()),
        }
    }

    fn kinds(&self) -> Vec<KindOfCheck> {
        let mut kinds = self.verifier.as_ref().map(|verifier| verifier.describe()).unwrap_or_default();
        if self.runs_commands
            && let Ok(kind) = CheckKind::COMMAND.parse()
        {
            let about = "The exit code of a command that is run with the new image, as a release command is: 0 passes.";
            kinds.push(KindOfCheck { kind, about, settings: COMMAND_SETTINGS, secret: None });
        }
        kinds
    }
}

/// The longest time of a command that a person tries out: callers wait for the answer.
const TRY_OUT_MAX: Duration = Duration::from_secs(25);
/// How long such a command waits for those of its environment.
const COMMAND_WAIT: Duration = Duration::from_secs(3);

const NO_VERIFIER: &str = "this service measures no checks.";

impl Deployer {
    pub(super) fn check_rules(&self) -> CheckRules {
        CheckRules {
            verifier: self.ports.verifier.clone(),
            runs_commands: self.ports.rollouts.release_runner().is_some(),
            names_addresses: self.ports.rollouts.instance_addresses().is_some(),
        }
    }

    /// Returns the kinds of checks that apps may have here.
    pub fn check_kinds(&self) -> Vec<KindOfCheck> {
        self.check_rules().kinds()
    }

    /// Sets a check of an app, in place of the one of its name. Returns the check with all of its settings. Without a secret, that
    /// of the one in its place stays, as long as it is for the same place (see
    /// [`Verifier::secret_for`]).
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

    /// Returns `Ok` if this check can be set for the app as it is now, as [`Deployer::set_check`] judges it. Nothing is stored.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`].
    pub fn check_can_be_set(&self, app: &App, check: &Check, secret: Option<&CheckSecret>) -> Outcome<()> {
        let (rules, mut policy) = (self.check_rules(), app.policy.clone());
        let is_as_before = |known: &Check| Check { secret: None, ..known.clone() } == *check;
        let complete = match secret {
            Some(secret) => {
                let complete = rules.complete(check.clone())?;
                self.check_secret(&complete, secret)?;
                complete
            }
            None if policy.checks.iter().any(is_as_before) => return Ok(()),
            None => rules.with_kept_secret(rules.complete(check.clone())?, &policy.checks)?,
        };
        policy.checks.retain(|known| known.name != complete.name);
        policy.checks.push(complete);
        checked(policy).map(drop)
    }

    /// Returns the place that the secret of a check, which is complete, is for.
    fn check_secret(&self, check: &Check, secret: &CheckSecret) -> Outcome<String> {
        let refuse = |why: String| Refusal::InvalidField(Field::CheckSecret, why);
        let verifier = self.ports.verifier.as_ref().ok_or_else(|| refuse(NO_VERIFIER.to_owned()))?;
        verifier.check_secret(&check.kind, &check.settings, secret).map_err(refuse)?;
        let place = self.check_rules().secret_for(check);
        let place = place.ok_or_else(|| refuse(format!("the settings of {} have no use for one.", check.name)))?;
        match self.ports.configurations {
            Some(_) => Ok(place),
            None => Err(refuse("this service has no store that keeps one.".to_owned())),
        }
    }

    /// Stores the secret of a check, which is complete, and returns the check with it.
    async fn keep_secret(&self, access: &Authorized, check: Check, secret: &CheckSecret) -> Outcome<Check> {
        let place = self.check_secret(&check, secret)?;
        let store = self.ports.configurations.as_ref().ok_or(Refusal::Busy)?;
        let id = ConfigurationId(self.ports.rng.bits());
        // Fingerprints of the app's variables go on to have one key, whichever entry of the store is the newest.
        let turn = self.variables_turn(access).await;
        let empty = self.no_variables(access).await?;
        drop(turn);
        let put = store.put(access.uid, id, &secret.kept(&check.name, &place, empty)).await;
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
    /// as the check's [`timeout`](Check::timeout) at most, and 25 s of a command, which is ended then.
    ///
    /// # Errors
    /// [`Refusal::CheckNotFound`], [`Refusal::NothingRuns`], [`Refusal::AppNotFound`]; [`Refusal::InvalidField`] where no checks
    /// are measured; [`Refusal::Busy`] if this process cannot measure now; [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn test_check(&self, access: &Authorized, name: &CheckName) -> Outcome<Measured> {
        access.check(Action::TestCheck)?;
        let state = self.state(access).await?;
        let check = named(&state, name)?;
        let refuse = |why: &str| Refusal::InvalidField(Field::PolicyChecks, format!("{name}: {why}"));
        let is_command = check.kind.is_command();
        if is_command && self.ports.rollouts.release_runner().is_none() {
            return Err(refuse(NO_RUNNER));
        }
        if !is_command && self.ports.verifier.is_none() {
            return Err(refuse(NO_VERIFIER));
        }
        let mut spec = tried(&state, check, self.store_time().await?)?;
        let mut random = [0; 4];
        self.ports.rng.fill(&mut random);
        spec.run = CheckRun::tried_out(spec.deploy.revision, u32::from_le_bytes(random));
        // It may have to wait for those of its environment.
        let mut patience = spec.check.timeout * 2;
        if is_command {
            spec.check.timeout = spec.check.timeout.min(TRY_OUT_MAX);
            patience = TRY_OUT_MAX + COMMAND_WAIT;
        }
        select_biased! {
            answer = self.measure_once(spec, Rank::Awaited, WhenDropped::Ends).fuse() => answer.measured.map_err(|_| Refusal::Busy),
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
    let current = state.current.as_ref().and_then(|deploy| Some((deploy, deploy.pinned_image()?)));
    let (deploy, image) = current.ok_or_else(|| Refusal::NothingRuns(app.id.clone()))?;
    let since = deploy.updated_at;
    let window = check.window(now.since(since));
    let id = DeployId { app: app.uid, revision: deploy.revision };
    let spec = MeasureSpec::new(&app.id, id, (app.target.clone(), image), check, now);
    let configuration = deploy.configuration.map(Configuration::of).filter(|_| spec.check.kind.is_command());
    let (commit, adopted, rollout_began) = (deploy.commit.clone(), deploy.adopted, deploy.created_at);
    Ok(MeasureSpec { commit, adopted, configuration, since, rollout_began, window, ..spec })
}
