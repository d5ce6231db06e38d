//! Starting: whether this process may drive the store's apps.

use std::time::Duration;

use crate::{
    engine::retry,
    error::{Error, Result},
    ports::{Binding, DriverIdentity},
    service::{Deployer, drive::TTL},
};

/// The interval at which the store is asked whether its driver is still this process's.
const BINDING_INTERVAL: Duration = Duration::from_secs(10);
/// The time in which a living process of the same name records its next heartbeat.
const TWIN_TIME: Duration = Duration::from_secs(4);

/// The reason why a process must not drive the apps of its store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store's apps are deployed by another driver, or to another cluster.
    #[error(
        "the store's apps are deployed by \"{stored}\", and this process deploys by \"{ours}\": it would record failures that \
         never happened. Name the driver that the store belongs to; if the apps have moved, rebind the store"
    )]
    OtherDriver {
        /// The identity that the store keeps.
        stored: DriverIdentity,
        /// The identity of this process's driver.
        ours: DriverIdentity,
    },
    /// A living process on the same store has the same name.
    #[error(
        "another process called {0} is alive on this store, so that they would take each other's apps: stop it, or give this \
         machine another host name"
    )]
    Twin(String),
    /// The store or the driver gave no answer.
    #[error("the store or the rollout driver gave no answer")]
    Unanswered(#[source] Error),
}

impl From<Error> for StartError {
    fn from(error: Error) -> Self {
        Self::Unanswered(error)
    }
}

impl Deployer {
    /// Makes sure that the store's apps are deployed by this process's driver; the first driver of a store is recorded.
    /// [`Deployer::run`] drives nothing before.
    ///
    /// # Errors
    /// [`StartError::OtherDriver`]; [`StartError::Unanswered`] while the store or the driver's platform is away.
    pub async fn bind_driver(&self) -> Result<(), StartError> {
        let ours = self.ports.rollouts.identity().await?;
        let stored = self.ports.history.bind_driver(&ours, Binding::First).await?;
        if stored != ours {
            return Err(StartError::OtherDriver { stored, ours });
        }
        // A later call finds the same identity.
        let _ = self.bound_to.set(ours);
        Ok(())
    }

    /// Makes sure that no other living process on the store has this one's name; takes a few seconds if one of the name
    /// was alive a moment ago, as after a crash. To be called before [`Deployer::run`].
    ///
    /// # Errors
    /// [`StartError::Twin`]; [`StartError::Unanswered`] while the store is away.
    pub async fn refuse_twin(&self) -> Result<(), StartError> {
        // A heartbeat without duration leaves those of others as they are.
        if self.has_twin().await? {
            // This boot replaces the other one, which comes back with its next heartbeat if it lives.
            self.journal.heartbeat(&self.replica, TTL).await?;
            self.ports.clock.sleep(TWIN_TIME).await;
            if self.has_twin().await? {
                return Err(StartError::Twin(self.replica.name.clone()));
            }
        }
        Ok(())
    }

    async fn has_twin(&self) -> Result<bool> {
        let alive = self.journal.heartbeat(&self.replica, Duration::ZERO).await?.alive;
        Ok(alive.iter().any(|other| other.name == self.replica.name && other.boot != self.replica.boot))
    }

    /// Returns once the store's apps are known to be this process's driver's, however long both take to answer.
    ///
    /// # Errors
    /// [`StartError::OtherDriver`].
    pub async fn bound(&self) -> Result<&DriverIdentity, StartError> {
        let mut failures = 0;
        let mut logged = String::new();
        loop {
            if let Some(ours) = self.bound_to.get() {
                return Ok(ours);
            }
            let error = match self.bind_driver().await {
                Ok(()) => continue,
                Err(StartError::Unanswered(error)) => error.chain(),
                Err(error) => return Err(error),
            };
            if error != logged {
                tracing::error!(error, "driving deploys is postponed until the store and the driver have answered");
                logged = error;
            }
            self.ports.clock.sleep(retry::backoff(failures)).await;
            failures = failures.saturating_add(1);
        }
    }

    /// Returns the reason to stop once the store's apps are another driver's: the store was bound to that one while this
    /// process was taken for dead.
    pub(crate) async fn unbound(&self, ours: &DriverIdentity) -> StartError {
        loop {
            self.ports.clock.sleep(BINDING_INTERVAL).await;
            // While the store is away, nothing is driven either.
            if let Ok(stored) = self.ports.history.bind_driver(ours, Binding::First).await
                && stored != *ours
            {
                return StartError::OtherDriver { stored, ours: ours.clone() };
            }
        }
    }
}
