//! Stops and starts, and deploys of what is stopped.

use rollhook_core::{
    deploy::Scale,
    ports::{Observation, Phase, Purpose, RolloutSpec},
};

use super::{Bench, OURS, is_same};
use crate::{
    clusters::{Clusters, Sample},
    report::{Can, Lack},
    samples,
};

impl Bench<'_> {
    fn scaling(&self, revision: u64, sample: Sample, scale: Scale) -> Can<RolloutSpec> {
        Ok(self.order(OURS, revision, sample)?.with(|spec| spec.scale = scale))
    }

    /// Rolls out, and asserts that no instance is left.
    async fn rests(&self, order: &RolloutSpec, what: &str) -> Can<Observation> {
        let seen = self.roll_out(order).await;
        assert_eq!(seen.deploy, Some(order.id));
        let running = self.cluster.instances(&self.app, &self.target).await?;
        assert!(running.is_empty(), "instances run after {what}: {running:?}");
        Ok(seen)
    }
}

/// Returns a target with its first deploy, which can be stopped.
async fn stoppable<'a>(cluster: &'a dyn Clusters, name: &str) -> Can<Bench<'a>> {
    let bench = Bench::new(cluster, name).await;
    bench.roll_out(&bench.order(OURS, 1, Sample::Good)?).await;
    let Some(why) = bench.rollouts.unstoppable(&bench.target) else { return Ok(bench) };
    assert!(!why.is_empty(), "a person is told why");
    Err(Lack::NotApplicable("the driver stops no targets"))
}

/// A stop leaves no instance, and a start brings back as many as there were, also after a second stop.
pub async fn apply_stops_and_starts(cluster: &dyn Clusters) -> Can {
    let bench = stoppable(cluster, "stop-start").await?;
    let configured = cluster.configuration(&bench.app, &bench.target).await?;
    let stop = bench.scaling(2, Sample::Good, Scale::Stop)?;
    let seen = bench.rests(&stop, "a stop").await?;
    let Phase::Complete { note, .. } = seen.phase else { panic!("not complete") };
    assert!(note.is_some(), "the history says that nothing runs");
    let stopped = bench.fingerprint().await;
    bench.rests(&stop, "a stop that was applied again").await?;
    assert_eq!(bench.fingerprint().await, stopped, "nothing was changed");
    bench.rests(&bench.scaling(3, Sample::Good, Scale::Stop)?, "a second stop").await?;
    bench.roll_out(&bench.scaling(4, Sample::Good, Scale::Start)?).await;
    assert!(!bench.instances().await?.is_empty());
    let found = cluster.configuration(&bench.app, &bench.target).await?;
    assert_eq!(found, configured, "the start brought back something else");
    Ok(())
}

/// A deploy of a stopped target changes its image and starts nothing; the restore of a failed start stops it again.
pub async fn apply_leaves_a_stopped_target_stopped(cluster: &dyn Clusters) -> Can {
    let bench = stoppable(cluster, "stopped-deploy").await?;
    let configured = cluster.configuration(&bench.app, &bench.target).await?;
    bench.rests(&bench.scaling(2, Sample::Good, Scale::Stop)?, "a stop").await?;
    let other = bench.order(OURS, 3, Sample::Another)?;
    bench.rests(&other, "a deploy of what is stopped").await?;
    assert!(is_same(&bench.stored().await.1, &other.image), "the deploy did not set its image");

    let fails = bench.scaling(4, Sample::Missing, Scale::Start)?;
    bench.apply(&fails).await;
    bench.never_complete(&fails).await;
    let purpose = Purpose::Restore { to: samples::revision(3) };
    let restore = bench.scaling(5, Sample::Another, Scale::Stop)?.with(|spec| spec.purpose = purpose);
    bench.rests(&restore, "the restore of a start").await?;

    bench.roll_out(&bench.scaling(6, Sample::Another, Scale::Start)?).await;
    let running = bench.instances().await?;
    assert!(running.iter().all(|instance| is_same(&instance.image, &other.image)), "{running:?}");
    let found = cluster.configuration(&bench.app, &bench.target).await?;
    assert_eq!(found, configured, "the start brought back something else");
    Ok(())
}
