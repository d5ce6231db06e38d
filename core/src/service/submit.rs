//! The one write path: every deploy, whoever asks for it, is admitted here.

use super::{ATTEMPTS, Authorized, Deployer, Operator, Outcome, refused};
use crate::{
    app::{App, AppId, Hold},
    decide::admission,
    deploy::{AdmissionId, Deploy, Origin, Revision, Trigger},
    error::Error,
    ports::{Admission, Admitted, HistoryExt, NewDeploy, View},
    request::{Cause, DeployRequest, IdempotencyKey, Refusal},
};

/// An accepted deploy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The entry, as it is now.
    pub deploy: Deploy,
    /// Whether an earlier call with the same key had made it.
    pub replayed: bool,
    /// The unfinished revisions that it ended.
    pub superseded: Vec<Revision>,
    /// The fields of the request that have no part in it.
    pub ignored: Vec<&'static str>,
}

/// What is decided on an app as it was read, beside the draft.
pub(super) struct Decision {
    pub(super) draft: NewDeploy,
    pub(super) after: Option<Option<Revision>>,
    pub(super) supersede: bool,
    pub(super) hold: Option<Hold>,
    pub(super) guard: u64,
}

impl Decision {
    pub(super) fn plain(app: &App, draft: NewDeploy) -> Self {
        Self { draft, after: None, supersede: false, hold: None, guard: app.guard }
    }
}

impl Deployer {
    /// Accepts a deploy of an image or commit. Once it returns, the entry is stored, and will end.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn submit(&self, access: &Authorized, request: DeployRequest) -> Outcome<Accepted> {
        for _ in 0..ATTEMPTS {
            let decided = match self.find(&access.id).await {
                Ok(app) if app.uid == access.uid => admission::deploy(&app, &request, &access.cause)
                    .map(|accepted| (Decision::plain(&app, accepted.draft), accepted.ignored)),
                Ok(_) => Err(Refusal::AppNotFound(access.id.clone())),
                Err(refusal) => Err(refusal),
            };
            let (decision, ignored) = match decided {
                Ok((decision, ignored)) => (Ok(decision), ignored),
                Err(refusal) => (Err(refusal), Vec::new()),
            };
            if let Some(accepted) = self.admit(access, decision, request.key.as_ref()).await? {
                return Ok(Accepted { ignored, ..accepted });
            }
        }
        Err(Refusal::Busy)
    }

    /// Deploys here what another environment's app of the same name runs.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn promote(
        &self,
        operator: &Operator,
        id: &AppId,
        from: &AppId,
        key: Option<IdempotencyKey>,
    ) -> Outcome<Accepted> {
        let access = Authorized { cause: operator.cause(Trigger::Promotion), ..self.open(operator, id).await? };
        for _ in 0..ATTEMPTS {
            let decision = self.promotion(&access.cause, id, from).await;
            if let Some(accepted) = self.admit(&access, decision, key.as_ref()).await? {
                return Ok(accepted);
            }
        }
        Err(Refusal::Busy)
    }

    async fn promotion(&self, cause: &Cause, id: &AppId, from: &AppId) -> Outcome<Decision> {
        let app = self.find(id).await?;
        let source = self.find(from).await?;
        let view = match self.ports.history.view(source.uid).await {
            Err(Error::NotFound(_)) => return Err(Refusal::AppNotFound(from.clone())),
            other => other.map_err(|error| refused(&error))?,
        };
        let current = view.current.ok_or_else(|| {
            Refusal::NothingToRollBackTo(format!("{from} has no current deploy that could be promoted."))
        })?;
        let image = current.pinned_image().ok_or(Refusal::Internal)?;
        let origin = Origin::Promoted { app: from.clone(), revision: current.revision };
        let draft = admission::promotion(&app, image, current.commit, origin, cause)?;
        Ok(Decision::plain(&app, draft))
    }

    /// Writes a decision, or answers a repeated call with what it made before; none where the decision was made on
    /// something that is not so any more.
    pub(super) async fn admit(
        &self,
        access: &Authorized,
        decision: Outcome<Decision>,
        key: Option<&IdempotencyKey>,
    ) -> Outcome<Option<Accepted>> {
        let refusal = match decision {
            Ok(decision) => return self.write(access, decision, key).await,
            Err(refusal) => refusal,
        };
        // What made the first call possible may be gone by the second, which still is the same call.
        let unavailable = matches!(refusal, Refusal::StoreUnavailable { .. });
        match key {
            Some(key) if !unavailable => match self.ports.history.replay(access.uid, key).await {
                Ok(Some(Admitted::Replay(deploy))) => Ok(Some(accepted(deploy, true, Vec::new()))),
                Ok(Some(Admitted::KeyReused)) => Err(Refusal::KeyReused),
                Ok(_) | Err(_) => Err(refusal),
            },
            Some(_) | None => Err(refusal),
        }
    }

    async fn write(
        &self,
        access: &Authorized,
        decision: Decision,
        key: Option<&IdempotencyKey>,
    ) -> Outcome<Option<Accepted>> {
        let id = AdmissionId(self.ports.entropy.bits());
        let admission = Admission {
            app: access.uid,
            id,
            key: key.cloned(),
            draft: decision.draft,
            guard: decision.guard,
            after: decision.after,
            supersede: decision.supersede,
            hold: decision.hold,
        };
        match self.ports.history.admit(admission).await {
            Ok(Admitted::New { deploy, superseded }) => {
                tracing::info!(app = %access.id, revision = %deploy.revision, trigger = %deploy.trigger, "accepted");
                self.written(access.uid);
                Ok(Some(accepted(deploy, false, superseded)))
            }
            Ok(Admitted::Replay(deploy)) => Ok(Some(accepted(deploy, true, Vec::new()))),
            Ok(Admitted::KeyReused) => Err(Refusal::KeyReused),
            Ok(Admitted::Full) => Err(Refusal::TooManyUnfinished),
            Ok(Admitted::Stale) => Ok(None),
            Err(Error::NotFound(_)) => Err(Refusal::AppNotFound(access.id.clone())),
            Err(error) if error.is_unavailable() => self.look_up(access, id, &error).await.map(Some),
            Err(error) => Err(refused(&error)),
        }
    }

    /// What the service asks for itself, on the condition that nothing has changed since the app was read, and nothing
    /// newer came.
    pub(super) fn unasked(&self, view: &View, draft: NewDeploy) -> Admission {
        Admission {
            app: view.app.uid,
            id: AdmissionId(self.ports.entropy.bits()),
            key: None,
            draft,
            guard: view.app.guard,
            after: Some(view.last),
            supersede: false,
            hold: None,
        }
    }

    /// The store's answer was lost: the entry is looked for once, by the accept's own id. One that is not there may still
    /// come, from a store that is slower than its callers are patient.
    async fn look_up(&self, access: &Authorized, id: AdmissionId, error: &Error) -> Outcome<Accepted> {
        tracing::warn!(app = %access.id, error = %error.chain(), "the store did not confirm an accept");
        match self.ports.history.admitted(access.uid, id).await {
            Ok(Some(deploy)) => {
                self.written(access.uid);
                Ok(accepted(deploy, false, Vec::new()))
            }
            Ok(None) | Err(_) => Err(Refusal::StoreUnavailable { maybe_recorded: true }),
        }
    }
}

fn accepted(deploy: Deploy, replayed: bool, superseded: Vec<Revision>) -> Accepted {
    Accepted { deploy, replayed, superseded, ignored: Vec::new() }
}
