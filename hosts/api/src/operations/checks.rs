//! Checks of apps.

use rollhook_core::{app::AppId, check::CheckName};
use rollhook_management::Refusal;

use crate::{Check, CheckList, Local, Operation, SetCheck, TestedCheck, endpoint::Endpoint};

/// Lists an app's checks, and the kinds there are.
pub struct ListChecks;

impl Operation for ListChecks {
    type Subject = AppId;
    type Input = ();
    type Answer = CheckList;

    const ENDPOINT: Endpoint =
        Endpoint::get("/api/v1/apps/{namespace}/{app}/checks", "The checks of an app, and the kinds there are");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<CheckList, Refusal> {
        let access = caller.open(id).await?;
        let state = caller.deployer().state(&access).await?;
        Ok(CheckList::of(&state.app.policy, &caller.deployer().check_kinds()))
    }
}

/// Sets a check of an app, in place of the one of its name.
pub struct PutCheck;

impl Operation for PutCheck {
    type Subject = (AppId, CheckName);
    type Input = SetCheck;
    type Answer = Check;

    const ENDPOINT: Endpoint =
        Endpoint::new("PUT", "/api/v1/apps/{namespace}/{app}/checks/{check}", 200, "Set a check of an app");

    async fn perform(caller: &Local, (id, name): &(AppId, CheckName), check: SetCheck) -> Result<Check, Refusal> {
        // The audit has no check that cannot be read.
        let (check, secret) = check.parse(name.clone())?;
        Ok(Check::of(&caller.management.set_check(&caller.principal, id, check, secret).await?))
    }
}

/// Removes a check of an app.
pub struct RemoveCheck;

impl Operation for RemoveCheck {
    type Subject = (AppId, CheckName);
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint =
        Endpoint::delete("/api/v1/apps/{namespace}/{app}/checks/{check}", "Remove a check of an app");

    async fn perform(caller: &Local, (id, name): &(AppId, CheckName), (): ()) -> Result<(), Refusal> {
        caller.management.remove_check(&caller.principal, id, name).await
    }
}

/// Measures a check of an app now.
pub struct TestCheck;

impl Operation for TestCheck {
    type Subject = (AppId, CheckName);
    type Input = ();
    type Answer = TestedCheck;

    const ENDPOINT: Endpoint = Endpoint::new(
        "POST",
        "/api/v1/apps/{namespace}/{app}/checks/{check}/test",
        200,
        "Measure a check once, of what runs; nothing follows from it",
    )
    .once();

    async fn perform(caller: &Local, (id, name): &(AppId, CheckName), (): ()) -> Result<TestedCheck, Refusal> {
        Ok(TestedCheck::of(caller.management.test_check(&caller.principal, id, name).await?))
    }
}
