//! Calls that touch the records beside an app: registering and deleting it, closing its webhook, promoting to it, and lists
//! of apps.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
};

use futures_util::TryStreamExt;

use rollhook_core::{
    action::Action as AppAction,
    app::{AppId, Environment, Namespace, Project},
    ports::{AppPage, ListedApp, listed_id},
    request::{
        Field, IdempotencyKey, PolicyChange, PromoteRequest, Refusal as CoreRefusal, Registration, SourceChange,
        TargetChange,
    },
    service::{Accepted, Authorized, Changed, Registered, check_settings},
    slots::{Slot, Slots},
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Place, Principal, Readable, Realm, Subject},
    lists::ListTurn,
    locks::StoredLock,
    requirements::StoredRequirement,
};

/// The most apps of an environment.
pub const ENVIRONMENT_APPS_MAX: usize = 1_000;
/// The most apps of a project.
pub const PROJECT_APPS_MAX: usize = 3_000;
/// The apps that are read at once to count them, or to find those that a principal may read.
const PAGE: usize = 200;

/// The most registrations of a project that wait for their turn, in this process, and of one of its environments.
const WAITING_MAX: usize = 50;
const ENVIRONMENT_WAITING_MAX: usize = WAITING_MAX / 2;

/// The registrations that are under way in this process: those of a project go one at a time, in turns of its environments,
/// so that calls at the same time neither pass the bounds nor hold the settings of all its apps more than once.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<BTreeMap<Project, Queue>>);

/// The registrations of a project: the one whose turn it is, and those that wait.
struct Queue {
    slots: Slots<Environment>,
    /// Their number in each environment.
    calls: BTreeMap<Environment, usize>,
}

/// A registration among those of its project, which it leaves when it is dropped.
struct Queued<'a> {
    registrations: &'a Registrations,
    project: Project,
    environment: Environment,
    slots: Slots<Environment>,
}

/// The turn of a registration, which ends when it is dropped.
struct Turn<'a> {
    _slot: Slot<Environment>,
    _queued: Queued<'a>,
}

impl Registrations {
    /// Waits for the turn of a registration.
    ///
    /// # Errors
    /// [`Refusal::TooManyRegistrations`] if as many of the environment or of the project wait as may.
    async fn turn(&self, project: &Project, environment: &Environment) -> Outcome<Turn<'_>> {
        let queued = self.enter(project, environment)?;
        Ok(Turn { _slot: queued.slots.acquire(environment).await, _queued: queued })
    }

    fn enter(&self, project: &Project, environment: &Environment) -> Outcome<Queued<'_>> {
        let mut queues = self.lock();
        let new = || Queue { slots: Slots::new(1), calls: BTreeMap::new() };
        let queue = queues.entry(project.clone()).or_insert_with(new);
        // One of them waits no longer.
        if queue.calls.values().sum::<usize>() > WAITING_MAX {
            return Err(Refusal::TooManyRegistrations(WAITING_MAX, Realm::Project { project: project.clone() }));
        }
        let calls = queue.calls.entry(environment.clone()).or_default();
        if *calls > ENVIRONMENT_WAITING_MAX {
            let realm = Realm::Environment { project: project.clone(), environment: environment.clone() };
            return Err(Refusal::TooManyRegistrations(ENVIRONMENT_WAITING_MAX, realm));
        }
        *calls += 1;
        let slots = queue.slots.clone();
        Ok(Queued { registrations: self, project: project.clone(), environment: environment.clone(), slots })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Project, Queue>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        let mut queues = self.registrations.lock();
        let Some(queue) = queues.get_mut(&self.project) else { return };
        if let Some(calls) = queue.calls.get_mut(&self.environment) {
            *calls -= 1;
        }
        queue.calls.retain(|_, calls| *calls > 0);
        if queue.calls.is_empty() {
            queues.remove(&self.project);
        }
    }
}

impl Management {
    /// Registers an app, as [`Deployer::register`](rollhook_core::service::Deployer::register) does. While its environment
    /// is locked, that is refused; so it is where the environment or the project has as many apps as it may. Registrations of
    /// one project go one at a time.
    ///
    /// # Errors
    /// The refusal; nothing is registered then.
    pub async fn register(
        &self,
        principal: &Principal,
        wanted: Registration,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Registered> {
        let invalid = |field, rule: String| Refusal::Core(CoreRefusal::InvalidField(field, rule));
        let namespace = Namespace::of(&wanted.project, &wanted.environment)
            .map_err(|name| invalid(Field::Environment, name.to_string()))?;
        let id = AppId { namespace, name: wanted.name.clone() };
        let realm = Realm::Environment { project: wanted.project.clone(), environment: wanted.environment.clone() };
        let granted = self.may(principal, Action::Register, Place::app(&id, &realm)).await?;
        self.audit(principal, Action::Register, Subject::app(&id, realm.clone()), granted).await?;
        // Apps of another pair that spells this namespace stay unknown to a caller who may not read them.
        let page = AppPage::first(1).of(id.namespace.clone());
        if let Some(Ok(first)) = self.deployer.apps(page).await?.first() {
            let other = Realm::of_app(&first.app);
            if other != realm && !self.may(principal, Action::Read, Place::app(&first.app.id, &other)).await?.is_yes() {
                let rule = format!(
                    "the namespace {} belongs to another project; choose names that spell another one.",
                    id.namespace
                );
                return Err(invalid(Field::Environment, rule));
            }
        }
        check_settings(&wanted.target)?;
        let _turn = self.registrations.turn(&wanted.project, &wanted.environment).await?;
        // A repeated call is answered although the environment was locked, or filled, meanwhile.
        if self.deployer.find_app(&id).await?.is_none() {
            if let Some(locked) = self.environment_lock(&realm).await? {
                return Err(CoreRefusal::Locked(Box::new(locked)).into());
            }
            self.check_bounds(&id.namespace, &wanted.project, &realm).await?;
        }
        let requirements = self.requirements_of(&realm).await?;
        let wanted = wanted.with(|app| app.requirements = requirements);
        let registered = self.deployer.register(principal.actor(), wanted, key).await?;
        let app = &registered.app.app;
        // A change while it was registered.
        self.copy_to_registered::<StoredLock>(app, &realm).await?;
        for realm in [&realm, &Realm::Project { project: app.project.clone() }] {
            self.copy_to_registered::<StoredRequirement>(app, realm).await?;
        }
        Ok(registered)
    }

    /// Changes an app, as [`Deployer::change`](rollhook_core::service::Deployer::change) does. A change of its target has the turn of a
    /// registration: it is compared with the targets of all apps of the environment as well.
    ///
    /// # Errors
    /// The refusal; nothing is changed then.
    pub async fn change(
        &self,
        access: &Authorized,
        policy: PolicyChange,
        source: SourceChange,
        target: TargetChange,
    ) -> Outcome<Changed> {
        if target == TargetChange::default() {
            return Ok(self.deployer.change(access, policy, source, target).await?);
        }
        let app = self.deployer.state(access).await?.app;
        let _turn = self.registrations.turn(&app.project, &app.environment).await?;
        Ok(self.deployer.change(access, policy, source, target).await?)
    }

    /// Returns `Ok` if the environment and its project may have the apps that are about to be registered there.
    async fn check_bounds(&self, namespace: &Namespace, project: &Project, environment: &Realm) -> Outcome<()> {
        let whole = Realm::Project { project: project.clone() };
        let bounds = [(environment, ENVIRONMENT_APPS_MAX), (&whole, PROJECT_APPS_MAX)];
        // The app that is to be registered.
        let mut counts = [1; 2];
        let mut pages = pin!(self.pages_with_apps_of(project));
        while let Some(page) = pages.try_next().await? {
            for app in &page {
                for (count, (realm, _)) in counts.iter_mut().zip(bounds) {
                    *count += usize::from(match app {
                        Ok(state) => realm.contains(&Realm::of_app(&state.app)),
                        // An app that cannot be read counts where its name stands.
                        Err(_) => *realm == whole || listed_id(app).namespace == *namespace,
                    });
                }
            }
            for (count, (realm, most)) in counts.into_iter().zip(bounds) {
                if count > most {
                    return Err(Refusal::TooManyApps(most, realm.clone()));
                }
            }
        }
        Ok(())
    }

    /// Deletes an app, and the trust in pipelines, as [`Deployer::delete`](rollhook_core::service::Deployer::delete) does.
    ///
    /// # Errors
    /// As [`Management::allow`].
    pub async fn delete(&self, principal: &Principal, id: &AppId) -> Outcome<()> {
        let access = self.allow(principal, id, AppAction::Delete).await?;
        self.deployer.delete(&access).await?;
        // They name the app's uid, so that those which stay open nothing.
        if let Err(error) = self.forget_trusts_of(id, access.uid()).await {
            tracing::warn!(app = %id, %error, "removing the trusts of a deleted app failed");
        }
        Ok(())
    }

    /// Disables the app's webhook: its token is refused from then on, and no pipeline is trusted any more.
    ///
    /// # Errors
    /// As [`Management::allow`].
    pub async fn disable_webhook(&self, principal: &Principal, id: &AppId) -> Outcome<()> {
        let access = self.allow(principal, id, AppAction::DisableWebhook).await?;
        self.forget_trusts(id).await?;
        Ok(self.deployer.disable_webhook(&access).await?)
    }

    /// Deploys the image that another environment's app runs. An app that the principal may not read is unknown to it, and
    /// variables that the app lacks are named to those alone who may list the variables of both.
    ///
    /// # Errors
    /// As [`Management::allow`], and as [`Deployer::promote`](rollhook_core::service::Deployer::promote).
    pub async fn promote(&self, principal: &Principal, id: &AppId, request: PromoteRequest) -> Outcome<Accepted> {
        let app = self.readable_app(principal, id).await?;
        self.permit(principal, &app, Action::Promote, None).await?;
        let access = Authorized::allow(&app, principal.cause(), &[AppAction::Promote]);
        let from = &request.from;
        let realm = Realm::Environment { project: from.project.clone(), environment: from.environment.clone() };
        let invalid = |name: rollhook_core::app::InvalidName| {
            Refusal::Core(CoreRefusal::InvalidField(Field::FromEnvironment, name.to_string()))
        };
        let from_id = from.id().map_err(invalid)?;
        if !self.may(principal, Action::Read, Place::app(&from_id, &realm)).await?.is_yes() {
            return Err(CoreRefusal::AppNotFoundIn(from.clone()).into());
        }
        match self.deployer.promote(&access, request.clone()).await {
            Err(CoreRefusal::VariablesMissing { .. })
                if !self.may_list_variables(principal, &from_id, &realm).await?
                    || !self.may_list_variables(principal, id, &Realm::of_app(&app)).await? =>
            {
                let request = request.with(|request| request.without_variables = true);
                Ok(self.deployer.promote(&access, request).await?)
            }
            promoted => Ok(promoted?),
        }
    }

    async fn may_list_variables(&self, principal: &Principal, id: &AppId, realm: &Realm) -> Outcome<bool> {
        Ok(self.may(principal, Action::ReadConfiguration, Place::app(id, realm)).await?.is_yes())
    }

    /// Returns the turn of a caller who holds all apps that it may read at once, such as for a page that shows them: two of
    /// each environment, three of each project, and six in all. It ends when it is dropped.
    pub async fn turn_of_all_apps(&self, principal: &Principal) -> ListTurn {
        self.all_apps.turn(principal).await
    }

    /// Returns a part of the list of the apps that the principal may read, sorted by namespace and name, once its turn has
    /// come. An app that cannot be read is named in its place.
    ///
    /// # Errors
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away; [`Refusal::ReviewUnavailable`], and
    /// [`InvalidField`](rollhook_core::request::Refusal::InvalidField) if a cluster would have to be asked about too many namespaces.
    pub async fn apps(&self, principal: &Principal, mut page: AppPage) -> Outcome<Vec<ListedApp>> {
        let _turn = self.app_lists.turn(principal).await;
        let limit = page.limit;
        let mut listed = Vec::new();
        let mut readable = self.readable(principal);
        loop {
            let read = self.deployer.apps(page.clone()).await?;
            readable.ask(read.iter().map(|app| &listed_id(app).namespace)).await?;
            let is_last = read.len() < page.limit;
            page.after = read.last().map(listed_id).cloned();
            listed.extend(read.into_iter().filter(|app| may_read(&readable, app)));
            if is_last || listed.len() >= limit {
                break;
            }
            // Of many apps that the principal may not read, many are looked through at once.
            page.limit = limit.max(PAGE);
        }
        listed.truncate(limit);
        Ok(listed)
    }
}

/// Returns whether the principal may know of an app of the list. The project of an unreadable one is unknown.
fn may_read(readable: &Readable<'_>, listed: &ListedApp) -> bool {
    let realm = listed.as_ref().map_or(Realm::Everything, |state| Realm::of_app(&state.app));
    readable.contains(&listed_id(listed).namespace, &realm)
}

#[cfg(test)]
mod tests {
    use std::{
        pin::pin,
        task::{Context, Poll, Waker},
    };

    use super::*;

    fn is_ready<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn turns_of_an_environment_come_one_at_a_time_in_the_order_of_the_calls() {
        let registrations = Registrations::default();
        let (shop, blog) = ("shop".parse().unwrap(), "blog".parse().unwrap());
        let test = "test".parse().unwrap();
        let mut first = pin!(registrations.turn(&shop, &test));
        let first = is_ready(first.as_mut()).unwrap().unwrap();
        let mut second = pin!(registrations.turn(&shop, &test));
        let mut gone = Box::pin(registrations.turn(&shop, &test));
        let mut third = pin!(registrations.turn(&shop, &test));
        for _ in 0..2 {
            assert!(is_ready(second.as_mut()).is_none() && is_ready(gone.as_mut()).is_none());
            assert!(is_ready(third.as_mut()).is_none());
        }
        assert!(is_ready(pin!(registrations.turn(&blog, &test)).as_mut()).is_some(), "another project has its own");
        drop(first);
        assert!(is_ready(third.as_mut()).is_none() && is_ready(gone.as_mut()).is_none());
        let second = is_ready(second.as_mut()).unwrap().unwrap();
        drop(gone);
        assert!(is_ready(third.as_mut()).is_none());
        drop(second);
        drop(is_ready(third.as_mut()).unwrap().unwrap());
        assert!(registrations.lock().is_empty());
    }

    #[test]
    fn environment_that_waits_comes_before_further_calls_of_the_one_that_was_served() {
        let registrations = Registrations::default();
        let shop = "shop".parse().unwrap();
        let [test, prod] = ["test", "prod"].map(|name| name.parse().unwrap());
        let first = is_ready(pin!(registrations.turn(&shop, &test)).as_mut()).unwrap().unwrap();
        let mut many: Vec<_> = (0..10).map(|_| Box::pin(registrations.turn(&shop, &test))).collect();
        assert!(many.iter_mut().all(|turn| is_ready(turn.as_mut()).is_none()));
        let mut other = pin!(registrations.turn(&shop, &prod));
        assert!(is_ready(other.as_mut()).is_none());
        drop(first);
        assert!(many.iter_mut().all(|turn| is_ready(turn.as_mut()).is_none()));
        assert!(is_ready(other.as_mut()).is_some());
    }

    #[test]
    fn turn_of_a_call_that_went_away_goes_to_the_next() {
        let registrations = Registrations::default();
        let shop = "shop".parse().unwrap();
        let test = "test".parse().unwrap();
        let first = is_ready(pin!(registrations.turn(&shop, &test)).as_mut()).unwrap().unwrap();
        let mut gone = Box::pin(registrations.turn(&shop, &test));
        let mut next = pin!(registrations.turn(&shop, &test));
        assert!(is_ready(gone.as_mut()).is_none() && is_ready(next.as_mut()).is_none());
        drop(first);
        // It was given its turn, and never looks.
        drop(gone);
        assert!(is_ready(next.as_mut()).is_some());
    }

    #[test]
    fn calls_beyond_the_bound_of_waiting_ones_are_refused() {
        let registrations = Registrations::default();
        let (shop, blog) = ("shop".parse().unwrap(), "blog".parse().unwrap());
        let [test, stage, prod] = ["test", "stage", "prod"].map(|name| name.parse().unwrap());
        let enter = |environment: &Environment| registrations.enter(&shop, environment);
        let refused = |environment: &Environment| match enter(environment) {
            Err(Refusal::TooManyRegistrations(most, realm)) => (most, realm),
            other => panic!("{:?}", other.map(drop)),
        };
        let mut turns: Vec<_> = (0..=ENVIRONMENT_WAITING_MAX).map(|_| enter(&test).unwrap()).collect();
        let realm = Realm::Environment { project: shop.clone(), environment: test.clone() };
        assert_eq!(refused(&test), (25, realm), "the first one does not wait");
        turns.extend((0..ENVIRONMENT_WAITING_MAX).map(|_| enter(&stage).unwrap()));
        assert_eq!(refused(&prod), (50, Realm::Project { project: shop.clone() }));
        assert!(registrations.enter(&blog, &test).is_ok());
        turns.pop();
        assert!(enter(&test).is_err() && enter(&prod).is_ok());
        turns.remove(0);
        assert!(enter(&test).is_ok(), "its next one has its turn");
    }
}
