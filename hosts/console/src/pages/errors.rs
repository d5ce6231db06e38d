//! Failures as pages, in the server's own words.

use askama::Template;
use http::{
    HeaderValue, StatusCode,
    header::{ALLOW, RETRY_AFTER},
};
use rollhook_api::Kind;
use rollhook_core::text::escaped;

use crate::{
    console::status,
    host::{Failure, Permissions},
    reply::{self, Reply},
    route::{Need, Route},
    view::Frame,
};

/// A failure, ready to be shown.
pub(crate) struct Shown {
    status: StatusCode,
    title: String,
    detail: String,
    hint: &'static str,
    /// The methods that the path takes instead.
    allowed: Option<String>,
    /// The seconds after which to try again.
    retry: Option<u64>,
}

#[derive(Template)]
#[template(path = "error.html")]
struct ErrorPage<'a> {
    frame: &'a Frame,
    shown: &'a Shown,
}

#[derive(Template)]
#[template(path = "_error.html")]
struct ErrorPart<'a> {
    shown: &'a Shown,
}

impl Shown {
    fn new(status: StatusCode, title: &str, detail: &str, hint: &'static str) -> Self {
        let (title, detail) = (title.to_owned(), detail.to_owned());
        Self { status, title, detail, hint, allowed: None, retry: None }
    }

    /// Returns the page for a person none of whose groups has a role.
    pub(crate) fn no_role(name: &str, provider: &str) -> Self {
        let detail = format!(
            "{provider} has signed you in as {name}. None of your groups has a role here, so there is nothing for you to see."
        );
        let hint =
            "Ask whoever runs this server to give one of your groups a role in its sign-in file, then sign in again.";
        Self::new(StatusCode::FORBIDDEN, "You have no role here", &detail, hint)
    }

    /// Returns the failure of a changing call that another site has caused.
    pub(crate) fn foreign_origin() -> Self {
        let detail = "This call changes something, and does not come from a page of this console. Nothing was done.";
        let hint = "Open the console and repeat it there. A proxy in front must pass the Host header on as it is.";
        Self::new(StatusCode::FORBIDDEN, "Refused", detail, hint)
    }

    /// Returns the failure of a person whose role does not cover what the page does.
    pub(crate) fn forbidden(may: Permissions, need: Need) -> Self {
        let role = match may {
            Permissions { may_administer: true, .. } => "admin",
            Permissions { may_deploy: true, .. } => "deployer",
            Permissions { .. } => "viewer",
        };
        let needed = match need {
            Need::Nothing => "viewer",
            Need::Deploy | Need::Token => "deployer",
            Need::Administer | Need::Access => "admin",
        };
        let detail = match role == needed {
            // A role on something else.
            true => format!("This takes the role {needed} here, and yours does not reach as far. Nothing was done."),
            false => format!("This takes the role {needed}, and yours is {role} here. Nothing was done."),
        };
        Self::new(StatusCode::FORBIDDEN, "Not permitted", &detail, "An administrator can grant you a role that does.")
    }

    pub(crate) fn method(route: &Route) -> Self {
        let allowed = route.methods().join(", ");
        let detail = format!("This path takes {allowed}.");
        let shown = Self::new(StatusCode::METHOD_NOT_ALLOWED, "Method not allowed", &detail, "");
        Self { allowed: Some(allowed), ..shown }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "most problems need no hint, and a new one may")]
    fn of(failure: &Failure) -> Self {
        let problem = &failure.problem;
        let hint = match failure.kind {
            Kind::StoreUnavailable | Kind::ClusterUnavailable | Kind::BuilderUnavailable | Kind::Busy => {
                "Nothing is lost: what was accepted goes on as soon as it can. Try again in a moment."
            }
            Kind::AppNotFound => "The app may have been deleted, or be in another environment.",
            Kind::RevisionNotFound => "Old revisions leave the history; the policy keep says how many stay.",
            Kind::CurrentChanged => "Look at the history, and decide again.",
            Kind::RateLimited => "Wait a moment, and try again.",
            _ => "",
        };
        let retry = failure.kind.retry_after().map(|wait| wait.as_secs());
        Self { retry, ..Self::new(status(failure), &escaped(&problem.title), &escaped(&problem.detail), hint) }
    }

    /// Returns the page of the failure, or the part of a page.
    pub(crate) fn reply(&self, frame: &Frame, is_partial: bool) -> Reply {
        let mut reply = match is_partial {
            true => reply::html(self.status, &ErrorPart { shown: self }),
            false => reply::html(self.status, &ErrorPage { frame, shown: self }),
        };
        let headers = reply.headers_mut();
        headers.extend(self.allowed.as_deref().and_then(|methods| Some((ALLOW, HeaderValue::from_str(methods).ok()?))));
        headers.extend(self.retry.map(|seconds| (RETRY_AFTER, HeaderValue::from(seconds))));
        reply
    }
}

/// Returns the page of a failure.
pub(crate) fn failure(frame: &Frame, is_partial: bool, failure: &Failure) -> Reply {
    Shown::of(failure).reply(frame, is_partial)
}

/// Returns the page of a path at which nothing is.
pub(crate) fn not_found(frame: &Frame, is_partial: bool) -> Reply {
    let shown = Shown::new(StatusCode::NOT_FOUND, "Nothing here", "There is no page at this address.", "");
    shown.reply(frame, is_partial)
}
