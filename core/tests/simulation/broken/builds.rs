//! A builder that breaks promises, and stores that show a driver of builds what is not so.

use async_trait::async_trait;
use rollhook_core::{
    Result,
    app::{AppUid, Source},
    deploy::{Deploy, Reason, Revision, State},
    ports::{
        BuildFailure, BuildSpec, BuildState, BuildTrigger, DeployId, History, RolloutDriver, RolloutSpec, Started, View,
    },
};

use super::{Liar, Promise};

impl Liar {
    /// The app as a driver of builds is shown it.
    pub(super) fn shown(&self, mut view: View) -> View {
        let (now, fingerprint) = match &view.app.source {
            Source::Git(source) => (view.now, source.fingerprint()),
            Source::Image => return view,
        };
        for entry in &mut view.unfinished {
            let State::Building { since, source, .. } = &mut entry.state else { continue };
            if self.breaks(Promise::BuildDeadline) {
                *since = now;
            }
            if self.breaks(Promise::SourceChange) {
                source.clone_from(&fingerprint);
            }
        }
        if self.breaks(Promise::FirstIn) {
            let building = |entry: &&Deploy| entry.is_to_be_built() && matches!(entry.state, State::Building { .. });
            let newest = view.unfinished.iter().rfind(|entry| entry.is_to_be_built());
            let only = view.unfinished.iter().find(building).or(newest).map(|entry| entry.revision);
            view.unfinished.retain(|entry| !entry.is_to_be_built() || Some(entry.revision) == only);
        }
        view
    }

    /// What a driver records of entries that it was shown: where it was shown what is not so, as it is stored.
    pub(super) async fn recorded(&self, app: AppUid, changes: Vec<Deploy>) -> Result<Vec<Deploy>> {
        if !self.breaks(Promise::BuildDeadline) && !self.breaks(Promise::SourceChange) {
            return Ok(changes);
        }
        let stored = self.stage.store.view(app).await?.unfinished;
        let as_stored = |change: Deploy| {
            let entry = stored.iter().find(|entry| entry.revision == change.revision);
            match (&change.state, entry.map(|entry| &entry.state)) {
                (State::Building { .. }, Some(state @ State::Building { .. })) => {
                    Deploy { state: state.clone(), ..change }
                }
                _ => change,
            }
        };
        Ok(changes.into_iter().map(as_stored).collect())
    }

    /// The machine that knows the build.
    async fn machine(&self, build: DeployId) -> Result<usize> {
        Ok(usize::from(self.stage.builders[1].observe(build).await? != BuildState::Unknown))
    }

    fn was_told(&self, build: DeployId) -> bool {
        self.stage.ended.lock().unwrap().contains(&(build.app, build.revision))
    }

    /// Rolls out what was built for an entry that has ended.
    async fn roll_out_late(&self, build: DeployId, seen: &BuildState) -> Result<()> {
        let BuildState::Built { image, .. } = seen else { return Ok(()) };
        let Ok(View { app, unfinished, .. }) = self.stage.store.view(build.app).await else { return Ok(()) };
        if unfinished.iter().any(|entry| entry.revision == build.revision) {
            return Ok(());
        }
        let order = RolloutSpec {
            app: app.id,
            stamp: build,
            target: app.target,
            image: image.clone(),
            adopted: false,
            cause: "a late build".to_owned(),
        };
        self.stage.cluster.apply(&order).await?;
        self.stage.look_at_cluster(&order);
        Ok(())
    }
}

#[async_trait]
impl BuildTrigger for Liar {
    async fn start(&self, order: &BuildSpec) -> Result<Started> {
        let mut order = order.clone();
        if self.breaks(Promise::ThatCommit) {
            order.commit = "abcdef0123456789abcdef0123456789abcdef01".parse().unwrap();
        }
        let started = self.stage.builders[0].start(&order).await?;
        let Started::Busy(other) = started else { return Ok(started) };
        let told = self.was_told(DeployId { revision: other, ..order.stamp });
        if self.breaks(Promise::OneBuild) || (self.breaks(Promise::BuildEnd) && told) {
            return self.stage.builders[1].start(&order).await;
        }
        Ok(started)
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        let running = self.stage.builders[0].running(app).await?;
        let told = |revision: &Revision| self.was_told(DeployId { app, revision: *revision });
        let unsaid =
            |revision: &Revision| self.breaks(Promise::OneBuild) || (self.breaks(Promise::BuildEnd) && told(revision));
        Ok(running.filter(|revision| !unsaid(revision)))
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        let seen = self.stage.builders[self.machine(build).await?].observe(build).await?;
        if self.breaks(Promise::LateBuild) {
            self.roll_out_late(build, &seen).await?;
        }
        if self.breaks(Promise::BuildEnd) && seen == BuildState::Running && self.was_told(build) {
            let (reason, message) = (Reason::new(Reason::CANCELLED), "The build was told to end.".to_owned());
            return Ok(BuildState::Failed(BuildFailure { reason, message, commit: None, log: Vec::new() }));
        }
        if let BuildState::Built { image, .. } = &seen
            && self.breaks(Promise::ThatCommit)
        {
            let entries = self.stage.store.view(build.app).await?.unfinished;
            let entry = entries.into_iter().find(|entry| entry.revision == build.revision);
            let commit = entry.and_then(|entry| entry.commit);
            return Ok(commit.map_or(seen.clone(), |commit| BuildState::Built { image: image.clone(), commit }));
        }
        Ok(seen)
    }

    async fn changed(&self, build: DeployId) {
        self.stage.builders[0].changed(build).await;
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        self.stage.ended.lock().unwrap().insert((build.app, build.revision));
        if self.breaks(Promise::Cancelled) {
            return Ok(());
        }
        self.stage.builders[self.machine(build).await?].cancel(build).await
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        self.stage.builders[0].log(build, from).await
    }
}
