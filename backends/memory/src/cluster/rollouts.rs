//! The port, on the simulated cluster.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{Either, select};
use rollhook_core::{
    Result,
    app::{AppId, Workload, WorkloadKind},
    deploy::{Evidence, Reason},
    ports::{Applied, ContainerInfo, Observation, RolloutDriver, RolloutFailure, RolloutSpec, WorkloadInfo},
};

use super::{
    Effect, Key, Refused, SimulatedCluster, World, key, remember,
    workload::{Running, last_word, waiting},
};

#[async_trait]
impl RolloutDriver for SimulatedCluster {
    async fn inspect(&self, app: &AppId, kind: WorkloadKind, name: &str) -> Result<Option<WorkloadInfo>> {
        let world = self.reach()?;
        Ok(world.workloads.get(&key(app, kind, name)).map(|running| WorkloadInfo {
            containers: running.containers.clone(),
            stamp: running.stamp,
            unsupported: running.unsupported.clone(),
        }))
    }

    async fn apply(&self, order: &RolloutSpec) -> Result<Applied> {
        let now = self.clock.elapsed();
        let mut world = self.reach()?;
        let answer = world.apply(order, now);
        if answer != Applied::Done {
            remember(&mut world.refused, Refused { stamp: order.stamp, answer: answer.clone(), at: now });
        }
        drop(world);
        self.changed.notify(usize::MAX);
        Ok(answer)
    }

    async fn observe(&self, order: &RolloutSpec) -> Result<Observation> {
        let now = self.clock.elapsed();
        let world = self.reach()?;
        Ok(match world.workloads.get(&place(order)) {
            Some(running) => running.observe(order, &world.scripts, now, self.delay),
            None => {
                let Workload { kind, name, .. } = &order.workload;
                let message = format!("the {kind} {name} is gone");
                let trouble = Some(last_word(Reason::WORKLOAD_MISSING, message.clone()));
                Observation { trouble, ..waiting(None, &message) }
            }
        })
    }

    async fn changed(&self, order: &RolloutSpec) {
        // Listening starts before looking, so that nothing is missed in between.
        let listener = self.changed.listen();
        match self.next_change(order) {
            Some(time) => match select(listener, self.clock.sleep(time)).await {
                Either::Left(_) | Either::Right(_) => {}
            },
            None => listener.await,
        }
    }

    async fn evidence(&self, order: &RolloutSpec, trouble: Option<&RolloutFailure>) -> Result<Evidence> {
        let now = self.clock.elapsed();
        let world = self.reach()?;
        let Some(running) = world.workloads.get(&place(order)).filter(|running| running.is_at(order)) else {
            return Ok(Evidence::default());
        };
        let seen = running.scene(&world.scripts, now, self.delay).trouble;
        let trouble = trouble.or(seen.as_ref());
        Ok(trouble.map(|trouble| running.evidence(&order.workload.name, trouble)).unwrap_or_default())
    }
}

impl SimulatedCluster {
    fn next_change(&self, order: &RolloutSpec) -> Option<Duration> {
        let now = self.clock.elapsed();
        let world = self.lock();
        let running = world.workloads.get(&place(order)).filter(|running| running.is_at(order))?;
        running.scene(&world.scripts, now, self.delay).next
    }
}

impl World {
    fn apply(&mut self, order: &RolloutSpec, now: Duration) -> Applied {
        let answer = match self.workloads.get(&place(order)) {
            Some(running) => running.answer(order),
            None => answer_to_none(order),
        };
        let Some(Applied::Done) = answer else { return answer.unwrap_or(Applied::Done) };
        let digest = self.scripts.digest(&order.image);
        let running = self.workloads.entry(place(order)).or_insert_with(|| Running {
            containers: order.workload.containers.iter().map(|name| container(name)).collect(),
            image: order.image.clone(),
            digest: digest.clone(),
            stamp: None,
            pods: order.workload.create.as_ref().map_or(1, |template| template.replicas),
            since: now,
            before: Duration::ZERO,
            unsupported: None,
        });
        running.roll(&order.workload.containers, &order.image, digest, now);
        running.stamp = Some(order.stamp);
        let effect = Effect {
            namespace: order.app.namespace.clone(),
            kind: order.workload.kind,
            workload: order.workload.name.clone(),
            stamp: order.stamp,
            image: order.image.clone(),
            at: now,
        };
        remember(&mut self.effects, effect);
        Applied::Done
    }
}

impl Running {
    /// `Some(Done)` where the order is to take effect, none where it is done already.
    fn answer(&self, order: &RolloutSpec) -> Option<Applied> {
        let fenced = self.fence(order);
        if fenced.is_some() || order.adopted {
            return fenced;
        }
        if let Some(why) = &self.unsupported {
            return Some(refused(Reason::REFUSED, why.clone()));
        }
        let missing = |name: &&String| self.containers.iter().all(|container| container.name != **name);
        if let Some(name) = order.workload.containers.iter().find(missing) {
            return Some(refused(Reason::REFUSED, format!("the workload has no container named {name}")));
        }
        let repeated = self.stamp == Some(order.stamp) && self.image == order.image;
        (!repeated).then_some(Applied::Done)
    }

    /// Why the workload's stamp forbids the order.
    fn fence(&self, order: &RolloutSpec) -> Option<Applied> {
        let stamp = self.stamp?;
        if stamp.app == order.stamp.app {
            return (stamp.revision > order.stamp.revision).then_some(Applied::Newer(stamp.revision));
        }
        let allowed = order.workload.take_over == Some(stamp.app);
        let message = || {
            format!("the workload belongs to another registration ({}); register with take-over to change that", stamp)
        };
        (!allowed).then(|| refused(Reason::FOREIGN_STAMP, message()))
    }
}

fn answer_to_none(order: &RolloutSpec) -> Option<Applied> {
    let Workload { kind, name, create, .. } = &order.workload;
    let creatable = create.is_some() && *kind == WorkloadKind::Deployment && !order.adopted;
    let message = || format!("there is no {kind} {name} in {}", order.app.namespace);
    Some(if creatable { Applied::Done } else { refused(Reason::WORKLOAD_MISSING, message()) })
}

fn refused(reason: &str, message: String) -> Applied {
    Applied::Refused { reason: Reason::new(reason), message }
}

fn container(name: &str) -> ContainerInfo {
    ContainerInfo { name: name.to_owned(), image: String::new() }
}

fn place(order: &RolloutSpec) -> Key {
    key(&order.app, order.workload.kind, &order.workload.name)
}
