//! Writes an app's head back: one replacement, valid only for the App as it was read; and moves what has ended into
//! the entries' own objects.

use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use rollhook_core::{Error, Result, deploy::Status, ports::Wake};

use super::{
    KubernetesStore,
    calls::{Written, get, replace, replace_status},
    codec,
    crd::{AppObject, DeployStatus},
    head::{Changing, Head},
    load::{Loaded, contended},
};

/// Entries whose own status is written at the same time.
const AT_ONCE: usize = 8;
/// How often an entry's status is written again that others changed meanwhile.
const TRIES: usize = 5;

impl KubernetesStore {
    /// Replaces the app's head; none where the App has changed since it was read.
    ///
    /// What ended before is in its own object by then, so that the App never holds more than one record's ends.
    pub(crate) async fn commit(&self, loaded: &Loaded, head: Head) -> Result<Option<Arc<AppObject>>> {
        let object = AppObject::clone(&loaded.app);
        self.commit_object(loaded, object, head).await
    }

    /// Replaces the app's head, and the rest of the object with it.
    pub(crate) async fn commit_object(
        &self,
        loaded: &Loaded,
        mut object: AppObject,
        mut head: Head,
    ) -> Result<Option<Arc<AppObject>>> {
        let stored = codec::head(&loaded.app)?;
        let ended: Vec<Changing> = stored.pending.values().cloned().collect();
        self.settle(loaded, &ended).await?;
        head.pending.retain(|revision, _| !stored.pending.contains_key(revision));
        object.status = Some(head.into_status()?);
        match replace(&self.calls.apps(&loaded.namespace()), &object).await? {
            Written::Done(replaced) => {
                self.mirror.note_app(replaced.clone());
                self.wake(loaded);
                Ok(Some(Arc::new(replaced)))
            }
            Written::Conflict => Ok(None),
            Written::Gone => {
                self.mirror.forget_app(loaded.uid, u64::MAX);
                Err(Error::NotFound("app"))
            }
        }
    }

    /// Shows in the entries' own objects what was just written to the App. What fails here is made good by the next
    /// who writes to the app, so that nobody waits for it.
    pub(crate) async fn show(&self, loaded: &Loaded, changed: &[Changing]) {
        if let Err(error) = self.settle(loaded, changed).await {
            tracing::debug!(app = %codec::named(&loaded.app), error = %error.chain(), "entries are shown as they were");
        }
    }

    /// Writes these states to the entries' own objects, where they are not there yet.
    async fn settle(&self, loaded: &Loaded, states: &[Changing]) -> Result<()> {
        let unsettled = states.iter().filter(|state| !self.is_settled(loaded, state));
        let writes: Vec<BoxFuture<'_, Result<()>>> =
            unsettled.map(|state| self.write_status(loaded, state).boxed()).collect();
        stream::iter(writes).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Whether the entry's object was seen with its end: nothing follows that.
    fn is_settled(&self, loaded: &Loaded, state: &Changing) -> bool {
        let known = self.mirror.entry(loaded.uid, state.revision.get());
        known.is_some_and(|known| {
            codec::value::<Status>(&known.status.into(), String::new).is_ok_and(Status::is_terminal)
        })
    }

    async fn write_status(&self, loaded: &Loaded, state: &Changing) -> Result<()> {
        let api = self.calls.deploys(&loaded.namespace());
        let name = loaded.name(state.revision);
        let mut seen = self.mirror.entry(loaded.uid, state.revision.get()).and_then(|known| known.body);
        for _ in 0..TRIES {
            let object = match seen.take() {
                Some(object) => Some(super::crd::DeployObject::clone(&object)),
                None => get(&api, &name).await?,
            };
            // One that somebody deleted by hand cannot be written to, and must not hold up the app.
            let Some(mut object) = object.filter(|object| object.spec.app_uid == loaded.app.spec.uid) else {
                return Ok(());
            };
            if codec::own_state(&object)?.is_some_and(|stored| stored.step >= state.step) {
                self.mirror.note_entry(object);
                return Ok(());
            }
            let entry = codec::entry_state(state)?;
            object.status = Some(DeployStatus { status: state.state.status().as_str().to_owned(), entry });
            match replace_status(&api, &object).await? {
                Written::Done(written) => {
                    self.mirror.note_entry(written);
                    return Ok(());
                }
                Written::Conflict => {}
                Written::Gone => return Ok(()),
            }
        }
        Err(contended())
    }

    /// Tells those who listen that the app has changed.
    pub(crate) fn wake(&self, loaded: &Loaded) {
        // That nobody listens is no failure.
        let _ = self.wakes.send(Wake::App(loaded.uid));
    }
}
