//! One build, from the posted commit to the image by digest.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rollhook_core::{
    deploy::{Commit, Reason},
    image::ImageRef,
    ports::{BuildFailure, BuildSpec},
    source::GitSource,
};
use rollhook_git::Credentials;
use tokio::sync::{Semaphore, watch};

use crate::{
    builder::Settings,
    environment,
    git::{Failed, Git},
    log::{Log, Tail},
    process::{self, Ended, Output, Stop},
    record::{End, Record},
};

/// The times between asking a source that does not answer again.
const AGAIN: [Duration; 3] = [Duration::from_secs(1), Duration::from_secs(3), Duration::from_secs(8)];

/// A build's parts.
pub(crate) struct Run {
    pub(crate) settings: Arc<Settings>,
    pub(crate) order: BuildSpec,
    pub(crate) record: Record,
    /// The build's own number.
    pub(crate) number: String,
    pub(crate) stop: watch::Receiver<Option<Stop>>,
    /// How many builds may run at once on this machine.
    pub(crate) room: Arc<Semaphore>,
    /// Whether this one waits for that.
    pub(crate) waits: Arc<AtomicBool>,
    /// What else the program finds in its environment.
    pub(crate) further: Vec<(&'static str, String)>,
}

impl Run {
    /// Builds, with the log in the build's directory; none where the build is to begin anew.
    pub(crate) async fn run(self) -> Option<End> {
        let mut log = match Log::create(&self.record.log()) {
            Ok(log) => log,
            Err(error) => {
                tracing::error!(%error, "a build has no place for its log");
                let message = "The builder cannot write to its directory.".to_owned();
                let reason = Reason::new(Reason::BUILD_FAILED);
                return Some(BuildFailure { reason, message, commit: None, log: Vec::new() }.into());
            }
        };
        self.run_into(&mut log).await
    }

    /// Builds, with the log there; none where the build is to begin anew.
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
        Some(Failed::told(reason, message, commit, log).into())
    }

    async fn build(&mut self, resolved: &mut Option<Commit>, log: &mut Log) -> Result<End, Failed> {
        let source = self.order.source.clone();
        if source.url.is_local() && !self.settings.local_sources {
            let message = format!("{} is local, which this server's operator does not allow.", source.url);
            return Err(Failed::For(Reason::BUILD_REFUSED, message));
        }
        let room = self.room.clone();
        let _room = tokio::select! {
            room = room.acquire_owned() => room,
            why = process::stopped(&mut self.stop) => return Err(Failed::Stopped(why)),
        };
        self.waits.store(false, Ordering::Relaxed);
        let credentials = Credentials::find(&source, self.settings.credentials.as_deref())
            .map_err(|message| Failed::For(Reason::SOURCE_DENIED, message))?;
        let work = self.record.work();
        let git = Git {
            source: &source,
            credentials: &credentials,
            run: &self.number,
            work: &work,
            limit: self.settings.git_time,
            silence: self.settings.git_silence,
        };
        log.say(&format!("building {} of {} for {}", self.order.commit, source.url, self.order.app));
        let sha = self.resolve(&git, log).await?;
        let checkout = work.join("checkout");
        git.check_out(&sha, &checkout, log, &mut self.stop).await?;
        let not_one = |_| Failed::For(Reason::COMMIT_NOT_FOUND, format!("{sha} is not a commit."));
        let commit: Commit = sha.parse().map_err(not_one)?;
        *resolved = Some(commit.clone());
        log.say(&format!("checked out {sha}"));
        let image = self.program(&source, &sha, &checkout, log).await?;
        Ok(End::Built { image, commit })
    }

    /// The commit in full. A source that is away for a moment is no reason to give a build up.
    async fn resolve(&self, git: &Git<'_>, log: &mut Log) -> Result<String, Failed> {
        let mut stop = self.stop.clone();
        for pause in AGAIN {
            match git.resolve(&self.order.commit, log, &mut stop).await {
                Err(Failed::For(Reason::SOURCE_UNREACHABLE, message)) => log.say(&format!("{message} Asking again.")),
                other => return other,
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                why = process::stopped(&mut stop) => return Err(Failed::Stopped(why)),
            }
        }
        git.resolve(&self.order.commit, log, &mut stop).await
    }

    /// Runs the program, whose last line is the image.
    async fn program(
        &mut self,
        source: &GitSource,
        sha: &str,
        checkout: &Path,
        log: &mut Log,
    ) -> Result<ImageRef, Failed> {
        let mut command = environment::program(&self.settings.program, &self.number);
        command
            .env("ROLLHOOK_APP", self.order.app.to_string())
            .env("ROLLHOOK_REVISION", self.order.id.revision.to_string())
            .env("ROLLHOOK_SOURCE_URL", source.url.as_str())
            .env("ROLLHOOK_BRANCH", source.branch.as_str())
            .env("ROLLHOOK_COMMIT", sha)
            .env("ROLLHOOK_DOCKERFILE", source.dockerfile.as_str())
            .env("ROLLHOOK_CONTEXT", source.context.as_str())
            .env("ROLLHOOK_IMAGE_REPOSITORY", source.image_repository.as_str())
            .env("ROLLHOOK_IMAGE", format!("{}:{sha}", source.image_repository))
            .envs(self.further.iter().map(|(name, value)| (name, value)))
            .current_dir(checkout);
        let mut told = Tail::default();
        let ended = process::run(command, &self.number, None, &mut self.stop, |output, bytes| {
            if output == Output::Out {
                told.write(bytes);
            }
            log.write(bytes);
        });
        let fail = |message: String| Err(Failed::For(Reason::BUILD_FAILED, message));
        match ended.await {
            Ok(Ended::Exited(status)) if status.success() => image(source, told.last().as_deref()),
            Ok(Ended::Exited(status)) => fail(format!("The build command failed ({status}); see the build's log.")),
            // There is no limit here: the deadline is the app's, and its driver ends the build.
            Ok(Ended::TimedOut) => fail("The build command took too long.".to_owned()),
            Ok(Ended::Stopped(why)) => Err(Failed::Stopped(why)),
            Err(error) => {
                tracing::error!(program = %self.settings.program.display(), %error, "the build command cannot be started");
                fail("The build command cannot be started on the builder's machine.".to_owned())
            }
        }
    }
}

/// The image that a program's last line names.
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
    fn only_an_image_of_the_repository_by_digest_is_one() {
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
