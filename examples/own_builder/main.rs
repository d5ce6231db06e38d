//! A builder of one's own: sites that are built by their repository's `build.sh`, from mirrors on this machine.
//!
//! ```text
//!   builder.rs    BuildTrigger: starts, observes and cancels builds
//!   build.sh      one build, a process group of its own
//!   branches.rs   BranchReader: the heads of branches
//!   tests.rs      the conformance suite of both
//! ```
//!
//! A builder must hold one promise above all: two builds of an app never run at once, whatever its callers believe, and
//! across restarts. Here a file lock does that, which the processes of a build inherit.
//!
//! `cargo run -p rollhook-examples --bin own_builder` deploys a push, sees a commit that cannot be built, and rolls
//! back.

mod branches;
mod builder;
#[cfg(test)]
mod tests;

use std::{error::Error, path::Path, process::Command, sync::Arc, time::Duration};

use branches::MirrorBranches;
use builder::SiteBuilder;
use rollhook::{
    Builder, TokioClock,
    action::Action,
    app::Policy,
    deploy::{Actor, Deploy, State},
    memory::{MemoryStore, SimulatedCluster},
    ports::Page,
    request::{DeployRequest, Registration, RollbackRequest},
    service::{Authorized, BuildPorts, Deployer},
    source::GitSource,
};

const WAIT: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let root = tempfile::tempdir()?;
    let cluster = SimulatedCluster::new(Arc::new(TokioClock::start()), Duration::from_millis(10));
    let builds = Arc::new(SiteBuilder::open(root.path()));
    let ports = BuildPorts::new(builds, Arc::new(MirrorBranches::new(root.path())));
    let store = Arc::new(MemoryStore::on_system_time());
    let deployer = Arc::new(Builder::new(store, Arc::new(cluster)).replica("web-1").builds(ports).build());
    let engine = tokio::spawn({
        let deployer = Arc::clone(&deployer);
        async move { deployer.run(std::future::pending()).await }
    });
    story(&deployer, &root.path().join("git/git.example.com/web.git")).await?;
    engine.abort();
    Ok(())
}

async fn story(deployer: &Deployer, mirror: &Path) -> Result<(), Box<dyn Error>> {
    let alice = Actor::person("alice");
    let source = GitSource {
        url: "https://git.example.com/web.git".parse()?,
        branch: "main".parse()?,
        dockerfile: "Dockerfile".parse()?,
        context: ".".parse()?,
        image_repository: "sites.example.com/web".parse()?,
        credentials: None,
    };
    let registration = Registration::new("shop".parse()?, "test".parse()?, "web".parse()?)
        .git(source)
        .policy(Policy::default().with(|policy| policy.settle = Duration::ZERO));
    let registered = deployer.register(&alice, registration, None).await?;
    let access = deployer.allow(alice, registered.id(), Action::ALL).await?;
    for script in ["mkdir public && echo one > public/index.html", "echo no compiler; exit 2", "mkdir public"] {
        let commit = push(mirror, script)?;
        println!("{script:?}: {}", deploy(deployer, &access, &commit).await?);
    }
    let back = deployer.rollback(&access, RollbackRequest::default()).await?.deploy;
    let back = deployer.wait(&access, back.revision, WAIT).await?.deploy;
    println!("alice rolls back to revision {}: {}", back.effective, back.status());
    let (_, deploys) = deployer.history(&access, Page::newest(10)).await?;
    for Deploy { revision, image, trigger, .. } in deploys {
        println!("{revision}  {trigger:<8}  {}", image.map(|image| image.to_string()).unwrap_or_default());
    }
    Ok(())
}

async fn deploy(deployer: &Deployer, access: &Authorized, commit: &str) -> Result<String, Box<dyn Error>> {
    let request = DeployRequest::commit(commit.parse()?);
    let revision = deployer.submit(access, request).await?.deploy.revision;
    let ended = deployer.wait(access, revision, WAIT).await?.deploy;
    let reason = if let State::Failed { reason, .. } = &ended.state { format!(" ({reason})") } else { String::new() };
    Ok(format!("{}{reason}", ended.status()))
}

/// Commits a build script to the mirror, as a push would, and returns the commit.
fn push(mirror: &Path, script: &str) -> Result<String, Box<dyn Error>> {
    std::fs::create_dir_all(mirror)?;
    std::fs::write(mirror.join("build.sh"), script)?;
    let git = |arguments: &[&str]| -> Result<String, Box<dyn Error>> {
        let identity = ["-c", "user.name=Ada", "-c", "user.email=ada@example.com"];
        let output = Command::new("git").current_dir(mirror).args(identity).args(arguments).output()?;
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    git(&["init", "--quiet", "--initial-branch=main"])?;
    git(&["add", "build.sh"])?;
    git(&["commit", "--quiet", "--message=Build"])?;
    git(&["rev-parse", "HEAD"])
}
