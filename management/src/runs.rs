//! Commands by hand: who runs what is in the audit, before it runs.

use rollhook_core::{
    action::Action as AppAction,
    app::AppId,
    ledger::AppState,
    request::RunRequest,
    run::{Run, RunNumber},
    service::{AcceptedRun, Authorized, Outcome as CoreOutcome, check_run},
    text::without_tokens,
};

use crate::{
    Management, Outcome,
    access::{Action, Principal},
};

/// The most characters of a command in the audit.
const COMMAND_MAX: usize = 500;

impl Management {
    /// Runs a command once with the image of the app's current version. The audit has the program and its arguments.
    ///
    /// # Errors
    /// As [`Management::allow`] and [`Deployer::begin_run`](rollhook_core::service::Deployer::begin_run).
    pub async fn begin_run(&self, principal: &Principal, id: &AppId, request: RunRequest) -> Outcome<AcceptedRun> {
        // What is too long for a run is too long for the audit.
        check_run(&request)?;
        let what = format!("asked for {}", shown(&request.command));
        let access =
            self.allow_run(principal, id, &what, |state| self.deployer.check_begin_run(state, &request)).await?;
        Ok(self.deployer.begin_run(&access, request).await?)
    }

    /// Asks for the end of a run by hand.
    ///
    /// # Errors
    /// As [`Management::allow`] and [`Deployer::cancel_run`](rollhook_core::service::Deployer::cancel_run).
    pub async fn cancel_run(&self, principal: &Principal, id: &AppId, number: RunNumber) -> Outcome<Run> {
        let what = format!("asked for the end of run {number}");
        let access = self.allow_run(principal, id, &what, |state| state.unfinished_run(number).map(drop)).await?;
        Ok(self.deployer.cancel_run(&access, number).await?)
    }

    /// Returns the proof for a run. One that the app's state refuses leaves nothing in the audit.
    async fn allow_run(
        &self,
        principal: &Principal,
        id: &AppId,
        what: &str,
        check: impl FnOnce(&AppState) -> CoreOutcome<()>,
    ) -> Outcome<Authorized> {
        let state = self.readable_state(principal, id).await?;
        self.permit_all(principal, &state.app, &[(Action::Run, Some(what))], || Ok(check(&state)?)).await?;
        Ok(Authorized::allow(&state.app, principal.cause(), &[AppAction::Run]))
    }
}

/// Returns a command for the audit: each word between quotation marks, without what a terminal would obey.
fn shown(command: &[String]) -> String {
    let text = format!("{command:?}");
    let text = without_tokens(&text);
    let mut cut: String = text.chars().take(COMMAND_MAX).collect();
    if cut.len() < text.len() {
        cut.push('…');
    }
    cut
}
