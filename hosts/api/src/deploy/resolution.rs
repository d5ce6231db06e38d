//! What a registry or a source has said of a deploy before its rollout, as it is on the wire.

use rollhook_core::{
    deploy::{self, Commit, Resolution},
    image, service,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Deploy, Progress};

/// What a deploy waits for until its registry has answered, or the source of its commit.
const LOOKED_UP: &str = "its image is looked up at its registry";
const ORDERED: &str = "its source is asked whether the commit is older than what came before";

/// The labels by which an image says where it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImageLabels {
    /// The commit, by the label `org.opencontainers.image.revision`. Labels are the builder's words, and prove nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The URL of the source, by the label `org.opencontainers.image.source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The version, by the label `org.opencontainers.image.version`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The URL of a page about the image, by the label `org.opencontainers.image.url`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl From<image::ImageLabels> for ImageLabels {
    fn from(labels: image::ImageLabels) -> Self {
        let image::ImageLabels { revision, source, version, url, .. } = labels;
        Self { revision, source, version, url }
    }
}

impl ImageLabels {
    /// Returns the labels of an entry's image; `None` if none are known.
    pub(super) fn of(entry: &deploy::Deploy) -> Option<Box<Self>> {
        entry.labels().map(|labels| Box::new(labels.clone().into()))
    }

    /// Returns the commit that the image was built from, as it says; `None` if the label is missing, or is no commit.
    pub fn commit(&self) -> Option<&str> {
        self.revision.as_deref().filter(|label| label.parse::<Commit>().is_ok())
    }
}

/// Returns why an entry's image was not resolved, a clause; `None` if it was, is still to be, or is not looked up.
pub(super) fn not_resolved(entry: &deploy::Deploy) -> Option<String> {
    entry.resolution.as_deref().and_then(Resolution::gap).map(str::to_owned)
}

impl Progress {
    /// Returns what an entry waits for: what is known of its step, or the answer of its image's registry or of its
    /// source, which has neither a mark nor a deadline.
    pub fn shown(entry: &deploy::Deploy, step: Option<&service::Progress>) -> Option<Self> {
        let looked_up = entry.is_to_be_resolved().then(|| Self {
            since: entry.created_at,
            ready: None,
            wanted: None,
            message: Some(if entry.image.is_some() { LOOKED_UP } else { ORDERED }.to_owned()),
            mark: None,
            deadline: None,
            workloads: Vec::new(),
        });
        step.map(Self::of).or(looked_up)
    }
}

impl Deploy {
    /// Returns the commit that lists show: the posted one, or else the one that the image's label names, as
    /// [`deploy::Deploy::shown_commit`] does.
    pub fn shown_commit(&self) -> Option<&str> {
        self.commit.as_deref().or_else(|| self.labels.as_deref()?.commit())
    }

    /// Returns the commit that the image's label names, if it is certainly another than the posted one.
    pub fn other_commit(&self) -> Option<&str> {
        let posted: Commit = self.commit.as_deref()?.parse().ok()?;
        let label = self.labels.as_deref()?.commit()?;
        let labelled: Commit = label.parse().ok()?;
        (!posted.may_be(&labelled)).then_some(label)
    }
}
