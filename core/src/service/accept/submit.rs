//! The one write path: deploys of every trigger are accepted here.

use crate::{
    action::Action,
    app::{AppId, AppUid},
    deploy::{AdmissionId, Deploy, Revision, Scale, Stopped},
    error::{Error, Result},
    ledger::{Admission, Admitted, AppState, Change, KeyLookup, NewDeploy, UNFINISHED_MAX, admission},
    ports::{AppRef, Page},
    request::{DeployRequest, Field, IdempotencyKey, Refusal},
    service::{Authorized, Deployer, Outcome, journal::Decision, unwritten},
    time::Timestamp,
};

/// An accepted deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The entry, as it is now.
    pub deploy: Deploy,
    /// Whether an earlier call with the same key made the deploy.
    pub replayed: bool,
    /// The revisions that the deploy superseded.
    pub superseded: Vec<Revision>,
    /// The fields of the request that do not apply to the app.
    pub ignored: Vec<Field>,
    /// The stop of an app that was stopped when the deploy was accepted, and stays so; `None` also where an earlier call
    /// made the deploy.
    pub stopped: Option<Stopped>,
}

/// A decision on the present state of an app: the admission, or the reason against it.
pub(crate) type Decided<T> = std::result::Result<(Admission, T), Declined>;

/// The reason why a decision accepts nothing.
pub(crate) enum Declined {
    /// The call is refused, unless it repeats one that was accepted.
    Refused(Refusal),
    /// The app has changed since the data of the decision were read.
    Outdated,
}

impl From<Refusal> for Declined {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl Deployer {
    /// Accepts a deploy of an image or commit. Once it returns, the entry is stored, and will end.
    /// A dropped call may have been recorded or not: see [Cancellation](Deployer#cancellation).
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn submit(&self, access: &Authorized, request: DeployRequest) -> Outcome<Accepted> {
        access.check(Action::Deploy)?;
        let (id, cause, key) = (self.admission_id(), access.cause.clone(), request.key.clone());
        let accepted = self.admit(access, id, key, move |state: &AppState| {
            let decided = admission::deploy(&state.app, &request, &cause)?;
            Ok((Admission::plain(id, decided.deploy), decided.ignored))
        });
        let (accepted, ignored) = accepted.await?.ok_or(Refusal::Busy)?;
        Ok(Accepted { ignored: ignored.unwrap_or_default(), ..accepted })
    }

    /// Returns the deploy that an earlier call with this key made, as it is now.
    ///
    /// # Errors
    /// [`Refusal::KeyReused`] if the earlier call was another request; [`Refusal::AppNotFound`];
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn repeated(&self, access: &Authorized, key: &IdempotencyKey) -> Outcome<Option<Accepted>> {
        Ok(self.replay(&access.id, access.uid, key).await?.1.map(replayed))
    }

    pub(crate) fn admission_id(&self) -> AdmissionId {
        AdmissionId(self.ports.rng.bits())
    }

    /// Decides a deploy on the app's newest state, and accepts it; a repeated call is answered with the deploy of the
    /// first. Returns `None` if the decision was made for another newest revision.
    pub(crate) async fn admit<T: Send + 'static>(
        &self,
        access: &Authorized,
        id: AdmissionId,
        key: Option<IdempotencyKey>,
        mut decide: impl FnMut(&AppState) -> Decided<T> + Send + 'static,
    ) -> Outcome<Option<(Accepted, Option<T>)>> {
        let (driver, used, lacks_builder) = (self.driver(), key.clone(), self.lacks_builder());
        let (locks, trace) = (access.locks, access.trace.clone());
        let (has_builder, is_to_be_resolved) = (self.ports.builder.is_some(), self.is_to_be_resolved());
        let admitted =
            self.journal.update(access.uid, key.as_ref(), move |change, lookup, now| match decide(&change.state) {
                Ok((admission, extra)) => {
                    if !has_builder && admission.deploy.image.is_none() {
                        return refuse(change, used.as_ref(), lookup, now, Refusal::NoBuilder);
                    }
                    let driver = driver.clone().filter(|_| !lacks_builder(&change.state));
                    let resolves = is_to_be_resolved(&change.state.app, &admission.deploy);
                    let deploy = NewDeploy { trace: trace.clone(), resolves, ..admission.deploy };
                    let stays = deploy.scale == Scale::Keep;
                    let stopped = change.state.stopped.clone().filter(|_| stays);
                    let admission = Admission { key: used.clone(), driver, locks, deploy, ..admission };
                    let admitted = change.admit(admission, lookup, now);
                    let is_refused = matches!(admitted, Admitted::Full | Admitted::Outdated | Admitted::Locked(_));
                    if is_refused && used.is_some() && lookup == KeyLookup::Unread {
                        // A known key is answered first.
                        return Decision::ReadKey;
                    }
                    Decision::of(admitted).map(|admitted| Ok((admitted, Some((extra, stopped)))))
                }
                Err(Declined::Refused(refusal)) => refuse(change, used.as_ref(), lookup, now, refusal),
                Err(Declined::Outdated) => Decision::Answer(Ok((Admitted::Outdated, None))),
            });
        let (admitted, extra) = match admitted.await {
            Ok((admitted, _)) => admitted?,
            Err(error) if error.is_unavailable() => {
                return self.look_up(access, id, &error).await.map(|accepted| Some((accepted, None)));
            }
            Err(error) => return Err(unwritten(&access.id, error)),
        };
        let (extra, stopped) = extra.unzip();
        let stopped = stopped.flatten();
        let accepted = match admitted {
            Admitted::New { deploy, superseded } => {
                tracing::info!(app = %access.id, revision = %deploy.revision, trigger = %deploy.trigger, "accepted");
                self.changed_here(access.uid);
                Accepted { deploy: Deploy::clone(&deploy), replayed: false, superseded, ignored: Vec::new(), stopped }
            }
            Admitted::Replayed(revision) => replayed(self.entry(access, revision).await?),
            Admitted::KeyReused => return Err(Refusal::KeyReused),
            Admitted::Full => return Err(Refusal::TooManyUnfinished),
            Admitted::Locked(locked) => return Err(Refusal::Locked(locked)),
            Admitted::Outdated | Admitted::NextCommit => return Ok(None),
        };
        Ok(Some((accepted, extra)))
    }

    /// Looks once for an entry whose store answer was lost, by the accept's own id. A missing entry may still be
    /// written later, by a store that is slower than its callers are patient.
    async fn look_up(&self, access: &Authorized, id: AdmissionId, error: &Error) -> Outcome<Accepted> {
        tracing::warn!(app = %access.id, error = %error.chain(), "confirming an accept failed");
        match self.admitted(access, id).await {
            Ok(Some(deploy)) => {
                self.changed_here(access.uid);
                Ok(Accepted { deploy, replayed: false, superseded: Vec::new(), ignored: Vec::new(), stopped: None })
            }
            Ok(None) | Err(_) => Err(Refusal::StoreUnavailable { maybe_recorded: true }),
        }
    }

    async fn admitted(&self, access: &Authorized, id: AdmissionId) -> Result<Option<Deploy>> {
        let Some(app) = self.journal.load(AppRef::Uid(access.uid)).await? else { return Ok(None) };
        if let Some(deploy) = app.state.unfinished.iter().find(|deploy| deploy.id == id) {
            return Ok(Some(Deploy::clone(deploy)));
        }
        let page = Page { before: None, succeeded: false, limit: 4 * UNFINISHED_MAX };
        Ok(self.ports.history.page(access.uid, page).await?.into_iter().find(|deploy| deploy.id == id))
    }

    /// Returns the app's state, and the deploy of an earlier call with this key.
    pub(crate) async fn replay(
        &self,
        id: &AppId,
        uid: AppUid,
        key: &IdempotencyKey,
    ) -> Outcome<(AppState, Option<Deploy>)> {
        let loaded = self.ports.history.load(AppRef::Uid(uid), Some(key)).await.map_err(Refusal::of_store)?;
        let loaded = loaded.ok_or_else(|| Refusal::AppNotFound(id.clone()))?;
        let change = Change::on(loaded.state);
        let deploy = match change.replay_of(key, KeyLookup::Read(loaded.key), loaded.now)? {
            Some(revision) => Some(self.entry_of(&change.state, revision).await?),
            None => None,
        };
        Ok((change.state, deploy))
    }
}

type Answer<T> = Outcome<(Admitted, Option<(T, Option<Stopped>)>)>;

/// Returns the refusal, unless the call repeats an accepted one: the conditions of the first call may have changed
/// since.
fn refuse<T>(
    change: &Change,
    key: Option<&IdempotencyKey>,
    lookup: KeyLookup,
    now: Timestamp,
    refusal: Refusal,
) -> Decision<Answer<T>> {
    if key.is_some() && lookup == KeyLookup::Unread {
        return Decision::ReadKey;
    }
    Decision::Answer(match key.map_or(Ok(None), |key| change.replay_of(key, lookup, now)) {
        Ok(Some(revision)) => Ok((Admitted::Replayed(revision), None)),
        Ok(None) => Err(refusal),
        Err(reused) => Err(reused),
    })
}

pub(crate) fn replayed(deploy: Deploy) -> Accepted {
    Accepted { deploy, replayed: true, superseded: Vec::new(), ignored: Vec::new(), stopped: None }
}
