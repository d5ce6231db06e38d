//! Notifications for tests.

use std::sync::Arc;

use rollhook_core::{
    app::{App, AppUid, Policy, Source, Target},
    deploy::{
        Actor, AdmissionId, Deploy, Evidence, Origin, Reason, Resolution, Revision, Scale, State, Trigger, WorkloadEnd,
        WorkloadEvidence,
    },
    image::ImageLabels,
    lock::Locks,
    time::Timestamp,
};
use rollhook_management::notifications::{Content, EventKind, Notification, NotificationId};

pub(crate) fn app() -> Arc<App> {
    Arc::new(App {
        id: "shop-test/api".parse().unwrap(),
        uid: AppUid::from_bits(7),
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
        source: Source::Image,
        target: Target::default(),
        policy: Policy::default(),
        holds: Vec::new(),
        locks: Locks::default(),
        requirements: rollhook_core::requirement::RequirementCopies::default(),
        created_at: Timestamp::from_millis(1_767_000_000_000),
    })
}

pub(crate) fn deploy(number: u64, state: State) -> Deploy {
    let revision = Revision::new(number).unwrap();
    Deploy {
        id: AdmissionId(number.into()),
        revision,
        image: Some(format!("r.example.com/api:v{number}").parse().unwrap()),
        commit: Some("def456abc0def456abc0def456abc0def456abc0".parse().unwrap()),
        trigger: Trigger::Webhook,
        actor: Actor::Ci,
        from: None,
        effective: revision,
        adopted: false,
        scale: Scale::Keep,
        configuration: None,
        configures: false,
        state,
        touched: true,
        release: None,
        sequence: None,
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
    }
}

pub(crate) fn accepted() -> Content {
    of(deploy(4, State::Queued))
}

pub(crate) fn failed() -> Content {
    let evidence = Evidence { log: vec!["PASSWORD=hunter2".to_owned()], ..Evidence::default() };
    let message = "Container api cannot pull its image.".to_owned();
    of(deploy(4, State::Failed { reason: Reason::new("ImagePullBackOff"), message, evidence: Some(evidence) }))
}

/// A failed deploy of three workloads.
pub(crate) fn failed_of_several() -> Content {
    let workload = |name: &str, state, message: &str| WorkloadEvidence {
        name: name.to_owned(),
        state,
        message: message.to_owned(),
    };
    let workloads = vec![
        workload("Deployment/worker", WorkloadEnd::Failed, "0 of 1 new pods are ready"),
        workload("Deployment/web", WorkloadEnd::Complete, "2 of 2 new pods are available"),
        workload("CronJob/nightly", WorkloadEnd::NotTouched, "not touched: it waits for those before it"),
    ];
    let evidence = Evidence { log: vec!["PASSWORD=hunter2".to_owned()], workloads, ..Evidence::default() };
    let message = "Deployment/worker: container app exited with code 7.".to_owned();
    of(deploy(4, State::Failed { reason: Reason::new("CrashLoopBackOff"), message, evidence: Some(evidence) }))
}

pub(crate) fn put_right() -> Content {
    let digest = format!("sha256:{}", "a".repeat(64)).parse().ok();
    let restore = Deploy {
        trigger: Trigger::Rollback,
        actor: Actor::Service,
        from: Revision::new(3).map(Origin::Revision),
        digest,
        ..deploy(5, State::Succeeded { note: None })
    };
    of(restore)
}

/// A deploy that following found: its image has these labels, and no commit was posted.
pub(crate) fn labelled(labels: ImageLabels) -> Deploy {
    Deploy {
        commit: None,
        trigger: Trigger::Registry,
        actor: Actor::Service,
        resolution: Some(Box::new(Resolution::resolved(labels, &[], &[], &[]))),
        ..deploy(4, State::Succeeded { note: None })
    }
}

/// A deploy that following found, of an image with all labels, and this commit.
pub(crate) fn found(revision: &str) -> Deploy {
    let labels = ImageLabels::default().or([
        ("org.opencontainers.image.revision", revision),
        ("org.opencontainers.image.source", "https://git.example.com/shop/api"),
        ("org.opencontainers.image.version", "1.2"),
        ("org.opencontainers.image.url", "https://api.example.com/?a=1&b=|"),
    ]);
    labelled(labels)
}

pub(crate) fn of(deploy: Deploy) -> Content {
    let event = EventKind::of(&deploy);
    Content::Deploy { app: app(), deploy: Arc::new(deploy), event }
}

pub(crate) fn notification(content: Content) -> Notification {
    let receiver = "0123456789abcdef0123456789abcdef".parse().unwrap();
    Notification {
        id: NotificationId::of_test(&receiver, 7),
        content,
        at: Timestamp::from_millis(1_767_323_055_000),
        sent_at: Timestamp::from_millis(1_767_323_060_400),
        base_url: "https://rollhook.example.com".into(),
    }
}
