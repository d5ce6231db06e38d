//! The promises of [`rollhook_core::ports::InstanceAddresses`].

use std::{collections::BTreeSet, sync::Arc};

use rollhook_core::{
    instance::InstanceName,
    ports::{ADDRESSES_MAX, Applied, InstanceAddresses, ReadyInstances, RolloutDriver, RolloutSpec},
};

use crate::{
    clusters::{Clusters, Sample},
    report::{Can, Lack},
    rollouts::{Bench, OURS},
};

/// How often is looked for what must come: a minute, at four looks a second.
const LOOKS: usize = 240;
/// How often is looked for what must not come: three seconds.
const FEW_LOOKS: usize = 12;
/// The port of the instances.
const PORT: u16 = 8080;

/// A target whose instances' addresses are named.
struct Named<'a> {
    cluster: &'a dyn Clusters,
    bench: Bench<'a>,
    rollouts: Arc<dyn RolloutDriver>,
}

impl<'a> Named<'a> {
    fn new(cluster: &'a dyn Clusters, bench: Bench<'a>) -> Can<Self> {
        let rollouts = cluster.rollouts();
        if rollouts.instance_addresses().is_none() {
            return Err(Lack::NotApplicable("the driver names no addresses of instances"));
        }
        Ok(Self { cluster, bench, rollouts })
    }

    fn port(&self) -> &dyn InstanceAddresses {
        self.rollouts.instance_addresses().unwrap()
    }

    async fn ready(&self, order: &RolloutSpec) -> ReadyInstances {
        let found = self.bench.patiently(async || self.port().addresses(order, PORT).await).await;
        let names = names(&found);
        assert_eq!(names.len(), found.instances.len(), "each is there once: {found:?}");
        assert!(names.len() <= ADDRESSES_MAX, "{found:?}");
        let places: BTreeSet<_> = found.instances.iter().filter_map(|instance| instance.address).collect();
        let addressed = found.instances.iter().filter(|instance| instance.address.is_some()).count();
        assert_eq!(places.len(), addressed, "each address is of one instance: {found:?}");
        found
    }

    /// Returns the instances of a deploy once so many are ready.
    async fn until(&self, order: &RolloutSpec, count: usize) -> ReadyInstances {
        for _ in 0..LOOKS {
            let found = self.ready(order).await;
            if found.instances.len() == count {
                return found;
            }
            self.cluster.pause().await;
        }
        panic!("not {count} instances within a minute: {:?}", self.ready(order).await);
    }
}

fn names(ready: &ReadyInstances) -> BTreeSet<&InstanceName> {
    ready.instances.iter().map(|instance| &instance.instance).collect()
}

/// The instances that are ready are all there, by the names of their logs, and no others.
pub async fn addresses_are_of_ready_instances_of_the_deploy(cluster: &dyn Clusters) -> Can {
    let named = Named::new(cluster, Bench::new(cluster, "addresses").await)?;
    let unknown = named.bench.order(OURS, 1, Sample::Good)?;
    assert_eq!(named.ready(&unknown).await, ReadyInstances::default(), "a deploy that was not applied has none");
    for (revision, sample) in [(1, Sample::Good), (2, Sample::Another), (3, Sample::Another)] {
        let order = named.bench.order(OURS, revision, sample)?;
        named.bench.roll_out(&order).await;
        let running = named.bench.instances().await?.len();
        let found = named.until(&order, running).await;
        assert!(!found.is_part, "{found:?}");
        let Some(logs) = named.rollouts.instance_logs() else { continue };
        let logged = named.bench.patiently(async || logs.instances(&named.bench.app()).await).await;
        for instance in &found.instances {
            let same = logged.iter().find(|logged| logged.name == instance.instance);
            let revision = same.and_then(|logged| logged.revision);
            assert_eq!(revision, Some(order.id.revision), "{instance:?} is not the deploy's own: {logged:?}");
        }
    }
    let adopted = Named::new(cluster, Bench::adopted(cluster, "addresses-adopted").await?)?;
    let order = adopted.bench.order(OURS, 1, Sample::Good)?.with(|order| order.adopted = true);
    adopted.bench.roll_out(&order).await;
    adopted.until(&order, adopted.bench.instances().await?.len()).await;
    Ok(())
}

/// An instance of an earlier deploy is never among them, also where it has the same image and serves.
pub async fn addresses_have_no_old_instance(cluster: &dyn Clusters) -> Can {
    let named = Named::new(cluster, Bench::new(cluster, "addresses-old").await)?;
    let old = named.bench.order(OURS, 1, Sample::Good)?;
    named.bench.roll_out(&old).await;
    named.until(&old, named.bench.instances().await?.len()).await;
    // Beside one that cannot be fetched, old instances go on.
    for (revision, sample) in [(2, Sample::Missing), (3, Sample::Hanging)] {
        let unready = named.bench.order(OURS, revision, sample)?;
        assert_eq!(named.bench.apply(&unready).await, Applied::Done);
        for _ in 0..FEW_LOOKS {
            let found = named.ready(&unready).await;
            assert_eq!(found.instances, [], "an instance that is not ready, or an old one, is named for {revision}");
            named.cluster.pause().await;
        }
    }
    let same = named.bench.order(OURS, 4, Sample::Good)?;
    assert_eq!(named.bench.apply(&same).await, Applied::Done);
    let old = named.ready(&old).await;
    let now = named.ready(&same).await;
    assert!(names(&old).is_disjoint(&names(&now)), "an old instance is named for revision 4: {now:?}");
    named.bench.roll_out(&same).await;
    named.until(&same, named.bench.instances().await?.len()).await;
    Ok(())
}

/// Instances that carry an earlier deploy's id are those of the restore that has kept them.
pub async fn addresses_of_a_restore_are_of_what_it_keeps(cluster: &dyn Clusters) -> Can {
    let named = Named::new(cluster, Bench::new(cluster, "addresses-restore").await)?;
    let good = named.bench.order(OURS, 1, Sample::Good)?;
    named.bench.roll_out(&good).await;
    let before = named.until(&good, named.bench.instances().await?.len()).await;
    let failed = named.bench.order(OURS, 2, Sample::Missing)?;
    assert_eq!(named.bench.apply(&failed).await, Applied::Done);
    let restore = named.bench.restore(3, 1, Sample::Good)?;
    named.bench.roll_out(&restore).await;
    // The addresses are named for the deploy alone, whatever its purpose.
    let plain = named.bench.order(OURS, 3, Sample::Good)?;
    let kept = named.until(&plain, before.instances.len()).await;
    assert_eq!(names(&kept), names(&before), "what the restore has kept is its own");
    Ok(())
}

/// While the platform cannot be reached, there are not no instances.
pub async fn addresses_away_is_unavailable(cluster: &dyn Clusters) -> Can {
    let named = Named::new(cluster, Bench::new(cluster, "addresses-away").await)?;
    let order = named.bench.order(OURS, 1, Sample::Good)?;
    let away = cluster.away().await?;
    let found = away.instance_addresses().unwrap().addresses(&order, PORT).await;
    assert!(found.as_ref().is_err_and(|error| error.is_unavailable()), "{found:?}");
    Ok(())
}
