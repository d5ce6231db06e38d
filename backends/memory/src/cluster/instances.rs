//! Instances of the simulated cluster, and their logs: lines that follow from the script, at times of the clock.

use std::time::Duration;

use async_trait::async_trait;
use rollhook_core::{
    Result,
    app::App,
    instance::InstanceName,
    ports::{InstanceLogPart, InstanceLogs, LOG_LINES_MAX, LogQuery, LogReader, TargetInstance},
};

use super::{
    SimulatedCluster, key,
    script::{Scene, Scripts},
    workload::{Pod, Running},
};

/// The time between the lines of an instance that runs.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// The time until an instance that crashes does so, as its log has it.
const CRASHES_AFTER: Duration = Duration::from_millis(1);

/// A life of a pod's container: its begin and end on the clock, and what it writes.
struct Life {
    image: String,
    begin: Duration,
    end: Duration,
    is_crash: bool,
}

impl Life {
    /// Returns the lines, each behind its time in nanoseconds; the newest of many.
    fn log(&self) -> String {
        let line = |at: Duration, text: &str| format!("{} {text}\n", at.as_nanos());
        let starting = line(self.begin, &format!("starting {}", self.image));
        if self.is_crash {
            let loading = line(self.begin, "simulated: loading");
            return starting + &loading + &line(self.begin + CRASHES_AFTER, "simulated: exiting with code 1");
        }
        let lived = self.end.saturating_sub(self.begin).as_nanos() / LINE_EVERY.as_nanos();
        let lived = u32::try_from(lived).unwrap_or(u32::MAX);
        let newest = lived.saturating_sub(LOG_LINES_MAX.try_into().unwrap_or(u32::MAX));
        let served = (newest + 1..=lived).map(|number| {
            let text = format!("simulated: served for {} s", (LINE_EVERY * number).as_secs());
            line(self.begin + LINE_EVERY * number, &text)
        });
        starting + &line(self.begin, "simulated: listening") + &served.collect::<String>()
    }
}

/// An instance, and its lives, the present one last.
struct Found {
    instance: TargetInstance,
    lives: Vec<Life>,
}

fn found(app: &App, name: &str, running: &Running, scripts: &Scripts, now: Duration, delay: Duration) -> Vec<Found> {
    let scene = running.scene(scripts, now, delay);
    let new = running.made_pods().into_iter().zip(0..);
    let new = new.map(|(pod, number)| made(app, name, (pod, number < scene.ready), (running, &scene), now));
    let old = running.all_pods(scripts, now, delay).into_iter().filter(|pod| !running.has_made(pod));
    let old = old.map(|pod| {
        let life = Life { image: pod.image.to_string(), begin: Duration::ZERO, end: now, is_crash: false };
        Found { instance: instance(app, name, &pod, ("running and ready".to_owned(), true, 0)), lives: vec![life] }
    });
    new.chain(old).collect()
}

fn made(
    app: &App,
    name: &str,
    (pod, is_ready): (Pod, bool),
    (running, scene): (&Running, &Scene),
    now: Duration,
) -> Found {
    let state = match &scene.failure {
        _ if is_ready => "running and ready".to_owned(),
        Some(failure) => format!("waiting: {}", failure.reason),
        None => "running, not ready".to_owned(),
    };
    let is_crash = !is_ready && scene.restarts > 0;
    let since = now.saturating_sub(running.age(now));
    let life = |begin, end| Life { image: pod.image.to_string(), begin, end, is_crash };
    let has_begun = scene.failure.is_none() || scene.restarts > 0;
    let lives = match &scene.past_lives {
        _ if !has_begun => Vec::new(),
        None => vec![life(since, now)],
        Some(past) => {
            let begin = now.saturating_sub(past.ended_ago).max(since);
            vec![life(begin.saturating_sub(past.last).max(since), begin), life(begin, now)]
        }
    };
    Found { instance: instance(app, name, &pod, (state, is_ready, scene.restarts)), lives }
}

fn instance(app: &App, name: &str, pod: &Pod, (state, is_ready, restarts): (String, bool, u32)) -> TargetInstance {
    let name = InstanceName::shortened(&format!("{name}-{}", pod.id));
    let revision = pod.deploy.filter(|deploy| deploy.app == app.uid).map(|deploy| deploy.revision);
    TargetInstance { id: name.clone(), name, revision, state, is_ready, restarts, workload: None }
}

impl SimulatedCluster {
    fn found(&self, app: &App) -> Result<Vec<Found>> {
        let now = self.clock.elapsed();
        let world = self.reach()?;
        let key = key(&app.id, &app.target);
        let running = world.workloads.get(&key);
        Ok(running.map(|running| found(app, &key.2, running, &world.scripts, now, self.delay)).unwrap_or_default())
    }
}

#[async_trait]
impl InstanceLogs for SimulatedCluster {
    async fn instances(&self, app: &App) -> Result<Vec<TargetInstance>> {
        Ok(self.found(app)?.into_iter().map(|found| found.instance).collect())
    }

    async fn read(&self, app: &App, instance: &InstanceName, query: &LogQuery) -> Result<Option<InstanceLogPart>> {
        let found = self.found(app)?.into_iter().find(|found| found.instance.name == *instance);
        let Some(Found { lives, .. }) = found else { return Ok(None) };
        let lives = match lives.as_slice() {
            [before, _] if query.previous => std::slice::from_ref(before),
            _ if query.previous => &[],
            [_, present] if query.after.is_none() => std::slice::from_ref(present),
            lives => lives,
        };
        let mut reader = LogReader::new(query, |time| time.parse().ok());
        lives.iter().for_each(|life| reader.take(life.log().as_bytes()));
        Ok(Some(reader.finish(false)))
    }
}
