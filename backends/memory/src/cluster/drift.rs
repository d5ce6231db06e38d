//! Workloads at rest: changes by others since a deploy, and hints of what becomes of them.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use event_listener::Event;
use futures_util::{
    future::{Either, select},
    stream::{self, BoxStream, StreamExt},
};
use rollhook_core::{
    app::AppUid,
    ports::{Clock, Drift, RolloutSpec},
};

use super::workload::Running;

/// The apps whose workloads have changed or will by themselves, with the time of the change, until a hint is sent.
pub(super) struct Hints {
    clock: Arc<dyn Clock>,
    due: Mutex<BTreeMap<AppUid, Duration>>,
    arrived: Event,
}

impl Hints {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, due: Mutex::default(), arrived: Event::new() }
    }

    /// A workload has changed.
    pub(super) fn put(&self, app: AppUid) {
        self.put_at(app, self.clock.elapsed());
    }

    /// A workload changes by itself at this time.
    pub(super) fn put_at(&self, app: AppUid, at: Duration) {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let known = due.entry(app).or_insert(at);
        *known = at.min(*known);
        drop(due);
        self.arrived.notify(1);
    }

    pub(super) fn stream(self: Arc<Self>) -> BoxStream<'static, AppUid> {
        let next = async |hints: Arc<Self>| loop {
            // Listening starts before the hints are read, so that none is missed.
            let arrived = hints.arrived.listen();
            let now = hints.clock.elapsed();
            match hints.next() {
                Some((app, at)) if at <= now => {
                    hints.due.lock().unwrap_or_else(PoisonError::into_inner).remove(&app);
                    return Some((app, hints));
                }
                Some((_, at)) => match select(arrived, hints.clock.sleep(at - now)).await {
                    Either::Left(_) | Either::Right(_) => {}
                },
                None => arrived.await,
            }
        };
        stream::unfold(self, next).boxed()
    }

    fn next(&self) -> Option<(AppUid, Duration)> {
        let due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        due.iter().map(|(app, at)| (*app, *at)).min_by_key(|(_, at)| *at)
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
