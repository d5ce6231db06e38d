//! Reads an app with the entries that its head does not know of yet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kube::ResourceExt;
use rollhook_core::{
    Error, Result,
    app::AppUid,
    deploy::{Deploy, Revision, Status},
};

use super::{
    KubernetesStore,
    calls::{get, list},
    codec,
    crd::{AppObject, DeployObject, UID_LABEL, deploy_name},
    head::{Accepted, Changing, Head},
    version::version,
};

/// How often something is decided again because others changed the app meanwhile.
pub(crate) const ATTEMPTS: usize = 24;
/// More unseen entries than this are read by one list.
const ONE_BY_ONE: usize = 8;
/// How long the first call of a process waits until it has seen the store.
const FIRST_LOOK: Duration = Duration::from_secs(8);

/// How much of the truth a read must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    /// What this process has seen: enough where a replacement of the App will tell.
    Seen,
    /// The App as it is; of entries above its head those that were seen.
    App,
    /// The App, and all entries.
    All,
}

/// An app as it was read, with all entries that are known folded into its head.
#[derive(Clone, Debug)]
pub(crate) struct Loaded {
    pub(crate) uid: AppUid,
    pub(crate) app: Arc<AppObject>,
    /// The head as it is stored, but for what is folded.
    pub(crate) head: Head,
    /// What was folded, by revision.
    pub(crate) fresh: BTreeMap<Revision, Arc<DeployObject>>,
}

/// What a load met that it must look at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    Nothing,
    /// Entries that may be newer than the App as it was read.
    Entries,
    /// An entry that changes others.
    Effects,
}

impl Loaded {
    /// The newest revision that is known.
    pub(crate) fn last(&self) -> Option<Revision> {
        Revision::new(self.head.folded)
    }

    pub(crate) fn namespace(&self) -> String {
        self.app.namespace().unwrap_or_default()
    }

    pub(crate) fn name(&self, revision: Revision) -> String {
        deploy_name(&self.app.name_any(), revision.get())
    }
}

impl KubernetesStore {
    /// Waits until the watches have seen the store once, and says why where they cannot.
    pub(crate) async fn ready(&self) -> Result<()> {
        if self.mirror.is_synced() || tokio::time::timeout(FIRST_LOOK, self.mirror.synced()).await.is_ok() {
            return Ok(());
        }
        list(&self.calls.all_apps(), Some("rollhook.dev/none")).await?;
        list(&self.calls.all_deploys(), Some("rollhook.dev/none")).await?;
        list(&self.calls.leases(), Some("rollhook.dev/none")).await?;
        Err(Error::Unavailable { what: "the cluster's history has not been read yet".to_owned(), cause: None })
    }

    /// The app of this uid, never from memory.
    pub(crate) async fn read_app(&self, uid: AppUid) -> Result<Arc<AppObject>> {
        let Some(seen) = self.mirror.app(uid) else {
            let selector = format!("{UID_LABEL}={uid}");
            let found = list(&self.calls.all_apps(), Some(&selector)).await?;
            return self.seen(uid, found.into_iter().find(is_there));
        };
        let found = get(&self.calls.apps(&seen.namespace().unwrap_or_default()), &seen.name_any()).await?;
        let found = found.filter(|app| app.spec.uid == seen.spec.uid && is_there(app));
        if found.as_ref().is_some_and(|found| version(&found.metadata) < version(&seen.metadata)) {
            tracing::warn!(app = %codec::named(&seen), "the cluster's store has gone back; everything is read anew");
            self.mirror.note_went_back(uid);
        }
        self.seen(uid, found)
    }

    fn seen(&self, uid: AppUid, found: Option<AppObject>) -> Result<Arc<AppObject>> {
        let Some(app) = found else {
            self.mirror.forget_app(uid, u64::MAX);
            return Err(Error::NotFound("app"));
        };
        self.mirror.note_app(app.clone());
        Ok(Arc::new(app))
    }

    /// Reads the app and folds what is known of its entries. An entry whose accept changes others is folded in the
    /// store first, so that nobody acts on what is only half done.
    pub(crate) async fn load(&self, uid: AppUid, depth: Depth) -> Result<Loaded> {
        self.ready().await?;
        let mut app = match self.mirror.app(uid).filter(|_| depth == Depth::Seen) {
            Some(seen) => seen,
            None => self.read_app(uid).await?,
        };
        for _ in 0..ATTEMPTS {
            let (loaded, found) = self.fold_known(uid, app, depth).await?;
            let replaced = match found {
                Found::Nothing => return Ok(loaded),
                Found::Entries => None,
                Found::Effects => self.commit(&loaded, loaded.head.clone()).await?,
            };
            app = match replaced {
                Some(replaced) => replaced,
                None => self.read_app(uid).await?,
            };
        }
        Err(contended())
    }

    /// Folds in memory, and says what was found beside.
    async fn fold_known(&self, uid: AppUid, app: Arc<AppObject>, depth: Depth) -> Result<(Loaded, Found)> {
        let head = codec::head(&app)?;
        let (mut loaded, mut found) = (Loaded { uid, app, head, fresh: BTreeMap::new() }, Found::Nothing);
        self.fill_in(&loaded).await?;
        loop {
            let next = Revision::following(loaded.last());
            let seen = self.mirror.entry(uid, next.get()).and_then(|known| known.body);
            let entry = match seen {
                Some(entry) => entry,
                // Beyond what was seen there may be more; only a read tells.
                None if depth == Depth::All => match self.read(&loaded, next).await? {
                    Some(entry) => {
                        found = found.max(Found::Entries);
                        entry
                    }
                    None => {
                        let lost = self.lose(&mut loaded).await?;
                        return Ok((loaded, if lost { Found::Effects } else { found }));
                    }
                },
                None => return Ok((loaded, found)),
            };
            let accepted = codec::accepted(&entry)?;
            if accepted.has_effects() {
                found = Found::Effects;
            }
            loaded.head.fold(&accepted, self.clock.now());
            loaded.fresh.insert(next, entry);
        }
    }

    /// Takes entries out of the head that somebody has deleted by hand, and says whether there were any. An ended one is a
    /// gap and no obstacle; one that is unfinished, or that what comes next is judged by, would hold up the app for ever.
    async fn lose(&self, loaded: &mut Loaded) -> Result<bool> {
        let (head, mut lost) = (&loaded.head, Vec::new());
        let needed = head.open.keys().copied().chain(head.current).chain(head.ended_on_cluster);
        for revision in needed.filter(|revision| !loaded.fresh.contains_key(revision)) {
            let seen = self.mirror.entry(loaded.uid, revision.get()).is_some();
            if !seen && self.read(loaded, revision).await?.is_none() {
                lost.push(revision);
            }
        }
        if lost.is_empty() {
            return Ok(false);
        }
        tracing::warn!(
            app = %codec::named(&loaded.app), revisions = ?lost,
            "AppDeploys were deleted by hand: what was unfinished of them is not driven any more, and the last success \
             that is left counts as current"
        );
        let succeeded = self.mirror.entries(loaded.uid, |(revision, known)| {
            Revision::new(*revision).filter(|_| known.status == Status::Succeeded.as_str())
        });
        let before = succeeded.into_iter().find(|revision| !lost.contains(revision));
        loaded.head.lose(&lost, before);
        Ok(true)
    }

    /// Sees to it that all entries up to the head's newest were seen, for they hold keys.
    async fn fill_in(&self, loaded: &Loaded) -> Result<()> {
        let unseen = self.mirror.last(loaded.uid) + 1..=loaded.head.folded;
        if unseen.clone().count() > ONE_BY_ONE {
            let of_app = format!("{UID_LABEL}={}", loaded.uid);
            for entry in list(&self.calls.deploys(&loaded.namespace()), Some(&of_app)).await? {
                self.mirror.note_entry(entry);
            }
        } else {
            for revision in unseen.filter_map(Revision::new) {
                self.read(loaded, revision).await?;
            }
        }
        self.mirror.note_all_seen(loaded.uid, loaded.head.folded);
        Ok(())
    }

    /// One entry's object, never from memory; none where there is none of this registration.
    pub(crate) async fn read(&self, loaded: &Loaded, revision: Revision) -> Result<Option<Arc<DeployObject>>> {
        let found = get(&self.calls.deploys(&loaded.namespace()), &loaded.name(revision)).await?;
        let Some(entry) = found.filter(|entry| entry.spec.app_uid == loaded.app.spec.uid) else { return Ok(None) };
        self.mirror.note_entry(entry.clone());
        Ok(Some(Arc::new(entry)))
    }

    /// What was accepted as this revision, from memory where it is there: it never changes.
    pub(crate) async fn accepted(&self, loaded: &Loaded, revision: Revision) -> Result<Accepted> {
        self.find_accepted(loaded, revision).await?.ok_or_else(|| missing(loaded, revision))
    }

    async fn find_accepted(&self, loaded: &Loaded, revision: Revision) -> Result<Option<Accepted>> {
        let seen = loaded.fresh.get(&revision).cloned();
        let seen = seen.or_else(|| self.mirror.entry(loaded.uid, revision.get()).and_then(|known| known.body));
        let object = match seen {
            Some(object) => Some(object),
            None => self.read(loaded, revision).await?,
        };
        object.map(|object| codec::accepted(&object)).transpose()
    }

    /// One entry as the head has it, or else as its own object says.
    pub(crate) async fn entry(&self, loaded: &Loaded, revision: Revision) -> Result<Deploy> {
        self.find_entry(loaded, revision).await?.ok_or_else(|| missing(loaded, revision))
    }

    /// One entry; none where it has ended and its object is gone.
    pub(crate) async fn find_entry(&self, loaded: &Loaded, revision: Revision) -> Result<Option<Deploy>> {
        if let Some(state) = loaded.head.state(revision) {
            return match self.find_accepted(loaded, revision).await? {
                None if !state.is_terminal() => Err(missing(loaded, revision)),
                accepted => Ok(accepted.map(|accepted| accepted.with(state))),
            };
        }
        let seen = self.mirror.entry(loaded.uid, revision.get()).and_then(|known| known.body);
        if let Some(deploy) = seen.map(|object| ended(&object)).transpose()?.flatten() {
            return Ok(Some(deploy));
        }
        let Some(object) = self.read(loaded, revision).await? else { return Ok(None) };
        as_it_ended(&object).map(Some)
    }
}

/// The entry as its object has it, which must say how it ended.
pub(crate) fn as_it_ended(object: &DeployObject) -> Result<Deploy> {
    let what = || format!("the end of entry {} of app {}'s history is missing", object.spec.revision, object.spec.app);
    ended(object)?.ok_or_else(|| Error::Corrupt { what: what(), cause: None })
}

/// Whether the app is one, and nobody has begun to delete it.
pub(crate) fn is_there(app: &AppObject) -> bool {
    app.is_original() && app.metadata.deletion_timestamp.is_none()
}

/// The entry as its object has it, where that says how it ended: which never changes.
pub(crate) fn ended(object: &DeployObject) -> Result<Option<Deploy>> {
    let state = codec::own_state(object)?.filter(Changing::is_terminal);
    state.map(|state| Ok(codec::accepted(object)?.with(&state))).transpose()
}

fn missing(loaded: &Loaded, revision: Revision) -> Error {
    Error::Corrupt {
        what: format!("entry {revision} of app {}'s history is missing", codec::named(&loaded.app)),
        cause: None,
    }
}

/// Others were faster, again and again.
pub(crate) fn contended() -> Error {
    Error::Unavailable { what: "others keep changing this app at the same time".to_owned(), cause: None }
}
