//! The console's view of its program: the management plane, and what stands on every page.

use std::{sync::Arc, time::Duration};

use futures_util::{
    FutureExt, StreamExt, select_biased,
    stream::{BoxStream, Fuse},
};
use rollhook_api::{App, Kind, Local, Operation, Problem, problem};
use rollhook_core::{
    Error,
    app::{AppId, Target},
    ledger::AppState,
    ports::{AppChange, TargetDescription},
    request::{IdempotencyKey, Refusal as CoreRefusal},
    service::{Authorized, Deployer, Progress},
    text::escaped,
    time::Timestamp,
};
use rollhook_management::{
    ListTurn, Management, Refusal, RefusalLines,
    access::{Action, GroupGrant, Person, Principal, SessionSecret},
    ports::{RecordKey, SignInProvider, SignInRequest},
};
use zeroize::Zeroizing;

/// The time after a change of an app after which activity is read again: a deploy is several changes.
const PAUSE: Duration = Duration::from_secs(3);

/// The operations of one caller, whose failures are shown in the server's own words.
pub(crate) struct CallerOperations(Local);

impl CallerOperations {
    /// Performs an operation.
    pub(crate) async fn call<O: Operation>(
        &self,
        _operation: O,
        subject: &O::Subject,
        input: O::Input,
    ) -> Result<O::Answer, Failure> {
        Ok(O::perform(&self.0, subject, input).await?)
    }
}

/// The management plane in this process, as pages need it, and what its program says on them.
pub struct Host {
    management: Arc<Management>,
    base_url: Arc<str>,
    clock: fn() -> Timestamp,
    sign_in: Option<SignIn>,
    notice: Notice,
    /// The lines of sign-ins that were refused or failed.
    lines: RefusalLines,
}

/// A provider at which people sign in, and what its groups may do.
struct SignIn {
    provider: Arc<dyn SignInProvider>,
    grants: Arc<[GroupGrant]>,
}

/// Returns the sentences that every page of a caller shows; `None` for none.
type Notice = Box<dyn Fn(&Principal) -> Option<String> + Send + Sync>;

impl Host {
    /// Returns the host of a management plane whose callers reach it at `base_url`; `clock` is the wall clock.
    pub fn new(management: Arc<Management>, base_url: Arc<str>, clock: fn() -> Timestamp) -> Self {
        Self { management, base_url, clock, sign_in: None, notice: Box::new(|_| None), lines: RefusalLines::default() }
    }

    /// Lets people sign in at this provider.
    #[must_use]
    pub fn with_sign_in(self, provider: Arc<dyn SignInProvider>, grants: Arc<[GroupGrant]>) -> Self {
        Self { sign_in: Some(SignIn { provider, grants }), ..self }
    }

    /// Shows these sentences on every page of a caller.
    #[must_use]
    pub fn with_notice(self, notice: impl Fn(&Principal) -> Option<String> + Send + Sync + 'static) -> Self {
        Self { notice: Box::new(notice), ..self }
    }

    /// Begins a session for a token that a person has pasted. The history shows `name` if people share the token.
    pub(crate) async fn begin_session(&self, token: &str, name: Option<&str>) -> Result<SessionSecret, Failure> {
        let begun = self.management.begin_session(token.as_bytes(), name).await;
        begun.map(|(secret, _)| secret).map_err(Failure::of_stranger)
    }

    /// The name of the provider at which people sign in; `None`: by tokens alone.
    pub(crate) fn provider_name(&self) -> Option<&str> {
        self.sign_in.as_ref().map(|sign_in| sign_in.provider.name())
    }

    fn provider(&self) -> Result<&SignIn, Failure> {
        self.sign_in.as_ref().ok_or_else(|| Failure::new(Kind::NotFound, "This server has no provider of sign-ins."))
    }

    /// Begins a sign-in at the provider.
    pub(crate) async fn begin_sign_in(&self) -> Result<SignInRequest, Failure> {
        self.provider()?.provider.begin().await.map_err(|error| self.provider_failed(&error))
    }

    /// Begins a session for the person whom the provider's code stands for, by the secrets of the request.
    pub(crate) async fn finish_sign_in(&self, code: &str, nonce: &str, verifier: &str) -> Result<Welcome, Failure> {
        let sign_in = self.provider()?;
        let person = sign_in.provider.finish(code, nonce, verifier).await;
        let person = person.map_err(|error| self.provider_failed(&error))?;
        if GroupGrant::of_groups(&sign_in.grants, &person.groups).is_empty() {
            let (name, groups) = (escaped(&person.name), person.groups.len());
            self.log_refusal(|left_out| {
                tracing::info!(person = name, groups, left_out, "refused a sign-in: no group of the person has a role");
            });
            return Ok(Welcome::NoRole { name: person.name });
        }
        let provider = sign_in.provider.host().to_owned();
        let person = Person { subject: person.subject, name: person.name, provider, groups: person.groups };
        self.management.begin_person_session(person).await.map(Welcome::Session).map_err(Failure::of_stranger)
    }

    /// Returns the failure of a provider; what it says is in the log alone.
    fn provider_failed(&self, error: &Error) -> Failure {
        self.log_refusal(|left_out| {
            tracing::warn!(error = %error.chain(), left_out, "signing in at the provider failed");
        });
        match error.is_unavailable() {
            true => Failure::new(Kind::ProviderUnavailable, "The provider of sign-ins does not answer; try again."),
            false => Failure::new(Kind::Unauthorized, "The provider's answer proves nothing; try again."),
        }
    }

    /// Writes a line about a sign-in, of which the log has a bounded number: anyone can begin one.
    fn log_refusal(&self, line: impl FnOnce(Option<u64>)) {
        self.lines.write(self.management.deployer().ports().clock.elapsed(), line);
    }

    /// Returns a code that buys a command line a session like this one; `challenge` is the SHA-256 of its secret.
    pub(crate) async fn lend_session(&self, secret: &str, challenge: &RecordKey) -> Result<SessionSecret, Failure> {
        self.management.lend_session(secret, challenge).await.map_err(Failure::of_stranger)
    }

    /// Returns the person of a session, and what the store lets it do now.
    pub(crate) async fn session(&self, secret: &str) -> Result<Access, Failure> {
        let principal = self.management.session(secret).await.map_err(Failure::of_stranger)?;
        let somewhere = |action| principal.grants().iter().any(|grant| grant.role.may(action));
        Ok(Access { permissions: Permissions::of(somewhere), principal })
    }

    /// Notes that a person uses a session, which ends if it is not used. A failure is logged: the next use makes up for
    /// it.
    pub(crate) async fn keep_session(&self, secret: &str) {
        if let Err(refusal) = self.management.keep_session(secret).await {
            tracing::warn!(%refusal, "keeping a session failed");
        }
    }

    /// Ends a session, or all that stand for the same token and name.
    pub(crate) async fn end_session(&self, secret: &str, which: Ended) -> Result<(), Failure> {
        let ended = match which {
            Ended::This => self.management.end_session(secret).await,
            Ended::All => self.management.end_sessions_like(secret).await,
        };
        Ok(ended?)
    }

    /// Returns whether this process knows the session as a valid one, without a read of the store.
    pub(crate) fn recognizes(&self, secret: &str) -> bool {
        self.management.recognizes_session(secret)
    }

    /// Waits until the caller may hold all apps that it may read.
    pub(crate) async fn turn_of_all_apps(&self, principal: &Principal) -> ListTurn {
        self.management.turn_of_all_apps(principal).await
    }

    /// Returns what a principal may do with an app.
    pub(crate) async fn permissions(&self, principal: &Principal, id: &AppId) -> Result<Permissions, Failure> {
        let role = self.management.role_on(principal, id).await?;
        Ok(Permissions::of(|action| role.may(action)))
    }

    /// Returns the operations of a caller, repeatable under this key.
    pub(crate) fn operations(&self, principal: &Principal, key: Option<IdempotencyKey>) -> CallerOperations {
        let caller = Local::new(self.management.clone(), principal.clone(), self.base_url.clone());
        CallerOperations(caller.with_key(key))
    }

    /// Begins to watch an app.
    pub(crate) async fn watch(&self, principal: &Principal, id: &AppId) -> Result<Watch, Failure> {
        let authorized = self.management.open(principal, id).await?;
        let deployer = Arc::clone(self.management.deployer());
        let seen = deployer.state(&authorized).await?;
        Ok(Watch { deployer, authorized, seen, progress: None })
    }

    /// Begins to watch all apps.
    pub(crate) fn watch_all(&self) -> WatchAll {
        let deployer = Arc::clone(self.management.deployer());
        WatchAll { changes: deployer.ports().history.watch().fuse(), deployer }
    }

    /// The sentences that every page of this caller shows.
    pub(crate) fn notice(&self, principal: &Principal) -> Option<String> {
        (self.notice)(principal)
    }

    /// The words and settings of what is deployed to.
    pub(crate) fn targets(&self) -> TargetDescription {
        self.management.deployer().targets()
    }

    /// Returns whether what an app deploys to can be stopped and started, without a call.
    pub(crate) fn can_scale(&self, app: &App) -> bool {
        let target = Target { settings: app.workload.clone(), requested: None, take_over: None };
        self.management.deployer().ports().rollouts.unstoppable(&target).is_none()
    }

    /// The address at which callers reach the server.
    pub(crate) fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Returns the wall clock's time.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Returns a new secret of at least 128 random bits in letters and digits.
    pub(crate) fn random(&self) -> Zeroizing<String> {
        // A token's random part; its prefix would let scanners of secrets take it for one.
        let token = self.management.deployer().new_token();
        Zeroizing::new(token.expose().trim_start_matches("rh_").to_owned())
    }
}

/// A watched app, as it was last seen.
pub(crate) struct Watch {
    deployer: Arc<Deployer>,
    authorized: Authorized,
    seen: AppState,
    progress: Option<Progress>,
}

impl Watch {
    /// Returns once the app has changed since the last call, or after `limit`.
    pub(crate) async fn changed(&mut self, limit: Duration) -> Result<(), Failure> {
        let seen = (&self.seen, self.progress.as_ref());
        (self.seen, self.progress) = self.deployer.state_changed(&self.authorized, seen, limit).await?;
        Ok(())
    }
}

/// All apps, which are watched.
pub(crate) struct WatchAll {
    deployer: Arc<Deployer>,
    changes: Fuse<BoxStream<'static, AppChange>>,
}

impl WatchAll {
    /// Returns once an app has changed and [`PAUSE`] is over in which others may change too, or after `limit`. Returns
    /// whether one has changed.
    pub(crate) async fn changed(&mut self, limit: Duration) -> bool {
        let clock = &self.deployer.ports().clock;
        select_biased! {
            _ = self.changes.select_next_some() => {}
            () = clock.sleep(limit).fuse() => return false,
        }
        clock.sleep(PAUSE).await;
        while self.changes.next().now_or_never().flatten().is_some() {}
        true
    }
}

/// The outcome of a sign-in at the provider.
#[derive(Clone, Debug)]
pub(crate) enum Welcome {
    /// The secret of the person's session.
    Session(SessionSecret),
    /// None of the person's groups has a role.
    NoRole {
        /// The person's name, as the provider states it.
        name: String,
    },
}

/// The sessions that a sign-out ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The one of this browser.
    This,
    /// All of this person.
    All,
}

/// A person who is signed in.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    /// The proof that the core's calls need.
    pub(crate) principal: Principal,
    /// The actions that pages offer to the person.
    pub(crate) permissions: Permissions,
}

/// The actions that pages offer. The core decides; a page leaves out what would be refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Permissions {
    /// Deploys, rebuilds, rolls back, cancels and releases holds.
    pub(crate) may_deploy: bool,
    /// Enables webhooks, and shows their tokens.
    pub(crate) may_read_tokens: bool,
    /// Reads the last calls of webhooks.
    pub(crate) may_read_calls: bool,
    /// Registers, changes and deletes apps; disables webhooks.
    pub(crate) may_administer: bool,
    /// Reads the audit, and manages the API tokens of some realm. Only known where no app is asked for.
    pub(crate) may_see_access: bool,
}

impl Permissions {
    /// Returns the permissions on an app, and what the person may do beside it.
    pub(crate) fn on_app(self, app: Self) -> Self {
        Self { may_see_access: self.may_see_access, ..app }
    }

    /// Returns what a proof or a role lets its holder do.
    pub(crate) fn of(may: impl Fn(Action) -> bool) -> Self {
        Self {
            may_deploy: may(Action::Deploy),
            may_read_tokens: may(Action::ReadToken),
            may_read_calls: may(Action::ReadCalls),
            may_administer: may(Action::Change),
            may_see_access: may(Action::ReadAudit),
        }
    }
}

/// The failure of an operation, in the server's words.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The kind of the failure.
    pub kind: Kind,
    /// The problem as the API would answer it.
    pub problem: Box<Problem>,
}

impl Failure {
    /// Returns a failure of this kind.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, problem: Box::new(Problem::new(kind, detail)) }
    }

    /// Returns the failure of a caller who is not authenticated yet: a store's message to its operator is left out.
    fn of_stranger(refusal: Refusal) -> Self {
        let failure = Self::from(refusal);
        if failure.kind != Kind::StoreRefused {
            return failure;
        }
        Self::new(Kind::StoreUnavailable, problem::STORE_REFUSES)
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self { kind: Kind::of(&refusal), problem: Box::new(Problem::of(&refusal)) }
    }
}

impl From<CoreRefusal> for Failure {
    fn from(refusal: CoreRefusal) -> Self {
        Refusal::from(refusal).into()
    }
}
