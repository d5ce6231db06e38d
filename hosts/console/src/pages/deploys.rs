//! An app's deploys: what runs, what is under way, and the history.

use askama::Template;
use http::StatusCode;
use rollhook_api::{
    App, Deploy, DeployList,
    operations::{DeploysQuery, ListDeploys, ShowApp},
    words::{short_image, workloads},
};
use rollhook_core::{
    app::{AppId, HoldPolicy, Source},
    deploy::{Revision, Status, Trigger},
    text::escaped,
    time::Timestamp,
};

use crate::{
    console::Call,
    host::{CallerOperations, Failure, Host},
    live,
    reply::{self, Reply},
    view::{Entry, Frame, Head, Mark, When, and},
};

/// The number of entries per page.
const PAGE: usize = 20;

#[derive(Template)]
#[template(path = "deploys.html")]
struct DeploysPage<'a> {
    frame: &'a Frame,
    head: &'a Head,
    shown: &'a Shown,
    /// The id of the event that would show the same.
    seen: &'a str,
}

#[derive(Template)]
#[template(path = "_deploys.html")]
struct DeploysPart<'a> {
    frame: &'a Frame,
    head: &'a Head,
    shown: &'a Shown,
}

/// The part of the page that a stream renders again.
pub(crate) struct Shown {
    /// The newest success.
    current: Option<Entry>,
    running: Vec<Running>,
    notices: Vec<Notice>,
    rows: Vec<Row>,
    next: Option<Revision>,
    is_first: bool,
    may_deploy: bool,
    /// Whether what runs may be deployed once more, as far as the page knows.
    may_redeploy: bool,
    /// Whether the app's target can be stopped and started.
    can_scale: bool,
    is_stopped: bool,
    /// The sentence that assistive technology hears.
    spoken: String,
}

/// A deploy that has not ended.
pub(crate) struct Running {
    pub(crate) entry: Entry,
    pub(crate) waits_for: String,
    /// The states of several workloads, a line each.
    pub(crate) workloads: Vec<String>,
    pub(crate) steps: Vec<Step>,
    pub(crate) since: String,
    /// The time that has passed since then.
    pub(crate) so_far: String,
    /// The time at which the deploy fails at the latest.
    pub(crate) deadline: Option<When>,
}

/// A step of a deploy.
pub(crate) struct Step {
    pub(crate) name: &'static str,
    pub(crate) state: &'static str,
}

/// A fact about the app that a person should know.
struct Notice {
    tone: &'static str,
    mark: Mark,
    text: String,
}

/// An entry with what came of it.
struct Row {
    entry: Entry,
    /// Why the deploy ended, and which restore put it right.
    remark: Option<String>,
}

impl Shown {
    pub(crate) fn new(read: &Read, is_first: bool, frame: &Frame) -> Self {
        let Read { app, list, unfinished, can_scale } = read;
        let rows = list.deploys.iter().map(|deploy| {
            let entry = Entry::new(app, deploy, frame);
            let put_right = put_right_by(deploy).map(|restore| format!("put right by #{restore}"));
            let remarks: Vec<String> = entry.remark.clone().into_iter().chain(put_right).collect();
            Row { entry, remark: (!remarks.is_empty()).then(|| remarks.join(" · ")) }
        });
        let newest = list.deploys.first();
        Self {
            current: app.current.as_ref().map(|deploy| Entry::new(app, deploy, frame)),
            running: unfinished.iter().rev().map(|deploy| Running::new(app, deploy, frame)).collect(),
            notices: notices(app, frame.targets.platform),
            rows: rows.collect(),
            next: list.next,
            is_first,
            may_deploy: frame.may.may_deploy,
            may_redeploy: may_redeploy(app, unfinished),
            can_scale: *can_scale,
            is_stopped: app.stopped.is_some(),
            spoken: newest.map(|deploy| Entry::new(app, deploy, frame).spoken).unwrap_or_default(),
        }
    }
}

/// Returns whether the current version is what runs, and no other one is about to take its place.
fn may_redeploy(app: &App, unfinished: &[Deploy]) -> bool {
    let version = |deploy: &Option<Deploy>| deploy.as_ref().map(|deploy| deploy.effective);
    let is_ready = unfinished.iter().any(|deploy| deploy.image.is_some());
    app.current.is_some() && version(&app.current) == version(&app.on_cluster) && !is_ready
}

impl Running {
    pub(crate) fn new(app: &App, deploy: &Deploy, frame: &Frame) -> Self {
        let policy = &app.policy;
        let instances = frame.targets.instances;
        let progress = deploy.progress.as_ref();
        // Another server may drive the app: then this one has not observed it.
        let observed = progress.and_then(|progress| progress.message.as_deref()).map(sentence);
        let waits_for = match (deploy.status, observed) {
            (_, Some(observed)) => observed,
            (Status::Queued, None) => "The deploy waits for its turn.".to_owned(),
            (Status::Building, None) if deploy.image.is_some() => {
                "The image is built, and waits for its turn to roll out.".to_owned()
            }
            (Status::Building, None) => "The image is being built.".to_owned(),
            (Status::Releasing, None) if deploy.release.is_none() => {
                "The new image is made ready to run the release command.".to_owned()
            }
            (Status::Releasing, None) => "The release command runs with the new image.".to_owned(),
            (Status::RollingOut, None) if policy.settle == "0s" => {
                format!("The rollout waits until the {instances} of this revision are ready.")
            }
            (Status::RollingOut, None) => format!(
                "The rollout waits until the {instances} of this revision are ready, and have stayed ready for {}.",
                policy.settle
            ),
            (Status::Verifying, None) => "The deploy waits for the verdicts of the app's checks.".to_owned(),
            (Status::Succeeded | Status::Failed | Status::Superseded | Status::Cancelled, None) => String::new(),
        };
        let since = progress.map_or(deploy.updated_at, |progress| progress.since);
        Self {
            entry: Entry::new(app, deploy, frame),
            waits_for,
            workloads: workloads(deploy).iter().map(|line| escaped(line)).collect(),
            steps: steps(app, deploy),
            since: rollhook_api::time::absolute(since),
            so_far: match frame.now.since(since).as_secs() {
                seconds @ 0..60 => format!("{seconds} s"),
                seconds => format!("{} min {} s", seconds / 60, seconds % 60),
            },
            deadline: progress.and_then(|progress| progress.deadline).map(|deadline| When::until(deadline, frame.now)),
        }
    }
}

/// Returns a clause as a sentence.
pub(crate) fn sentence(clause: &str) -> String {
    let clause = escaped(clause);
    let mut letters = clause.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    let stop = if clause.ends_with('.') { "" } else { "." };
    format!("{first}{}{stop}", letters.as_str())
}

fn steps(app: &App, deploy: &Deploy) -> Vec<Step> {
    let is_taken =
        matches!(deploy.trigger, Trigger::Rollback | Trigger::Promotion | Trigger::Config) || deploy.is_redeploy();
    let is_built = matches!(app.source, Source::Git(_)) && !is_taken;
    let at = match deploy.status {
        Status::Queued => 0,
        Status::Building => 1,
        Status::Releasing => 2,
        Status::RollingOut => 3,
        Status::Verifying => 4,
        Status::Succeeded | Status::Failed | Status::Superseded | Status::Cancelled => 5,
    };
    let all = [("Accepted", 0), ("Build", 1), ("Release", 2), ("Roll out", 3), ("Verify", 4), ("Current", 5)];
    let is_released = deploy.has_release_step(app);
    let is_verified = deploy.status == Status::Verifying;
    let is_shown = |name| match name {
        "Build" => is_built,
        "Release" => is_released,
        "Verify" => is_verified,
        _ => true,
    };
    let named = all.into_iter().filter(|(name, _)| is_shown(*name));
    named
        .map(|(name, place)| Step {
            name,
            state: match place.cmp(&at) {
                std::cmp::Ordering::Less => "done",
                std::cmp::Ordering::Equal => "now",
                std::cmp::Ordering::Greater => "later",
            },
        })
        .collect()
}

/// Returns the restore that put a deploy's rollout right.
pub(crate) fn put_right_by(deploy: &Deploy) -> Option<Revision> {
    deploy.restore.as_ref().filter(|restore| restore.status == Some(Status::Succeeded))?.revision
}

fn notices(app: &App, platform: &str) -> Vec<Notice> {
    let mut notices = Vec::new();
    if let Some(stopped) = &app.stopped {
        let (by, at) = (escaped(&stopped.by), rollhook_api::time::absolute(stopped.at));
        notices.push(Notice {
            tone: "warn",
            mark: Mark::nothing(format!("Stopped since revision {}, by {by}", stopped.since)),
            text: format!("It was stopped {at}. Deploys change the image, and start nothing."),
        });
    }
    if let Some(degraded) = &app.degraded {
        let since = rollhook_api::time::absolute(degraded.since);
        notices.push(Notice {
            tone: "bad",
            mark: Mark::warning(escaped(&format!("Degraded: {}", degraded.reason))),
            text: format!("{} Known since {since}.", sentence(&degraded.message)),
        });
    }
    if let Some(revoked) = app.current.as_ref().and_then(|current| current.revoked.as_ref()) {
        let fail = &revoked.fail;
        let why = revoked.not_restored.as_deref().map(|why| format!(" Nothing was restored: {}.", escaped(why)));
        notices.push(Notice {
            tone: "bad",
            mark: Mark::warning("The verification of the current version is revoked"),
            text: format!(
                "{} Decided at {}.{}",
                sentence(&fail.message),
                rollhook_api::time::absolute(fail.at),
                why.unwrap_or_default()
            ),
        });
    }
    if let Some(drift) = &app.drift {
        let image = drift.image.as_deref().map(|image| format!("{} runs instead. ", escaped(&short_image(image))));
        notices.push(Notice {
            tone: "warn",
            mark: Mark::warning("The workload was changed from outside"),
            text: format!(
                "{}{} A deploy, or a rollback to the current revision, puts it right.",
                image.unwrap_or_default(),
                escaped(&drift.message)
            ),
        });
    }
    if let Some(references) = &app.references {
        let changed = references.changed_sentence();
        let mark = if changed.is_some() { "What it reads was changed" } else { "What it reads may have changed" };
        let sentences: Vec<String> = changed.into_iter().chain(references.unknown_sentence()).collect();
        notices.push(Notice {
            tone: "warn",
            mark: Mark::warning(mark),
            text: format!(
                "{} Instances that run may have the values from before; a redeploy starts them anew.",
                escaped(&sentences.join(" "))
            ),
        });
    }
    if let Some(last) = app.beside_current().filter(|deploy| deploy.status.is_terminal()) {
        let ended = last.message.as_deref().map(escaped).unwrap_or_default();
        notices.push(Notice {
            tone: if last.recovered_at.is_some() { "warn" } else { "bad" },
            mark: Mark {
                word: format!("Revision {} is on the {platform}, and did not succeed", last.revision),
                ..Mark::of(last)
            },
            text: match last.recovered_at {
                Some(at) => format!("{ended} It runs well since {}.", rollhook_api::time::absolute(at)),
                None => ended,
            },
        });
    }
    if !app.holds.is_empty() {
        notices.push(Notice { tone: "held", mark: Mark::held("Held after a rollback"), text: held(app) });
    }
    if let Some(polling) = app.polling.as_ref().and_then(|polling| polling.error.as_deref()) {
        let what =
            if app.source == Source::Image { "The repository cannot be read" } else { "The branch cannot be read" };
        notices.push(Notice { tone: "warn", mark: Mark::warning(what), text: escaped(polling) });
    }
    notices
}

fn held(app: &App) -> String {
    let names: Vec<String> = app
        .holds
        .iter()
        .map(|hold| {
            let image = hold.image.as_ref().map(|image| short_image(&image.to_string()));
            let what = image.or_else(|| hold.commit.as_ref().map(ToString::to_string)).unwrap_or_default();
            format!("{} (since rollback #{})", escaped(&what), hold.by)
        })
        .collect();
    format!("{}: {}", and(&names), held_from(app.policy.hold))
}

/// Returns whom a hold keeps from deploying.
pub(crate) fn held_from(policy: HoldPolicy) -> &'static str {
    match policy {
        HoldPolicy::Automatic => "polling and git hosts do not bring it back; a call of CI and a person do.",
        HoldPolicy::All => "polling, git hosts and CI do not bring it back; a person does.",
    }
}

/// The app, a page of its history, and its unfinished deploys.
pub(crate) struct Read {
    pub(crate) app: App,
    pub(crate) list: DeployList,
    pub(crate) unfinished: Vec<Deploy>,
    /// Whether the app's target can be stopped and started.
    pub(crate) can_scale: bool,
}

/// Reads what the page shows.
pub(crate) async fn read(
    host: &Host,
    operations: &CallerOperations,
    id: &AppId,
    before: Option<Revision>,
) -> Result<Read, Failure> {
    let app = operations.call(ShowApp, id, ()).await?;
    let list = operations.call(ListDeploys, id, DeploysQuery::page(before, PAGE)).await?;
    let mut unfinished: Vec<Deploy> =
        list.deploys.iter().filter(|deploy| !deploy.status.is_terminal()).cloned().collect();
    unfinished.sort_by_key(|deploy| deploy.revision);
    let can_scale = host.can_scale(&app);
    Ok(Read { app, list, unfinished, can_scale })
}

/// Returns the part of the page that a stream renders again.
pub(crate) fn part(read: &Read, frame: &Frame) -> String {
    let shown = Shown::new(read, true, frame);
    let head = Head::new(&read.app, "deploys");
    DeploysPart { frame, head: &head, shown: &shown }.render().unwrap_or_default()
}

/// Answers `GET /apps/{namespace}/{app}`.
pub(crate) async fn page(call: &Call<'_>, id: &AppId) -> Result<Reply, Failure> {
    let before = call.request.query("before").and_then(|text| text.parse().ok());
    let read = read(&call.console.host, &call.operations(), id, before).await?;
    let frame = call.frame();
    let shown = Shown::new(&read, before.is_none(), &frame);
    let page = DeploysPage {
        frame: &frame,
        head: &Head::new(&read.app, "deploys"),
        shown: &shown,
        seen: &live::fingerprint(&read),
    };
    Ok(reply::html(StatusCode::OK, &page))
}

impl When {
    /// Returns a time to come, relative.
    pub(crate) fn until(time: Timestamp, now: Timestamp) -> Self {
        let left = time.since(now).as_secs();
        let text = match left {
            0..60 => format!("{left} s"),
            60..5400 => format!("{} min", left.div_ceil(60)),
            _ => format!("{} h", left.div_ceil(3600)),
        };
        Self::with_text(time, text)
    }
}
