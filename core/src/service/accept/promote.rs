//! Promotions: deploys of the image that another environment runs.

use crate::{
    action::Action,
    app::{AppId, AppUid},
    configuration::{ConfigurationId, VariableName, Variables},
    deploy::{Commit, Origin, Trigger, Watch},
    error::Error,
    image::ImageRef,
    ledger::{Admission, NewDeploy, admission},
    request::{Field, PromoteRequest, Refusal},
    service::{ATTEMPTS, Accepted, Authorized, Deployer, Outcome, accept::submit::Declined},
    time::Timestamp,
};

/// The deploy that is to be promoted.
#[derive(Clone)]
struct Promoted {
    image: ImageRef,
    commit: Option<Commit>,
    committed_at: Option<Timestamp>,
    app: AppId,
    uid: AppUid,
    origin: Origin,
    configuration: Option<ConfigurationId>,
}

/// The variables that the app which is promoted from has, and the app lacks while its next deploy has this configuration.
struct Missing {
    beside: Option<ConfigurationId>,
    variables: Vec<VariableName>,
}

impl Deployer {
    /// Deploys the image that another environment's app runs, which the caller has judged that the actor may read. Unless the
    /// request has `without_variables`, the caller has judged as well that the actor may list the variables of both.
    ///
    /// # Errors
    /// [`Refusal::AppNotFoundIn`], also if another pair of project and environment spells the namespace;
    /// [`Refusal::InvalidField`] if `from` is the app itself; [`Refusal::NothingToRollBackTo`] if nothing succeeded there, or its
    /// verification was revoked; [`Refusal::CurrentChanged`]; [`Refusal::VariablesMissing`]; any other
    /// refusal. Nothing was recorded, unless it says that it may have been.
    pub async fn promote(&self, access: &Authorized, request: PromoteRequest) -> Outcome<Accepted> {
        access.check(Action::Promote)?;
        for _ in 0..ATTEMPTS {
            let promoted = self.promoted(access, &request).await;
            let missing = match &promoted {
                Ok(promoted) if !request.without_variables => self.missing(access, promoted).await?,
                Ok(_) | Err(_) => None,
            };
            let (admission_id, cause) = (self.admission_id(), access.cause_of(Trigger::Promotion));
            let accepted = self.admit(access, admission_id, request.key.clone(), move |state| {
                let Promoted { image, commit, committed_at, app, origin, .. } = promoted.clone()?;
                let deploy = admission::promotion(&state.app, image, commit, origin, &cause)?;
                let deploy = NewDeploy { committed_at, ..deploy };
                match &missing {
                    Some(missing) if missing.beside != state.next_configuration() => return Err(Declined::Outdated),
                    Some(Missing { variables, .. }) if !variables.is_empty() => {
                        let variables = variables.clone();
                        return Err(Refusal::VariablesMissing { from: app, variables }.into());
                    }
                    Some(_) | None => {}
                }
                Ok((Admission::plain(admission_id, deploy), ()))
            });
            if let Some((accepted, _)) = accepted.await? {
                return Ok(accepted);
            }
        }
        Err(Refusal::Busy)
    }

    /// Returns the deploy that is to be promoted.
    async fn promoted(&self, to: &Authorized, request: &PromoteRequest) -> Outcome<Promoted> {
        let from = &request.from;
        let id = from.id().map_err(|invalid| Refusal::InvalidField(Field::FromEnvironment, invalid.to_string()))?;
        let source = match self.find(&id).await {
            Err(Refusal::AppNotFound(_)) => return Err(Refusal::AppNotFoundIn(from.clone())),
            found => found?.state,
        };
        if source.app.full_name() != *from {
            return Err(Refusal::AppNotFoundIn(from.clone()));
        }
        if source.app.uid == to.uid {
            let rule = format!("{from} is the app itself; name the environment that its image is to come from.");
            return Err(Refusal::InvalidField(Field::FromEnvironment, rule));
        }
        source.expect_current(request.if_current)?;
        let current = source.current.as_ref().ok_or_else(|| {
            Refusal::NothingToRollBackTo(format!("{id} has no current deploy that could be promoted."))
        })?;
        if let Some((fail, _)) = source.watch_of(current.revision).and_then(Watch::revoked) {
            return Err(Refusal::NothingToRollBackTo(format!(
                "Revision {} of {id} cannot be promoted: its check {} failed after it had succeeded. Go back to another version \
                 there first, or deploy its image here.",
                current.revision, fail.check
            )));
        }
        Ok(Promoted {
            image: current.pinned_image().ok_or(Refusal::Internal)?,
            commit: current.commit.clone(),
            committed_at: current.committed_at,
            app: id.clone(),
            uid: source.app.uid,
            origin: Origin::Promoted { app: id, revision: current.revision },
            configuration: current.configuration,
        })
    }

    /// Returns the variables that the app lacks; `None` if the app that is promoted from has none.
    async fn missing(&self, to: &Authorized, from: &Promoted) -> Outcome<Option<Missing>> {
        if from.configuration.is_none() {
            return Ok(None);
        }
        let beside = self.state(to).await?.next_configuration();
        let _turn = self.variables_turn(to).await;
        let mut variables = self.names(from.uid, from.configuration).await?;
        let has = self.names(to.uid, beside).await?;
        variables.retain(|name| has.binary_search(name).is_err());
        Ok(Some(Missing { beside, variables }))
    }

    /// Returns the sorted names of a configuration's variables; none of one that is no longer stored.
    async fn names(&self, app: AppUid, id: Option<ConfigurationId>) -> Outcome<Vec<VariableName>> {
        match self.variables(app, id).await {
            Ok(variables) => {
                let names = |variables: Variables| variables.entries.into_keys().collect();
                Ok(variables.map(names).unwrap_or_default())
            }
            Err(Error::NotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(Refusal::of_store(error)),
        }
    }
}
