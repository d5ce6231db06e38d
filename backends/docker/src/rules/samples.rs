//! Containers and rollouts for tests.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    app::{App, AppUid, Policy, Settings, Source, Target},
    configuration::{Configuration, ConfigurationId, SALT_BYTES, Variable, Variables},
    deploy::{Revision, Scale},
    lock::Locks,
    ports::{DeployId, Purpose},
    time::Timestamp,
};
use serde_json::{Value, json};

use super::container::{Claim, Container, Seen, Stamp};
use crate::settings::{Kind, MadeWith, Rollout, Workload};

pub(crate) const OURS: AppUid = AppUid::from_bits(0xa11);
pub(crate) const THEIRS: AppUid = AppUid::from_bits(0xb0b);

pub(crate) fn id(app: AppUid, revision: u64) -> DeployId {
    DeployId { app, revision: Revision::new(revision).unwrap() }
}

pub(crate) fn rollout(revision: u64) -> Rollout {
    let workload = Workload::named(Kind::Container, "web");
    Rollout {
        app: "shop-test/web".parse().unwrap(),
        id: id(OURS, revision),
        workload,
        take_over: None,
        image: format!("registry.example.com/web:v{revision}").parse().unwrap(),
        adopted: false,
        settle: Duration::ZERO,
        purpose: Purpose::Deploy,
        scale: Scale::Keep,
        rests: false,
        configuration: None,
        made_with: MadeWith::default(),
    }
}

/// The app of [`rollout`].
pub(crate) fn app() -> App {
    App {
        id: rollout(1).app,
        uid: OURS,
        project: "shop".parse().unwrap(),
        environment: "test".parse().unwrap(),
        source: Source::Image,
        target: Target { settings: Settings::new(), requested: None, take_over: None },
        policy: Policy::default(),
        holds: Vec::new(),
        locks: Locks::default(),
        requirements: rollhook_core::requirement::RequirementCopies::default(),
        created_at: Timestamp::default(),
    }
}

/// A rollout with a configuration of this id.
pub(crate) fn configured(revision: u64, id: u128, variables: &[(&str, &str)]) -> Rollout {
    let set = variables.iter().map(|(name, value)| (name.parse().unwrap(), Variable::new((*value).to_owned(), false)));
    let mut variables = Variables::empty([7; SALT_BYTES]);
    variables.entries.extend(set);
    let configuration = Configuration::of(ConfigurationId(id)).with(|configuration| {
        configuration.variables = variables;
        configuration.is_new = true;
    });
    Rollout { configuration: Some(Arc::new(configuration)), ..rollout(revision) }
}

pub(crate) fn taking(revision: u64, from: AppUid) -> Rollout {
    Rollout { take_over: Some(from), ..rollout(revision) }
}

pub(crate) fn seen(containers: Vec<Container>) -> Seen {
    Seen { claims: Vec::new(), containers }
}

pub(crate) fn claim(app: AppUid, revision: u64) -> Claim {
    let stamp = Stamp { id: id(app, revision), took_over: None, image: None, rests: false };
    let created_at = format!("2026-01-01T00:{revision:0>2}:00Z");
    Claim { name: format!("rollhook.web.{revision}"), stamp, keeps: None, replaces: false, created_at }
}

/// A container of this name without a stamp.
pub(crate) fn container(name: &str, status: &str) -> Container {
    let id = format!("{:0>64}", name.bytes().fold(7_u64, |sum, byte| sum * 31 % 1_000_007 + u64::from(byte)));
    Container {
        object: json!({
            "Id": id, "Name": format!("/{name}"), "Created": "2026-01-01T00:00:00Z", "Image": "sha256:1",
            "State": {"Status": status, "StartedAt": "2026-01-01T00:00:01Z", "ExitCode": 0, "Error": ""},
            "RestartCount": 0,
            "Config": {"Image": "registry.example.com/web:v1", "Labels": {}},
            "HostConfig": {"NetworkMode": "shop"},
            "NetworkSettings": {"Networks": {"shop": {"IPAddress": "10.0.0.2"}}},
            "Mounts": [],
        }),
        is_doubtful: false,
    }
}

/// The container of a deploy of an app, by the name that it has before it is ready.
pub(crate) fn stamped(app: AppUid, revision: u64, status: &str) -> Container {
    let mut container = container(&format!("web.{revision}"), status);
    let image = format!("registry.example.com/web:v{revision}").parse().ok();
    let stamp = Stamp { id: id(app, revision), took_over: None, image, rests: false };
    for (name, value) in stamp.labels("container/web") {
        container.object["Config"]["Labels"][name] = value.into();
    }
    container.object["Config"]["Labels"][super::container::NAME] = "web".into();
    container.object["Created"] = format!("2026-01-01T00:{revision:0>2}:00Z").into();
    container
}

pub(crate) fn with(mut container: Container, pointer: &str, value: Value) -> Container {
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    container.object.pointer_mut(parent).unwrap()[name] = value;
    container
}
