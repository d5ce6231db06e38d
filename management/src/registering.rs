//! Calls that touch the records beside an app: registering and deleting it, closing its webhook, promoting to it, and lists
//! of apps.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use rollhook_core::{
    action::Action as AppAction,
    app::{AppId, AppName, Environment, LABEL_MAX, Namespace, Project},
    ports::{AppPage, ListedApp, listed_id},
    request::{Field, IdempotencyKey, PromoteRequest, Refusal as CoreRefusal, Registration},
    service::{Accepted, Registered},
};

use crate::{
    Management, Outcome, Refusal,
    access::{Action, Place, Principal, Readable, Realm, Subject},
};

/// The most apps of an environment.
pub const ENVIRONMENT_APPS_MAX: usize = 1_000;
/// The most apps of a project.
pub const PROJECT_APPS_MAX: usize = 3_000;
/// The apps that are read at once to count them, or to find those that a principal may read.
const PAGE: usize = 200;

/// The registrations that are under way in this process, by environment: calls at the same time do not pass the bounds.
#[derive(Default)]
pub(crate) struct Registrations(Mutex<BTreeMap<(Project, Environment), usize>>);

/// One registration under way.
struct UnderWay<'a> {
    registrations: &'a Registrations,
    place: (Project, Environment),
}

impl Registrations {
    fn begin(&self, project: &Project, environment: &Environment) -> UnderWay<'_> {
        let place = (project.clone(), environment.clone());
        *self.lock().entry(place.clone()).or_default() += 1;
        UnderWay { registrations: self, place }
    }

    fn count(&self, realm: &Realm) -> usize {
        let of = |(project, environment): &(Project, Environment)| match realm {
            Realm::Everything => true,
            Realm::Project { project: one } => one == project,
            Realm::Environment { project: one, environment: other } => one == project && other == environment,
        };
        self.lock().iter().filter(|(place, _)| of(place)).map(|(_, count)| count).sum()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<(Project, Environment), usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut registrations = self.registrations.lock();
        if let Some(count) = registrations.get_mut(&self.place) {
            *count -= 1;
            if *count == 0 {
                registrations.remove(&self.place);
            }
        }
    }
}

impl Management {
    /// Registers an app, as [`Deployer::register`](rollhook_core::service::Deployer::register) does. While its environment
    /// is locked, that is refused; so it is where the environment or the project has as many apps as it may.
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
        let _under_way = self.registrations.begin(&wanted.project, &wanted.environment);
        // A repeated call is answered although the environment was locked, or filled, meanwhile.
        if self.deployer.find_app(&id).await?.is_none() {
            if let Some(locked) = self.environment_lock(&wanted.project, &wanted.environment).await? {
                return Err(CoreRefusal::Locked(Box::new(locked)).into());
            }
            self.check_bounds(&id.namespace, &wanted.project, &realm).await?;
        }
        let registered = self.deployer.register(principal.actor(), wanted, key).await?;
        self.lock_registered(&registered.app.app).await?;
        Ok(registered)
    }

    /// Returns `Ok` if the environment and its project may have the apps that are about to be registered there.
    async fn check_bounds(&self, namespace: &Namespace, project: &Project, environment: &Realm) -> Outcome<()> {
        let whole = Realm::Project { project: project.clone() };
        let bounds = [(environment, ENVIRONMENT_APPS_MAX), (&whole, PROJECT_APPS_MAX)];
        let mut counts = bounds.map(|(realm, _)| self.registrations.count(realm));
        let prefix = format!("{project}-");
        let mut page = AppPage::first(PAGE);
        page.after = before_namespaces_of(project);
        loop {
            let read = self.deployer.apps(page.clone()).await?;
            let is_of_project = |app: &&ListedApp| listed_id(app).namespace.as_str().starts_with(&prefix);
            for app in read.iter().take_while(is_of_project) {
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
            let Some(last) = read.last().filter(|last| read.len() == page.limit && is_of_project(last)) else {
                return Ok(());
            };
            page.after = Some(listed_id(last).clone());
        }
    }

    /// Deletes an app, and the trust in pipelines, as [`Deployer::delete`](rollhook_core::service::Deployer::delete) does.
    ///
    /// # Errors
    /// As [`Management::allow`].
    pub async fn delete(&self, principal: &Principal, id: &AppId) -> Outcome<()> {
        let access = self.allow(principal, id, AppAction::Delete).await?;
        self.forget_trusts(id).await?;
        Ok(self.deployer.delete(&access).await?)
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

    /// Deploys the image that another environment's app runs. An app that the principal may not read is unknown to it.
    ///
    /// # Errors
    /// As [`Management::allow`], and as [`Deployer::promote`](rollhook_core::service::Deployer::promote).
    pub async fn promote(&self, principal: &Principal, id: &AppId, request: PromoteRequest) -> Outcome<Accepted> {
        let access = self.allow(principal, id, AppAction::Promote).await?;
        let from = &request.from;
        let realm = Realm::Environment { project: from.project.clone(), environment: from.environment.clone() };
        let invalid = |name: rollhook_core::app::InvalidName| {
            Refusal::Core(CoreRefusal::InvalidField(Field::FromEnvironment, name.to_string()))
        };
        let from_id = from.id().map_err(invalid)?;
        if !self.may(principal, Action::Read, Place::app(&from_id, &realm)).await?.is_yes() {
            return Err(CoreRefusal::AppNotFoundIn(from.clone()).into());
        }
        Ok(self.deployer.promote(&access, request).await?)
    }

    /// Returns a part of the list of the apps that the principal may read, sorted by namespace and name. An app that
    /// cannot be read is named in its place.
    ///
    /// # Errors
    /// [`StoreUnavailable`](rollhook_core::request::Refusal::StoreUnavailable) while the store is away; [`Refusal::ReviewUnavailable`], and
    /// [`InvalidField`](rollhook_core::request::Refusal::InvalidField) if a cluster would have to be asked about too many namespaces.
    pub async fn apps(&self, principal: &Principal, mut page: AppPage) -> Outcome<Vec<ListedApp>> {
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

/// Returns a name that sorts directly before those of the project's namespaces, which are its own name and a hyphen and more.
fn before_namespaces_of(project: &Project) -> Option<AppId> {
    let name: AppName = "z".repeat(LABEL_MAX).parse().ok()?;
    Some(AppId { namespace: project.as_str().parse().ok()?, name })
}
