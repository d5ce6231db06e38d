//! A rollout driver of one's own, for something that is no Kubernetes: sites that a server serves from a directory.
//!
//! ```text
//!   driver.rs   RolloutDriver: what is decided
//!   site.rs     the files of a site, read, compared and replaced
//!   server.rs   a stand-in for what serves the site, which no driver needs
//!   tests.rs    the conformance suite, which says whether all of that is right
//! ```
//!
//! To write a driver, begin here: the documentation of [`RolloutDriver`](rollhook_core::ports::RolloutDriver) is the
//! contract, `driver.rs` shows where each promise is kept, and `tests.rs` what the suite wants of a platform. A driver
//! needs `rollhook-core` and nothing else of rollhook.
//!
//! `cargo run -p rollhook-examples --bin own_driver` registers a site that was made by hand, deploys to it, and rolls
//! back.

mod driver;
mod server;
mod site;
#[cfg(test)]
mod tests;

use std::{error::Error, path::Path, sync::Arc, time::Duration};

use driver::Sites;
use rollhook::{
    Builder,
    action::Action,
    app::{AppId, Policy},
    deploy::{Actor, Deploy, Revision},
    memory::MemoryStore,
    ports::Page,
    request::{DeployRequest, Registration, RollbackRequest},
    service::Deployer,
};
use server::{Server, upload};
use tokio::sync::oneshot;

const PATIENCE: Duration = Duration::from_secs(30);
const TICK: Duration = Duration::from_millis(50);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    let app: AppId = "shop-test/web".parse()?;
    let site = root.path().join("sites/shop-test/web");
    for tag in ["v1", "v2"] {
        upload(root.path(), &format!("sites.example.com/web:{tag}").parse()?, "good")?;
    }
    // The site that is served by hand so far.
    let release = root.path().join("images/sites.example.com/web/v1");
    std::fs::create_dir_all(&site)?;
    std::os::unix::fs::symlink(std::fs::canonicalize(release)?, site.join("current"))?;
    let served = tokio::spawn(serve(site));

    let store = Arc::new(MemoryStore::on_system_time());
    let deployer = Arc::new(Builder::new(store, Arc::new(Sites::new(root.path()))).replica("web-1").build());
    let (shutdown, asked) = oneshot::channel::<()>();
    let engine = tokio::spawn({
        let deployer = Arc::clone(&deployer);
        async move { deployer.run(async { drop(asked.await) }).await }
    });
    story(&deployer, &app, root.path()).await?;
    drop(shutdown);
    engine.await??;
    served.abort();
    Ok(())
}

/// Serves the site until the process ends.
async fn serve(site: std::path::PathBuf) {
    let mut server = Server::new(&site);
    loop {
        drop(server.tick());
        tokio::time::sleep(TICK).await;
    }
}

async fn story(deployer: &Deployer, app: &AppId, root: &Path) -> Result<(), Box<dyn Error>> {
    let alice = Actor::person("alice");
    // The driver finds the directory by the app's name.
    let wanted = Registration::new("shop".parse()?, "test".parse()?, app.name.clone())
        .policy(Policy::default().with(|policy| policy.settle = Duration::ZERO));
    deployer.register(&alice, wanted, None).await?;
    let access = deployer.allow(alice, app, Action::ALL).await?;
    deployer.wait(&access, Revision::FIRST, PATIENCE).await?;
    let request = DeployRequest::image("sites.example.com/web:v2".parse()?);
    let deployed = deployer.submit(&access, request).await?.deploy.revision;
    deployer.wait(&access, deployed, PATIENCE).await?;
    let back = deployer.rollback(&access, RollbackRequest::default()).await?.deploy.revision;
    deployer.wait(&access, back, PATIENCE).await?;
    let (_, deploys) = deployer.history(&access, Page::newest(10)).await?;
    for deploy in deploys {
        let Deploy { revision, trigger, image, .. } = &deploy;
        let image = image.clone().map(|image| image.unpinned().to_string()).unwrap_or_default();
        println!("{revision}  {image}  {:<8}  {}", trigger, deploy.status());
    }
    let link = std::fs::read_link(root.join("sites/shop-test/web/current"))?;
    println!("current leads to {}", link.file_name().unwrap_or_default().display());
    Ok(())
}
