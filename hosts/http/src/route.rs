//! The routes: which function answers which endpoint.

use std::{pin::Pin, sync::LazyLock};

use rollhook_api::{
    Kind, Local, Operation,
    endpoint::{Credentials, Endpoint, open},
    operations::{
        CancelDeploy, CancelRun, ChangeApp, ChangeConfiguration, CreateApiToken, DecideDeploy, DeleteApp, DeployApp,
        DisableWebhook, DiscardConfiguration, EnableWebhook, EndRequirement, EndSession, EndSessions, EndTrust,
        ExplainFollowing, ListActivity, ListApiTokens, ListApps, ListChecks, ListDeploys, ListInstances, ListLocks,
        ListReceivers, ListRequirements, ListRuns, ListSessions, ListTrusts, ListWebhookCalls, LockApp,
        LockEnvironment, LookUpImage, PlanRollback, PromoteApp, PutCheck, ReadAudit, ReadBuildLog, ReadInstanceLog,
        ReadRunLog, RebuildApp, RegisterApp, RegisterReceiver, ReleaseHold, RemoveCheck, RemoveReceiver, ReplaceSecret,
        ReportDelivery, RevokeApiToken, RollBack, RotateWebhook, SetRequirement, ShowApp, ShowCaller,
        ShowConfiguration, ShowDeploy, ShowRun, ShowWebhook, StartApp, StartRun, StopApp, TestCheck, TestReceiver,
        TrustPipeline, UnlockApp, UnlockEnvironment,
    },
};
use rollhook_core::app::{Environment, Project};

use crate::{
    answer, apps, build_log, call::Call, configuration, deploys, error_reply::ErrorReply, events, login, probes,
    reply::Reply, report, runs, webhook,
};

/// An answer under way.
pub(crate) type Answering<'a> = Pin<Box<dyn Future<Output = Result<Reply, ErrorReply>> + Send + 'a>>;

/// An endpoint, and the function that answers its calls.
pub(crate) struct Route {
    pub(crate) endpoint: Endpoint,
    pub(crate) handler: Handler,
}

/// The function that answers a call.
pub(crate) enum Handler {
    /// Checks the caller's credentials itself, if there are any to check.
    Open(for<'a> fn(&'a Call) -> Answering<'a>),
    /// Answers the holder of an API token.
    Managed(for<'a> fn(&'a Call, Local) -> Answering<'a>),
}

/// The routes.
pub(crate) static ROUTES: LazyLock<Vec<Route>> = LazyLock::new(|| {
    vec![
        open(open::HEALTH, |call| Box::pin(probes::health(call))),
        open(open::READY, |call| Box::pin(probes::ready(call))),
        open(open::METRICS, |call| Box::pin(probes::metrics(call))),
        open(open::DESCRIPTION, |_| Box::pin(probes::description())),
        open(open::SCRIPT, |_| Box::pin(probes::script())),
        open(open::WEBHOOK, |call| Box::pin(webhook::post(call))),
        open(open::LOGIN, |call| Box::pin(login::redeem(call))),
        of::<ListApps>(),
        with::<RegisterApp>(|call, caller| Box::pin(apps::register(call, caller))),
        of::<ShowApp>(),
        with::<ChangeApp>(|call, caller| Box::pin(apps::change(call, caller))),
        of::<DeleteApp>(),
        of::<ListChecks>(),
        of::<PutCheck>(),
        of::<RemoveCheck>(),
        of::<TestCheck>(),
        of::<LookUpImage>(),
        of::<ExplainFollowing>(),
        of::<ReleaseHold>(),
        of::<ShowWebhook>(),
        of::<EnableWebhook>(),
        of::<DisableWebhook>(),
        of::<RotateWebhook>(),
        of::<ListWebhookCalls>(),
        of::<ListTrusts>(),
        of::<TrustPipeline>(),
        of::<EndTrust>(),
        with::<ListActivity>(|call, caller| Box::pin(report::activity(call, caller))),
        with::<ReportDelivery>(|call, caller| Box::pin(report::delivery(call, caller))),
        of::<ListDeploys>(),
        with::<DeployApp>(|call, caller| Box::pin(deploys::post(call, caller))),
        of::<ShowConfiguration>(),
        with::<ChangeConfiguration>(|call, caller| Box::pin(configuration::change(call, caller))),
        of::<DiscardConfiguration>(),
        with::<StopApp>(|call, caller| Box::pin(deploys::accept::<StopApp>(call, caller))),
        with::<StartApp>(|call, caller| Box::pin(deploys::accept::<StartApp>(call, caller))),
        with::<ShowDeploy>(|call, caller| Box::pin(deploys::show(call, caller))),
        Route {
            endpoint: open::EVENTS,
            handler: Handler::Managed(|call, caller| Box::pin(events::stream(call, caller))),
        },
        with::<ReadBuildLog>(|call, caller| Box::pin(build_log::read(call, caller))),
        of::<ListInstances>(),
        of::<ReadInstanceLog>(),
        of::<CancelDeploy>(),
        of::<DecideDeploy>(),
        of::<PlanRollback>(),
        with::<RollBack>(|call, caller| Box::pin(deploys::roll_back(call, caller))),
        with::<PromoteApp>(|call, caller| Box::pin(deploys::accept::<PromoteApp>(call, caller))),
        with::<RebuildApp>(|call, caller| Box::pin(deploys::accept::<RebuildApp>(call, caller))),
        with::<StartRun>(|call, caller| Box::pin(runs::start(call, caller))),
        of::<ListRuns>(),
        with::<ShowRun>(|call, caller| Box::pin(runs::show(call, caller))),
        with::<ReadRunLog>(|call, caller| Box::pin(build_log::read_of_run(call, caller))),
        of::<CancelRun>(),
        of::<LockApp>(),
        of::<UnlockApp>(),
        of::<ListLocks>(),
        of::<LockEnvironment>(),
        of::<UnlockEnvironment>(),
        of::<ListRequirements>(),
        of::<SetRequirement<Project>>(),
        of::<EndRequirement<Project>>(),
        of::<SetRequirement<(Project, Environment)>>(),
        of::<EndRequirement<(Project, Environment)>>(),
        of::<ListApiTokens>(),
        of::<CreateApiToken>(),
        of::<RevokeApiToken>(),
        of::<ReadAudit>(),
        of::<ShowCaller>(),
        of::<ListSessions>(),
        of::<EndSession>(),
        of::<EndSessions>(),
        of::<ListReceivers>(),
        of::<RegisterReceiver>(),
        of::<RemoveReceiver>(),
        of::<TestReceiver>(),
        of::<ReplaceSecret>(),
    ]
});

/// What is at every other path. It needs a token as well, so that only operators learn which paths exist.
pub(crate) static NOTHING: Route = Route {
    endpoint: Endpoint::get("", ""),
    handler: Handler::Managed(|_, _| {
        Box::pin(async { Err(ErrorReply::new(Kind::NotFound, "There is nothing at this path.")) })
    }),
};

/// Returns the route of an operation whose answer is what it returns.
fn of<O: Operation>() -> Route {
    with::<O>(|call, caller| Box::pin(answer::performed::<O>(call, caller)))
}

fn with<O: Operation>(answer: for<'a> fn(&'a Call, Local) -> Answering<'a>) -> Route {
    Route { endpoint: O::ENDPOINT, handler: Handler::Managed(answer) }
}

fn open(endpoint: Endpoint, answer: for<'a> fn(&'a Call) -> Answering<'a>) -> Route {
    Route { endpoint, handler: Handler::Open(answer) }
}

/// What is at a path.
pub(crate) enum Found {
    /// The route of path and method.
    Route(&'static Route),
    /// Routes of other methods: these.
    OtherMethods(String),
    /// Nothing.
    Nothing,
}

/// Returns what is at a path.
pub(crate) fn find(path: &str, method: &str) -> Found {
    let method = if method == "HEAD" { "GET" } else { method };
    let here = || ROUTES.iter().filter(|route| route.endpoint.parameters(path).is_some());
    if let Some(route) = here().find(|route| route.endpoint.method == method) {
        return Found::Route(route);
    }
    let methods: Vec<_> = here().map(|route| route.endpoint.method).collect();
    if methods.is_empty() {
        return Found::Nothing;
    }
    let known = ["GET", "POST", "PUT", "PATCH", "DELETE"].into_iter().filter(|method| methods.contains(method));
    let named = known.map(|method| if method == "GET" { "GET, HEAD" } else { method });
    Found::OtherMethods(named.collect::<Vec<_>>().join(", "))
}

/// Returns the path's route as a label, from a fixed set.
pub(crate) fn template(path: &str) -> &'static str {
    let known = ROUTES.iter().find(|route| route.endpoint.parameters(path).is_some());
    known.map_or_else(|| rollhook_console::template(path), |route| route.endpoint.path)
}

/// Returns whether a path is for supervisors and Prometheus.
pub(crate) fn is_probe(path: &str) -> bool {
    ROUTES
        .iter()
        .any(|route| route.endpoint.credentials == Credentials::Probe && route.endpoint.parameters(path).is_some())
}

/// Returns whether a label is that of the webhook's route.
pub(crate) fn is_webhook(template: &str) -> bool {
    template == open::WEBHOOK.path
}

#[cfg(test)]
mod tests {
    use rollhook_api::openapi;

    use super::*;

    #[test]
    fn every_route_is_found_by_its_own_path() {
        for Route { endpoint, .. } in &*ROUTES {
            let path = endpoint.path.replace("{revision}", "7").replace("{run}", "7").replace(['{', '}'], "");
            let Found::Route(found) = find(&path, endpoint.method) else { panic!("{path}") };
            assert_eq!(found.endpoint, *endpoint);
            assert_eq!(template(&path), endpoint.path);
        }
    }

    #[test]
    fn other_methods_are_named() {
        let methods = |path: &str| match find(path, "TRACE") {
            Found::OtherMethods(methods) => methods,
            Found::Route(_) | Found::Nothing => panic!("{path}"),
        };
        assert_eq!(methods("/api/v1/apps"), "GET, HEAD, POST");
        assert_eq!(methods("/api/v1/apps/shop-test/api"), "GET, HEAD, PATCH, DELETE");
        assert_eq!(methods("/api/v1/apps/shop-test/api/lock"), "PUT, DELETE");
    }

    #[test]
    fn other_paths_are_unknown() {
        for path in ["", "*", "/healthz/", "/api/v1/apps/", "/api/v1/webhook/a", "/api/v1/webhook/a/b/", "/api/v2/apps"]
        {
            assert_eq!(template(path), "unknown", "{path}");
        }
        assert_eq!(template(&"/a".repeat(1000)), "unknown");
    }

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let document = openapi::document();
        let paths = document["paths"].as_object().unwrap();
        let described = paths.values().flat_map(|item| item.as_object().unwrap().keys());
        assert_eq!(described.filter(|name| *name != "parameters").count(), ROUTES.len());
        for Route { endpoint, .. } in &*ROUTES {
            let operation = &paths[endpoint.path][endpoint.method.to_lowercase()];
            assert!(operation.is_object(), "{} {} is not described", endpoint.method, endpoint.path);
        }
    }
}
