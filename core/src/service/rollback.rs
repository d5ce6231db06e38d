//! Back to a version that was good, as a new revision on the same road.

use super::{ATTEMPTS, Accepted, Authorized, Deployer, Operator, Outcome, refused, submit::Decision};
use crate::{
    app::AppId,
    decide::target::{self, Target},
    deploy::{Deploy, Revision, Trigger},
    ports::{HistoryExt, Page, View},
    request::{Refusal, RollbackRequest},
};

/// Entries per page while the good version before is looked for.
const SEARCH_PAGE: usize = 50;

impl Deployer {
    /// Rolls back: to the revision that the request names, or to the last good version before what is on the cluster.
    /// Unfinished deploys end superseded, and what was on the cluster is held.
    ///
    /// # Errors
    /// The refusal; nothing was recorded, unless it says that it may have been.
    pub async fn rollback(&self, operator: &Operator, id: &AppId, request: RollbackRequest) -> Outcome<Accepted> {
        let access = Authorized { cause: operator.cause(Trigger::Rollback), ..self.open(operator, id).await? };
        for _ in 0..ATTEMPTS {
            let decision = self.decide_rollback(&access, &request).await;
            if let Some(accepted) = self.admit(&access, decision, request.key.as_ref()).await? {
                return Ok(accepted);
            }
        }
        Err(Refusal::Busy)
    }

    async fn decide_rollback(&self, access: &Authorized, request: &RollbackRequest) -> Outcome<Decision> {
        let view = self.view(access).await?;
        let current = view.current.as_ref().map(|deploy| deploy.revision);
        if let Some(expected) = request.if_current.filter(|expected| Some(*expected) != current) {
            return Err(Refusal::CurrentChanged { expected, current });
        }
        let target = match request.revision {
            Some(revision) => {
                let entry = self.ports.history.entry(access.uid, revision).await.map_err(|error| refused(&error))?;
                entry.ok_or(Refusal::RevisionNotFound(revision))?
            }
            None => self.default_target(access, &view).await?,
        };
        let draft = target::rollback(&target, &access.cause)?;
        Ok(Decision {
            draft,
            after: Some(view.last),
            supersede: true,
            hold: target::hold(&view, &target),
            guard: view.app.guard,
        })
    }

    async fn default_target(&self, access: &Authorized, view: &View) -> Outcome<Deploy> {
        let nothing = || {
            Refusal::NothingToRollBackTo(format!(
                "{} has no earlier version that succeeded with another image.",
                access.id
            ))
        };
        match target::default_target(view) {
            Target::Entry(entry) => Ok(*entry),
            Target::Before { below, other_than } => {
                self.newest_other(access, below, &other_than).await?.ok_or_else(nothing)
            }
            Target::None => Err(nothing()),
        }
    }

    async fn newest_other(&self, access: &Authorized, below: Revision, top: &Deploy) -> Outcome<Option<Deploy>> {
        let mut before = Some(below);
        loop {
            let page = Page { before, succeeded: true, limit: SEARCH_PAGE };
            let entries = self.ports.history.page(access.uid, page).await.map_err(|error| refused(&error))?;
            before = entries.last().map(|entry| entry.revision);
            let full = entries.len() == SEARCH_PAGE;
            if let Some(found) = entries.into_iter().find(|entry| !entry.same_image(top)) {
                return Ok(Some(found));
            }
            if !full {
                return Ok(None);
            }
        }
    }
}
