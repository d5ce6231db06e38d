//! The workloads of apps: the first one of each, and the further ones that some have.

use std::time::Duration;

use rollhook_conformance::samples::settings;
use rollhook_core::{app::Target, image::ImageRef, ports::RolloutFailureKind};
use rollhook_memory::{Script, SimulatedCluster};
use serde_json::{Value, json};

use crate::{images::image, requests, sources};

/// The further workloads that an app is registered with, as a person lists them.
pub(crate) type Also = &'static [&'static str];

/// The lists of further workloads. With a `+`, a workload goes together with the one before it.
pub(crate) const LISTS: [Also; 6] = [
    &[],
    &["Deployment/worker:api"],
    &["+Deployment/worker:api"],
    &["Deployment/worker:api", "CronJob/nightly:api"],
    &["+Deployment/worker:api", "CronJob/nightly:api"],
    &["Deployment/worker:api", "+CronJob/nightly:api"],
];

/// The further workloads that there are, kind and name.
const FURTHER: [(&str, &str); 2] = [("Deployment", "worker"), ("CronJob", "nightly")];

/// The course that a rollout takes on one workload, whatever it takes on the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Course {
    Completes,
    Slow,
    Crashes,
    Missing,
    Hangs,
    Dies,
    Relapses,
    Full,
}

/// A version that takes another course on one further workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Own {
    /// The number of the further workload.
    pub(crate) further: usize,
    pub(crate) tag: &'static str,
    pub(crate) course: Course,
}

/// A workload of an app's target.
pub(crate) struct Part {
    pub(crate) name: String,
    /// The number of workloads before it that it waits for, in stages.
    pub(crate) stage: usize,
    /// The target as if the app had this workload alone.
    pub(crate) target: Target,
}

/// Returns the workloads of a registered target, in their order.
pub(crate) fn parts(target: &Target) -> Vec<Part> {
    let mut first = target.clone();
    let also = first.settings.remove("also");
    let mut stage = 0;
    let mut parts = vec![Part { name: name(&first), stage, target: first.clone() }];
    for listed in also.iter().filter_map(Value::as_array).flatten() {
        let mut settings = listed.as_object().cloned().unwrap();
        stage += usize::from(settings.remove("together").is_none());
        let target = Target { settings, ..first.clone() };
        parts.push(Part { name: name(&target), stage, target });
    }
    parts
}

/// Returns the name of the workload that a target of one workload names.
pub(crate) fn name(target: &Target) -> String {
    target.settings["name"].as_str().unwrap().to_owned()
}

/// Has the further workloads run the first version, in the namespaces of all apps.
pub(crate) fn seed(cluster: &SimulatedCluster, own: &[Own]) {
    for app in [requests::id(0), requests::id(1)] {
        for (kind, name) in FURTHER {
            let named = json!({ "kind": kind, "name": name, "containers": ["api"] });
            let target = Target { settings: settings(named), ..Target::default() };
            cluster.seed(&app, &target, &image("v1"));
            for own in own.iter().filter(|own| FURTHER[own.further].1 == name) {
                for pattern in [format!(":{}", own.tag), sources::built(own.tag)] {
                    cluster.script_on(&app, &target, &pattern, own.course.script());
                }
            }
        }
    }
}

/// Returns the image that a person runs in a workload that was made anew.
pub(crate) fn anew() -> ImageRef {
    image("v1")
}

impl Course {
    fn script(self) -> Script {
        let seconds = Duration::from_secs;
        match self {
            Self::Completes => Script::completes(),
            Self::Slow => Script::completes().after(seconds(12)),
            Self::Crashes => Script::crashes(),
            Self::Missing => Script::missing(),
            Self::Hangs => Script::hangs(),
            Self::Dies => Script::dies_after(seconds(3)),
            Self::Relapses => Script::relapses(seconds(2), seconds(5)),
            Self::Full => Script::fails(RolloutFailureKind::Capacity, "Unschedulable", "no node has room")
                .healing_after(seconds(20)),
        }
    }
}
