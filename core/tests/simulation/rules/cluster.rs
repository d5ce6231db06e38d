//! Effects on the cluster: never backwards, and never by another app's registration.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_core::{
    app::{AppUid, Namespace},
    deploy::{Deploy, ReleaseMark, Revision},
    ports::{DeployId, RolloutSpec},
};
use rollhook_memory::{Effect, Pod};

use super::{Rules, model};
use crate::journal::Journal;

type Place = (Namespace, String);

/// The deploy ids that each workload carried, in their order.
#[derive(Default)]
pub(super) struct Fences {
    judged: usize,
    carried: BTreeMap<Place, Vec<DeployId>>,
    /// Workloads that a person removed: with the deploy id went what tells a late order from a new one.
    removed: BTreeSet<Place>,
}

impl Rules {
    /// Returns the number of effects that were judged.
    pub(crate) fn judged(&self) -> usize {
        self.fences.judged
    }

    /// Judges the effects that are new, which are this order's.
    pub(crate) fn effects(&mut self, effects: &[Effect], order: &RolloutSpec, journal: &Journal) {
        for effect in effects.iter().skip(self.fences.judged) {
            self.effect(effect, order, journal);
        }
        self.fences.judged = effects.len();
    }

    /// Judges a restore that was applied: what still ran of the current version runs on (rule 12).
    pub(crate) fn restores(&self, order: &RolloutSpec, before: &[Pod], after: &[Pod], journal: &Journal) {
        let is_same = |pod: &&Pod| pod.image.same_bits(Some(&pod.digest), &order.image, None);
        for pod in before.iter().filter(is_same).filter(|pod| !self.is_of_the_failed(order, pod)) {
            journal.count("rule 12: a restore kept what still ran");
            journal.expect(after.iter().any(|kept| kept.id == pod.id), || {
                format!("restore {} replaces pod {}, which still ran", order.id.revision, pod.id)
            });
        }
    }

    /// Judges a restore that is complete: no pod that runs was made by the deploy that failed (rule 12).
    pub(crate) fn restored(&self, order: &RolloutSpec, running: &[Pod], journal: &Journal) {
        for pod in running.iter().filter(|pod| pod.deploy != Some(order.id)) {
            journal.expect(!self.is_of_the_failed(order, pod), || {
                format!("restore {} is called complete with pod {} of {:?}", order.id.revision, pod.id, pod.deploy)
            });
        }
    }

    /// Whether a deploy of the app after its current one made the pod.
    fn is_of_the_failed(&self, order: &RolloutSpec, pod: &Pod) -> bool {
        let current = self.known.get(&order.id.app).and_then(|known| {
            let revoked: Vec<Revision> = known.view.revocations().collect();
            // Where nothing good is left, the restore is of what is current.
            model::good(&known.history, &revoked).or_else(|| model::current(&known.history))
        });
        let is_later = |id: &DeployId| current.is_some_and(|current| id.revision > current.revision);
        pod.deploy.filter(|id| id.app == order.id.app).is_some_and(|id| is_later(&id))
    }

    /// Notes that a person removed the workload.
    pub(crate) fn workload_is_gone(&mut self, namespace: &Namespace, workload: &str) {
        let place = (namespace.clone(), workload.to_owned());
        self.fences.carried.remove(&place);
        self.fences.removed.insert(place);
        // A replica that takes over is told nothing of the instances that have gone with it.
        let is_there = |app| self.known.get(app).is_some_and(|known| known.view.app.id.namespace == *namespace);
        let seen = self.seen.iter_mut().filter(|((app, _), _)| is_there(app)).flat_map(|(_, seen)| seen);
        seen.filter(|seen| seen.workload == workload).for_each(|seen| seen.past_lives.clear());
    }

    /// The deploy id that a workload carries by its effects; `None` if a person removed it.
    pub(crate) fn carried(&self, namespace: &Namespace, workload: &str) -> Option<DeployId> {
        self.all_carried(namespace, workload)?.last().copied()
    }

    /// Whether a revision was brought to a workload.
    pub(crate) fn has_reached(&self, namespace: &Namespace, workload: &str, revision: Revision) -> bool {
        self.all_carried(namespace, workload).is_some_and(|all| all.iter().any(|carried| carried.revision == revision))
    }

    /// The deploy ids that a workload has carried by its effects, in their order; `None` if a person removed it.
    pub(super) fn all_carried(&self, namespace: &Namespace, workload: &str) -> Option<&[DeployId]> {
        let place = (namespace.clone(), workload.to_owned());
        let carried = self.fences.carried.get(&place).map_or(&[][..], Vec::as_slice);
        (!self.fences.removed.contains(&place)).then_some(carried)
    }

    fn effect(&mut self, effect: &Effect, order: &RolloutSpec, journal: &Journal) {
        let DeployId { app, revision } = effect.stamp;
        journal.log("cluster", || format!("{} runs {} as revision {revision}", effect.workload, effect.image));
        journal.count("effect: the cluster was changed");
        let carried = self.fences.carried.entry((effect.namespace.clone(), effect.workload.clone())).or_default();
        if let Some(last) = carried.last().filter(|last| last.app == app) {
            journal.expect(last.revision <= revision, || {
                format!("the cluster went back from revision {} to {revision}", last.revision)
            });
        } else if let Some(last) = carried.last() {
            let allowed = order.target.take_over == Some(last.app);
            journal.count("rule 9: a workload was taken over from another registration");
            journal.expect(allowed, || format!("{} took over what belongs to {}", app, last.app));
        }
        let returns =
            carried.iter().any(|stamp| stamp.app == app) && carried.last().is_some_and(|last| last.app != app);
        journal
            .expect(!returns || order.target.take_over.is_some(), || "a former owner changed the cluster".to_owned());
        carried.push(effect.stamp);
        self.waited(effect, order, journal);
        self.touched(app, effect, journal);
    }

    /// An effect on the cluster is recorded before it happens.
    fn touched(&self, app: AppUid, effect: &Effect, journal: &Journal) {
        let Some(known) = self.known.get(&app) else {
            // The workload carries the stamp of the app that was deleted until another one's is there.
            journal.count("rule 16: an order under way arrived after its app was deleted");
            return;
        };
        let entry = known.history.iter().find(|entry| entry.revision == effect.stamp.revision);
        journal.expect(entry.is_some_and(|entry| entry.touched), || {
            format!("revision {} changed the cluster, and its entry says that it did not", effect.stamp.revision)
        });
        journal.expect(entry.is_none_or(|entry| entry.release != Some(ReleaseMark::MayHaveRun)), || {
            format!("revision {} changed the cluster before its release command had ended", effect.stamp.revision)
        });
        let is_known = |entry: &Deploy| entry.release.is_some() || entry.is_resolved();
        let image = entry.and_then(|entry| if is_known(entry) { entry.pinned_image() } else { entry.image.clone() });
        journal.expect(image.as_ref() == Some(&effect.image), || {
            format!("revision {} runs {}, and its entry says {image:?}", effect.stamp.revision, effect.image)
        });
    }
}
