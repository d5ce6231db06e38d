//! Every serialised type as it is on the wire; a change here is a change of the API.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::{sync::Arc, time::Duration};

use rollhook_api::{
    ActivityDeploy, ActivityList, App, AppList, AppPatch, CheckFail, CreateApp, DayDeployments, DeliveryMeasures,
    DeliveryReport, Deploy, DeployAnswer, DeployList, DeployPost, Image, Kind, PolicyPatch, Problem, Progress, Promote,
    PromoteFrom, Registered, Revoked, Rollback, RollbackAnswer, Standing, Webhook,
    report::{csv, words},
};
use rollhook_core::{
    action::Action,
    app::{self, AppId, AppUid, OnFailure, Source},
    deploy::{
        Actor, AdmissionId, Decision, Evidence, Origin, Outage, Reason, Resolution, Revision, Ruling, Scale, State,
        Stopped, Trigger, WorkloadEnd, WorkloadEvidence,
    },
    image::{ImageLabels, Platform},
    ledger::AppState,
    lock::{Lock, LockScope, Locked, Locks},
    ports::{Instances, Resolved, Sealing, WebhookSecret},
    request::{Field, Refusal},
    requirement::{Requirement, RequirementCopies, RequirementCopy},
    service::{self, Accepted, LookedUpImage},
    source::SourceRefused,
    time::Timestamp,
    token::Token,
};
use rollhook_management::access::PrincipalKey;
use serde_json::{Value, json};

fn id() -> AppId {
    "shop-test/api".parse().unwrap()
}

fn settings(object: Value) -> app::Settings {
    serde_json::from_value(object).unwrap()
}

fn revision(number: u64) -> Revision {
    Revision::new(number).unwrap()
}

fn entry(number: u64, state: State) -> rollhook_core::deploy::Deploy {
    rollhook_core::deploy::Deploy {
        id: AdmissionId(number.into()),
        revision: revision(number),
        image: Some(format!("registry.example.com/api:v{number}").parse().unwrap()),
        commit: Some("def456a".parse().unwrap()),
        trigger: Trigger::Webhook,
        actor: Actor::Ci,
        from: None,
        effective: revision(number),
        adopted: false,
        scale: Scale::Keep,
        configuration: None,
        configures: false,
        state,
        touched: true,
        release: None,
        unreleased: false,
        verification: None,
        resolution: None,
        digest: None,
        step: 2,
        created_at: Timestamp::from_millis(1_767_323_045_678),
        updated_at: Timestamp::from_millis(1_767_323_055_000),
        kept_until: None,
        trace: None,
        committed_at: None,
        sequence: None,
    }
}

fn succeeded() -> rollhook_core::deploy::Deploy {
    let digest = format!("sha256:{}", "a".repeat(64)).parse().ok();
    rollhook_core::deploy::Deploy { digest, ..entry(3, State::Succeeded { note: None }) }
}

fn failed() -> rollhook_core::deploy::Deploy {
    let evidence = Evidence {
        container: Some("api".to_owned()),
        pod: Some("api-7d9f".to_owned()),
        state: Some("waiting: ImagePullBackOff".to_owned()),
        events: vec!["Failed to pull image".to_owned()],
        log: Vec::new(),
        workloads: vec![WorkloadEvidence {
            name: "Deployment/web".to_owned(),
            state: WorkloadEnd::NotTouched,
            message: "not touched: it waits for those before it".to_owned(),
        }],
    };
    let message = "Container api cannot pull its image.".to_owned();
    entry(4, State::Failed { reason: Reason::new("ImagePullBackOff"), message, evidence: Some(evidence) })
}

fn rollback() -> rollhook_core::deploy::Deploy {
    rollhook_core::deploy::Deploy {
        trigger: Trigger::Rollback,
        actor: Actor::person("alice"),
        from: Some(Origin::Revision(revision(3))),
        effective: revision(3),
        touched: false,
        ..entry(6, State::Queued)
    }
}

fn view() -> AppState {
    let since = Timestamp::from_millis(1_767_323_046_000);
    let app = app::App {
        id: id(),
        uid: AppUid::from_bits(7),
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
        source: Source::Image,
        target: app::Target {
            settings: settings(json!({
                "kind": "Deployment", "name": "api", "containers": ["api"], "template": { "env": { "KEY": "secret" } }
            })),
            ..app::Target::default()
        },
        policy: app::Policy::default().with(|policy| policy.settle = Duration::ZERO),
        holds: vec![app::Hold {
            by: revision(2),
            image: Some("registry.example.com/api:bad".parse().unwrap()),
            digest: None,
            commit: Some("badbad1".parse().unwrap()),
        }],
        locks: Locks { app: Some(lock()), ..Locks::default() },
        requirements: requirements(),
        created_at: Timestamp::from_millis(1_767_000_000_000),
    };
    let rolling = entry(5, State::RollingOut { since, outage: Outage::default() });
    let rolling = rollhook_core::deploy::Deploy { touched: false, ..rolling };
    AppState {
        latest: Some(revision(5)),
        unfinished: vec![Arc::new(rolling)],
        current: Some(Arc::new(succeeded())),
        ended_on_cluster: Some(Arc::new(failed())),
        ..AppState::new(app)
    }
}

fn decision() -> Decision {
    Decision { ruling: Ruling::Pass, by: Actor::person("ada"), at: Timestamp::from_millis(1_767_000_000_000) }
}

fn requirements() -> RequirementCopies {
    let signer = "issuer=https://token.ci.example,subject=https://git.example.com/shop/*".parse().unwrap();
    let requirement = Requirement::new(vec![signer], None).ok();
    RequirementCopies { environment: RequirementCopy { requirement, sequence: 1 }, ..RequirementCopies::default() }
}

fn lock() -> Lock {
    Lock {
        reason: "release freeze".parse().unwrap(),
        by: Actor::person("ada"),
        owner: PrincipalKey::of("name", &["ada"]),
        at: Timestamp::from_millis(1_767_000_000_000),
        until: Some(Timestamp::from_millis(1_767_003_600_000)),
    }
}

fn webhook() -> Webhook {
    let token = Token::from_random(&[61; Token::RANDOM_BYTES]).unwrap();
    let secret = WebhookSecret::new(AppUid::from_bits(7), token, Timestamp::from_millis(1_767_000_000_000));
    Webhook::of(
        "https://rollhook.example.com/",
        &id(),
        &secret,
        Sealing::Memory,
        Timestamp::from_millis(1_767_000_000_000),
    )
}

#[test]
fn apps() {
    let app = App::of(&view(), Timestamp::from_millis(1_767_000_000_000));
    insta::assert_json_snapshot!("app", app);
    insta::assert_json_snapshot!(
        "app_list",
        AppList {
            apps: Vec::new(),
            unreadable: vec!["shop-test/api".to_owned()],
            next: Some("shop-test/api".to_owned())
        }
    );
    let deploy = Deploy::of(&id(), &entry(1, State::Queued), &Standing::default());
    insta::assert_json_snapshot!(
        "registered",
        Registered {
            app,
            deploy: Some(deploy),
            adopted: true,
            ignored: vec!["template.port".to_owned()],
            notes: vec!["helm sets the image of the container web too.".to_owned()],
        }
    );
}

#[test]
fn requests() {
    let policy =
        PolicyPatch { on_failure: Some("leave".to_owned()), settle: Some("0s".to_owned()), ..PolicyPatch::default() };
    insta::assert_json_snapshot!("app_patch", AppPatch { policy: policy.clone(), ..AppPatch::default() });
    let create = CreateApp {
        project: "shop".to_owned(),
        environment: "test".to_owned(),
        app: "api".to_owned(),
        image: Some("registry.example.com/api:v1".to_owned()),
        policy,
        ..CreateApp::default()
    };
    insta::assert_json_snapshot!("create_app", create);
    let registration = create.clone().parse().unwrap();
    assert_eq!(registration.policy.on_failure, OnFailure::Leave);
    assert_eq!(registration.policy.settle, Duration::ZERO);
    assert_eq!(registration.target, settings(json!({})));
    let template = settings(json!({ "replicas": 2 }));
    let given = CreateApp { workload: settings(json!({ "name": "web" })), template, ..create };
    let target = given.parse().unwrap().target;
    assert_eq!(target, settings(json!({ "name": "web", "template": { "replicas": 2 } })));
    insta::assert_json_snapshot!("deploy_post", DeployPost { image: Some("a:b".to_owned()), ..DeployPost::default() });
    insta::assert_json_snapshot!("rollback", Rollback { if_current: Some(revision(3)), ..Rollback::default() });
    let from = PromoteFrom { project: "shop".to_owned(), environment: "test".to_owned() };
    insta::assert_json_snapshot!("promote", Promote { from, if_current: None, without_variables: false });
}

#[test]
fn deploys() {
    let standing = Standing::of(&view());
    insta::assert_json_snapshot!("deploy_succeeded", Deploy::of(&id(), &succeeded(), &standing));
    insta::assert_json_snapshot!("deploy_failed", Deploy::of(&id(), &failed(), &standing));
    let progress = service::Progress {
        since: Timestamp::from_millis(1_767_000_000_000),
        instances: Some(Instances { ready: 2, wanted: 4 }),
        message: Some("2 of 4 new pods are ready".to_owned()),
        deadline: Some(Timestamp::from_millis(1_767_000_600_000)),
        workloads: Vec::new(),
    };
    insta::assert_json_snapshot!("progress", Progress::of(&progress));
    insta::assert_json_snapshot!("deploy_rollback", Deploy::of(&id(), &rollback(), &standing));
    let from = Some(Origin::Promoted { app: "shop-dev/api".parse().unwrap(), revision: revision(9) });
    let promoted = rollhook_core::deploy::Deploy { trigger: Trigger::Promotion, from, ..entry(5, State::Queued) };
    let deploys = vec![Deploy::of(&id(), &promoted, &standing)];
    insta::assert_json_snapshot!("deploy_list", DeployList { deploys, next: Some(revision(5)) });
}

#[test]
fn answers() {
    let accepted = |deploy, superseded| Accepted {
        deploy,
        replayed: false,
        superseded,
        ignored: vec![Field::Image],
        stopped: None,
    };
    insta::assert_json_snapshot!("answer", DeployAnswer::of(&id(), &entry(5, State::Queued)));
    let superseded = State::Superseded { by: revision(7), rollback: false, newer: None };
    insta::assert_json_snapshot!("answer_superseded", DeployAnswer::of(&id(), &entry(5, superseded)));
    insta::assert_json_snapshot!(
        "answer_ignored",
        DeployAnswer::accepted(&id(), &accepted(entry(5, State::Queued), vec![]))
    );
    insta::assert_json_snapshot!(
        "answer_rollback",
        RollbackAnswer::of(&id(), &accepted(rollback(), vec![revision(5)]))
    );
    let at = Timestamp::from_millis(1_767_000_000_000);
    let stopped = Some(Stopped { since: revision(4), by: Actor::person("ada"), at });
    let accepted = Accepted { stopped, ..accepted(rollback(), Vec::new()) };
    insta::assert_json_snapshot!("answer_rollback_of_a_stopped_app", RollbackAnswer::of(&id(), &accepted));
}

#[test]
fn image_at_its_registry() {
    let digest = format!("sha256:{}", "0a".repeat(32)).parse().unwrap();
    let resolved = Resolved::new(digest, "application/vnd.oci.image.index.v1+json").with(|resolved| {
        resolved.platforms.extend(Platform::new("linux", "arm64", Some("v8")));
        resolved.labels.revision = Some("abc123f".to_owned());
    });
    let found = LookedUpImage { image: "registry.example.com/api:v1".parse().unwrap(), resolved };
    insta::assert_json_snapshot!("image", Image::of(found));
}

fn looked_up(state: State, resolution: Resolution) -> rollhook_core::deploy::Deploy {
    rollhook_core::deploy::Deploy { resolution: Some(Box::new(resolution)), ..entry(5, state) }
}

fn labelled() -> rollhook_core::deploy::Deploy {
    let labels = ImageLabels::default().or([
        ("org.opencontainers.image.revision", "4f1a77b"),
        ("org.opencontainers.image.source", "https://git.example.com/shop/api"),
        ("org.opencontainers.image.version", "1.2"),
    ]);
    let digest = format!("sha256:{}", "a".repeat(64)).parse().ok();
    let resolved = looked_up(State::Succeeded { note: None }, Resolution::resolved(labels, &[], &[], &[]));
    rollhook_core::deploy::Deploy { digest, ..resolved }
}

fn unresolved() -> rollhook_core::deploy::Deploy {
    let why = "registry.example.com has not answered in time.";
    looked_up(State::Succeeded { note: None }, Resolution::unresolved(why))
}

#[test]
fn deploy_says_what_the_registry_has_said_of_its_image() {
    let of = |entry| Deploy::of(&id(), &entry, &Standing::default());
    insta::assert_json_snapshot!("deploy_resolved", of(labelled()));
    insta::assert_json_snapshot!("deploy_not_resolved", of(unresolved()));
    insta::assert_json_snapshot!("answer_not_resolved", DeployAnswer::of(&id(), &unresolved()));
    let silent = of(looked_up(State::Queued, Resolution::resolved(ImageLabels::default(), &[], &[], &[])));
    assert_eq!((silent.labels, silent.not_resolved), (None, None), "an image without labels");
    assert_eq!(json!(of(labelled()).labels), json!(labelled().labels()), "as notifications have them");
}

#[test]
fn deploy_whose_image_is_looked_up_says_so_until_it_has_ended() {
    let waits = Progress::shown(&looked_up(State::Queued, Resolution::Pending), None).unwrap();
    insta::assert_json_snapshot!("progress_looked_up", waits);
    for other in [entry(5, State::Queued), looked_up(State::Succeeded { note: None }, Resolution::Pending)] {
        assert_eq!(Progress::shown(&other, None), None);
    }
}

#[test]
fn commit_is_the_posted_one_or_else_that_of_the_label() {
    let of = |commit: Option<&str>, label: &str| {
        let labels = ImageLabels::default().or([("org.opencontainers.image.revision", label)]);
        let commit = commit.map(|commit| commit.parse().unwrap());
        let resolved = looked_up(State::Queued, Resolution::resolved(labels, &[], &[], &[]));
        let known = rollhook_core::deploy::Deploy { commit, ..resolved };
        let deploy = Deploy::of(&id(), &known, &Standing::default());
        let shown = deploy.shown_commit().map(str::to_owned);
        assert_eq!(known.shown_commit().map(|commit| commit.to_string()), shown, "notifications have the same one");
        (shown, rollhook_api::words::commit_remark(&deploy))
    };
    let long = format!("4f1a77b{}", "0".repeat(33));
    let shown = |commit: &str, remark: Option<&str>| (Some(commit.to_owned()), remark.map(str::to_owned));
    assert_eq!(of(Some("4f1a77b"), &long), shown("4f1a77b", None), "the same one in full");
    assert_eq!(of(Some("4f1a77b"), "abc123f"), shown("4f1a77b", Some("the image says commit abc123f")));
    assert_eq!(of(None, "abc123f"), shown("abc123f", Some("as the image says")));
    assert_eq!(of(None, &"a".repeat(129)), (None, None), "a label that is no commit");
    assert_eq!(of(Some("4f1a77b"), "a\u{1b}b"), shown("4f1a77b", None));
}

#[test]
fn webhooks_show_their_token_only_on_the_wire() {
    let webhook = webhook();
    insta::assert_json_snapshot!("webhook", webhook);
    assert!(!format!("{webhook:?}").contains(&webhook.token[3..]));
}

#[test]
fn problems() {
    let held = Refusal::ImageHeld { by: revision(4), what: "registry.example.com/api:bad".to_owned() };
    let mut problem = Problem::of(&held.into());
    problem.request_id = "01JABC".to_owned();
    insta::assert_json_snapshot!("problem_held", problem);
    let changed = Refusal::CurrentChanged { expected: revision(3), current: None };
    insta::assert_json_snapshot!("problem_current_changed", Problem::of(&changed.into()));
    let missing = Refusal::ImageNotFound {
        image: "registry.example.com/api:v1.2.3".parse().unwrap(),
        repository_missing: false,
        nearest: vec!["v1.2.2".parse().unwrap(), "v1.2.4".parse().unwrap()],
    };
    insta::assert_json_snapshot!("problem_image_not_found", Problem::of(&missing.into()));
    let lost = Problem::of(&Refusal::StoreUnavailable { maybe_recorded: true }.into());
    insta::assert_json_snapshot!("problem_maybe_recorded", lost);
    let read: Problem = serde_json::from_str(&serde_json::to_string(&lost).unwrap()).unwrap();
    assert_eq!(read, lost);
    assert_eq!(Kind::of_slug(read.slug()), Some(Kind::StoreUnavailable));
}

#[test]
fn every_kind_of_problem() {
    let table: Vec<String> = Kind::ALL
        .iter()
        .map(|kind| {
            let (slug, status, title) = kind.parts();
            format!("{status} {slug}: {title}")
        })
        .collect();
    insta::assert_json_snapshot!("problem_kinds", table);
}

#[test]
fn problem_has_the_status_and_the_patience_of_its_refusal_s_class() {
    let app = id();
    let image = "registry.example.com/api:v1".parse().unwrap();
    let refusals = [
        Refusal::Unauthorized,
        Refusal::NotAllowed(Action::Deploy),
        Refusal::AppNotFound(app.clone()),
        Refusal::RevisionNotFound(revision(1)),
        Refusal::NoWebhook,
        Refusal::RotatedAlready,
        Refusal::AppExists(app),
        Refusal::WrongKind(String::new()),
        Refusal::NoBuilder,
        Refusal::SourceNotAllowed(SourceRefused::Local),
        Refusal::InvalidField(Field::Image, String::new()),
        Refusal::InvalidField(Field::Commit, String::new()),
        Refusal::InvalidField(Field::App, String::new()),
        Refusal::InvalidSetting(String::new(), String::new()),
        Refusal::ImageNotAllowed { image, allowed: Vec::new() },
        Refusal::ImageHeld { by: revision(4), what: String::new() },
        Refusal::Locked(Box::new(Locked { scope: LockScope::App, lock: lock(), left: None })),
        Refusal::KeyReused,
        Refusal::TooManyUnfinished,
        Refusal::NothingToRollBackTo(String::new()),
        Refusal::NotRedeployable(String::new()),
        Refusal::NotStopped,
        Refusal::CannotBeStopped(String::new()),
        Refusal::NotReleased { target: revision(1) },
        Refusal::ReleaseBetween { target: revision(1), released: Vec::new() },
        Refusal::ConfigurationRevoked { target: revision(1), variables: vec!["TOKEN".parse().unwrap()] },
        Refusal::CurrentChanged { expected: revision(3), current: None },
        Refusal::AlreadyEnded(revision(1)),
        Refusal::NotAwaited { revision: revision(1), is_verified: true },
        Refusal::DecidedAlready(revision(1), Box::new(decision())),
        Refusal::Workload(String::new()),
        Refusal::WorkloadTaken(String::new()),
        Refusal::Busy,
        Refusal::StoreUnavailable { maybe_recorded: true },
        Refusal::StoreRefused(String::new()),
        Refusal::ClusterUnavailable,
        Refusal::ClusterDenied(String::new()),
        Refusal::BuilderUnavailable,
        Refusal::ImageNotFound {
            image: "registry.example.com/api:v1".parse().unwrap(),
            repository_missing: false,
            nearest: vec!["v1.0".parse().unwrap()],
        },
        Refusal::RegistryDenied("registry.example.com".to_owned()),
        Refusal::RegistryUnavailable { host: "registry.example.com".to_owned(), why: String::new(), retry_after: None },
        Refusal::NoRegistry,
        Refusal::NoBuildLog(revision(1)),
        Refusal::NoReleaseLog(revision(1)),
        Refusal::NoSuchInstance("api-0".parse().unwrap()),
        Refusal::NoSuchWorkload {
            app: "shop-test/api".parse().unwrap(),
            given: "jobs".to_owned(),
            known: vec!["Deployment/web".to_owned(), "Deployment/worker".to_owned()],
        },
        Refusal::NoInstanceLogs,
        Refusal::Internal,
    ];
    let of_management = [
        rollhook_management::Refusal::NoSession,
        rollhook_management::Refusal::ReviewUnavailable,
        rollhook_management::Refusal::IssuerUnavailable,
        rollhook_management::Refusal::TooManyTrusts,
        rollhook_management::Refusal::TokenNotFound("ci".parse().unwrap()),
        rollhook_management::Refusal::TokenExists("ci".parse().unwrap()),
    ];
    for refusal in refusals.into_iter().map(rollhook_management::Refusal::from).chain(of_management) {
        let problem = Kind::of(&refusal);
        assert_eq!(problem.parts().1, refusal.kind().status(), "{refusal:?}");
        assert_eq!(problem.retry_after().is_some(), refusal.is_retryable(), "{refusal:?}");
    }
}

#[test]
fn what_is_sent_is_read_back() {
    let app = App::of(&view(), Timestamp::from_millis(1_767_000_000_000));
    assert_eq!(serde_json::from_value::<App>(serde_json::to_value(&app).unwrap()).unwrap(), app);
    let accepted = Accepted {
        deploy: rollback(),
        replayed: false,
        superseded: vec![revision(5)],
        ignored: Vec::new(),
        stopped: None,
    };
    let answer = RollbackAnswer::of(&id(), &accepted);
    assert_eq!(serde_json::from_value::<RollbackAnswer>(serde_json::to_value(&answer).unwrap()).unwrap(), answer);
}

/// A deploy of activity.
fn activity() -> ActivityDeploy {
    let deploy = rollhook_core::deploy::Deploy {
        committed_at: Some(Timestamp::from_millis(1_767_320_000_000)),
        actor: Actor::person("=ada, \"the admin\""),
        ..succeeded()
    };
    let deploy = Deploy::of(&id(), &deploy, &Standing::default());
    ActivityDeploy { project: "shop".to_owned(), environment: "test".to_owned(), deploy }
}

fn report() -> DeliveryReport {
    let measures = DeliveryMeasures {
        project: "shop".to_owned(),
        environment: "test".to_owned(),
        deployments: 12,
        deployments_per_day: 1.7143,
        failed: 3,
        change_fail_rate: Some(0.25),
        recovery_time_seconds: Some(95),
        unrecovered: 1,
        rollbacks: 2,
        repairs: 3,
        rework_rate: Some(0.2143),
        lead_time_seconds: Some(7_505),
        lead_times: 8,
        daily: vec![DayDeployments { day: "2026-01-02".to_owned(), deployments: 12, failed: 3 }],
        kept_since: Some(Timestamp::from_millis(1_767_320_000_000)),
    };
    DeliveryReport {
        days: 7,
        since: Timestamp::from_millis(1_766_793_600_000),
        until: Timestamp::from_millis(1_767_323_045_678),
        truncated: true,
        unreadable: vec!["shop-test/api".to_owned()],
        environments: vec![measures],
    }
}

#[test]
fn reports() {
    insta::assert_json_snapshot!("activity_deploy", activity());
    insta::assert_json_snapshot!("delivery_report", report());
    let fail = CheckFail {
        at: Timestamp::from_millis(1_767_330_000_000),
        check: "errors".to_owned(),
        message: "The check errors failed.".to_owned(),
    };
    let mut revoked = activity();
    revoked.deploy.revoked = Some(Revoked { fail, restore: None, not_restored: None });
    insta::assert_snapshot!("activity_csv", csv::activity([&activity(), &revoked]));
    insta::assert_snapshot!("delivery_csv", csv::report(&report()));
    let unreadable = |count: usize| (0..count).map(|number| format!("shop-test/a{number}")).collect();
    let list = |count| ActivityList { unreadable: unreadable(count), ..ActivityList::default() };
    assert_eq!(words::left_out_of_list(&list(0)), Vec::<String>::new());
    insta::assert_snapshot!("left_out_of_list", words::left_out_of_list(&list(7)).join("\n"));
    insta::assert_snapshot!("left_out", words::left_out(&report()).join("\n"));
    let read = |value| serde_json::from_value::<ActivityDeploy>(value).unwrap();
    assert_eq!(read(serde_json::to_value(activity()).unwrap()), activity());
}

/// Times are read as jiff reads them.
#[test]
fn times_of_commits_are_read_as_they_are_written() {
    for millis in (-62_135_596_800_000..253_402_300_799_000_i64).step_by(86_413_577_123) {
        let time = Timestamp::from_millis(millis);
        assert_eq!(rollhook_api::time::format(time).parse(), Ok(time), "{millis}");
    }
}

/// Every member that is sent is described, under its name.
#[test]
fn the_description_knows_every_member() {
    let document = rollhook_api::openapi::document();
    let known = |schema: &str, value: serde_json::Value| {
        let properties = document.pointer(&format!("/components/schemas/{schema}/properties")).unwrap();
        for name in value.as_object().unwrap().keys() {
            assert!(properties.get(name).is_some(), "{schema}.{name}");
        }
    };
    known("App", serde_json::to_value(App::of(&view(), Timestamp::from_millis(1_767_000_000_000))).unwrap());
    known("Deploy", serde_json::to_value(Deploy::of(&id(), &failed(), &Standing::default())).unwrap());
    known("Deploy", serde_json::to_value(Deploy::of(&id(), &rollback(), &Standing::default())).unwrap());
    for looked_up in [labelled(), unresolved()] {
        let deploy = Deploy::of(&id(), &looked_up, &Standing::default());
        deploy.labels.iter().for_each(|labels| known("ImageLabels", serde_json::to_value(labels).unwrap()));
        known("Deploy", serde_json::to_value(deploy).unwrap());
        known("DeployAnswer", serde_json::to_value(DeployAnswer::of(&id(), &looked_up)).unwrap());
    }
    known("Webhook", serde_json::to_value(webhook()).unwrap());
    let accepted = Accepted {
        deploy: rollback(),
        replayed: false,
        superseded: vec![revision(5)],
        ignored: vec![Field::Image],
        stopped: None,
    };
    known("RollbackAnswer", serde_json::to_value(RollbackAnswer::of(&id(), &accepted)).unwrap());
    known("DeployAnswer", serde_json::to_value(DeployAnswer::of(&id(), &failed())).unwrap());
    known("ActivityDeploy", serde_json::to_value(activity()).unwrap());
    known("DeliveryReport", serde_json::to_value(report()).unwrap());
    known("DeliveryMeasures", serde_json::to_value(&report().environments[0]).unwrap());
    known("CreateApp", serde_json::to_value(CreateApp::default()).unwrap());
    // Whether maps keep their order is for other crates of a build to say.
    insta::with_settings!({ sort_maps => true }, { insta::assert_json_snapshot!("openapi", document) });
}
