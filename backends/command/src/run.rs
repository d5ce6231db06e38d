//! Makes one build, from the posted commit to the image by digest.

use std::{
    convert::Infallible,
    io,
    path::Path,
    sync::{Arc, atomic::AtomicBool},
};

use rollhook_core::{
    deploy::{Commit, Reason},
    image::ImageRef,
    ports::BuildSpec,
    source::GitSource,
};
use rollhook_git::{Addresses, Credentials, Limiter};
use tokio::sync::watch;

use crate::{
    builder::Settings,
    confinement::Confinement,
    environment,
    git::{Failed, Git},
    log::{Log, Tail},
    process::{self, Bounds, Ended, Output, Stop},
    record::{End, Record},
    slots::{HostSlots, Slots},
    tool::{Checkout, ImageBuilder, OpenedTool},
};

/// The names of hosts that are resolved at the same time: each takes a thread of the process until its name service has
/// answered, and the process has some hundreds.
const LOOKUPS: usize = 32;
/// The commits of an environment that are fetched, or wait for a slot, beside as many as build.
const FETCHED_AHEAD: usize = 6;

/// Variables of the program's environment, with their values.
pub(crate) type Variables = Vec<(&'static str, String)>;

/// A build that is to be made.
pub(crate) struct Run {
    pub(crate) settings: Arc<Settings>,
    pub(crate) spec: BuildSpec,
    pub(crate) record: Record,
    /// The build's own number.
    pub(crate) number: String,
    pub(crate) stop: watch::Receiver<Option<Stop>>,
    /// The limits of this machine.
    pub(crate) limits: Arc<Limits>,
    /// The tool that makes the image.
    pub(crate) tool: Arc<OpenedTool>,
    /// Whether this build waits for others.
    pub(crate) waits: Arc<AtomicBool>,
    /// Further variables of the program's environment.
    pub(crate) variables: Variables,
}

/// The limits that the builds of one machine share.
pub(crate) struct Limits {
    /// The builds that may run at the same time.
    slots: Slots,
    /// The commits that are fetched or built at the same time, each of which takes up disk: so many of an environment.
    fetched: Slots,
    /// The sources of one host, and of all hosts, that may be read at the same time.
    sources: HostSlots,
    /// The names of hosts that may be resolved at the same time.
    lookups: Limiter,
}

impl Limits {
    /// The limits of so many builds, and reads of each host, at the same time.
    pub(crate) fn new(at_once: usize) -> Self {
        let fetched = Slots::with_share(usize::MAX, at_once + FETCHED_AHEAD);
        Self { slots: Slots::new(at_once), fetched, sources: HostSlots::new(at_once), lookups: Limiter::new(LOOKUPS) }
    }
}

impl Run {
    /// Builds, and writes to the log in the build's directory; `None` if the build is to begin anew.
    pub(crate) async fn run(self) -> Option<End> {
        let mut log = match Log::create(&self.record.log()) {
            Ok(log) => log,
            Err(error) => {
                tracing::error!(%error, "creating a build's log failed");
                return Some(End::before_the_log("The builder cannot write to its directory.".to_owned()));
            }
        };
        self.run_into(&mut log).await
    }

    /// Builds, and writes to this log; `None` if the build is to begin anew.
    pub(crate) async fn run_into(mut self, log: &mut Log) -> Option<End> {
        let mut commit = None;
        let failed = match self.build(&mut commit, log).await {
            Ok(end) => {
                log.say("built");
                return Some(end);
            }
            Err(failed) => failed,
        };
        let (reason, message) = match failed {
            Failed::For(reason, message) => (reason, message),
            Failed::Stopped(Stop::Cancelled) => (Reason::CANCELLED, "The build was ended.".to_owned()),
            Failed::Stopped(Stop::Interrupted) => return None,
        };
        log.say(&message);
        Some(End::Failed { reason: Reason::new(reason), message, commit, log: log.tail() })
    }

    async fn build(&mut self, resolved: &mut Option<Commit>, log: &mut Log) -> Result<End, Failed> {
        let source = self.spec.source.clone();
        self.settings
            .sources
            .check(&source.url)
            .map_err(|refused| Failed::For(Reason::BUILD_REFUSED, format!("{} is {refused}.", source.url)))?;
        let credentials = Credentials::find(&source, self.settings.credentials.as_deref())
            .map_err(|message| Failed::For(Reason::SOURCE_DENIED, message))?;
        let work = self.record.work();
        log.say(&format!("building {} of {} for {}", self.spec.commit, source.url, self.spec.app));
        let mut git = Git {
            source: &source,
            credentials: &credentials,
            allowed: &self.settings.sources,
            addresses: Addresses::default(),
            run: &self.number,
            work: &work,
            limit: self.settings.git_time,
            limits: self.settings.checkout,
            memory: self.settings.git_memory,
            disk: self.settings.disk,
            silence: self.settings.git_silence,
            log,
            stop: &mut self.stop,
            app: &self.spec.app,
            lookups: &self.limits.lookups,
            limiter: &self.limits.sources,
            waits: &self.waits,
        };
        git.check_disk().await?;
        if let Some(message) = self.tool.refusal().await {
            return Err(Failed::For(Reason::BUILD_FAILED, message));
        }
        // A short commit is resolved by fetching all commits.
        let _fetched = git.turn(self.limits.fetched.acquire(&self.spec.app.namespace)).await?;
        let sha = git.resolve(&self.spec.commit).await?;
        let checkout = work.join("checkout");
        git.fetch(&sha, &checkout).await?;
        // All that is read from the network is read before, so that a silent source holds no slot.
        let _slot = git.turn(self.limits.slots.acquire(&self.spec.app.namespace)).await?;
        git.measure(&sha, &checkout).await?;
        git.check_out(&sha, &checkout).await?;
        let not_one = |_| Failed::For(Reason::COMMIT_NOT_FOUND, format!("{sha} is not a commit."));
        let commit: Commit = sha.parse().map_err(not_one)?;
        *resolved = Some(commit.clone());
        self.hand_over(&checkout).await?;
        log.say(&format!("checked out {sha}"));
        let image = match &*self.tool.clone() {
            OpenedTool::Program { path, confinement } => self.program(path, confinement, &sha, &checkout, log).await?,
            OpenedTool::Engine(builder) => self.engine(&**builder, &sha, &checkout, log).await?,
        };
        Ok(End::Built { image, commit })
    }

    /// Builds with the engine. The engine ends its build when this future is dropped, as it is once the build is stopped.
    async fn engine(
        &mut self,
        builder: &dyn ImageBuilder,
        commit: &str,
        directory: &Path,
        log: &mut Log,
    ) -> Result<ImageRef, Failed> {
        let checkout = Checkout { app: &self.spec.app, source: &self.spec.source, commit, directory };
        tokio::select! {
            built = builder.build(checkout, log) => {
                built.map_err(|message| Failed::For(Reason::BUILD_FAILED, message))
            }
            why = process::stopped(&mut self.stop) => Err(Failed::Stopped(why)),
        }
    }

    /// Lets the program's user have the checkout.
    async fn hand_over(&self, checkout: &Path) -> Result<(), Failed> {
        let (tool, settings, checkout) = (self.tool.clone(), self.settings.clone(), checkout.to_owned());
        let handed = tokio::task::spawn_blocking(move || tool.hand_over(&checkout, &settings.directory));
        handed.await.map_err(io::Error::other).flatten().map_err(|error| {
            tracing::error!(%error, "handing a checkout over to the user of builds failed");
            let message = "The checkout cannot be handed over to the user of builds on the builder's machine.";
            Failed::For(Reason::BUILD_FAILED, message.to_owned())
        })
    }

    /// Runs the program, whose last line is the image.
    async fn program(
        &mut self,
        path: &Path,
        confinement: &Confinement,
        sha: &str,
        checkout: &Path,
        log: &mut Log,
    ) -> Result<ImageRef, Failed> {
        let source = &self.spec.source;
        let mut command = environment::numbered(confinement.command(path, Some(&self.number)), &self.number);
        command
            .env("ROLLHOOK_APP", self.spec.app.to_string())
            .env("ROLLHOOK_REVISION", self.spec.id.revision.to_string())
            .env("ROLLHOOK_SOURCE_URL", source.url.as_str())
            .env("ROLLHOOK_BRANCH", source.branch.as_str())
            .env("ROLLHOOK_COMMIT", sha)
            .env("ROLLHOOK_DOCKERFILE", source.dockerfile.as_str())
            .env("ROLLHOOK_CONTEXT", source.context.as_str())
            .env("ROLLHOOK_IMAGE_REPOSITORY", source.image_repository.as_str())
            .env("ROLLHOOK_IMAGE", format!("{}:{sha}", source.image_repository))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(checkout);
        let mut output_tail = Tail::default();
        let ended = process::run(
            command,
            &self.number,
            Bounds { owner: confinement.owner(), memory: None, leads_session: confinement.leads_session() },
            // There is no limit here: the deadline is the app's, and its driver ends the build.
            std::future::pending::<Infallible>(),
            &mut self.stop,
            |output, bytes| {
                if output == Output::Out {
                    output_tail.write(bytes);
                }
                log.write(bytes);
            },
        );
        let fail = |message: String| Err(Failed::For(Reason::BUILD_FAILED, message));
        match ended.await {
            Ok(Ended::Exited(status)) if status.success() => image(source, output_tail.last().as_deref()),
            Ok(Ended::Exited(status)) => fail(format!("The build command failed ({status}); see the build's log.")),
            Ok(Ended::Limited(never)) => match never {},
            Ok(Ended::Stopped(why)) => Err(Failed::Stopped(why)),
            Err(error) => {
                tracing::error!(program = %path.display(), %error, "starting the build command failed");
                fail("The build command cannot be started on the builder's machine.".to_owned())
            }
        }
    }
}

/// Returns the image that a program's last line names.
fn image(source: &GitSource, last: Option<&str>) -> Result<ImageRef, Failed> {
    let fail = |what: &str| {
        let message = format!(
            "The build command ended well, but {what}: its last line must be {}@sha256:…",
            source.image_repository
        );
        Err(Failed::For(Reason::BUILD_FAILED, message))
    };
    let Some(last) = last else { return fail("wrote nothing to standard output") };
    let Ok(image) = last.trim().parse::<ImageRef>() else { return fail("its last line is no image") };
    let wanted: Option<ImageRef> = source.image_repository.as_str().parse().ok();
    if image.digest().is_none() {
        return fail("named its image without a digest");
    }
    if wanted.map(|wanted| wanted.canonical_repository()) != Some(image.canonical_repository()) {
        return fail("named an image of another repository");
    }
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_must_be_of_the_repository_and_by_digest() {
        let source = rollhook_conformance::samples::git_source();
        let digest = format!("sha256:{}", "a".repeat(64));
        assert!(image(&source, Some(&format!("registry.example.com/shop/api@{digest}"))).is_ok());
        assert!(image(&source, Some(&format!(" registry.example.com/shop/api:v1@{digest}\r"))).is_ok());
        for other in [
            None,
            Some("done".to_owned()),
            Some("registry.example.com/shop/api:v1".to_owned()),
            Some(format!("registry.example.com/shop/web@{digest}")),
            Some(format!("registry.example.com/shop/api@{digest} pushed")),
        ] {
            assert!(image(&source, other.as_deref()).is_err(), "{other:?}");
        }
    }
}
