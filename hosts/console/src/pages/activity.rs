//! Activity: who deployed what where, newest first.

use std::{fmt, str::FromStr};

use askama::Template;
use http::{HeaderValue, StatusCode, header::CONTENT_DISPOSITION};
use rollhook_api::{
    ActivityDeploy, ActivityList, Kind,
    openapi::PAGE_MAX,
    operations::{ActivityQuery, ListActivity},
    query::PageSize,
    report::{csv, words},
    words::{cause, predicate},
};
use rollhook_core::{
    deploy::Status,
    request::{Field, Refusal},
    text::escaped,
};
use rollhook_management::report::{ActivityPlace, StatusFilter};

use crate::{
    console::Call,
    host::{CallerOperations, Failure},
    live,
    reply::{self, Reply},
    request::Request,
    view::{Frame, Image, Mark, When},
};

/// The number of deploys of a page.
const PAGE: usize = 50;

#[derive(Template)]
#[template(path = "activity.html")]
struct ActivityPage<'a> {
    frame: &'a Frame,
    shown: &'a Shown,
    filter: &'a Filter,
    /// The id of the event that would show the same.
    seen: &'a str,
}

#[derive(Template)]
#[template(path = "_activity.html")]
struct ActivityPart<'a> {
    shown: &'a Shown,
}

/// The fields of the form by which the list is narrowed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    project: String,
    environment: String,
    actor: String,
    status: String,
    after: String,
}

/// The part of the page that a stream renders again.
struct Shown {
    rows: Vec<Row>,
    /// The page of older deploys.
    older: Option<String>,
    /// The page of the newest ones, unless it is this one.
    newest: Option<String>,
    /// The same as a table for spreadsheets.
    export: String,
    left_out: Vec<String>,
    is_narrowed: bool,
    /// The sentence that assistive technology hears.
    spoken: String,
}

/// A deploy.
struct Row {
    href: String,
    app_href: String,
    app: String,
    project: String,
    environment: String,
    revision: String,
    mark: Mark,
    is_current: bool,
    is_revoked: bool,
    remark: Option<String>,
    image: Option<Image>,
    commit: Option<String>,
    trigger: &'static str,
    actor: String,
    when: When,
}

impl Filter {
    /// Returns the fields of a call's query.
    pub(crate) fn of(request: &Request) -> Self {
        let field = |name| request.query(name).map(|text| text.trim().to_owned()).unwrap_or_default();
        Self {
            project: field("project"),
            environment: field("environment"),
            actor: field("actor"),
            status: field("status"),
            after: field("after"),
        }
    }

    fn query(&self, limit: usize) -> Result<ActivityQuery, Failure> {
        let status: Option<StatusFilter> = narrowed("status", &self.status)?;
        let after: Option<ActivityPlace> = narrowed("after", &self.after)?;
        Ok(ActivityQuery {
            project: optional(Field::Project, &self.project)?,
            environment: optional(Field::Environment, &self.environment)?,
            actor: Some(self.actor.clone()).filter(|actor| !actor.is_empty()),
            status,
            after,
            limit: Some(PageSize::new(limit)),
        })
    }

    /// Whether only some deploys are shown.
    fn is_narrowed(&self) -> bool {
        [&self.project, &self.environment, &self.actor, &self.status].into_iter().any(|field| !field.is_empty())
    }

    /// Returns the path with these fields and more.
    fn path(&self, path: &str, more: &[(&str, &str)]) -> String {
        let own = [
            ("project", self.project.as_str()),
            ("environment", self.environment.as_str()),
            ("actor", self.actor.as_str()),
            ("status", self.status.as_str()),
        ];
        let fields = own.into_iter().filter(|(_, value)| !value.is_empty()).chain(more.iter().copied());
        let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
        if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
    }

    fn live(&self, seen: &str) -> String {
        self.path("/activity/live", &[("seen", seen)])
    }

    fn statuses(&self) -> Vec<(&'static str, bool)> {
        StatusFilter::ALL.iter().map(|status| (status.as_str(), status.as_str() == self.status)).collect()
    }
}

/// Answers `GET /activity`.
pub(crate) async fn page(call: &Call<'_>) -> Result<Reply, Failure> {
    let filter = Filter::of(call.request);
    if call.request.query("format").as_deref() == Some("csv") {
        let list = call.operations().call(ListActivity, &(), filter.query(PAGE_MAX)?).await?;
        return Ok(table(csv::activity(&list.deploys), "activity.csv"));
    }
    let list = read(&call.operations(), &filter).await?;
    let frame = call.frame();
    let (shown, seen) = (shown(&list, &filter, &frame), fingerprint(&list));
    Ok(reply::html(StatusCode::OK, &ActivityPage { frame: &frame, shown: &shown, filter: &filter, seen: &seen }))
}

/// Reads a field of a form, which may be empty.
pub(super) fn optional<T: FromStr<Err: fmt::Display>>(field: Field, text: &str) -> Result<Option<T>, Failure> {
    let read = (!text.is_empty()).then(|| text.parse());
    read.transpose().map_err(|why| Refusal::InvalidField(field, format!("{why}.")).into())
}

/// Reads a field of the query, which may be empty.
fn narrowed<T: FromStr<Err: fmt::Display>>(name: &str, text: &str) -> Result<Option<T>, Failure> {
    let read = (!text.is_empty()).then(|| text.parse()).transpose();
    read.map_err(|why| Failure::new(Kind::Malformed, format!("The address cannot be read: {name} {why}.")))
}

/// Reads the page's part of the list.
pub(crate) async fn read(operations: &CallerOperations, filter: &Filter) -> Result<ActivityList, Failure> {
    operations.call(ListActivity, &(), filter.query(PAGE)?).await
}

/// Returns the part of the page that a stream renders again.
pub(crate) fn part(list: &ActivityList, filter: &Filter, frame: &Frame) -> String {
    ActivityPart { shown: &shown(list, filter, frame) }.render().unwrap_or_default()
}

/// Returns a hash of what the page shows, except for the time.
pub(crate) fn fingerprint(list: &ActivityList) -> String {
    live::hash(&serde_json::to_vec(list).unwrap_or_default())
}

/// Returns a table for spreadsheets, which the browser stores as a file of this name.
pub(crate) fn table(text: String, name: &str) -> Reply {
    let mut reply = reply::whole(StatusCode::OK, csv::MEDIA_TYPE, text.into());
    let stored = HeaderValue::from_str(&format!("attachment; filename=\"{name}\""));
    reply.headers_mut().extend(stored.map(|value| (CONTENT_DISPOSITION, value)));
    reply
}

fn shown(list: &ActivityList, filter: &Filter, frame: &Frame) -> Shown {
    let newest = list.deploys.first().map(|shown| {
        let deploy = &shown.deploy;
        format!("{} in {}: revision {} {}", deploy.app, shown.environment, deploy.revision, predicate(deploy.status))
    });
    Shown {
        rows: list.deploys.iter().map(|shown| row(shown, frame)).collect(),
        older: list.next.as_deref().map(|next| filter.path("/activity", &[("after", next)])),
        newest: (!filter.after.is_empty()).then(|| filter.path("/activity", &[])),
        export: filter.path("/activity", &[("format", "csv")]),
        left_out: words::left_out_of_list(list),
        is_narrowed: filter.is_narrowed(),
        spoken: escaped(&newest.unwrap_or_else(|| "No deploys".to_owned())),
    }
}

fn row(shown: &ActivityDeploy, frame: &Frame) -> Row {
    let ActivityDeploy { project, environment, deploy } = shown;
    let app_href = format!("/apps/{}/{}", deploy.namespace, deploy.app);
    let reason = deploy.reason.as_deref().filter(|reason| *reason != deploy.status.as_str());
    Row {
        href: format!("{app_href}/deploys/{}", deploy.revision),
        app_href,
        app: escaped(&deploy.app),
        project: escaped(project),
        environment: escaped(environment),
        revision: deploy.revision.to_string(),
        mark: Mark::of(deploy),
        is_current: deploy.current,
        is_revoked: deploy.revoked.is_some(),
        remark: match (deploy.status, deploy.superseded_by) {
            (Status::Superseded, Some(by)) => Some(format!("by #{by}")),
            (_, _) => reason.map(escaped),
        },
        image: deploy.image.as_deref().map(Image::new),
        commit: deploy.shown_commit().map(|commit| escaped(&rollhook_api::words::short_commit(commit))),
        trigger: cause(deploy),
        actor: escaped(&deploy.actor),
        when: When::new(deploy.created_at, frame.now),
    }
}

#[cfg(test)]
mod tests {
    use rollhook_core::time::Timestamp;
    use serde_json::json;

    use super::*;
    use crate::pages::tests::deploy;

    #[test]
    fn deploy_whose_verification_was_revoked_is_marked() {
        let revoked = json!({ "at": "2026-01-02T03:04:05.678Z", "check": "errors", "message": "It failed." });
        let deploys = [json!({ "revoked": revoked }), json!({})].map(|more| ActivityDeploy {
            project: "shop".to_owned(),
            environment: "test".to_owned(),
            deploy: deploy(2, more),
        });
        let list = ActivityList { deploys: deploys.into(), ..ActivityList::default() };
        let frame = Frame::signed_out(Timestamp::from_millis(1_767_323_045_678));
        let page = part(&list, &Filter::default(), &frame);
        assert_eq!(page.matches("<span class=\"pill bad\">revoked</span>").count(), 1, "{page}");
    }
}
