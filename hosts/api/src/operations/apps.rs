//! Apps: registering, listing, showing, changing and removing them, and their holds.

use rollhook_core::{
    action::Action,
    app::{AppId, LABEL_MAX, Namespace},
    ledger::AppState,
    ports::{AppPage, ListedApp, listed_id},
    time::Timestamp,
};
use rollhook_management::Refusal;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    App, AppList, AppPatch, CreateApp, Deploy, Local, Operation, Polling, Registered, Standing,
    endpoint::Endpoint,
    openapi::{PAGE_MAX, schemas},
    query::{self, PageSize},
};

/// The number of apps of a page, unless the query has another.
const PAGE: usize = 50;

/// The query of a list of apps.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AppsQuery {
    /// Only apps of this namespace.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub namespace: Option<Namespace>,
    /// Only apps after this one: `next` of the part before.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = schemas::APP))]
    pub after: Option<AppId>,
    /// At most this many.
    #[serde(with = "query::page_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize", range(min = 1, max = PAGE_MAX))]
    pub limit: Option<PageSize>,
}

/// Registers an app.
pub struct RegisterApp;

impl Operation for RegisterApp {
    type Subject = ();
    type Input = CreateApp;
    type Answer = Registered;

    const ENDPOINT: Endpoint = Endpoint::new("POST", "/api/v1/apps", 201, "Register an app").keyed("register");

    async fn perform(caller: &Local, _: &(), app: CreateApp) -> Result<Registered, Refusal> {
        let registered = caller.management.register(&caller.principal, app.parse()?, caller.key.clone()).await?;
        let state = registered.app;
        let deploy = registered.deploy.map(|deploy| Deploy::of(&state.app.id, &deploy, &Standing::of(&state)));
        Ok(Registered {
            app: caller.shown(&state),
            deploy,
            adopted: registered.adopted,
            ignored: registered.unused,
            notes: registered.notes,
        })
    }
}

/// Lists the apps that the caller may read, in the order of their ids.
pub struct ListApps;

impl Operation for ListApps {
    type Subject = ();
    type Input = AppsQuery;
    type Answer = AppList;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/apps", "List apps");

    async fn perform(caller: &Local, _: &(), query: AppsQuery) -> Result<AppList, Refusal> {
        let limit = query.limit.map_or(PAGE, PageSize::get);
        let page = AppPage::first(limit).of(query.namespace).after(query.after);
        let apps = caller.management.apps(&caller.principal, page).await?;
        // A first load tells the store's clock, by which locks end.
        if caller.deployer().time() == Timestamp::default()
            && let Some(Ok(first)) = apps.first()
        {
            caller.open(&first.app.id).await?;
        }
        let id = |listed: &ListedApp| listed_id(listed).to_string();
        let next = apps.last().filter(|_| apps.len() == limit).map(id);
        let unreadable = apps.iter().filter(|listed| listed.is_err()).map(id).collect();
        let app =
            |state: &AppState| caller.shown(state).in_condition(&caller.deployer().known_condition(state)).listed();
        Ok(AppList { apps: apps.iter().flatten().map(app).collect(), unreadable, next })
    }
}

/// Shows an app with the last reading of its branch and a warning to its owner.
pub struct ShowApp;

impl Operation for ShowApp {
    type Subject = AppId;
    type Input = ();
    type Answer = App;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/apps/{namespace}/{app}", "Show an app");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<App, Refusal> {
        let access = caller.open(id).await?;
        let state = caller.deployer().state(&access).await?;
        let polling = caller.deployer().polled(access.uid()).as_ref().map(Polling::of);
        let warning = caller.deployer().warning(&access, &state.app).await?;
        let condition = caller.deployer().condition(&state).await;
        Ok(App { polling, warning, ..caller.shown(&state) }.in_condition(&condition))
    }
}

/// Changes an app's policy, source and workload.
pub struct ChangeApp;

impl Operation for ChangeApp {
    type Subject = AppId;
    type Input = AppPatch;
    type Answer = App;

    const ENDPOINT: Endpoint = Endpoint::new(
        "PATCH",
        "/api/v1/apps/{namespace}/{app}",
        200,
        "Change an app's policy, source or workload (JSON merge patch)",
    );

    async fn perform(caller: &Local, id: &AppId, patch: AppPatch) -> Result<App, Refusal> {
        // The audit has no change that cannot be read.
        let remark = patch.remark();
        let policy = patch.policy.parse()?;
        let source = patch.source.parse()?;
        let target = patch.workload.parse(patch.take_over);
        let access = caller.management().allow_change(&caller.principal, id, &remark).await?;
        let notes = caller.management().change(&access, policy, source, target).await?.notes;
        Ok(App { notes, ..caller.call(ShowApp, id, ()).await? })
    }
}

/// Removes an app with its token and history.
pub struct DeleteApp;

impl Operation for DeleteApp {
    type Subject = AppId;
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint =
        Endpoint::delete("/api/v1/apps/{namespace}/{app}", "Remove an app; its workload is not touched");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<(), Refusal> {
        caller.management.delete(&caller.principal, id).await
    }
}

/// Releases all holds of an app.
pub struct ReleaseHold;

impl Operation for ReleaseHold {
    type Subject = AppId;
    type Input = ();
    type Answer = App;

    const ENDPOINT: Endpoint =
        Endpoint::new("DELETE", "/api/v1/apps/{namespace}/{app}/hold", 200, "Release all holds of the app");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<App, Refusal> {
        Ok(caller.shown(&caller.deployer().release_hold(&caller.allow(id, Action::ReleaseHold).await?).await?))
    }
}
