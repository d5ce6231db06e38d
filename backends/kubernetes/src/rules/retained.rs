//! Templates that the cluster retains of earlier revisions, for deploys that return to one.
//!
//! A template that equals a retained one has that one's ReplicaSet or ControllerRevision used again by Kubernetes itself:
//! pods that still run stay, and their image is not pulled. So a restore brings back image and stamp as the retained
//! template has them, with the Secret of its own configuration, and nothing else: what others configured since is not a deploy's to
//! take back, and a version whose configuration was changed is rolled out anew.

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::{
    api::core::v1::{Container, Pod, PodTemplateSpec},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use rollhook_core::image::ImageRef;
use serde_json::value::RawValue;

use super::{
    configuration, digest,
    listed::ListedRevision,
    object::{Object, STAMP, Stamp},
    pods,
};
use crate::workload::Rollout;

/// The label that a ReplicaSet adds to its template.
const HASH: &str = "pod-template-hash";
/// The annotation with the number of a ReplicaSet's revision.
pub(crate) const NUMBER: &str = "deployment.kubernetes.io/revision";

/// The most revisions that are kept of a list: the newest.
const KEPT: usize = 50;
/// The longest template that is kept, in bytes. A version with a longer one is rolled out anew.
const TEMPLATE_BYTES: usize = 256 << 10;

/// An earlier revision of a workload.
#[derive(Clone, Debug)]
pub(crate) struct Retained {
    /// The number that its controller gave it; a revision that is used again gets a higher one.
    number: i64,
    /// The template as it came: parsed it takes many times as much memory, so that one is parsed at a time.
    template: Box<RawValue>,
}

/// The part of a pod template that deploys write, as an earlier revision has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptTemplate {
    /// The stamp of its pods. They have none if they are older than the app's first deploy.
    pub(crate) stamp: Stamp,
    /// The images of the deployed containers, by their names.
    pub(crate) images: BTreeMap<String, String>,
}

impl Retained {
    /// The revision that the ReplicaSet stands for, if it belongs to this workload.
    pub(crate) fn of_replica_set(mut object: ListedRevision, workload: &Object) -> Option<Self> {
        let metadata = object.metadata();
        let annotations = metadata.annotations.as_ref();
        let number = annotations.and_then(|all| all.get(NUMBER)).and_then(|number| number.parse().ok());
        let template = is_owned(&metadata, workload).then(|| object.template())??;
        Self::of(number.unwrap_or_default(), template)
    }

    /// The revision of this ControllerRevision, if it belongs to this workload.
    pub(crate) fn of_controller_revision(mut object: ListedRevision, workload: &Object) -> Option<Self> {
        let template = is_owned(&object.metadata(), workload).then(|| object.patched_template())??;
        Self::of(object.revision(), template)
    }

    fn of(number: i64, template: Box<RawValue>) -> Option<Self> {
        (template.get().len() <= TEMPLATE_BYTES).then_some(Self { number, template })
    }

    /// The number that its controller gave it.
    #[cfg(test)]
    pub(crate) fn number(&self) -> i64 {
        self.number
    }

    /// Adds a page of a list to those that are kept.
    pub(crate) fn keep(all: &mut Vec<Self>, page: impl Iterator<Item = Self>) {
        all.extend(page);
        all.sort_by_key(|retained| Reverse(retained.number));
        all.truncate(KEPT);
    }

    /// The template, without the label that only a ReplicaSet's has.
    fn template(&self) -> Option<PodTemplateSpec> {
        let mut template: PodTemplateSpec = serde_json::from_str(self.template.get()).ok()?;
        if let Some(labels) = template.metadata.as_mut().and_then(|metadata| metadata.labels.as_mut()) {
            labels.remove(HASH);
        }
        Some(template)
    }
}

impl KeptTemplate {
    fn of(template: &PodTemplateSpec, rollout: &Rollout) -> Option<Self> {
        let spec = template.spec.as_ref()?;
        let images = rollout.workload.containers.iter().map(|name| {
            let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
            let container = all.find(|container| container.name == *name)?;
            Some((name.clone(), container.image.clone()?))
        });
        let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
        Some(Self { stamp: Stamp::among(annotations), images: images.collect::<Option<_>>()? })
    }

    /// The template with this part in place of its own, and with the rollout's configuration.
    fn laid_over(&self, template: &PodTemplateSpec, rollout: &Rollout) -> PodTemplateSpec {
        let mut laid = template.clone();
        let annotations = laid.metadata.get_or_insert_default().annotations.get_or_insert_default();
        match &self.stamp {
            Stamp::Deploy(id) => drop(annotations.insert(STAMP.to_owned(), id.to_string())),
            Stamp::Absent | Stamp::Unreadable(_) => drop(annotations.remove(STAMP)),
        }
        let Some(spec) = &mut laid.spec else { return laid };
        for container in spec.containers.iter_mut().chain(spec.init_containers.iter_mut().flatten()) {
            if let Some(image) = self.images.get(&container.name) {
                container.image = Some(image.clone());
                if let Some(env_from) = configuration::changed_env_from(container, rollout) {
                    container.env_from = Some(env_from).filter(|entries| !entries.is_empty());
                }
            }
        }
        laid
    }

    /// Whether the version that the rollout returns to ran with this template: by its image, and by its stamp, which is no
    /// later than that version's.
    fn is_of(&self, rollout: &Rollout) -> bool {
        let is_before = match &self.stamp {
            Stamp::Absent => true,
            Stamp::Deploy(id) => id.app != rollout.id.app || Some(id.revision) <= rollout.purpose.returns_to(),
            Stamp::Unreadable(_) => false,
        };
        is_before && self.images.values().all(|image| stands_for(image, &rollout.image))
    }

    /// Whether a tag among the images may mean other bits by now than those that the rollout names by their digest: the
    /// failed deploy brought the same tag, or a pod of the template runs other bits.
    fn has_moved(&self, rollout: &Rollout, present: &Object, pods: &[Pod]) -> bool {
        let is_pinned = |image: &String| image.parse::<ImageRef>().is_ok_and(|image| image.digest().is_some());
        let mut tags = self.images.iter().filter(|(_, image)| rollout.image.digest().is_some() && !is_pinned(image));
        let was_deployed_again = |name: &String, image: &String| {
            // The same tag may have been deployed by another digest.
            let is_same = |container: &Container| container.image.as_deref().is_some_and(|now| has_tag_of(now, image));
            present.template_stamp() != self.stamp && present.container(name).is_some_and(is_same)
        };
        tags.any(|(name, image)| was_deployed_again(name, image)) || has_other_bits(rollout, &self.stamp, pods)
    }
}

/// The retained template that the rollout brings back; `None`: none of the version is left that fits the workload as it
/// is configured, or the rollout is a deploy.
///
/// A restore brings one back whether pods of it run or not. A rollback, which a person may well ask for to replace what
/// runs, does so only where the workload is set to another image, and pods of the version still run.
pub(crate) fn find(object: &Object, rollout: &Rollout, retained: &[Retained], pods: &[Pod]) -> Option<KeptTemplate> {
    rollout.purpose.returns_to()?;
    let present = object.template()?;
    let running = |kept: &KeptTemplate| {
        let is_of = |pod: &&Pod| pods::is_active(pod) && Stamp::among(pod.metadata.annotations.as_ref()) == kept.stamp;
        pods.iter().filter(is_of).filter(|pod| pods::is_ready(pod)).count()
    };
    let is_set = |name: &String| {
        let image = object.container(name).and_then(|container| container.image.as_deref());
        image.is_some_and(|image| stands_for(image, &rollout.image))
    };
    let is_another = !rollout.workload.containers.iter().any(is_set);
    let fits = |kept: &KeptTemplate, template: PodTemplateSpec| {
        kept.is_of(rollout)
            && plain(kept.laid_over(present, rollout)) == plain(template)
            && !kept.has_moved(rollout, object, pods)
            && (rollout.purpose.is_restore() || (is_another && running(kept) > 0))
    };
    let fitting = retained.iter().filter_map(|retained| {
        let template = retained.template()?;
        let kept = KeptTemplate::of(&template, rollout)?;
        fits(&kept, template).then_some((running(&kept), retained.number, kept))
    });
    fitting.max_by_key(|(running, number, _)| (*running, *number)).map(|(_, _, kept)| kept)
}

/// Whether a pod of the version to which the rollout has returned, made since, runs other bits: its tag has moved.
pub(crate) fn runs_other_bits(object: &Object, rollout: &Rollout, pods: &[Pod]) -> bool {
    object.is_kept(rollout.id) && has_other_bits(rollout, &object.pods_stamp(rollout.id), pods)
}

fn has_other_bits(rollout: &Rollout, stamp: &Stamp, pods: &[Pod]) -> bool {
    let Some(wanted) = rollout.image.digest() else { return false };
    let mut active =
        pods.iter().filter(|pod| pods::is_active(pod) && Stamp::among(pod.metadata.annotations.as_ref()) == *stamp);
    let is_other = |pod: &Pod, name: &String| digest::of_container(pod, name).is_some_and(|digest| digest != *wanted);
    active.any(|pod| rollout.workload.containers.iter().any(|name| is_other(pod, name)))
}

/// Whether an image has the repository and the tag of another one, whatever its digest.
fn has_tag_of(image: &str, other: &str) -> bool {
    let unpinned = |text: &str| text.parse::<ImageRef>().ok().map(ImageRef::unpinned);
    unpinned(image).zip(unpinned(other)).is_some_and(|(one, two)| one.same_bits(None, &two, None))
}

/// Whether the image of a container is the rollout's, perhaps by its tag alone.
pub(crate) fn stands_for(image: &str, ordered: &ImageRef) -> bool {
    image.parse::<ImageRef>().is_ok_and(|image| image.same_bits(None, ordered, None))
}

/// The template without the difference between nothing and an empty map, which Kubernetes does not know either.
fn plain(mut template: PodTemplateSpec) -> PodTemplateSpec {
    if let Some(metadata) = &mut template.metadata {
        metadata.annotations.take_if(|all| all.is_empty());
        metadata.labels.take_if(|all| all.is_empty());
        metadata.creation_timestamp = None;
    }
    template.metadata.take_if(|metadata| *metadata == ObjectMeta::default());
    template
}

fn is_owned(metadata: &ObjectMeta, workload: &Object) -> bool {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let uid = workload.metadata().uid.as_ref();
    owners.iter().any(|owner| owner.controller == Some(true) && Some(&owner.uid) == uid)
}

#[cfg(test)]
mod tests;
