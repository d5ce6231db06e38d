//! Runs commands on the simulated cluster: what a run does follows from the words of its command.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use rollhook_core::{
    Result,
    app::AppUid,
    configuration::Configuration,
    deploy::{Reason, Revision},
    image::ImageRef,
    ports::{ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RunId, RunKind},
};

use super::{SimulatedCluster, World};

/// A command that has begun: a release command, one by hand, or that of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseBegun {
    /// The run's id.
    pub run: RunId,
    /// The image that ran it.
    pub image: ImageRef,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The time on the clock.
    pub at: Duration,
}

impl ReleaseBegun {
    /// The revision whose release command it is; `None` of other commands.
    pub const fn revision(&self) -> Option<Revision> {
        match self.run.kind {
            RunKind::Release(revision) => Some(revision),
            RunKind::ByHand(_) | RunKind::Check(_) => None,
        }
    }
}

/// A run, from the time at which it was made ready.
pub(super) struct Release {
    spec: ReleaseSpec,
    prepared_at: Duration,
    began: Option<Duration>,
    cancelled: Option<Duration>,
}

impl Release {
    fn has_word(&self, word: &str) -> bool {
        self.spec.command.iter().any(|argument| argument.contains(word))
    }

    /// Returns the exit code of a command that fails: 1, or the number of a last word such as `fail-3`.
    fn exit_code(&self) -> Option<i32> {
        let word = self.spec.command.iter().find(|argument| argument.contains("fail"))?;
        Some(word.rsplit('-').next().and_then(|code| code.parse().ok()).unwrap_or(1))
    }

    /// Returns the time of the command's end, by itself or by a cancel; `None`: it was not begun, or never ends.
    fn end(&self, delay: Duration) -> Option<Duration> {
        let began = self.began?;
        let by_itself = (!self.has_word("hang")).then(|| began + delay);
        by_itself.into_iter().chain(self.cancelled).min()
    }

    /// Returns the time of the next change by itself.
    fn next_change(&self, now: Duration, delay: Duration) -> Option<Duration> {
        let ready = (self.prepared_at > now).then_some(self.prepared_at);
        ready.or_else(|| self.end(delay).filter(|end| *end > now))
    }

    fn state(&self, world: &World, now: Duration, delay: Duration) -> ReleaseState {
        let failed = |began, reason: &str, message: &str, exit_code, log: Vec<String>| {
            let (reason, message) = (Reason::new(reason), message.to_owned());
            ReleaseState::Failed(ReleaseFailure { began, reason, message, exit_code, log })
        };
        let image = &self.spec.image;
        let is_over = self.end(delay).is_some_and(|end| end <= now);
        match self.began {
            None if self.cancelled.is_some() => {
                failed(false, Reason::CANCELLED, "The release command was ended before it began.", None, Vec::new())
            }
            None if self.prepared_at > now => ReleaseState::Preparing,
            None if image.clone().unpinned().to_string().contains("missing") => {
                failed(false, "ErrImagePull", &format!("The image {image} cannot be pulled."), None, Vec::new())
            }
            None => ReleaseState::Prepared,
            Some(_) if !is_over => ReleaseState::Running,
            Some(began) => {
                let log = self.log(now, delay).lines().map(str::to_owned).collect();
                let by_itself = (!self.has_word("hang")).then(|| began + delay);
                if self.cancelled.is_some_and(|at| by_itself.is_none_or(|end| at < end)) {
                    failed(true, Reason::CANCELLED, "The release command was ended.", None, log)
                } else if let Some(code) = self.exit_code() {
                    let message = format!("The release command ended with exit code {code}.");
                    failed(true, Reason::RELEASE_FAILED, &message, Some(code), log)
                } else {
                    ReleaseState::Succeeded { digest: Some(world.scripts.digest(image)) }
                }
            }
        }
    }

    fn log(&self, now: Duration, delay: Duration) -> String {
        if self.began.is_none() {
            return String::new();
        }
        let mut log = format!("running {} with {}\n", self.spec.command.join(" "), self.spec.image);
        if self.end(delay).is_some_and(|end| end <= now) {
            log.push_str(if self.has_word("fail") { "it failed\n" } else { "it ended\n" });
        }
        log
    }
}

impl SimulatedCluster {
    /// Returns every release command that has begun, in order.
    pub fn releases(&self) -> Vec<ReleaseBegun> {
        self.lock().releases_begun.iter().filter(|begun| begun.run.kind.is_release()).cloned().collect()
    }

    /// Returns the configuration that a run was made ready with.
    pub fn configuration_of(&self, run: &RunId) -> Option<Configuration> {
        self.lock().releases.get(run)?.spec.configuration.clone()
    }

    /// Returns every command by hand that has begun, in order.
    pub fn commands_by_hand(&self) -> Vec<ReleaseBegun> {
        self.lock().releases_begun.iter().filter(|begun| begun.run.kind.is_by_hand()).cloned().collect()
    }

    /// Returns every command of a check that has begun, in order.
    pub fn commands_of_checks(&self) -> Vec<ReleaseBegun> {
        let is_of_check = |begun: &&ReleaseBegun| matches!(begun.run.kind, RunKind::Check(_));
        self.lock().releases_begun.iter().filter(is_of_check).cloned().collect()
    }

    /// Returns the number of the app's release commands that run.
    pub fn running_releases(&self, app: AppUid) -> usize {
        let now = self.clock.elapsed();
        let world = self.lock();
        let of = world.releases.iter().filter(|(run, _)| run.app == app && run.kind.is_release());
        of.filter(|(_, release)| release.state(&world, now, self.delay) == ReleaseState::Running).count()
    }

    /// Has release commands go on whatever ends them, as on a machine that is lost; or no longer.
    pub fn keep_releases(&self, keeps: bool) {
        self.lock().keeps_releases = keeps;
        self.changed.notify(usize::MAX);
    }

    /// Forgets every run of a release command, as a platform does whose machine is lost.
    pub fn lose_releases(&self) {
        self.lock().releases.clear();
        self.changed.notify(usize::MAX);
    }
}

#[async_trait]
impl ReleaseRunner for SimulatedCluster {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let now = self.clock.elapsed();
        let mut world = self.reach()?;
        let prepared_at = now + self.delay / 4;
        world.releases.entry(spec.run.id).or_insert_with(|| Release {
            spec: spec.clone(),
            prepared_at,
            began: None,
            cancelled: None,
        });
        Ok(world.release_state(&spec.run, now, self.delay))
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        let now = self.clock.elapsed();
        let mut world = self.reach()?;
        if world.release_state(run, now, self.delay) == ReleaseState::Prepared {
            let World { releases, releases_begun, .. } = &mut *world;
            if let Some(release) = releases.get_mut(&run.id) {
                release.began = Some(now);
                let (image, command) = (release.spec.image.clone(), release.spec.command.clone());
                releases_begun.push(ReleaseBegun { run: run.id, image, command, at: now });
            }
        }
        drop(world);
        self.changed.notify(usize::MAX);
        Ok(())
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        let now = self.clock.elapsed();
        Ok(self.reach()?.release_state(run, now, self.delay))
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        let now = self.clock.elapsed();
        let mut world = self.reach()?;
        let keeps_releases = world.keeps_releases;
        if let Some(release) = world.releases.get_mut(&run.id) {
            let is_over = release.end(self.delay).is_some_and(|end| end <= now);
            if !is_over && !keeps_releases {
                release.cancelled.get_or_insert(now);
            }
        }
        drop(world);
        self.changed.notify(usize::MAX);
        Ok(())
    }

    async fn changed(&self, run: &ReleaseRun) {
        // Listening starts before the state is read, so that no change is missed.
        let listener = self.changed.listen();
        let now = self.clock.elapsed();
        let next = self.lock().releases.get(&run.id).and_then(|release| release.next_change(now, self.delay));
        match next.and_then(|next| next.checked_sub(now)) {
            Some(left) => match select(listener, self.clock.sleep(left)).await {
                Either::Left(_) | Either::Right(_) => {}
            },
            None => listener.await,
        }
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        let now = self.clock.elapsed();
        let world = self.reach()?;
        let release = world.releases.get(&run.id).filter(|release| release.began.is_some());
        let log = release.map(|release| release.log(now, self.delay).into_bytes());
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        Ok(log.map(|log| log.get(from..).unwrap_or_default().to_vec()))
    }
}

impl World {
    fn release_state(&self, run: &ReleaseRun, now: Duration, delay: Duration) -> ReleaseState {
        let release = self.releases.get(&run.id);
        release.map_or(ReleaseState::Unknown, |release| release.state(self, now, delay))
    }
}
