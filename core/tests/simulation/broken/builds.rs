//! A builder that breaks promises, and stores that show a driver of builds what is not so.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_core::{
    Result,
    app::{AppUid, Source},
    deploy::{Deploy, Reason, Revision, State},
    ledger::AppState,
    ports::{
        AppRef, BuildFailure, BuildSpec, BuildState, BuildTrigger, DeployId, HistoryStore, RolloutDriver, RolloutSpec,
        Started,
    },
};

use super::{BrokenBackend, Promise, store::newest_to_build};

impl BrokenBackend {
    /// The app as a driver of builds is shown it.
    pub(super) fn shown(&self, mut state: AppState) -> AppState {
        let (now, fingerprint) = match &state.app.source {
            Source::Git(source) => (state.time(self.environment.store_time()), source.fingerprint()),
            Source::Image => return state,
        };
        for entry in &mut state.unfinished {
            let State::Building { since, source, .. } = &mut Arc::make_mut(entry).state else { continue };
            if self.breaks(Promise::BuildDeadline) {
                *since = now;
            }
            if self.breaks(Promise::SourceChange) {
                source.clone_from(&fingerprint);
            }
        }
        if self.breaks(Promise::FirstIn) {
            let building =
                |entry: &&Arc<Deploy>| entry.is_to_be_built() && matches!(entry.state, State::Building { .. });
            let newest = newest_to_build(&state);
            let only = state.unfinished.iter().find(building).map(|entry| entry.revision).or(newest);
            state.unfinished.retain(|entry| !entry.is_to_be_built() || Some(entry.revision) == only);
        }
        state
    }

    /// A driver's record of an entry that it was shown; of one that was shown wrongly, the stored one.
    pub(super) fn recorded(&self, changed: &Arc<Deploy>, stored: &Deploy) -> Arc<Deploy> {
        let lied = self.breaks(Promise::BuildDeadline) || self.breaks(Promise::SourceChange);
        match (&changed.state, &stored.state) {
            (State::Building { .. }, state @ State::Building { .. }) if lied => {
                Arc::new(Deploy { state: state.clone(), ..Deploy::clone(changed) })
            }
            _ => Arc::clone(changed),
        }
    }

    /// The machine that knows the build.
    async fn machine(&self, build: DeployId) -> Result<usize> {
        Ok(usize::from(self.environment.builders[1].observe(build).await? != BuildState::Unknown))
    }

    fn was_told(&self, build: DeployId) -> bool {
        self.environment.ended.lock().unwrap().contains(&(build.app, build.revision))
    }

    /// Rolls out what was built for an entry that has ended.
    async fn roll_out_late(&self, build: DeployId, seen: &BuildState) -> Result<()> {
        let BuildState::Built { image, .. } = seen else { return Ok(()) };
        let Some(loaded) = self.environment.store.load(AppRef::Uid(build.app), None).await? else { return Ok(()) };
        let AppState { app, unfinished, .. } = loaded.state;
        if unfinished.iter().any(|entry| entry.revision == build.revision) {
            return Ok(());
        }
        let order = RolloutSpec::new(app.id.clone(), build, app.target.clone(), image.clone());
        self.environment.cluster.apply(&order).await?;
        self.environment.look_at_cluster(&order);
        Ok(())
    }
}

#[async_trait]
impl BuildTrigger for BrokenBackend {
    async fn start(&self, order: &BuildSpec) -> Result<Started> {
        let mut order = order.clone();
        if self.breaks(Promise::ThatCommit) {
            order.commit = "abcdef0123456789abcdef0123456789abcdef01".parse().unwrap();
        }
        let started = self.environment.builders[0].start(&order).await?;
        let Started::Busy(other) = started else { return Ok(started) };
        let told = self.was_told(DeployId { revision: other, ..order.id });
        if self.breaks(Promise::OneBuild) || (self.breaks(Promise::BuildEnd) && told) {
            return self.environment.builders[1].start(&order).await;
        }
        Ok(started)
    }

    async fn running(&self, app: AppUid) -> Result<Option<Revision>> {
        let running = self.environment.builders[0].running(app).await?;
        let told = |revision: &Revision| self.was_told(DeployId { app, revision: *revision });
        let unsaid =
            |revision: &Revision| self.breaks(Promise::OneBuild) || (self.breaks(Promise::BuildEnd) && told(revision));
        Ok(running.filter(|revision| !unsaid(revision)))
    }

    async fn observe(&self, build: DeployId) -> Result<BuildState> {
        let seen = self.environment.builders[self.machine(build).await?].observe(build).await?;
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
            let loaded = self.environment.store.load(AppRef::Uid(build.app), None).await?;
            let entry = loaded.and_then(|loaded| loaded.state.unfinished(build.revision).cloned());
            let commit = entry.and_then(|entry| entry.commit.clone());
            return Ok(commit.map_or(seen.clone(), |commit| BuildState::Built { image: image.clone(), commit }));
        }
        Ok(seen)
    }

    async fn changed(&self, build: DeployId) {
        self.environment.builders[0].changed(build).await;
    }

    async fn cancel(&self, build: DeployId) -> Result<()> {
        self.environment.ended.lock().unwrap().insert((build.app, build.revision));
        if self.breaks(Promise::Cancelled) {
            return Ok(());
        }
        self.environment.builders[self.machine(build).await?].cancel(build).await
    }

    async fn log(&self, build: DeployId, from: u64) -> Result<Option<Vec<u8>>> {
        self.environment.builders[0].log(build, from).await
    }
}
