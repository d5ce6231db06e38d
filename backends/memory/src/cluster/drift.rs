//! Drift: changes of a workload by others since a deploy.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use event_listener::Event;
use futures_util::stream::{self, BoxStream, StreamExt};
use rollhook_core::{
    app::AppUid,
    ports::{Drift, RolloutSpec},
};

use super::workload::Running;

/// The apps whose workloads others have changed, until that is told.
#[derive(Default)]
pub(super) struct Hints {
    waiting: Mutex<VecDeque<AppUid>>,
    arrived: Event,
}

impl Hints {
    pub(super) fn put(&self, app: Option<AppUid>) {
        let Some(app) = app else { return };
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.contains(&app) {
            waiting.push_back(app);
        }
        drop(waiting);
        self.arrived.notify(1);
    }

    pub(super) fn stream(self: Arc<Self>) -> BoxStream<'static, AppUid> {
        let next = async |hints: Arc<Self>| loop {
            // Listening starts before the queue is read, so that no hint is missed.
            let arrived = hints.arrived.listen();
            let app = hints.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            match app {
                Some(app) => return Some((app, hints)),
                None => arrived.await,
            }
        };
        stream::unfold(self, next).boxed()
    }
}

impl Running {
    /// Returns the drift since this deploy, unless a newer one of its app took its place.
    pub(super) fn drift(&self, spec: &RolloutSpec) -> Option<Drift> {
        let is_newer = |id: &rollhook_core::ports::DeployId| id.app == spec.id.app && id.revision > spec.id.revision;
        if self.stamp.as_ref().is_some_and(is_newer) {
            return None;
        }
        if !self.image.same_bits(None, &spec.image, None) {
            let message = format!("another set the image to {}, where {} was rolled out", self.image, spec.image);
            return Some(Drift { image: Some(self.image.clone()), message });
        }
        let message = || "another removed or changed the workload's deploy id".to_owned();
        (!self.is_at(spec)).then(|| Drift { image: None, message: message() })
    }
}
