//! Several workloads of one app, deployed as one.
//!
//! [`Workloads`] is a rollout driver over any other. The setting `also` of a target names the workloads that an app has
//! beside its first one:
//!
//! ```json
//! {"kind": "Deployment", "name": "web", "also": ["+Deployment/worker", "CronJob/nightly:app"]}
//! ```
//!
//! Each workload carries the same deploy id, by which the driver below fences it; nothing else is kept, so that another
//! process goes on where one has ended. A deploy takes the workloads in the order given, each once all before it are
//! complete; a `+` lets a workload go together with the one before it. A return to an earlier version takes all at once,
//! the last one first. What is to be done next is decided from one observation of each workload (`steps.rs`).
//!
//! A further workload exists already. One with a `command` is made where it does not, by the template of a first one that is
//! made, with that command: `{"kind": "container", "name": "worker", "command": ["bin/jobs"]}`. The configuration may have
//! another one for it, by its name: `{"commands": {"worker": ["bin/work"]}}` (`commands.rs`).
//!
//! An app with one workload is handed to the driver below as it is.

mod begun;
mod commands;
mod parts;
mod registration;
mod report;
mod steps;

use std::{cmp::Reverse, sync::Arc};

use async_trait::async_trait;
use futures_util::{
    Stream, StreamExt, TryStreamExt,
    future::{join_all, select_all},
    stream::{self, BoxStream},
};
use rollhook_core::{
    Error, Result,
    app::{App, AppUid, Target},
    deploy::{Evidence, Reason},
    instance::InstanceName,
    ports::{
        Applied, AtRest, CheckedSettings, DriverIdentity, InstanceAddresses, InstanceLogPart, InstanceLogs, LogQuery,
        LoggedWorkload, Observation, Phase, ReadyInstances, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState,
        RolloutDriver, RolloutFailure, RolloutSpec, SettingsRequest, StoredImages, TargetDescription, TargetInstance,
        TargetReader, TargetRequest, TargetSetting, Validated,
    },
};

use crate::{
    begun::Begun,
    parts::{Part, Parts, split},
    report::Refused,
};

/// The reads of one app's workloads that are under way at once: each may hold lists of instances.
const READS_AT_ONCE: usize = 2;

/// Returns the results of these reads in their order, of which a few are under way at once.
fn in_turns<F: Future>(reads: Vec<F>) -> impl Stream<Item = F::Output> {
    stream::iter(reads).buffered(READS_AT_ONCE)
}

/// The most instances that are listed.
const INSTANCES_MAX: usize = 100;

/// A rollout driver for apps with several workloads, over the driver of one workload.
pub struct Workloads {
    inner: Arc<dyn RolloutDriver>,
    description: TargetDescription,
    begun: Begun,
}

impl Workloads {
    /// Returns the driver over this one.
    pub fn over(inner: Arc<dyn RolloutDriver>) -> Self {
        let mut description = inner.describe();
        let settings: Vec<TargetSetting> =
            description.settings.iter().copied().chain([registration::SETTING]).collect();
        // The description of a driver lives as long as the process, as does the driver itself.
        description.settings = settings.leak();
        Self { inner, description, begun: Begun::default() }
    }

    /// Applies a deploy to these workloads: begun in this order, and all at the same time, so that none waits for one whose
    /// call fails or takes long. Each has a fence of its own.
    async fn apply_to(&self, spec: &RolloutSpec, parts: &[&Part]) -> Vec<Result<Applied>> {
        let specs: Vec<_> = parts.iter().map(|part| part.spec(spec)).collect();
        let answers = join_all(specs.iter().map(|spec| self.inner.apply(spec))).await;
        for (part, answer) in parts.iter().zip(&answers) {
            if matches!(answer, Ok(Applied::Done)) {
                self.begun.note(spec.id, &part.name);
            }
        }
        answers
    }

    /// Begins a deploy with these workloads; `is_changed`: another one was changed already. Returns a refusal, or a failure that
    /// repeating does not mend, only if no workload was changed: else it is for an observation to report.
    async fn begin(&self, spec: &RolloutSpec, parts: &[&Part], is_changed: bool) -> Result<Applied> {
        let answers = self.apply_to(spec, parts).await;
        if let Some(Ok(newer)) = answers.iter().find(|answer| matches!(answer, Ok(Applied::Newer(_)))) {
            return Ok(newer.clone());
        }
        let is_changed = is_changed || answers.iter().any(|answer| matches!(answer, Ok(Applied::Done)));
        let (mut refused, mut failed) = (None, None);
        for (part, answer) in parts.iter().zip(answers) {
            match answer {
                Ok(Applied::Refused { reason, message }) if !is_changed => {
                    let message = format!("{}: {message}", part.name);
                    refused.get_or_insert(Applied::Refused { reason, message });
                }
                Err(error) if error.is_transient() || !is_changed => failed = failed.or(Some(error)),
                Ok(_) | Err(_) => {}
            }
        }
        failed.map_or_else(|| Ok(refused.unwrap_or(Applied::Done)), Err)
    }

    /// Begins a deploy: with the first workloads, if none of the others is gone; or a return to an earlier version, with all.
    async fn begin_first(&self, spec: &RolloutSpec, parts: &Parts) -> Result<Applied> {
        let specs = parts.specs(spec);
        let seen: Vec<_> = in_turns(specs.iter().map(|spec| self.inner.observe(spec)).collect()).collect().await;
        let seen = || parts.iter().zip(&seen).enumerate();
        if spec.purpose.returns_to().is_some() {
            let is_left = |index, seen: &Result<Observation>| {
                seen.as_ref().is_ok_and(|seen| steps::is_left_alone(spec, index, seen))
            };
            let first = seen().rev().filter(|(index, (_, seen))| !is_left(*index, seen)).map(|(_, (part, _))| part);
            return self.begin(spec, &first.collect::<Vec<_>>(), false).await;
        }
        let gone = |(part, seen): (&Part, &Result<Observation>)| {
            if part.is_made() {
                return None;
            }
            let failure = seen.as_ref().ok()?.failure.as_ref()?;
            let is_gone = failure.reason.as_str() == Reason::TARGET_MISSING;
            is_gone.then(|| Applied::Refused {
                reason: failure.reason.clone(),
                message: format!(
                    "{} does not exist: make it, or take it off the app's workloads. No workload was changed.",
                    part.name
                ),
            })
        };
        if let Some(refused) = seen().skip(1).map(|(_, found)| found).find_map(gone) {
            return Ok(refused);
        }
        let begun = self.begin(spec, &[parts.get(0)], false).await?;
        if begun != Applied::Done {
            return Ok(begun);
        }
        let together: Vec<&Part> = parts.iter().skip(1).filter(|part| part.stage == 0).collect();
        self.begin(spec, &together, true).await
    }

    /// Returns the observations of all workloads, in their order.
    async fn seen(&self, spec: &RolloutSpec, parts: &Parts) -> Result<Vec<Observation>> {
        let specs = parts.specs(spec);
        in_turns(specs.iter().map(|spec| self.inner.observe(spec)).collect()).try_collect().await
    }

    /// Returns the observation of a deploy, after the next rollouts that are due were begun.
    async fn advanced(&self, spec: &RolloutSpec, parts: &Parts) -> Result<Observation> {
        let seen = self.seen(spec, parts).await?;
        let begun = self.begun.of(spec.id);
        let steps = steps::of(parts, &seen, spec, &begun);
        let due: Vec<&Part> = steps.due.iter().map(|index| parts.get(*index)).collect();
        let (mut refused, mut failed) = (Vec::new(), None);
        for (part, answer) in steps.due.iter().copied().zip(self.apply_to(spec, &due).await) {
            match answer {
                Ok(Applied::Done) => {}
                Ok(Applied::Newer(newer)) => return Ok(report::newer(spec, parts.get(part), newer)),
                Ok(Applied::Refused { message, .. }) => refused.push(Refused { part, message }),
                Err(error) if error.is_transient() => failed = failed.or(Some(error)),
                Err(error) => refused.push(Refused { part, message: error.to_string() }),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        Ok(report::of_deploy(parts, seen, spec, &steps, refused))
    }

    fn logs(&self) -> Result<&dyn InstanceLogs> {
        self.inner.instance_logs().ok_or_else(|| Error::invalid("the driver below keeps no logs"))
    }

    fn runner(&self) -> Result<&dyn ReleaseRunner> {
        self.inner.release_runner().ok_or_else(|| Error::invalid("the driver below runs no release commands"))
    }
}

impl Workloads {
    /// Returns why something cannot be done to one of the workloads, by its name.
    fn first_reason(&self, target: &Target, why: impl Fn(&Target) -> Option<String>) -> Option<String> {
        // Settings that cannot be read are for the calls that use them to report.
        let Ok(Some(parts)) = Parts::of(target) else { return why(target) };
        parts.iter().find_map(|part| {
            let own = Target { settings: part.settings.clone(), ..target.clone() };
            why(&own).map(|why| format!("{}: {why}", part.name))
        })
    }
}

#[async_trait]
impl RolloutDriver for Workloads {
    async fn identity(&self) -> Result<DriverIdentity> {
        self.inner.identity().await
    }

    fn describe(&self) -> TargetDescription {
        self.description
    }

    fn unstoppable(&self, target: &Target) -> Option<String> {
        self.first_reason(target, |own| self.inner.unstoppable(own))
    }

    fn unconfigurable(&self, target: &Target) -> Option<String> {
        self.first_reason(target, |own| self.inner.unconfigurable(own))
    }

    async fn check_settings(&self, request: &SettingsRequest) -> Result<CheckedSettings> {
        match Parts::of(&request.target)? {
            Some(parts) => commands::check_settings(self.inner.as_ref(), &parts, request).await,
            None => self.inner.check_settings(request).await,
        }
    }

    fn has_same_workloads(&self, before: &Target, after: &Target) -> bool {
        split(&before.settings).1 == split(&after.settings).1
    }

    fn fetches_images(&self) -> bool {
        self.inner.fetches_images()
    }

    fn observes_with_variables(&self, target: &Target) -> bool {
        // The later workloads are brought to the deploy while it is observed.
        !matches!(Parts::of(target), Ok(None)) || self.inner.observes_with_variables(target)
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        registration::validate(self.inner.as_ref(), request).await
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        let Some(parts) = Parts::of(&spec.target)? else { return self.inner.apply(spec).await };
        if spec.adopted {
            return self.inner.apply(&parts.get(0).spec(spec)).await;
        }
        self.begin_first(spec, &parts).await
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        let Some(parts) = Parts::of(&spec.target)? else { return self.inner.observe(spec).await };
        if spec.adopted {
            return Ok(report::of_adopted(&parts, self.seen(spec, &parts).await?, spec));
        }
        self.advanced(spec, &parts).await
    }

    async fn changed(&self, spec: &RolloutSpec) {
        match Parts::of(&spec.target) {
            Ok(Some(parts)) => {
                let specs = parts.specs(spec);
                select_all(specs.iter().map(|spec| self.inner.changed(spec))).await;
            }
            Ok(None) | Err(_) => self.inner.changed(spec).await,
        }
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        let Some(parts) = Parts::of(&spec.target)? else { return self.inner.evidence(spec, failure).await };
        if let Some((part, own)) = failure.and_then(|failure| report::failed(&parts, failure)) {
            return self.inner.evidence(&part.spec(spec), Some(&own)).await;
        }
        // A deadline, or restarts: the evidence is that of the first workload that is not complete, or was restarted most.
        let specs = parts.specs(spec);
        let seen: Vec<_> = in_turns(specs.iter().map(|spec| self.inner.observe(spec)).collect()).collect().await;
        let seen = seen.iter().map(|seen| seen.as_ref().ok().filter(|seen| seen.deploy == Some(spec.id)));
        let rank = |seen: Option<&Observation>| {
            seen.map(|seen| (seen.phase == Phase::Progressing, seen.restarts)).unwrap_or_default()
        };
        // Of equals, the first.
        let worst = seen.enumerate().max_by_key(|(index, seen)| (rank(*seen), Reverse(*index)));
        let worst = worst.map(|(index, _)| index).unwrap_or_default();
        self.inner.evidence(&parts.get(worst).spec(spec), failure).await
    }

    fn target_reader(&self) -> Option<&dyn TargetReader> {
        self.inner.target_reader().map(|_| self as _)
    }

    fn stored_images(&self) -> Option<&dyn StoredImages> {
        self.inner.stored_images()
    }

    fn release_runner(&self) -> Option<&dyn ReleaseRunner> {
        self.inner.release_runner().map(|_| self as _)
    }

    fn instance_logs(&self) -> Option<&dyn InstanceLogs> {
        self.inner.instance_logs().map(|_| self as _)
    }

    fn instance_addresses(&self) -> Option<&dyn InstanceAddresses> {
        self.inner.instance_addresses().map(|_| self as _)
    }

    async fn forget(&self, app: &App) -> Result<()> {
        self.begun.forget(app.uid);
        self.inner.forget(app).await
    }
}

#[async_trait]
impl TargetReader for Workloads {
    async fn at_rest(&self, spec: &RolloutSpec) -> Result<AtRest> {
        let Some(reader) = self.inner.target_reader() else {
            return Err(Error::invalid("the driver below reads no targets at rest"));
        };
        self.begun.ended(spec.id);
        let Some(parts) = Parts::of(&spec.target)? else { return reader.at_rest(spec).await };
        let specs = parts.specs(spec);
        let found = in_turns(specs.iter().map(|spec| reader.at_rest(spec)).collect()).try_collect().await?;
        Ok(report::at_rest(&parts, found, spec))
    }

    fn target_changes(&self) -> BoxStream<'static, AppUid> {
        match self.inner.target_reader() {
            Some(reader) => reader.target_changes(),
            None => Box::pin(futures_util::stream::empty()),
        }
    }

    fn forget_targets(&self, app: AppUid) {
        if let Some(reader) = self.inner.target_reader() {
            reader.forget_targets(app);
        }
    }
}

#[async_trait]
impl InstanceLogs for Workloads {
    async fn instances(&self, app: &App) -> Result<Vec<TargetInstance>> {
        let Some(parts) = Parts::of(&app.target)? else { return self.logs()?.instances(app).await };
        let logs = self.logs()?;
        let apps: Vec<App> = parts.iter().map(|part| part.app(app)).collect();
        let answers: Vec<_> = in_turns(apps.iter().map(|app| logs.instances(app)).collect()).collect().await;
        // What can be read is shown.
        if answers.iter().all(Result::is_err) {
            return answers.into_iter().next().unwrap_or_else(|| Ok(Vec::new()));
        }
        let named = parts.iter().zip(answers).flat_map(|(part, answer)| {
            let named = |instance| TargetInstance { workload: Some(part.name.clone()), ..instance };
            answer.into_iter().flatten().map(named)
        });
        let mut all: Vec<TargetInstance> = named.collect();
        // A stable sort: of each revision, the workloads keep their order.
        all.sort_by_key(|instance| Reverse(instance.revision));
        all.truncate(INSTANCES_MAX);
        Ok(all)
    }

    async fn read(&self, app: &App, instance: &InstanceName, query: &LogQuery) -> Result<Option<InstanceLogPart>> {
        let Some(parts) = Parts::of(&app.target)? else { return self.logs()?.read(app, instance, query).await };
        let mut failed = None;
        for part in parts.iter() {
            match self.logs()?.read(&part.app(app), instance, query).await {
                Ok(Some(read)) => return Ok(Some(read)),
                Ok(None) => {}
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    fn workloads(&self, app: &App) -> Result<Vec<LoggedWorkload>> {
        let Some(parts) = Parts::of(&app.target)? else {
            let name = parts::name(&app.target.settings, 0);
            return Ok(vec![LoggedWorkload { name, app: app.clone() }]);
        };
        Ok(parts.iter().map(|part| LoggedWorkload { name: part.name.clone(), app: part.app(app) }).collect())
    }
}

/// The instances that are asked are those of the first workload: the others, such as workers, serve nobody.
#[async_trait]
impl InstanceAddresses for Workloads {
    async fn addresses(&self, spec: &RolloutSpec, port: u16) -> Result<ReadyInstances> {
        let Some(addresses) = self.inner.instance_addresses() else {
            return Err(Error::invalid("the driver below names no addresses of instances"));
        };
        match Parts::of(&spec.target)? {
            Some(parts) => addresses.addresses(&parts.get(0).spec(spec), port).await,
            None => addresses.addresses(spec, port).await,
        }
    }
}

/// A release command runs as the first workload does.
#[async_trait]
impl ReleaseRunner for Workloads {
    async fn prepare(&self, spec: &ReleaseSpec) -> Result<ReleaseState> {
        let Some(parts) = Parts::of(&spec.target)? else { return self.runner()?.prepare(spec).await };
        let first = spec.clone().with(|spec| spec.target.settings = parts.get(0).settings.clone());
        self.runner()?.prepare(&first).await
    }

    async fn start(&self, run: &ReleaseRun) -> Result<()> {
        self.runner()?.start(run).await
    }

    async fn observe(&self, run: &ReleaseRun) -> Result<ReleaseState> {
        self.runner()?.observe(run).await
    }

    async fn cancel(&self, run: &ReleaseRun) -> Result<()> {
        self.runner()?.cancel(run).await
    }

    async fn changed(&self, run: &ReleaseRun) {
        match self.inner.release_runner() {
            Some(runner) => runner.changed(run).await,
            None => std::future::pending().await,
        }
    }

    async fn log(&self, run: &ReleaseRun, from: u64) -> Result<Option<Vec<u8>>> {
        self.runner()?.log(run, from).await
    }
}
