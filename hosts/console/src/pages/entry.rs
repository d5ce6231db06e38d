//! One entry of the history: its facts, its evidence, the logs of its build and its release command.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, Deploy, Kind, VerdictPost,
    configuration::signed_differences,
    operations::{
        CancelDeploy, ConfigQuery, DecideDeploy, DeployQuery, DeploysQuery, ListDeploys, LogQuery, LogStep, LogText,
        ReadBuildLog, ShowApp, ShowConfiguration, ShowDeploy,
    },
    words::{self, release_predicate, workload_evidence},
};
use rollhook_core::{
    app::{AppId, OnFailure, Source},
    deploy::{Revision, Status},
    image::ImageLabels,
    text::escaped,
};

use super::{confirm::Question, deploys, measured::Measured, promote::Status as Followed};
use crate::{
    ansi,
    console::Call,
    host::{CallerOperations, Failure},
    reply::{self, Reply},
    view::{Entry, Frame, Head, When, app_path},
};

#[derive(Template)]
#[template(path = "entry.html")]
struct EntryPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    entry: &'a Entry,
    digest: Option<String>,
    /// Why the registry did not name the digest before the rollout.
    not_resolved: Option<String>,
    /// The signers of the image, where the app required them.
    signed_by: Vec<String>,
    /// What the image's label says of the commit.
    commit_remark: Option<String>,
    /// What else the image's labels say.
    labels: Vec<Label>,
    ended: Option<When>,
    running: Option<deploys::Running>,
    /// How often the page is read again, while something goes on.
    refresh: Option<&'static str>,
    /// What the app's checks say.
    checks: Vec<Measured>,
    not_verified: Option<String>,
    /// Who decided in the place of the checks; or since when a decision is waited for, and whether the caller may make it.
    decision: Option<String>,
    may_decide: bool,
    /// What is said of the watch over the version, and what the checks have measured within it.
    watch: Vec<String>,
    watch_checks: Vec<Measured>,
    evidence: Option<Evidence>,
    outcome: Option<String>,
    superseded_by: Option<Revision>,
    /// The configuration, and the names of what is different in it.
    configuration: Option<String>,
    /// The knowledge of the release command.
    release: Option<&'static str>,
    log: Option<Log>,
    release_log: Option<Log>,
}

impl<'a> EntryPage<'a> {
    /// Returns the page of an entry without its configuration and its logs.
    fn new(app: &App, deploy: &Deploy, (head, entry, frame): (&'a Head, &'a Entry, &'a Frame)) -> Self {
        let is_unfinished = !deploy.status.is_terminal();
        let watched = deploy.watch.as_deref().map(|watch| &watch.checks[..]).unwrap_or_default();
        Self {
            head,
            entry,
            digest: deploy.digest.as_deref().map(escaped),
            not_resolved: deploy.not_resolved.as_deref().map(escaped),
            signed_by: deploy.signed_by.iter().map(|line| escaped(line)).collect(),
            commit_remark: words::commit_remark(deploy).as_deref().map(escaped),
            labels: Label::all(deploy),
            ended: (!is_unfinished).then(|| When::new(deploy.updated_at, frame.now)),
            running: is_unfinished.then(|| deploys::Running::new(app, deploy, frame)),
            refresh: refresh(deploy),
            checks: Measured::all(&deploy.checks, &words::checks(deploy), frame.now),
            not_verified: deploy.not_verified.as_deref().map(escaped),
            decision: words::decision(deploy).map(|line| escaped(&line)),
            may_decide: deploy.awaited_decision().is_some() && frame.may.may_deploy,
            watch: words::watch(deploy).iter().map(|line| escaped(line)).collect(),
            watch_checks: Measured::all(watched, &words::watch_checks(deploy), frame.now),
            evidence: evidence(deploy),
            outcome: words::outcome(deploy, Some(app)).as_deref().map(deploys::sentence),
            superseded_by: deploy.superseded_by,
            release: release_predicate(deploy),
            configuration: None,
            log: None,
            release_log: None,
            frame,
        }
    }
}

/// A label of the deploy's image, which whoever built it has chosen.
struct Label {
    name: &'static str,
    text: String,
    /// The address of the link that the label is.
    href: Option<String>,
}

impl Label {
    fn all(deploy: &Deploy) -> Vec<Self> {
        let Some(labels) = deploy.labels.as_deref() else { return Vec::new() };
        let page = |name, label: &Option<String>| {
            let text = label.as_deref()?;
            let href = ImageLabels::link(text).map(|url| url.to_string());
            Some(Self { name, text: escaped(text), href })
        };
        let version = labels.version.as_deref().map(escaped);
        let version = version.map(|text| Self { name: "Version", text, href: None });
        [version, page("Source", &labels.source), page("Page", &labels.url)].into_iter().flatten().collect()
    }
}

/// The evidence of a failed rollout.
struct Evidence {
    facts: Vec<(&'static str, String)>,
    events: Vec<String>,
    /// The part of the deploy that wrote the log.
    source: &'static str,
    log: Vec<String>,
    /// The states of several workloads, a line each.
    workloads: Vec<String>,
}

impl Evidence {
    /// Returns whether nothing was taken, as where a check has failed the deploy.
    const fn is_empty(&self) -> bool {
        self.facts.is_empty() && self.events.is_empty() && self.log.is_empty() && self.workloads.is_empty()
    }
}

/// The bytes of the log of an ended step that the page shows; the command line shows all.
const ENDED_SHOWN: u64 = 512 << 10;
/// The bytes of a part of the log of an ended step from which on more may follow: platforms return up to twice as many at once.
const LONG_PART: usize = 32 << 10;

/// The log of a build, a release command or an instance.
#[derive(Template)]
#[template(path = "_log.html")]
pub(crate) struct Log {
    pub(crate) html: String,
    /// The path of the log's continuation, while it goes on, or there may be more to show.
    pub(crate) next: Option<String>,
}

/// Answers `GET …/deploys/{revision}`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId, revision: Revision) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    let deploy = operations.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?;
    let frame = call.frame();
    let log = match app.source {
        Source::Git(_) => step_log(&operations, id, &deploy, (LogStep::Build, 0)).await?,
        Source::Image => None,
    };
    let release_log = match deploy.has_release_step(&app) {
        true => step_log(&operations, id, &deploy, (LogStep::Release, 0)).await?,
        false => None,
    };
    let configuration = configuration(call, id, &app, &deploy).await;
    let (head, entry) = (Head::new(&app, "deploys"), Entry::new(&app, &deploy, &frame));
    let page = EntryPage { configuration, log, release_log, ..EntryPage::new(&app, &deploy, (&head, &entry, &frame)) };
    Ok(reply::html(StatusCode::OK, &page))
}

/// Returns the configuration that a deploy runs with, and by name the variables in which it differs from that of the entry before,
/// once the deploy has ended, for a caller who may list variables.
async fn configuration(call: &Call<'_>, id: &AppId, app: &App, deploy: &Deploy) -> Option<String> {
    let number = escaped(deploy.configuration.as_deref()?);
    if !deploy.status.is_terminal() || !call.may_read_configuration(app) {
        return Some(number);
    }
    let operations = call.operations();
    let before = operations.call(ListDeploys, id, DeploysQuery::page(Some(deploy.revision), 1)).await;
    let Some(before) = before.ok().and_then(|mut list| list.deploys.pop()) else { return Some(number) };
    if before.configuration == deploy.configuration {
        return Some(format!("{number}, that of #{}", before.revision));
    }
    let of = |revision| operations.call(ShowConfiguration, id, ConfigQuery { revision: Some(revision) });
    let (Ok(from), Ok(to)) = (of(before.revision).await, of(deploy.revision).await) else { return Some(number) };
    let names = signed_differences(&from, &to);
    Some(format!("{number}, against #{}: {}", before.revision, escaped(&names.join(", "))))
}

/// Returns how often the page of a deploy is read again; `None` once nothing goes on.
fn refresh(deploy: &Deploy) -> Option<&'static str> {
    let is_watched = deploy.watch.as_ref().is_some_and(|watch| !watch.ended);
    if deploy.status.is_terminal() { is_watched.then_some("15s") } else { Some("2s") }
}

fn evidence(deploy: &Deploy) -> Option<Evidence> {
    let evidence = deploy.evidence.as_ref()?;
    let named = [("Pod", &evidence.pod), ("Container", &evidence.container), ("State", &evidence.state)];
    let facts = named.iter().filter_map(|(name, value)| Some((*name, escaped(value.as_deref()?)))).collect();
    let lines = |lines: &[String]| lines.iter().map(|line| ansi::html(line)).collect();
    let source = match &deploy.image {
        Some(_) if deploy.failed_at_release() => "release command",
        Some(_) => "container",
        None => "build",
    };
    let workloads = evidence.workloads.iter().map(|workload| escaped(&workload_evidence(workload))).collect();
    let evidence = Evidence { facts, events: lines(&evidence.events), source, log: lines(&evidence.log), workloads };
    Some(evidence).filter(|evidence| !evidence.is_empty())
}

/// Returns the log of a deploy's step from a byte on.
async fn step_log(
    operations: &CallerOperations,
    id: &AppId,
    deploy: &Deploy,
    (step, from): (LogStep, u64),
) -> Result<Option<Log>, Failure> {
    let goes_on = match step {
        LogStep::Build => matches!(deploy.status, Status::Queued | Status::Building) && deploy.image.is_none(),
        LogStep::Release => matches!(deploy.status, Status::Queued | Status::Building | Status::Releasing),
    };
    let query = LogQuery { step: Some(step), from: Some(from), follow: None };
    let bytes = match operations.call(ReadBuildLog, &(id.clone(), deploy.revision), query).await {
        Ok(LogText(bytes)) => bytes,
        // The step may begin yet, and its platform come back.
        Err(failure) if is_away(failure.kind) && goes_on => Vec::new(),
        Err(failure) if is_away(failure.kind) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    let path = format!("/apps/{}/{}/deploys/{}/log", id.namespace, id.name, deploy.revision);
    let (html, next) = shown(&bytes, from, goes_on);
    Ok(Some(Log { html, next: next.map(|from| format!("{path}?step={step}&from={from}")) }))
}

/// Returns the HTML of a part of a log from a byte on, and the byte of its continuation if there may be one to show.
pub(super) fn shown(bytes: &[u8], from: u64, goes_on: bool) -> (String, Option<u64>) {
    let is_long = bytes.len() >= LONG_PART;
    // The last line may not be whole, or not yet.
    let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
        Some(end) if goes_on || is_long => end + 1,
        None if goes_on && !is_long => 0,
        Some(_) | None => bytes.len(),
    };
    let (html, length) = ansi::part(&bytes[..whole]);
    let from = from.saturating_add(length as u64);
    let has_next = goes_on || (length < whole || is_long) && from < ENDED_SHOWN;
    (html, has_next.then_some(from))
}

const fn is_away(kind: Kind) -> bool {
    matches!(kind, Kind::NoBuildLog | Kind::NoReleaseLog | Kind::BuilderUnavailable | Kind::ClusterUnavailable)
}

/// Answers `GET …/deploys/{revision}/status`: the part of a page that follows a deploy to its end.
pub(crate) async fn status(call: &Call<'_>, id: &AppId, revision: Revision) -> Result<Reply, Failure> {
    let deploy = call.operations().call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?;
    let path = format!("/apps/{}/{}", id.namespace, id.name);
    Ok(reply::html(StatusCode::OK, &Followed::of(&path, &deploy)))
}

/// Answers `GET …/deploys/{revision}/log`: the log's continuation from a byte on.
pub(crate) async fn log(call: &Call<'_>, id: &AppId, revision: Revision) -> Result<Reply, Failure> {
    let operations = call.operations();
    let deploy = operations.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?;
    let from = call.request.query("from").and_then(|from| from.parse().ok()).unwrap_or(0);
    let step = call.request.query("step").and_then(|step| step.parse().ok()).unwrap_or_default();
    let log = step_log(&operations, id, &deploy, (step, from)).await?;
    Ok(reply::html(StatusCode::OK, &log.unwrap_or(Log { html: String::new(), next: None })))
}

/// Answers `GET …/deploys/{revision}/cancel`.
pub(crate) async fn confirm_cancel(call: &Call<'_>, id: &AppId, revision: Revision) -> Result<Reply, Failure> {
    let operations = call.operations();
    let app = operations.call(ShowApp, id, ()).await?;
    operations.call(ShowDeploy, &(id.clone(), revision), DeployQuery::default()).await?;
    Ok(question(&app, revision, (&Head::new(&app, "deploys"), call.frame().targets.platform)).reply(call))
}

fn question<'a>(app: &App, revision: Revision, (head, platform): (&'a Head, &str)) -> Question<'a> {
    let path = app_path(app);
    let on_cluster = app.on_cluster.as_ref().is_some_and(|deploy| deploy.revision == revision);
    let then = match (on_cluster, app.policy.on_failure, &app.current) {
        (true, OnFailure::Restore, Some(current)) => {
            format!("The deploy has touched the {platform}: revision {} is rolled out again.", current.revision)
        }
        (true, _, _) => format!("The deploy has touched the {platform}, which stays as it is then."),
        (false, _, _) => format!("The deploy has not touched the {platform}."),
    };
    Question {
        head: Some(head),
        title: format!("Cancel revision {revision}?"),
        consequences: vec![
            "The deploy ends at once, as cancelled; a pipeline that waits for it fails.".to_owned(),
            then,
        ],
        action: format!("{path}/deploys/{revision}/cancel"),
        back: path,
        button: format!("Cancel revision {revision}"),
        ..Question::default()
    }
}

/// Answers `POST …/deploys/{revision}/cancel`.
pub(crate) async fn cancel(call: &Call<'_>, id: &AppId, revision: Revision) -> Result<Reply, Failure> {
    let operations = call.operations();
    match operations.call(CancelDeploy, &(id.clone(), revision), ()).await {
        Ok(_) => Ok(reply::redirect(&format!("/apps/{}/{}", id.namespace, id.name))),
        Err(failure) if failure.kind == Kind::AlreadyEnded => {
            let app = operations.call(ShowApp, id, ()).await?;
            Ok(question(&app, revision, (&Head::new(&app, "deploys"), call.frame().targets.platform))
                .refused(call, &failure))
        }
        Err(failure) => Err(failure),
    }
}

/// Answers `POST …/deploys/{revision}/verdict`.
pub(crate) async fn decide(call: &Call<'_>, id: &AppId, revision: Revision) -> Result<Reply, Failure> {
    let post = VerdictPost { verdict: call.request.field("verdict").unwrap_or_default() };
    call.operations().call(DecideDeploy, &(id.clone(), revision), post).await?;
    Ok(reply::redirect(&format!("/apps/{}/{}/deploys/{revision}", id.namespace, id.name)))
}

#[cfg(test)]
mod tests {
    use rollhook_core::time::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::{
        pages::tests::{app, deploy},
        tests::MACHINE,
    };

    /// The page of an entry, from its details on.
    fn details(more: Value) -> String {
        let frame = Frame { targets: MACHINE, ..Frame::signed_out(Timestamp::from_millis(1_767_323_045_678)) };
        let (app, deploy) = (app(json!({})), deploy(2, more));
        let (head, entry) = (Head::new(&app, "deploys"), Entry::new(&app, &deploy, &frame));
        let page = EntryPage::new(&app, &deploy, (&head, &entry, &frame)).render().unwrap();
        page.split_once("<h2 id=\"facts\">").unwrap().1.to_owned()
    }

    #[test]
    fn image_that_was_not_resolved_says_why_beside_its_digest() {
        let why = "registry.example.com has <b>not</b> answered";
        let page = details(json!({ "not_resolved": why }));
        let shown =
            "<p class=\"quiet\">Not resolved: registry.example.com has &#60;b&#62;not&#60;/b&#62; answered.</p>";
        assert!(page.contains("<dt>Digest</dt>") && page.contains(shown), "{page}");
        let page = details(json!({ "digest": "sha256:0a" }));
        assert!(page.contains("<span class=\"mono\">sha256:0a</span>") && !page.contains("Not resolved"), "{page}");
        assert!(!details(json!({})).contains("<dt>Digest</dt>"));
    }

    #[test]
    fn labels_are_links_only_where_they_are_addresses_of_the_web() {
        let labels =
            json!({ "version": "<1.2>", "source": "https://git.example.com/shop/api", "url": "javascript:alert(1)" });
        let page = details(json!({ "labels": labels }));
        for shown in [
            "<dt>Version</dt><dd class=\"break\">&#60;1.2&#62;</dd>",
            "<a href=\"https://git.example.com/shop/api\" rel=\"noreferrer\">https://git.example.com/shop/api</a>",
            "<dt>Page</dt><dd class=\"break\">javascript:alert(1)</dd>",
        ] {
            assert!(page.contains(shown), "{shown}: {page}");
        }
        for other in
            ["https://ada:secret@a.example", "//a.example", "data:text/html,x", "https://a.example/\"onclick=\"x"]
        {
            let page = details(json!({ "labels": { "source": other } }));
            assert!(page.contains("<dt>Source</dt>") && !page.contains("rel=\"noreferrer\""), "{other}: {page}");
        }
    }

    #[test]
    fn commit_of_the_label_is_shown_where_none_or_another_one_was_posted() {
        let commit = |posted: Value, label: &str| details(json!({ "commit": posted, "labels": { "revision": label } }));
        let full = "4f1a77b0123456789abcdef0123456789abcdef0";
        assert!(!commit(json!("4f1a77b"), full).contains("the image says"), "it is the same one");
        let page = commit(json!("4f1a77b"), "abc123f");
        assert!(page.contains("4f1a77b <span class=\"quiet\">(the image says commit abc123f)</span>"), "{page}");
        let page = commit(json!(null), full);
        assert!(page.contains(&format!("{full} <span class=\"quiet\">(as the image says)</span>")), "{page}");
        assert!(!commit(json!(null), "\u{1b}[2J").contains("<dt>Commit</dt>"), "no label that is no commit");
    }

    #[test]
    fn commit_is_a_link_to_the_source_of_the_label_unless_that_names_another_commit() {
        let page = |label: &str| {
            let labels = json!({ "revision": label, "source": "https://github.com/shop/api" });
            details(json!({ "commit": "4f1a77b", "labels": labels }))
        };
        let link = "<a href=\"https://github.com/shop/api/commit/4f1a77b\" rel=\"noreferrer\">4f1a77b</a>";
        let same = page("4f1a77b0123456789abcdef0123456789abcdef0");
        assert!(same.contains(link), "{same}");
        let other = page("abc123f");
        assert!(other.contains("the image says commit abc123f") && !other.contains("/commit/"), "{other}");
    }

    /// The text that a page shows of a log which is read 64 KiB at a time, and the number of parts.
    fn whole(log: &[u8]) -> (String, usize) {
        let (mut text, mut parts, mut next) = (String::new(), 0, Some(0));
        while let Some(from) = next {
            let rest = &log[usize::try_from(from).unwrap()..];
            let (html, then) = shown(&rest[..rest.len().min(64 << 10)], from, false);
            text.push_str(&html);
            (parts, next) = (parts + 1, then);
        }
        (text, parts)
    }

    #[test]
    fn log_of_an_ended_step_is_shown_in_parts_up_to_a_bound() {
        assert_eq!(whole(b"one\ntwo"), ("one\ntwo".to_owned(), 1), "no further call for a short one");
        let lines = "0123456789\u{e9}\n".repeat(20_000);
        let (text, parts) = whole(lines.as_bytes());
        assert!(text == lines && parts == 5, "{parts}");
        let (text, parts) = whole("x".repeat(4 << 20).as_bytes());
        assert_eq!((text.len(), parts), (512 << 10, 8));
    }

    #[test]
    fn log_of_a_step_that_goes_on_is_continued_behind_its_last_whole_line() {
        assert_eq!(shown(b"one\ntw", 10, true), ("one\n".to_owned(), Some(14)));
        assert_eq!(shown(b"tw", 14, true), (String::new(), Some(14)));
        let (_, next) = shown(&vec![b'x'; 64 << 10], 14, true);
        assert_eq!(next, Some(14 + (64 << 10)), "a line without end holds nothing up");
    }
}
