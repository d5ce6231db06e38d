//! Records on a project or an environment that its apps obey: each is copied into the states of the apps, so that the ledger
//! decides by it. That happens when the record is changed, when an app is registered, and, if a replica was stopped
//! meanwhile, at the next start.

use std::{
    collections::{BTreeSet, HashMap},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use futures_util::{Stream, TryStreamExt, future::join_all, stream};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use rollhook_core::{
    app::{App, AppId, AppName, LABEL_MAX, Namespace, Project},
    ports::{AppPage, ListedApp, listed_id},
    request::{Field, Refusal as CoreRefusal},
    service::{Deployer, Outcome as CoreOutcome},
    time::Timestamp,
};

use crate::{
    Management, Outcome, Refusal,
    access::{Principal, Realm},
    documents,
    ports::{Record, RecordKey, RecordKind, RecordStore},
    rate::Rate,
    refused,
};

/// The changes of a realm's record: 1 in 2 seconds, 20 at once. Each writes all of its apps.
pub(crate) const CHANGES: Rate = Rate { every: Duration::from_secs(2), burst: 20 };

/// How long the record of what has ended stays, so that a replica that was stopped meanwhile copies the end.
const ENDED: Duration = Duration::from_secs(30 * 24 * 3600);
/// How long it stays in a realm that has no app to copy it to.
const ENDED_WITHOUT_APPS: Duration = Duration::from_secs(3600);

/// How often each change is copied by each replica.
const COPIES: u8 = 2;
/// How often a change is copied where an app of the realm cannot be read: it may be readable again.
const TRIES: u8 = 60;
/// The time between two copies.
const COPY_INTERVAL: Duration = Duration::from_secs(60);

/// The apps that are read at once.
const PAGE: usize = 200;

/// The document of a record on a realm. It stays for a while when what it says has ended: each change has a higher number, also
/// the first one of a new record.
pub(crate) trait OnRealm: Serialize + DeserializeOwned + Send + Sync {
    /// The kind of the records.
    const KIND: RecordKind;

    /// The realm, a project or an environment.
    fn realm(&self) -> Realm;

    /// The number of the change.
    fn sequence(&self) -> u64;

    /// The time for which it is still in force; `None`: until it is ended by hand.
    fn left(&self, now: Timestamp) -> Option<Duration>;

    /// The refusal of one more where there are as many as there may be.
    fn too_many(most: usize, realm: Realm) -> Refusal;

    /// Copies it into the state of an app, unless a later change was copied before.
    fn copy_to(&self, deployer: &Deployer, app: &App) -> impl Future<Output = CoreOutcome<()>> + Send;
}

/// Returns the most records in a realm beyond which one without apps gets none: names can be made up.
const fn records_max(realm: &Realm) -> usize {
    match realm {
        Realm::Everything => 1000,
        Realm::Project { .. } => 100,
        Realm::Environment { .. } => 1,
    }
}

/// The change of a record that this process copied last, and how often.
#[derive(Default)]
struct Copied {
    sequence: u64,
    times: u8,
    tries: u8,
}

/// Returns the namespace of a realm, if it is one environment.
///
/// # Errors
/// If the names spell none.
pub(crate) fn namespace(realm: &Realm) -> Outcome<Option<Namespace>> {
    let Realm::Environment { project, environment } = realm else { return Ok(None) };
    let invalid = |name: rollhook_core::app::InvalidName| {
        Refusal::Core(CoreRefusal::InvalidField(Field::Environment, name.to_string()))
    };
    Namespace::of(project, environment).map(Some).map_err(invalid)
}

fn key(realm: &Realm) -> RecordKey {
    // Names have no slash.
    let names = realm.project().map(Project::as_str).into_iter().chain(realm.environment().map(|name| name.as_str()));
    RecordKey::of_hash(Sha256::digest(names.collect::<Vec<_>>().join("/")).into())
}

/// Returns the record on a realm.
pub(crate) async fn read<T: OnRealm>(records: &dyn RecordStore, realm: &Realm) -> Outcome<Option<(Record, T)>> {
    documents::read(records, T::KIND, &key(realm)).await.map_err(refused)
}

impl Management {
    /// Writes a change of a realm's record, which was decided on `present`, and copies it to the realm's apps. Returns the record,
    /// and those apps.
    ///
    /// # Errors
    /// [`Busy`](CoreRefusal::Busy) if it was changed meanwhile; [`StoreUnavailable`](CoreRefusal::StoreUnavailable), after which
    /// some apps may have it; the refusal of one more.
    pub(crate) async fn change_on<T: OnRealm>(
        &self,
        principal: &Principal,
        present: Option<(Record, T)>,
        (has_apps, now): (bool, Timestamp),
        changed: impl FnOnce(u64) -> T,
    ) -> Outcome<(T, Vec<Arc<App>>)> {
        // The record before may be gone, and its changes were copied.
        let least = u64::try_from(now.as_millis()).unwrap_or_default();
        let stored = changed(present.as_ref().map_or(0, |(_, before)| before.sequence() + 1).max(least));
        let realm = stored.realm();
        let counting = if present.is_none() && !has_apps {
            let counting = self.counting.turn(principal).await;
            self.check_number::<T>(&realm).await?;
            Some(counting)
        } else {
            None
        };
        let kept = if has_apps { ENDED } else { ENDED_WITHOUT_APPS };
        let ttl = stored.left(now).map(|left| left.saturating_add(kept));
        let version = present.map(|(record, _)| record.version);
        let record = documents::encode(key(&realm), &stored, ttl).map_err(refused)?;
        // Decided on this version: what another party has set meanwhile stays.
        self.records.write(T::KIND, record, version).await.map_err(refused)?;
        drop(counting);
        let _turn = self.turn_of_all_apps(principal).await;
        let (apps, _) = self.copy(&stored).await?;
        Ok((stored, apps))
    }

    /// Refuses one more record of a realm without apps if there are as many as there may be.
    async fn check_number<T: OnRealm>(&self, realm: &Realm) -> Outcome<()> {
        let stored: Vec<(Record, T)> = documents::all(&*self.records, T::KIND).await.map_err(refused)?;
        let realms: Vec<Realm> = stored.into_iter().map(|(_, stored)| stored.realm()).collect();
        for realm in realm.and_containing() {
            let most = records_max(&realm);
            if realms.iter().filter(|other| realm.contains(other)).count() >= most {
                return Err(T::too_many(most, realm));
            }
        }
        Ok(())
    }

    /// Returns the pages of a list that has the apps of a project, and maybe others whose names sort between them.
    pub(crate) fn pages_with_apps_of<'a>(
        &'a self,
        project: &Project,
    ) -> impl Stream<Item = Outcome<Vec<ListedApp>>> + 'a {
        let mut first = AppPage::first(PAGE);
        first.after = before_namespaces_of(project);
        let prefix = format!("{project}-");
        stream::try_unfold(Some(first), move |page| {
            let prefix = prefix.clone();
            async move {
                let Some(mut page) = page else { return Ok(None) };
                let mut read = self.deployer.apps(page.clone()).await?;
                let is_full = read.len() == page.limit;
                read.retain(|app| listed_id(app).namespace.as_str().starts_with(&prefix));
                let last =
                    read.last().filter(|_| is_full && read.len() == page.limit).map(|app| listed_id(app).clone());
                page.after.clone_from(&last);
                Ok::<_, Refusal>(Some((read, last.map(|_| page))))
            }
        })
    }

    /// Returns whether a realm has apps.
    pub(crate) async fn has_apps(&self, principal: &Principal, realm: &Realm) -> Outcome<bool> {
        // An app whose state cannot be read is one of this realm, as far as anybody knows.
        let is_of_realm =
            |app: &ListedApp| app.as_ref().map_or(true, |state| realm.contains(&Realm::of_app(&state.app)));
        // All apps of a namespace are of one environment.
        if let Some(namespace) = namespace(realm)? {
            return Ok(self.deployer.apps(AppPage::first(1).of(namespace)).await?.iter().any(is_of_realm));
        }
        let Some(project) = realm.project() else { return Ok(false) };
        let _turn = self.turn_of_all_apps(principal).await;
        let mut pages = pin!(self.pages_with_apps_of(project));
        while let Some(page) = pages.try_next().await? {
            if page.iter().any(is_of_realm) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Copies a record into the states of its realm's apps, as far as no later change was copied. Returns the apps, and whether
    /// each of the realm's namespaces could be read.
    async fn copy<T: OnRealm>(&self, stored: &T) -> Outcome<(Vec<Arc<App>>, bool)> {
        let (realm, mut failed, mut is_complete, mut all) = (stored.realm(), None, true, Vec::new());
        for namespace in self.namespaces_of(&realm).await? {
            let mut pages = pin!(self.deployer.fresh_apps_of(&namespace));
            while let Some(read) = pages.try_next().await? {
                is_complete &= read.iter().all(Result::is_ok);
                let apps = read.into_iter().flatten().map(|state| state.app);
                let apps: Vec<_> = apps.filter(|app| realm.contains(&Realm::of_app(app))).collect();
                let copied = join_all(apps.iter().map(|app| stored.copy_to(&self.deployer, app))).await;
                // One app that cannot be written keeps no other from obeying.
                failed = failed.or(copied.into_iter().find_map(Result::err));
                all.extend(apps);
            }
        }
        failed.map_or(Ok((all, is_complete)), |refusal| Err(refusal.into()))
    }

    /// Returns the namespaces in which a realm has apps.
    async fn namespaces_of(&self, realm: &Realm) -> Outcome<BTreeSet<Namespace>> {
        if let Some(namespace) = namespace(realm)? {
            return Ok(BTreeSet::from([namespace]));
        }
        let mut namespaces = BTreeSet::new();
        let Some(project) = realm.project() else { return Ok(namespaces) };
        let mut pages = pin!(self.pages_with_apps_of(project));
        while let Some(page) = pages.try_next().await? {
            let of_realm = page.iter().flatten().filter(|state| realm.contains(&Realm::of_app(&state.app)));
            namespaces.extend(of_realm.map(|state| state.app.id.namespace.clone()));
        }
        Ok(namespaces)
    }

    /// Copies the record on a realm to an app that was registered while it was being changed.
    pub(crate) async fn copy_to_registered<T: OnRealm>(&self, app: &App, realm: &Realm) -> Outcome<()> {
        match read::<T>(&*self.records, realm).await? {
            Some((_, stored)) => Ok(stored.copy_to(&self.deployer, app).await?),
            None => Ok(()),
        }
    }

    /// Copies all records of a kind: a replica may have been stopped while it did so. Each change is copied once more after a
    /// minute, because a store's list of apps may have lagged behind a registration.
    pub(crate) async fn watch_copies<T: OnRealm>(&self) {
        let mut copied: HashMap<RecordKey, Copied> = HashMap::new();
        loop {
            let all = documents::all::<T>(&*self.records, T::KIND).await.map_err(refused);
            let all = all.unwrap_or_else(|refusal| {
                tracing::warn!(kind = %T::KIND, %refusal, "reading the records of projects and environments failed");
                Vec::new()
            });
            // A store that is away has none, and they are copied anew.
            copied.retain(|key, _| all.iter().any(|(record, _)| record.key == *key));
            for (record, stored) in all {
                let known = copied.entry(record.key).or_default();
                if known.sequence != stored.sequence() {
                    *known = Copied { sequence: stored.sequence(), ..Copied::default() };
                }
                if known.times == COPIES || known.tries == TRIES {
                    continue;
                }
                match self.copy(&stored).await {
                    Ok((_, true)) => known.times += 1,
                    Ok((_, false)) => known.tries += 1,
                    Err(refusal) => {
                        let realm = stored.realm();
                        tracing::warn!(kind = %T::KIND, %realm, %refusal, "copying a record to the realm's apps failed");
                    }
                }
            }
            self.deployer.ports().clock.sleep(COPY_INTERVAL).await;
        }
    }
}

/// Returns a name that sorts directly before those of the project's namespaces, which are its own name and a hyphen and more.
fn before_namespaces_of(project: &Project) -> Option<AppId> {
    let name: AppName = "z".repeat(LABEL_MAX).parse().ok()?;
    Some(AppId { namespace: project.as_str().parse().ok()?, name })
}
