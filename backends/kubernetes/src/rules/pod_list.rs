//! The pods that a workload's selector selects. Whoever writes in its namespace may make any number of them, so that no
//! more are kept than the rules of a rollout need; the others are counted.

use std::cmp::Reverse;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use rollhook_core::image::Digest;

use super::{
    digest,
    listed::ListedPod,
    object::{Object, Stamp},
    pods,
};
use crate::{pages::Extent, workload::Rollout};

/// The most pods that are kept.
pub(crate) const KEPT: usize = 500;
/// The most bytes of the pods that are kept, as JSON.
const KEPT_BYTES: usize = 16 << 20;

/// The pods of a workload.
#[derive(Clone, Debug, Default)]
pub(crate) struct PodList {
    /// The kept pods, by name.
    pub(crate) kept: Vec<Pod>,
    /// The numbers of the others that were read.
    pub(crate) counted: Counted,
    /// Whether there are pods that were not read.
    pub(crate) is_part: bool,
}

/// The pods that were read and not kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counted {
    /// The active pods of the rollout's revision.
    pub(crate) new: usize,
    /// The ready ones among them.
    pub(crate) ready: usize,
    /// The digests that those run, each once, and two at most: more than one is none.
    pub(crate) digests: Vec<Option<Digest>>,
    /// The active pods of other revisions that the workload itself controls.
    pub(crate) old: usize,
    /// The pods of earlier revisions that are being deleted.
    pub(crate) leaving: usize,
    /// The time by which the last of them has ended.
    pub(crate) leaving_until: Option<Timestamp>,
    /// Whether any pod is ready, also an old one.
    pub(crate) is_any_ready: bool,
}

/// Collects a workload's pods while they are read.
pub(crate) struct PodCollector<'a> {
    rollout: &'a Rollout,
    object: &'a Object,
    own: Stamp,
    uid: Option<&'a str>,
    kept: Vec<Kept>,
    counted: Counted,
}

struct Kept {
    rank: Rank,
    size: usize,
    pod: Pod,
}

/// The place of a pod among those to keep: active before ended ones, pods of the rollout's revision before others of the app
/// and of strangers, troubled before sound ones, newest first.
type Rank = (bool, u8, bool, bool, Reverse<Option<Timestamp>>);

impl<'a> PodCollector<'a> {
    /// A collector for the pods of the rollout's workload.
    pub(crate) fn new(rollout: &'a Rollout, object: &'a Object) -> Self {
        let own = object.pods_stamp(rollout.id);
        let uid = object.metadata().uid.as_deref();
        Self { rollout, object, own, uid, kept: Vec::new(), counted: Counted::default() }
    }

    /// Adds a page of the list.
    pub(crate) fn add(&mut self, page: Vec<ListedPod>) {
        for listed in page {
            let pod = listed.with_containers(&self.rollout.workload.containers);
            let size = serde_json::to_vec(&pod).map_or(0, |text| text.len());
            self.kept.push(Kept { rank: self.rank(&pod), size, pod });
        }
        self.kept.sort_by_key(|kept| kept.rank);
        let mut bytes = 0;
        let fits = |kept: &Kept| {
            bytes += kept.size;
            bytes <= KEPT_BYTES
        };
        let kept = self.kept.iter().take(KEPT).map(fits).take_while(|fits| *fits).count();
        for left_out in self.kept.split_off(kept) {
            self.count(&left_out.pod);
        }
    }

    /// The pods, after so much of the list.
    pub(crate) fn finish(self, extent: Extent) -> PodList {
        let mut kept: Vec<Pod> = self.kept.into_iter().map(|kept| kept.pod).collect();
        kept.sort_by(|one, other| pods::name(one).cmp(pods::name(other)));
        PodList { kept, counted: self.counted, is_part: extent == Extent::Part }
    }

    fn is_new(&self, pod: &Pod) -> bool {
        pods::is_new(self.rollout, &self.own, pod)
    }

    fn rank(&self, pod: &Pod) -> Rank {
        let of_app = || {
            let stamp = Stamp::among(pod.metadata.annotations.as_ref());
            pods::controller(pod) == self.uid || stamp.id().is_some_and(|id| id.app == self.rollout.id.app)
        };
        let class = if self.is_new(pod) { 0 } else { 2 - u8::from(of_app()) };
        let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (!pods::is_active(pod), class, pods::is_ready(pod), pods::restarts(pod) == 0, Reverse(created))
    }

    fn count(&mut self, pod: &Pod) {
        if pods::is_leaving(self.rollout, self.object, &self.own, pod) {
            self.counted.leaving += 1;
            self.counted.leaving_until = self.counted.leaving_until.max(pods::ends_by(pod));
        }
        if !pods::is_active(pod) {
            return;
        }
        let (is_new, is_ready) = (self.is_new(pod), pods::is_ready(pod));
        self.counted.new += usize::from(is_new);
        if is_new && is_ready {
            self.counted.ready += 1;
            let digest = digest::common(&self.rollout.workload.containers, &[pod]);
            if self.counted.digests.len() < 2 && !self.counted.digests.contains(&digest) {
                self.counted.digests.push(digest);
            }
        }
        self.counted.old += usize::from(!is_new && pods::controller(pod) == self.uid);
        self.counted.is_any_ready |= is_ready;
    }
}

#[cfg(test)]
impl From<&[Pod]> for PodList {
    fn from(pods: &[Pod]) -> Self {
        Self { kept: pods.to_vec(), ..Self::default() }
    }
}
