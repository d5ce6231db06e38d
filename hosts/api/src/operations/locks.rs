//! Locks of apps and environments: new deploys are refused, except rollbacks.

use rollhook_core::app::{AppId, Environment, Project};
use rollhook_management::Refusal;

use crate::{App, Local, LockList, LockRequest, LockedEnvironment, Operation, endpoint::Endpoint};

/// Locks an app.
pub struct LockApp;

impl Operation for LockApp {
    type Subject = AppId;
    type Input = LockRequest;
    type Answer = App;

    const ENDPOINT: Endpoint = Endpoint::new(
        "PUT",
        "/api/v1/apps/{namespace}/{app}/lock",
        200,
        "Lock the app: new deploys are refused, except rollbacks",
    );

    async fn perform(caller: &Local, id: &AppId, lock: LockRequest) -> Result<App, Refusal> {
        Ok(caller.shown(&caller.management.lock(&caller.principal, id, lock.parse()?).await?))
    }
}

/// Ends an app's own lock.
pub struct UnlockApp;

impl Operation for UnlockApp {
    type Subject = AppId;
    type Input = ();
    type Answer = App;

    const ENDPOINT: Endpoint =
        Endpoint::new("DELETE", "/api/v1/apps/{namespace}/{app}/lock", 200, "End the app's own lock");

    async fn perform(caller: &Local, id: &AppId, (): ()) -> Result<App, Refusal> {
        Ok(caller.shown(&caller.management.unlock(&caller.principal, id).await?))
    }
}

/// Locks all apps of an environment.
pub struct LockEnvironment;

impl Operation for LockEnvironment {
    type Subject = (Project, Environment);
    type Input = LockRequest;
    type Answer = LockedEnvironment;

    const ENDPOINT: Endpoint =
        Endpoint::new("PUT", "/api/v1/locks/{project}/{environment}", 200, "Lock all apps of an environment");

    async fn perform(
        caller: &Local,
        subject: &(Project, Environment),
        lock: LockRequest,
    ) -> Result<LockedEnvironment, Refusal> {
        let (project, environment) = subject;
        let lock = lock.parse()?;
        let locked = caller.management.lock_environment(&caller.principal, project, environment, lock).await?;
        Ok(LockedEnvironment::of(&locked))
    }
}

/// Ends the lock of an environment.
pub struct UnlockEnvironment;

impl Operation for UnlockEnvironment {
    type Subject = (Project, Environment);
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint =
        Endpoint::delete("/api/v1/locks/{project}/{environment}", "End the lock of an environment");

    async fn perform(caller: &Local, (project, environment): &(Project, Environment), (): ()) -> Result<(), Refusal> {
        caller.management.unlock_environment(&caller.principal, project, environment).await
    }
}

/// Lists the locked environments.
pub struct ListLocks;

impl Operation for ListLocks {
    type Subject = ();
    type Input = ();
    type Answer = LockList;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/locks", "The locked environments");

    async fn perform(caller: &Local, _: &(), (): ()) -> Result<LockList, Refusal> {
        let locks = caller.management.environment_locks(&caller.principal).await?;
        Ok(LockList { locks: locks.iter().map(LockedEnvironment::of).collect() })
    }
}
