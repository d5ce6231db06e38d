//! The images that are deployed, and what becomes of each.

use std::time::Duration;

use rollhook_core::{deploy::Reason, image::ImageRef, ports::RolloutFailureKind};
use rollhook_memory::Script;

/// Tags: the first six are sound, of which one moves, one takes its time and one takes the place of pods that take theirs; the
/// others fail, each in its own way.
pub(crate) const TAGS: [&str; 15] = [
    "v1", "v2", "v3", "latest", "slow", "drains", "missing", "crash", "hang", "dies", "full", "misfit", "paused",
    "flaps", "relapses",
];

/// The image of a tag.
pub(crate) fn image(tag: &str) -> ImageRef {
    format!("registry.example.com/api:{tag}").parse().unwrap()
}

/// A sound image, the pods before which terminate for long.
pub(crate) fn drains() -> Script {
    Script::completes().terminating_for(Duration::from_secs(120))
}

/// The behaviour of images that the cluster does not know by their name.
pub(crate) fn scripts() -> Vec<(&'static str, Script)> {
    let seconds = Duration::from_secs;
    vec![
        ("slow", Script::completes().after(seconds(16))),
        ("drains", drains()),
        ("dies", Script::dies_after(seconds(2))),
        ("flaps", Script::restarts_every(seconds(2))),
        ("relapses", Script::relapses(seconds(2), seconds(5))),
        (
            "full",
            Script::fails(RolloutFailureKind::Capacity, "Unschedulable", "no node has room").healing_after(seconds(20)),
        ),
        ("misfit", Script::fails(RolloutFailureKind::Config, "CreateContainerConfigError", "the secret is not there")),
        (
            "paused",
            Script::fails(RolloutFailureKind::Final, Reason::PAUSED, "the Deployment is paused").after(seconds(0)),
        ),
    ]
}
