//! Registries that are away, each in a way of its own, and what rollhook says of a deploy whose image they have.

use std::{net::SocketAddr, time::Duration};

use rollhook_testing::{
    Call,
    fixtures::{FailingRegistry, RegistryFault},
    free_address,
};
use serde_json::{Value, json};

/// The ways, with words that the reason then has. A registry without a fault is stopped: nothing listens at its address.
const WAYS: [(&str, Option<RegistryFault>, &str); 7] = [
    ("stopped", None, "cannot be reached"),
    ("silent", Some(RegistryFault::Silent), "in time"),
    ("busy", Some(RegistryFault::Busy(Some(Duration::from_secs(60)))), "has had too many calls"),
    ("failing", Some(RegistryFault::Fails), "answered with status 500"),
    ("cut-off", Some(RegistryFault::CutOff), "cannot be asked about the image now"),
    ("other-digest", Some(RegistryFault::OtherDigest), "is another manifest than its digest says"),
    ("expired-login", Some(RegistryFault::ExpiredLogin), "does not let this server read the repository"),
];

/// An image at the bed's registry.
pub(crate) struct Image {
    pub(crate) name: String,
    pub(crate) digest: String,
    pub(crate) version: &'static str,
}

/// Makes CI's call for an image, which is accepted, and returns the revision.
pub(crate) fn accepted(call: &Call) -> u64 {
    call.expect(202).json()["revision"].as_u64().unwrap()
}

/// Returns the registry that never answers, and the image that was deployed from there.
pub(crate) fn silent<'a>(registries: &'a [AwayRegistry], images: &'a [Image]) -> (&'a AwayRegistry, &'a Image) {
    let mut pairs = registries.iter().zip(images);
    pairs.find(|(registry, _)| registry.way == "silent").unwrap()
}

/// A registry of the images of a sound one, which rollhook cannot read.
pub(crate) struct AwayRegistry {
    /// The way in which it is away; a tag.
    pub(crate) way: &'static str,
    /// The address by which images name it.
    pub(crate) address: SocketAddr,
    why: &'static str,
    proxy: Option<FailingRegistry>,
}

impl AwayRegistry {
    /// Starts a registry for each way, before a sound one.
    pub(crate) fn all(upstream: SocketAddr) -> Vec<Self> {
        let start = |(way, fault, why): (&'static str, Option<RegistryFault>, &'static str)| {
            let proxy = fault.map(|fault| FailingRegistry::before(upstream, fault));
            let address = proxy.as_ref().map_or_else(free_address, |proxy| proxy.server.address);
            Self { way, address, why, proxy }
        };
        WAYS.map(start).into()
    }

    /// Returns the name of an image here that was pushed to the sound registry.
    pub(crate) fn image(&self, pushed: &str) -> String {
        format!("{}/{}", self.address, pushed.split_once('/').unwrap().1)
    }

    /// The number of requests so far.
    pub(crate) fn asked(&self) -> usize {
        self.proxy.as_ref().map_or(0, |proxy| proxy.server.asked().len())
    }

    /// Asserts that a deploy was left to its tag, for the reason that is true.
    pub(crate) fn assert_left_to_its_tag(&self, entry: &Value, digest: &str) {
        let not_resolved = entry["not_resolved"].as_str().unwrap_or_default();
        assert!(not_resolved.contains(self.why), "{}: {entry}", self.way);
        let (status, digest) = (json!("succeeded"), json!(digest));
        assert_eq!((&entry["status"], &entry["digest"]), (&status, &digest), "{}: {entry}", self.way);
    }

    /// Asserts that a deploy of an app that requires the digest failed, for the reason that is true.
    pub(crate) fn assert_required(&self, entry: &Value) {
        let (status, reason) = (json!("failed"), json!("image-not-resolved"));
        assert_eq!((&entry["status"], &entry["reason"]), (&status, &reason), "{}: {entry}", self.way);
        assert!(entry["message"].as_str().unwrap().contains(self.why), "{}: {entry}", self.way);
    }
}

/// Asserts that a rollback has taken the place of a deploy.
pub(crate) fn assert_rolled_back(entry: &Value, rollback: &Value) {
    let (status, reason) = (json!("superseded"), json!("rolled-back"));
    assert_eq!((&entry["status"], &entry["reason"]), (&status, &reason), "{entry}");
    assert_eq!(entry["superseded_by"], rollback["revision"], "{entry}");
}
