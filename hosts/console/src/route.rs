//! The console's paths.

use rollhook_core::{
    app::{AppId, Project},
    deploy::Revision,
    run::RunNumber,
};
use rollhook_management::{
    access::{SessionId, TokenName},
    notifications::ReceiverName,
};

/// The place that a path names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// A static file, for anyone.
    Asset,
    /// The sign-in, for anyone.
    SignIn,
    /// The way to the provider of sign-ins, for anyone.
    ProviderStart,
    /// The way back from the provider.
    ProviderCallback,
    /// A page for people who are signed in.
    Page(Page),
    /// Nothing.
    Unknown,
}

/// The pages for people who are signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    Apps,
    Activity,
    ActivityLive,
    Report,
    Register,
    Promote(Project),
    SignOut,
    SignOutEverywhere,
    CommandLine,
    Access,
    NewToken,
    Revoke(TokenName),
    EndSession(SessionId),
    EndSessions,
    Receivers,
    Receiver(ReceiverName, ReceiverPart),
    App(AppId, AppPart),
    Deploy(AppId, Revision, DeployPart),
    Run(AppId, RunNumber, RunPart),
}

/// The parts of an app's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppPart {
    Deploys,
    Live,
    Logs,
    LogList,
    LogMore,
    Runs,
    NewDeploy,
    Redeploy,
    Stop,
    Start,
    Rollback,
    Webhook,
    Reveal,
    Enable,
    Disable,
    AddTrust,
    RemoveTrust,
    Configuration,
    Unset,
    DiscardStaged,
    Settings,
    Source,
    Workloads,
    Checks,
    TestCheck,
    RemoveCheck,
    ReleaseHold,
    Rotate,
    Lock,
    Unlock,
    Delete,
}

/// The parts of a deploy's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeployPart {
    Entry,
    Status,
    Log,
    Cancel,
    Verdict,
}

/// The parts of the pages of a command that was run by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RunPart {
    Run,
    Log,
}

/// The parts of a receiver's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReceiverPart {
    Test,
    Rotate,
    Remove,
}

/// The permission that a page needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Nothing,
    Deploy,
    Token,
    Administer,
    Access,
}

/// The parts of an app's pages: path below the app's, methods, label.
const APP_PARTS: &[(AppPart, &str, &[&str], &str)] = &[
    (AppPart::Deploys, "", READ, "/apps/{namespace}/{app}"),
    (AppPart::Live, "live", READ, "/apps/{namespace}/{app}/live"),
    (AppPart::Logs, "logs", READ, "/apps/{namespace}/{app}/logs"),
    (AppPart::LogList, "logs/list", READ, "/apps/{namespace}/{app}/logs/list"),
    (AppPart::LogMore, "logs/more", READ, "/apps/{namespace}/{app}/logs/more"),
    (AppPart::Runs, "runs", READ, "/apps/{namespace}/{app}/runs"),
    (AppPart::NewDeploy, "deploy", BOTH, "/apps/{namespace}/{app}/deploy"),
    (AppPart::Redeploy, "redeploy", BOTH, "/apps/{namespace}/{app}/redeploy"),
    (AppPart::Stop, "stop", BOTH, "/apps/{namespace}/{app}/stop"),
    (AppPart::Start, "start", BOTH, "/apps/{namespace}/{app}/start"),
    (AppPart::Rollback, "rollback", BOTH, "/apps/{namespace}/{app}/rollback"),
    (AppPart::Webhook, "webhook", READ, "/apps/{namespace}/{app}/webhook"),
    (AppPart::Reveal, "webhook/reveal", BOTH, "/apps/{namespace}/{app}/webhook/reveal"),
    (AppPart::Enable, "webhook/enable", BOTH, "/apps/{namespace}/{app}/webhook/enable"),
    (AppPart::Disable, "webhook/disable", BOTH, "/apps/{namespace}/{app}/webhook/disable"),
    (AppPart::AddTrust, "webhook/trust", BOTH, "/apps/{namespace}/{app}/webhook/trust"),
    (AppPart::RemoveTrust, "webhook/remove-trust", BOTH, "/apps/{namespace}/{app}/webhook/remove-trust"),
    (AppPart::Configuration, "config", BOTH, "/apps/{namespace}/{app}/config"),
    (AppPart::Unset, "config/unset", BOTH, "/apps/{namespace}/{app}/config/unset"),
    (AppPart::DiscardStaged, "config/discard", BOTH, "/apps/{namespace}/{app}/config/discard"),
    (AppPart::Settings, "settings", BOTH, "/apps/{namespace}/{app}/settings"),
    (AppPart::Source, "settings/source", BOTH, "/apps/{namespace}/{app}/settings/source"),
    (AppPart::Workloads, "settings/workloads", BOTH, "/apps/{namespace}/{app}/settings/workloads"),
    (AppPart::Checks, "settings/checks", BOTH, "/apps/{namespace}/{app}/settings/checks"),
    (AppPart::TestCheck, "settings/checks/test", WRITE, "/apps/{namespace}/{app}/settings/checks/test"),
    (AppPart::RemoveCheck, "settings/checks/remove", BOTH, "/apps/{namespace}/{app}/settings/checks/remove"),
    (AppPart::ReleaseHold, "release-hold", BOTH, "/apps/{namespace}/{app}/release-hold"),
    (AppPart::Rotate, "webhook/rotate", BOTH, "/apps/{namespace}/{app}/webhook/rotate"),
    (AppPart::Lock, "lock", BOTH, "/apps/{namespace}/{app}/lock"),
    (AppPart::Unlock, "unlock", BOTH, "/apps/{namespace}/{app}/unlock"),
    (AppPart::Delete, "delete", BOTH, "/apps/{namespace}/{app}/delete"),
];

const DEPLOY_PARTS: &[(DeployPart, &str, &[&str], &str)] = &[
    (DeployPart::Entry, "", READ, "/apps/{namespace}/{app}/deploys/{revision}"),
    (DeployPart::Status, "status", READ, "/apps/{namespace}/{app}/deploys/{revision}/status"),
    (DeployPart::Log, "log", READ, "/apps/{namespace}/{app}/deploys/{revision}/log"),
    (DeployPart::Cancel, "cancel", BOTH, "/apps/{namespace}/{app}/deploys/{revision}/cancel"),
    (DeployPart::Verdict, "verdict", WRITE, "/apps/{namespace}/{app}/deploys/{revision}/verdict"),
];

const RUN_PARTS: &[(RunPart, &str, &[&str], &str)] = &[
    (RunPart::Run, "", READ, "/apps/{namespace}/{app}/runs/{run}"),
    (RunPart::Log, "log", READ, "/apps/{namespace}/{app}/runs/{run}/log"),
];

const RECEIVER_PARTS: &[(ReceiverPart, &str, &[&str], &str)] = &[
    (ReceiverPart::Test, "test", WRITE, "/receivers/{receiver}/test"),
    (ReceiverPart::Rotate, "rotate", BOTH, "/receivers/{receiver}/rotate"),
    (ReceiverPart::Remove, "remove", BOTH, "/receivers/{receiver}/remove"),
];

const READ: &[&str] = &["GET", "HEAD"];
const WRITE: &[&str] = &["POST"];
const BOTH: &[&str] = &["GET", "HEAD", "POST"];

impl Route {
    /// Returns what is at a path.
    pub(crate) fn of(path: &str) -> Self {
        if path.starts_with("/assets/") {
            return Self::Asset;
        }
        match path {
            "/sign-in" => return Self::SignIn,
            "/sign-in/start" => return Self::ProviderStart,
            "/sign-in/callback" => return Self::ProviderCallback,
            "/" => return Self::Page(Page::Apps),
            "/activity" => return Self::Page(Page::Activity),
            "/activity/live" => return Self::Page(Page::ActivityLive),
            "/report" => return Self::Page(Page::Report),
            "/apps/new" => return Self::Page(Page::Register),
            "/sign-out" => return Self::Page(Page::SignOut),
            "/sign-out-everywhere" => return Self::Page(Page::SignOutEverywhere),
            "/command-line" => return Self::Page(Page::CommandLine),
            "/access" => return Self::Page(Page::Access),
            "/access/tokens" => return Self::Page(Page::NewToken),
            "/access/sessions/end" => return Self::Page(Page::EndSessions),
            "/receivers" => return Self::Page(Page::Receivers),
            _ => {}
        }
        if let Some(name) = path.strip_prefix("/access/tokens/").and_then(|rest| rest.strip_suffix("/revoke")) {
            return name.parse().map_or(Self::Unknown, |name| Self::Page(Page::Revoke(name)));
        }
        if let Some(id) = path.strip_prefix("/access/sessions/").and_then(|rest| rest.strip_suffix("/end")) {
            return id.parse().map_or(Self::Unknown, |id| Self::Page(Page::EndSession(id)));
        }
        if let Some(project) = path.strip_prefix("/projects/").and_then(|rest| rest.strip_suffix("/promote")) {
            return project.parse().map_or(Self::Unknown, |project| Self::Page(Page::Promote(project)));
        }
        let page = match path.strip_prefix("/receivers/") {
            Some(rest) => below_receivers(rest),
            None => path.strip_prefix("/apps/").and_then(below_apps),
        };
        page.map_or(Self::Unknown, Self::Page)
    }

    /// Returns the methods that the path takes.
    pub(crate) fn methods(&self) -> &'static [&'static str] {
        match self {
            Self::SignIn
            | Self::Page(Page::Register | Page::Promote(_) | Page::CommandLine | Page::Revoke(_) | Page::Receivers)
            | Self::Page(Page::EndSession(_) | Page::EndSessions) => BOTH,
            Self::Page(Page::SignOut | Page::SignOutEverywhere | Page::NewToken) => WRITE,
            Self::Asset | Self::Page(Page::Apps | Page::Access) | Self::Unknown => READ,
            Self::Page(Page::Activity | Page::ActivityLive | Page::Report) => READ,
            Self::ProviderStart | Self::ProviderCallback => &["GET"],
            Self::Page(Page::Receiver(_, part)) => methods(RECEIVER_PARTS, *part),
            Self::Page(Page::App(_, part)) => methods(APP_PARTS, *part),
            Self::Page(Page::Deploy(_, _, part)) => methods(DEPLOY_PARTS, *part),
            Self::Page(Page::Run(_, _, part)) => methods(RUN_PARTS, *part),
        }
    }

    /// Returns whether pages read the path by themselves, without a person's doing.
    pub(crate) fn is_automatic(&self) -> bool {
        matches!(
            self,
            Self::Page(
                Page::ActivityLive
                    | Page::App(_, AppPart::Live | AppPart::LogList | AppPart::LogMore)
                    | Page::Deploy(_, _, DeployPart::Log | DeployPart::Status)
                    | Page::Run(_, _, RunPart::Log)
            )
        )
    }

    /// Returns the route as a label, from a fixed set.
    fn label(&self) -> &'static str {
        match self {
            Self::Asset => "/assets",
            Self::SignIn => "/sign-in",
            Self::ProviderStart => "/sign-in/start",
            Self::ProviderCallback => "/sign-in/callback",
            Self::Page(Page::Apps) => "/",
            Self::Page(Page::Activity) => "/activity",
            Self::Page(Page::ActivityLive) => "/activity/live",
            Self::Page(Page::Report) => "/report",
            Self::Page(Page::Register) => "/apps/new",
            Self::Page(Page::Promote(_)) => "/projects/{project}/promote",
            Self::Page(Page::SignOut) => "/sign-out",
            Self::Page(Page::SignOutEverywhere) => "/sign-out-everywhere",
            Self::Page(Page::CommandLine) => "/command-line",
            Self::Page(Page::Access) => "/access",
            Self::Page(Page::NewToken) => "/access/tokens",
            Self::Page(Page::Revoke(_)) => "/access/tokens/{token}/revoke",
            Self::Page(Page::EndSession(_)) => "/access/sessions/{session}/end",
            Self::Page(Page::EndSessions) => "/access/sessions/end",
            Self::Page(Page::Receivers) => "/receivers",
            Self::Page(Page::Receiver(_, part)) => label(RECEIVER_PARTS, *part),
            Self::Page(Page::App(_, part)) => label(APP_PARTS, *part),
            Self::Page(Page::Deploy(_, _, part)) => label(DEPLOY_PARTS, *part),
            Self::Page(Page::Run(_, _, part)) => label(RUN_PARTS, *part),
            Self::Unknown => "unknown",
        }
    }
}

impl Page {
    /// The app that the page is of.
    pub(crate) const fn app(&self) -> Option<&AppId> {
        match self {
            Self::App(id, _) | Self::Deploy(id, ..) | Self::Run(id, ..) => Some(id),
            Self::Apps | Self::Register | Self::Promote(_) | Self::CommandLine => None,
            Self::SignOut | Self::SignOutEverywhere => None,
            Self::Activity | Self::ActivityLive | Self::Report => None,
            Self::Access | Self::NewToken | Self::Revoke(_) | Self::EndSession(_) | Self::EndSessions => None,
            Self::Receivers | Self::Receiver(..) => None,
        }
    }

    /// Returns the permission that a call of the page needs.
    pub(crate) fn need(&self, reads: bool) -> Need {
        match self {
            Self::Apps | Self::SignOut | Self::SignOutEverywhere | Self::CommandLine => Need::Nothing,
            Self::Activity | Self::ActivityLive | Self::Report => Need::Nothing,
            Self::Register => Need::Administer,
            Self::Promote(_) => Need::Deploy,
            Self::Access | Self::NewToken | Self::Revoke(_) | Self::EndSession(_) | Self::EndSessions => Need::Access,
            Self::Receivers | Self::Receiver(..) => Need::Access,
            Self::App(_, part) => match part {
                AppPart::Deploys | AppPart::Live | AppPart::Webhook => Need::Nothing,
                AppPart::Logs | AppPart::LogList | AppPart::LogMore | AppPart::Runs => Need::Nothing,
                AppPart::Settings | AppPart::Source | AppPart::Workloads | AppPart::Reveal if reads => Need::Nothing,
                AppPart::Checks if reads => Need::Nothing,
                AppPart::TestCheck => Need::Deploy,
                AppPart::Checks | AppPart::RemoveCheck => Need::Administer,
                AppPart::NewDeploy | AppPart::Redeploy | AppPart::Rollback => Need::Deploy,
                AppPart::Stop | AppPart::Start => Need::Deploy,
                AppPart::Configuration | AppPart::Unset | AppPart::DiscardStaged => Need::Deploy,
                AppPart::ReleaseHold | AppPart::Lock | AppPart::Unlock => Need::Deploy,
                AppPart::Reveal | AppPart::Enable | AppPart::Rotate => Need::Token,
                AppPart::Disable | AppPart::AddTrust | AppPart::RemoveTrust | AppPart::Settings => Need::Administer,
                AppPart::Source | AppPart::Workloads | AppPart::Delete => Need::Administer,
            },
            Self::Deploy(_, _, DeployPart::Cancel | DeployPart::Verdict) => Need::Deploy,
            Self::Run(_, _, RunPart::Run | RunPart::Log) => Need::Nothing,
            Self::Deploy(_, _, DeployPart::Entry | DeployPart::Status | DeployPart::Log) => Need::Nothing,
        }
    }
}

/// Returns whether a path is the console's by its first part.
pub fn claims(path: &str) -> bool {
    !matches!(Route::of(path), Route::Unknown) || path == "/apps" || path.starts_with("/apps/")
}

/// Returns whether a call brings its credentials in its body.
pub fn is_sign_in(path: &str) -> bool {
    Route::of(path) == Route::SignIn
}

/// Returns whether a call brings a code of the provider of sign-ins.
pub fn is_provider_callback(path: &str) -> bool {
    Route::of(path) == Route::ProviderCallback
}

/// Returns a path's route as a label, from a fixed set.
pub fn template(path: &str) -> &'static str {
    Route::of(path).label()
}

fn below_receivers(rest: &str) -> Option<Page> {
    let (name, below) = rest.split_once('/')?;
    let (part, ..) = RECEIVER_PARTS.iter().find(|(_, path, ..)| *path == below)?;
    Some(Page::Receiver(name.parse().ok()?, *part))
}

fn below_apps(rest: &str) -> Option<Page> {
    let (namespace, rest) = rest.split_once('/')?;
    let (name, below) = rest.split_once('/').unwrap_or((rest, ""));
    let id = AppId { namespace: namespace.parse().ok()?, name: name.parse().ok()? };
    if rest.ends_with('/') {
        return None;
    }
    if let Some(below) = below.strip_prefix("deploys/") {
        let (revision, below) = below.split_once('/').unwrap_or((below, ""));
        let (part, ..) = DEPLOY_PARTS.iter().find(|(_, path, ..)| *path == below)?;
        return Some(Page::Deploy(id, revision.parse().ok()?, *part));
    }
    if let Some(below) = below.strip_prefix("runs/") {
        let (number, below) = below.split_once('/').unwrap_or((below, ""));
        let (part, ..) = RUN_PARTS.iter().find(|(_, path, ..)| *path == below)?;
        return Some(Page::Run(id, number.parse().ok()?, *part));
    }
    let (part, ..) = APP_PARTS.iter().find(|(_, path, ..)| *path == below)?;
    Some(Page::App(id, *part))
}

fn methods<P: PartialEq + Copy>(
    parts: &[(P, &str, &'static [&'static str], &str)],
    part: P,
) -> &'static [&'static str] {
    parts.iter().find(|(known, ..)| *known == part).map_or(READ, |(_, _, methods, _)| methods)
}

fn label<P: PartialEq + Copy>(parts: &[(P, &str, &[&str], &'static str)], part: P) -> &'static str {
    parts.iter().find(|(known, ..)| *known == part).map_or("unknown", |(.., label)| label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_found_by_its_own_path() {
        let fill =
            |label: &str| label.replace("{namespace}", "shop-test").replace("{app}", "api").replace("{revision}", "7");
        for (part, .., label) in APP_PARTS {
            assert!(matches!(Route::of(&fill(label)), Route::Page(Page::App(_, found)) if found == *part), "{label}");
            assert_eq!(template(&fill(label)), *label);
        }
        for (part, .., label) in DEPLOY_PARTS {
            let found = Route::of(&fill(label));
            assert!(matches!(found, Route::Page(Page::Deploy(_, _, found)) if found == *part), "{label}");
            assert_eq!(template(&fill(label)), *label);
        }
        for (part, .., label) in RUN_PARTS {
            let path = fill(label).replace("{run}", "3");
            assert!(matches!(Route::of(&path), Route::Page(Page::Run(_, _, found)) if found == *part), "{label}");
            assert_eq!(template(&path), *label);
        }
        for (part, .., label) in RECEIVER_PARTS {
            let path = label.replace("{receiver}", "ops");
            assert!(matches!(Route::of(&path), Route::Page(Page::Receiver(_, found)) if found == *part), "{label}");
            assert_eq!(template(&path), *label);
        }
    }

    #[test]
    fn promotion_is_a_project_s() {
        let Route::Page(Page::Promote(project)) = Route::of("/projects/shop/promote") else { panic!("no promotion") };
        assert_eq!((project.as_str(), template("/projects/shop/promote")), ("shop", "/projects/{project}/promote"));
        assert_eq!(Page::Promote(project).need(true), Need::Deploy);
        for path in ["/projects/shop", "/projects/Shop/promote", "/projects//promote", "/projects/a/b/promote"] {
            assert_eq!(Route::of(path), Route::Unknown, "{path}");
        }
    }

    #[test]
    fn other_paths_are_unknown() {
        for path in
            ["/x", "", "/apps", "/apps/", "/apps/shop-test", "/apps/shop-test/api/", "/apps/Bad_/api", "/api/v1/apps"]
        {
            assert_eq!(Route::of(path), Route::Unknown, "{path}");
        }
        for path in ["/apps/shop-test/api/deploys/0", "/apps/shop-test/api/runs/x", "/apps/shop-test/api/x"] {
            assert_eq!(Route::of(path), Route::Unknown, "{path}");
        }
        assert!(!claims("/api/v1/apps") && !claims("/metrics") && claims("/apps/Bad_/api") && claims("/"));
    }

    #[test]
    fn everything_that_changes_needs_a_permission() {
        let id = || AppId { namespace: "shop-test".parse().unwrap(), name: "api".parse().unwrap() };
        for (part, _, methods, label) in APP_PARTS {
            if methods.contains(&"POST") {
                assert_ne!(Page::App(id(), *part).need(false), Need::Nothing, "{label}");
            }
        }
        for part in [DeployPart::Cancel, DeployPart::Verdict] {
            assert_eq!(Page::Deploy(id(), Revision::FIRST, part).need(false), Need::Deploy);
        }
        assert_eq!(Page::Register.need(false), Need::Administer);
        assert_eq!(Page::Receivers.need(false), Need::Access);
    }
}
