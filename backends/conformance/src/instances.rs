//! The promises of [`rollhook_core::ports::InstanceLogs`].

use std::{collections::BTreeSet, sync::Arc};

use rollhook_core::{
    app::App,
    instance::InstanceName,
    ports::{Applied, InstanceLogPart, InstanceLogs, LogPosition, LogQuery, RolloutDriver, TargetInstance},
};

use crate::{
    clusters::{Clusters, Sample},
    report::{Can, Lack},
    rollouts::{Bench, OURS},
    samples,
};

/// How often is looked for what must come: a minute, at four looks a second.
const LOOKS: usize = 240;
/// How often a log is read anew whose instance was restarted meanwhile.
const ATTEMPTS: usize = 20;

/// A target whose instances' logs are read.
struct Logs<'a> {
    cluster: &'a dyn Clusters,
    bench: Bench<'a>,
    rollouts: Arc<dyn RolloutDriver>,
    app: App,
}

impl<'a> Logs<'a> {
    async fn new(cluster: &'a dyn Clusters, name: &str) -> Can<Self> {
        let rollouts = cluster.rollouts();
        if rollouts.instance_logs().is_none() {
            return Err(Lack::NotApplicable("the driver keeps no logs of instances"));
        }
        let bench = Bench::new(cluster, name).await;
        let app = bench.app();
        Ok(Self { cluster, bench, rollouts, app })
    }

    fn port(&self) -> &dyn InstanceLogs {
        self.rollouts.instance_logs().unwrap()
    }

    async fn instances(&self) -> Vec<TargetInstance> {
        let found = self.bench.patiently(async || self.port().instances(&self.app).await).await;
        let names: BTreeSet<_> = found.iter().map(|instance| instance.name.clone()).collect();
        assert_eq!(names.len(), found.len(), "each has a name of its own: {found:?}");
        assert!(found.len() <= 100 && found.iter().all(|instance| !instance.state.is_empty()), "{found:?}");
        found
    }

    async fn read(&self, instance: &InstanceName, query: LogQuery) -> Option<InstanceLogPart> {
        let part = self.bench.patiently(async || self.port().read(&self.app, instance, &query).await).await?;
        assert!(part.lines.len() <= query.lines, "{query:?}: {part:?}");
        Some(part)
    }

    /// Waits for instances of which this is seen.
    async fn until(&self, what: &str, seen: impl Fn(&[TargetInstance]) -> bool) -> Vec<TargetInstance> {
        let mut last = self.instances().await;
        for _ in 0..LOOKS {
            if seen(&last) {
                return last;
            }
            self.cluster.pause().await;
            last = self.instances().await;
        }
        panic!("not {what} within a minute: {last:?}");
    }

    /// Rolls a crashing image out, and returns an instance of it that was restarted this often.
    async fn crashed(&self, restarts: u32) -> Can<TargetInstance> {
        assert_eq!(self.bench.apply(&self.bench.order(OURS, 2, Sample::Crashing)?).await, Applied::Done);
        let is_it = |instance: &TargetInstance| {
            instance.revision == Some(samples::revision(2)) && instance.restarts >= restarts
        };
        let found = self.until("restarted", |found| found.iter().any(is_it)).await;
        Ok(found.into_iter().find(is_it).unwrap())
    }

    /// Returns a part once it has this line.
    async fn with_line(&self, instance: &InstanceName, query: LogQuery, line: &str) -> InstanceLogPart {
        let mut last = None;
        for _ in 0..LOOKS {
            last = self.read(instance, query).await;
            if let Some(part) = &last
                && part.lines.iter().any(|found| found.text.contains(line))
            {
                return part.clone();
            }
            self.cluster.pause().await;
        }
        panic!("{line:?} is not in the log within a minute: {last:?}");
    }

    /// Returns the log from its start on, read in parts of so many lines.
    async fn whole(&self, instance: &InstanceName, lines: usize) -> Vec<String> {
        let (mut all, mut position) = (Vec::new(), LogPosition::START);
        // Bounded, as an instance may write faster than it is read.
        for _ in 0..1000 {
            let part = self.read(instance, LogQuery::newest(lines).after(position)).await.unwrap();
            assert!(part.next >= position, "{part:?} goes back from {position}");
            position = part.next;
            all.extend(part.lines.into_iter().map(|line| format!("{} {}", line.at.as_millis(), line.text)));
            if !part.has_more {
                let rest = self.read(instance, LogQuery::newest(lines).after(position)).await.unwrap();
                assert!(rest.lines.iter().all(|line| line.at.as_millis() * 1_000_000 >= position.time - 1_000_000_000));
                break;
            }
        }
        all
    }
}

/// Instances are listed by their names, with the revision that made them.
pub async fn instances_are_those_of_the_target(cluster: &dyn Clusters) -> Can {
    let logs = Logs::new(cluster, "instances").await?;
    for (revision, sample) in [(1, Sample::Good), (2, Sample::Another)] {
        logs.bench.roll_out(&logs.bench.order(OURS, revision, sample)?).await;
        let revision = Some(samples::revision(revision));
        let is_it = |instance: &TargetInstance| instance.revision == revision && instance.is_ready;
        let found = logs.until("ready", |found| found.first().is_some_and(is_it)).await;
        if let Ok(running) = cluster.instances(&logs.bench.app, &logs.bench.target).await {
            assert!(found.iter().filter(|instance| is_it(instance)).count() >= running.len(), "{found:?}");
        }
        for instance in &found {
            assert!(logs.read(&instance.id, LogQuery::newest(1)).await.is_some(), "{instance:?} is known by its id");
        }
    }
    Ok(())
}

/// The newest lines are those that the instance has written last.
pub async fn instance_log_has_what_was_written(cluster: &dyn Clusters) -> Can {
    let logs = Logs::new(cluster, "instance-log").await?;
    let instance = logs.crashed(0).await?;
    let logged = cluster.logged(&logs.bench.app, &logs.bench.target).await?;
    let part = logs.with_line(&instance.name, LogQuery::newest(10), &logged).await;
    assert!(part.lines.is_sorted_by_key(|line| line.at), "oldest first: {part:?}");
    for _ in 0..ATTEMPTS {
        let one = logs.read(&instance.name, LogQuery::newest(1)).await.unwrap();
        if one.lines.iter().any(|line| line.text.contains(&logged)) {
            return Ok(());
        }
        cluster.pause().await;
    }
    panic!("the newest line is never {logged:?}");
}

/// Parts of any size have each line once.
pub async fn instance_log_goes_on_behind_a_position(cluster: &dyn Clusters) -> Can {
    let logs = Logs::new(cluster, "instance-parts").await?;
    let instance = logs.crashed(1).await?;
    let logged = cluster.logged(&logs.bench.app, &logs.bench.target).await?;
    logs.with_line(&instance.name, LogQuery::newest(10), &logged).await;
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let whole = logs.whole(&instance.name, 1000).await;
        let single = logs.whole(&instance.name, 1).await;
        if whole == single && whole.iter().any(|line| line.contains(&logged)) {
            return Ok(());
        }
        // It may have been restarted, and have written more, in between.
        last = Some((whole, single));
        cluster.pause().await;
    }
    panic!("lines are missing, or repeated: {last:?}");
}

/// `previous` is the log of a life that has ended.
pub async fn previous_is_the_life_before(cluster: &dyn Clusters) -> Can {
    let logs = Logs::new(cluster, "instance-previous").await?;
    logs.bench.roll_out(&logs.bench.order(OURS, 1, Sample::Good)?).await;
    let sound = logs.until("ready", |found| found.iter().any(|instance| instance.is_ready)).await;
    for instance in sound.iter().filter(|instance| instance.restarts == 0) {
        let part = logs.read(&instance.name, LogQuery::newest(10).of_previous()).await.unwrap();
        assert_eq!(part.lines, [], "{instance:?} was never restarted");
    }
    let instance = logs.crashed(1).await?;
    let logged = cluster.logged(&logs.bench.app, &logs.bench.target).await?;
    logs.with_line(&instance.name, LogQuery::newest(10).of_previous(), &logged).await;
    Ok(())
}

/// There is no log of an instance that is not the app's.
pub async fn instance_log_of_unknown_is_none(cluster: &dyn Clusters) -> Can {
    let logs = Logs::new(cluster, "instance-unknown").await?;
    logs.bench.roll_out(&logs.bench.order(OURS, 1, Sample::Good)?).await;
    let other = Logs::new(cluster, "instance-other").await?;
    other.bench.roll_out(&other.bench.order(OURS, 1, Sample::Good)?).await;
    assert_eq!(logs.read(&"nosuch".parse().unwrap(), LogQuery::newest(1)).await, None);
    for instance in other.instances().await {
        assert_eq!(logs.read(&instance.name, LogQuery::newest(1)).await, None, "{instance:?} is another app's");
        assert_eq!(logs.read(&instance.id, LogQuery::newest(1)).await, None, "{instance:?} is another app's");
    }
    Ok(())
}

/// While the platform cannot be reached, a log is not empty.
pub async fn instance_logs_away_is_unavailable(cluster: &dyn Clusters) -> Can {
    let logs = Logs::new(cluster, "instance-away").await?;
    let away = cluster.away().await?;
    let port = away.instance_logs().unwrap();
    assert!(port.instances(&logs.app).await.is_err_and(|error| error.is_unavailable()));
    let read = port.read(&logs.app, &"nosuch".parse().unwrap(), &LogQuery::newest(1)).await;
    assert!(read.is_err_and(|error| error.is_unavailable()));
    Ok(())
}
