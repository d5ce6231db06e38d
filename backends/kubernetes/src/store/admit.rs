//! Accepting: the creation of the next object.
//!
//! Whether the decision still holds is seen by a read of the App just before the creation, and by the number: a hold, and
//! an accept that supersedes, are written with an object and so take the number away. A change of policy takes none. So
//! there is a window, as long as one creation takes (or as long as the process is paused just there), in which an accept
//! that was decided before `app set` is recorded after that has returned. It takes effect as if it had come before; the
//! guard that it was decided on is in the object, where this can be seen.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use kube::api::Preconditions;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Revision, State},
    ports::{Admission, Admitted, UNFINISHED_MAX},
};

use super::{
    KubernetesStore,
    calls::{Written, create, delete, get},
    codec,
    crd::DeployObject,
    load::{ATTEMPTS, Depth, Loaded, contended},
};

/// One accept of an app at a time within this process: those of one app can only take turns, and would else compete for
/// each number.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<AppUid, Arc<tokio::sync::Mutex<()>>>>);

impl Turns {
    async fn take(&self, app: AppUid) -> tokio::sync::OwnedMutexGuard<()> {
        let turn = {
            let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Whoever waits or works holds a clone.
            turns.retain(|_, turn| Arc::strong_count(turn) > 1);
            turns.entry(app).or_default().clone()
        };
        turn.lock_owned().await
    }
}

impl KubernetesStore {
    pub(crate) async fn accept(&self, admission: Admission) -> Result<Admitted> {
        let _turn = self.turns.take(admission.app).await;
        // Its decision was made on a read of this process: then just that one need not be repeated. Before the creation
        // something may change after either.
        let mut depth = if self.mirror.take_read(admission.app) { Depth::Seen } else { Depth::App };
        for _ in 0..ATTEMPTS {
            let loaded = self.load(admission.app, depth).await?;
            let refused = match self.decide(&loaded, &admission).await? {
                None => match self.create(&loaded, &admission).await? {
                    Some(admitted) => return Ok(admitted),
                    None => {
                        depth = depth.max(Depth::App);
                        continue;
                    }
                },
                Some(refused) => refused,
            };
            // Only who has seen every entry knows that none has this key.
            if depth == Depth::All || matches!(refused, Admitted::Replay(_) | Admitted::KeyReused) {
                return Ok(refused);
            }
            depth = Depth::All;
        }
        Err(contended())
    }

    /// Why nothing is created, as far as is known.
    async fn decide(&self, loaded: &Loaded, admission: &Admission) -> Result<Option<Admitted>> {
        let head = &loaded.head;
        match self.used(loaded, admission)? {
            Some((_, false)) => return Ok(Some(Admitted::KeyReused)),
            Some((revision, true)) => return Ok(Some(Admitted::Replay(self.entry(loaded, revision).await?))),
            None => {}
        }
        let stale = admission.guard != head.guard || admission.after.is_some_and(|after| after != loaded.last());
        let full = !admission.supersede && head.open.len() >= UNFINISHED_MAX;
        Ok(if stale {
            Some(Admitted::Stale)
        } else if full {
            Some(Admitted::Full)
        } else {
            None
        })
    }

    /// The revision that the key was used for, and whether for the same request.
    fn used(&self, loaded: &Loaded, admission: &Admission) -> Result<Option<(Revision, bool)>> {
        let Some(key) = &admission.key else { return Ok(None) };
        let now = loaded.head.time(self.clock.now());
        let wanted = codec::key_use(key, now)?;
        let uses = self.mirror.entries(loaded.uid, |(revision, known)| {
            let stored = known.key.as_ref()?;
            let same = codec::used(stored, &wanted, now).transpose()?;
            Some(same.map(|same| Revision::new(*revision).map(|revision| (revision, same))))
        });
        uses.into_iter().next().transpose().map(Option::flatten)
    }

    /// Creates the next object; none where somebody else has that number: with what he made, decide again.
    async fn create(&self, loaded: &Loaded, admission: &Admission) -> Result<Option<Admitted>> {
        let revision = Revision::following(loaded.last());
        let deploy = admission.draft.clone().entry(admission.id, revision, loaded.head.time(self.clock.now()));
        let object = codec::deploy_object(&loaded.app, admission, &deploy)?;
        let api = self.calls.deploys(&loaded.namespace());
        match create(&api, &object).await? {
            Written::Done(created) => self.created(loaded, admission, created).await.map(Some),
            Written::Conflict => self.taken(loaded, admission, revision).await,
            Written::Gone => Err(Error::NotFound("app")),
        }
    }

    /// Looks at what has the number already.
    async fn taken(&self, loaded: &Loaded, admission: &Admission, revision: Revision) -> Result<Option<Admitted>> {
        let api = self.calls.deploys(&loaded.namespace());
        let Some(found) = get(&api, &loaded.name(revision)).await? else { return Ok(None) };
        if found.spec.app_uid != loaded.app.spec.uid {
            // It belonged to an earlier registration of the name, unless this one is that by now, which fails here.
            self.read_app(loaded.uid).await?;
            let guard = Preconditions { uid: found.metadata.uid.clone(), resource_version: None };
            delete(&api, &loaded.name(revision), guard).await?;
            return Ok(None);
        }
        let accepted = codec::accepted(&found)?;
        if accepted.deploy.id == admission.id {
            return self.created(loaded, admission, found).await.map(Some);
        }
        self.mirror.note_entry(found);
        Ok(None)
    }

    /// Brings about what the accept does to other entries and to the app.
    async fn created(&self, loaded: &Loaded, admission: &Admission, created: DeployObject) -> Result<Admitted> {
        let accepted = codec::accepted(&created)?;
        let deploy = accepted.deploy.clone();
        self.mirror.note_entry(created);
        self.wake(loaded);
        if !accepted.has_effects() {
            return Ok(Admitted::New { deploy, superseded: Vec::new() });
        }
        let mut head = loaded.head.clone();
        let superseded = head.fold(&accepted, self.clock.now());
        let ends: Vec<_> = superseded.iter().filter_map(|revision| head.state(*revision)).cloned().collect();
        if self.commit(loaded, head).await?.is_some() {
            self.show(loaded, &ends).await;
            return Ok(Admitted::New { deploy, superseded });
        }
        // Somebody else changed the app, and may have met the entry: then it has its effects already.
        let after = self.load(admission.app, Depth::App).await?;
        let mut superseded = Vec::new();
        for revision in loaded.head.open.keys() {
            let entry = self.entry(&after, *revision).await?;
            if matches!(entry.state, State::Superseded { by, .. } if by == deploy.revision) {
                superseded.push(*revision);
            }
        }
        Ok(Admitted::New { deploy, superseded })
    }
}
