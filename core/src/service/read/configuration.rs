//! Reading configurations: the names of variables, and what may be shown of their values.

use crate::{
    action::Action,
    app::Settings,
    configuration::{ConfigurationId, ShownVariable},
    deploy::Revision,
    error::Error,
    request::Refusal,
    service::{Authorized, Deployer, Outcome},
};

/// The configuration of a revision.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ShownConfiguration {
    /// The revision; `None`: nothing has succeeded yet.
    pub revision: Option<Revision>,
    /// Its variables, sorted by name; those of the version that failed last where nothing has succeeded yet.
    pub variables: Vec<ShownVariable>,
    /// All variables that wait for the next deploy, if a change does; only beside those of the current revision.
    pub staged: Option<Vec<ShownVariable>>,
    /// What its instances are made with beside the variables, as far as it is set through this service.
    pub settings: Settings,
    /// All of these that the next deploy runs with, if a change waits for it.
    pub staged_settings: Option<Settings>,
}

impl Deployer {
    /// Returns the configuration of a revision, or of the current one beside what waits for the next deploy. Until a version has
    /// succeeded, that is the one of the version that failed last.
    ///
    /// # Errors
    /// [`Refusal::ConfigurationForgotten`], [`Refusal::RevisionNotFound`], [`Refusal::AppNotFound`];
    /// [`Refusal::StoreUnavailable`] while the store is away.
    pub async fn configuration(&self, access: &Authorized, revision: Option<Revision>) -> Outcome<ShownConfiguration> {
        access.check(Action::ReadConfiguration)?;
        if let Some(revision) = revision {
            let entry = self.entry(access, revision).await?;
            let (variables, settings) = self.shown(access, entry.configuration, revision).await?;
            let revision = Some(revision);
            return Ok(ShownConfiguration { revision, variables, staged: None, settings, staged_settings: None });
        }
        let state = self.state(access).await?;
        let current = state.current.as_ref();
        let revision = current.map(|current| current.revision);
        let configured = state.configured();
        let of = |id| self.shown(access, id, configured.map_or(Revision::FIRST, |configured| configured.revision));
        let (variables, settings) = of(configured.and_then(|configured| configured.configuration)).await?;
        let staged = match state.staged {
            Some(staged) => Some(of(Some(staged)).await?),
            None => None,
        };
        let (staged, staged_settings) = staged.unzip();
        Ok(ShownConfiguration { revision, variables, staged, settings, staged_settings })
    }

    async fn shown(
        &self,
        access: &Authorized,
        id: Option<ConfigurationId>,
        revision: Revision,
    ) -> Outcome<(Vec<ShownVariable>, Settings)> {
        match self.variables(access.uid, id).await {
            Ok(variables) => Ok(variables.map(|variables| (variables.shown(), variables.settings)).unwrap_or_default()),
            Err(Error::NotFound(_)) => Err(Refusal::ConfigurationForgotten(revision)),
            Err(error) => Err(Refusal::of_store(error)),
        }
    }
}
