//! Claims work and drives it.

use std::future::Future;

use super::Deployer;

impl Deployer {
    /// Drives deploys until `shutdown` resolves.
    pub async fn run(&self, shutdown: impl Future<Output = ()> + Send) {
        shutdown.await;
    }
}
