//! Images that are resolved: once, by what the registry has named, and before anything else.

use rollhook_core::{
    deploy::{Deploy, Reason, Resolution},
    image::{Digest, ImageRef},
};

use super::Rules;
use crate::journal::Journal;

impl Rules {
    /// Notes what the registry has named.
    pub(crate) fn names(&mut self, image: &ImageRef, digest: &Digest) {
        self.named.entry(image.to_string()).or_default().insert(digest.clone());
    }

    /// Judges an entry that has changed: its digest is one that the registry has named, once, and one whose image is missing
    /// has touched nothing.
    pub(super) fn resolved(&self, old: &Deploy, new: &Deploy, journal: &Journal) {
        let revision = new.revision;
        let is_pending = |deploy: &Deploy| deploy.resolution.as_deref() == Some(&Resolution::Pending);
        if is_pending(old) && new.is_resolved() {
            journal.count("registry: an image was resolved");
            let known = new.image.as_ref().and_then(|image| self.named.get(&image.to_string()));
            journal
                .expect(known.zip(new.digest.as_ref()).is_some_and(|(known, digest)| known.contains(digest)), || {
                    format!("revision {revision} has a digest that the registry never named: {:?}", new.digest)
                });
        }
        journal.count_if(
            is_pending(old) && new.resolution.as_deref().is_some_and(|now| now.gap().is_some()),
            "registry: an image was left to its tag",
        );
        journal.expect(!old.is_resolved() || (&old.digest, &old.resolution) == (&new.digest, &new.resolution), || {
            format!("revision {revision} was resolved, and resolved anew")
        });
        if new.state.has_failed_for(Reason::IMAGE_NOT_FOUND) {
            let is_of_missing = new.image.as_ref().and_then(ImageRef::tag) == Some("missing");
            journal.expect(is_pending(old) && is_of_missing && !new.touched, || {
                format!("revision {revision} failed as if its image was missing")
            });
        }
        journal.expect(!is_pending(old) || !new.touched, || {
            format!("revision {revision} touched the cluster before its registry had answered")
        });
    }
}
