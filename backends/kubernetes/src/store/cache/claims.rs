//! Which object holds a uid, where several claim it: a person may copy or patch a `RollhookApp`.
//!
//! The object that held the uid first in this process keeps it. While a list is under way, which shows objects by their
//! names, the older one takes it.

use std::collections::{HashMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::ObjectMeta;
use rollhook_core::app::AppUid;

use super::{Name, object_name};

/// An object that claims a uid.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) name: Name,
    created_at: Option<Time>,
    /// Kubernetes' own uid of the object.
    object: Option<String>,
}

impl Claim {
    pub(crate) fn of(metadata: &ObjectMeta) -> Self {
        Self {
            name: object_name(metadata),
            created_at: metadata.creation_timestamp.clone(),
            object: metadata.uid.clone(),
        }
    }

    /// Whether this object is the older one. Of two that were created in the same second, one is by its name.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        (&self.created_at, &self.name) < (&other.created_at, &other.name)
    }

    /// Returns why another object that claims the uid of this one is no app.
    pub(crate) fn why_denied(&self, other: &Self) -> String {
        let (namespace, name) = &other.name;
        format!(
            "the RollhookApp {name} in {namespace} has the uid of {}/{}, which had it first, so that rollhook deploys \
             nothing by it: delete it (kubectl delete rollhookapp {name} --namespace {namespace})",
            self.name.0, self.name.1
        )
    }

    fn metadata(&self) -> ObjectMeta {
        let (namespace, name) = self.name.clone();
        ObjectMeta { namespace: Some(namespace), name: Some(name), uid: self.object.clone(), ..ObjectMeta::default() }
    }
}

/// The objects that hold uids.
#[derive(Default)]
pub(super) struct Claims {
    holders: HashMap<AppUid, Claim>,
    /// The uids that were claimed first since the list began that is under way.
    unsettled: HashSet<AppUid>,
    /// Whether a first list has ended, and none is under way.
    is_settled: bool,
    /// The objects that were denied a uid, and why, until their status is written.
    denied: Vec<(ObjectMeta, String)>,
}

impl Claims {
    pub(super) fn list_begins(&mut self) {
        self.is_settled = false;
    }

    pub(super) fn list_ends(&mut self) {
        self.is_settled = true;
        self.unsettled.clear();
    }

    /// The object that holds the uid.
    pub(super) fn holder(&self, uid: AppUid) -> Option<&Claim> {
        self.holders.get(&uid)
    }

    /// The object that holds the uid for good. Returns `None` if the list that is under way may show an older one.
    pub(super) fn settled(&self, uid: AppUid) -> Option<&Claim> {
        self.holders.get(&uid).filter(|_| !self.unsettled.contains(&uid))
    }

    /// The other object that keeps the uid, if this one may not have it.
    pub(super) fn keeper(&self, uid: AppUid, claim: &Claim) -> Option<&Claim> {
        let holder = self.holders.get(&uid).filter(|holder| holder.name != claim.name)?;
        let is_older = self.unsettled.contains(&uid) && claim.is_before(holder);
        (!is_older).then_some(holder)
    }

    /// Gives the uid to an object.
    pub(super) fn hold(&mut self, uid: AppUid, claim: Claim) {
        if self.holders.insert(uid, claim).is_none() && !self.is_settled {
            self.unsettled.insert(uid);
        }
    }

    /// Takes the uid from the object that holds it.
    pub(super) fn release(&mut self, uid: AppUid) {
        self.holders.remove(&uid);
        self.unsettled.remove(&uid);
    }

    /// Queues the status of an object that was denied a uid.
    pub(super) fn deny(&mut self, claim: &Claim, why: String) {
        self.denied.push((claim.metadata(), why));
    }

    pub(super) fn take_denied(&mut self) -> Vec<(ObjectMeta, String)> {
        std::mem::take(&mut self.denied)
    }
}
