use rollhook_core::{app::AppUid, deploy::Revision, ports::Purpose};
use serde_json::{Value, json};

use super::*;
use crate::{
    rules::samples::{self, merged, stamped},
    workload::WorkloadKind,
};

const REPOSITORY: &str = "registry.example.com/api";
const ONE: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";

fn restore(revision: u64, to: u64, image: &str) -> Rollout {
    let purpose = Purpose::Restore { to: Revision::new(to).unwrap() };
    Rollout { purpose, image: format!("{REPOSITORY}:{image}").parse().unwrap(), ..samples::rollout(revision) }
}

fn rollback(revision: u64, to: u64, image: &str) -> Rollout {
    Rollout { purpose: Purpose::Rollback { to: Revision::new(to).unwrap() }, ..restore(revision, to, image) }
}

/// The Deployment after a deploy of this image.
fn deployed(revision: u64, image: &str) -> Object {
    let image = format!("{REPOSITORY}:{image}").parse().unwrap();
    stamped(samples::deployment(json!({})), &Rollout { image, ..samples::rollout(revision) })
}

/// The object as a list has it.
fn listed(object: &Value) -> ListedRevision {
    serde_json::from_str(&object.to_string()).unwrap()
}

/// The ReplicaSet that a Deployment has made for its present template.
fn replica_set(object: &Object, number: i64) -> Retained {
    let mut template = serde_json::to_value(object.template().unwrap()).unwrap();
    template["metadata"]["labels"][HASH] = json!("5d6f");
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "controller": true,
                        "uid": object.metadata().uid}]);
    let set = json!({
        "metadata": {"name": "api-5d6f", "ownerReferences": owner, "annotations": {NUMBER: number.to_string()}},
        "spec": {"selector": {}, "template": template},
    });
    Retained::of_replica_set(listed(&set), object).unwrap()
}

fn pod(stamp: Option<u64>, digest: &str) -> Pod {
    let annotations = stamp.map(|revision| json!({STAMP: samples::rollout(revision).id.to_string()}));
    serde_json::from_value(json!({
        "metadata": {"name": "api-1", "annotations": annotations},
        "spec": {"containers": [{"name": "app", "image": format!("{REPOSITORY}:v1")}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "app", "image": "", "imageID": digest, "ready": true, "restartCount": 0}],
        },
    }))
    .unwrap()
}

fn running(digest: &str) -> String {
    format!("{REPOSITORY}@{digest}")
}

/// The revision whose template is brought back, and its image.
fn found(object: &Object, rollout: &Rollout, retained: &[Retained], pods: &[Pod]) -> Option<(Option<u64>, String)> {
    let kept = find(object, rollout, retained, pods)?;
    Some((kept.stamp.id().map(|id| id.revision.get()), kept.images["app"].clone()))
}

#[test]
fn restore_finds_the_template_of_the_version_that_ran() {
    let sets = [replica_set(&deployed(4, "v1"), 1), replica_set(&deployed(5, "bad"), 2)];
    let failed = deployed(5, "bad");
    let expected = Some((Some(4), format!("{REPOSITORY}:v1")));
    for image in ["v1", &format!("v1@{ONE}")] {
        assert_eq!(found(&failed, &restore(6, 4, image), &sets, &[]), expected, "also where no pod runs");
    }
    assert_eq!(found(&failed, &restore(6, 4, "v0"), &sets, &[]), None, "another version");
    assert_eq!(found(&failed, &restore(6, 3, "v1"), &sets, &[]), None, "it was deployed later");
    assert_eq!(found(&failed, &restore(6, 4, "v1"), &sets[1..], &[]), None, "it was pruned");
    assert_eq!(found(&failed, &samples::rollout(6), &sets, &[]), None, "a deploy is no return");
}

#[test]
fn failed_deploy_of_the_same_image_is_not_the_version_that_ran() {
    let sets = [replica_set(&deployed(4, "v1"), 1), replica_set(&deployed(5, "v1"), 2)];
    let crashing = [pod(Some(5), ""), pod(Some(5), "")];
    let kept = found(&deployed(5, "v1"), &restore(6, 4, "v1"), &sets, &crashing);
    assert_eq!(kept.unwrap().0, Some(4));
}

#[test]
fn template_with_the_most_pods_is_chosen() {
    let sets = [replica_set(&deployed(3, "v1"), 1), replica_set(&deployed(4, "v1"), 3)];
    let restore = restore(6, 4, "v1");
    let chosen = |pods: &[Pod]| found(&deployed(5, "bad"), &restore, &sets, pods).unwrap().0;
    assert_eq!(chosen(&[]), Some(4), "the newest");
    assert_eq!(chosen(&[pod(Some(3), "")]), Some(3), "as after a restore of revision 3 that ran as 4");
}

#[test]
fn configuration_that_others_changed_since_is_not_taken_back() {
    let sets = [replica_set(&deployed(4, "v1"), 1)];
    let changed = |patch: Value| {
        let Object::Deployment(object) = deployed(5, "bad") else { panic!() };
        samples::deployment(merged(serde_json::to_value(object).unwrap(), json!({"spec": {"template": patch}})))
    };
    let container =
        json!([{"name": "app", "image": format!("{REPOSITORY}:bad"), "env": [{"name": "A", "value": "1"}]}]);
    let restarted = json!({"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-01-01"}}});
    for patch in [json!({"spec": {"containers": container}}), restarted, json!({"metadata": {"labels": {"a": "b"}}})] {
        assert_eq!(found(&changed(patch.clone()), &restore(6, 4, "v1"), &sets, &[]), None, "{patch}");
    }
}

#[test]
fn version_from_before_the_first_deploy_has_no_stamp() {
    let adopted = samples::deployment(json!({}));
    let sets = [replica_set(&adopted, 1), replica_set(&deployed(2, "bad"), 2)];
    let kept = found(&deployed(2, "bad"), &restore(3, 1, "v0"), &sets, &[pod(None, "")]);
    assert_eq!(kept, Some((None, format!("{REPOSITORY}:v0"))));
    let mut taken = samples::rollout(9);
    taken.id.app = AppUid::from_bits(7);
    let theirs = stamped(adopted, &taken);
    let kept = found(&deployed(2, "bad"), &restore(3, 1, "v9"), &[replica_set(&theirs, 1)], &[]);
    assert_eq!(kept.unwrap().0, Some(9), "the stamp of the registration before");
}

#[test]
fn tag_that_may_have_moved_is_restored_by_its_digest() {
    let sets = [replica_set(&deployed(4, "latest"), 1)];
    let restore = restore(6, 4, &format!("latest@{ONE}"));
    let runs = |digest: &str| [pod(Some(4), &running(digest))];
    assert!(found(&deployed(5, "bad"), &restore, &sets, &runs(ONE)).is_some());
    assert_eq!(found(&deployed(5, "latest"), &restore, &sets, &runs(ONE)), None, "the failed deploy brought it anew");
    let anew = deployed(5, &format!("latest@{TWO}"));
    assert_eq!(found(&anew, &restore, &sets, &runs(ONE)), None, "the failed deploy brought it anew, by its digest");
    let back = rollback(6, 4, &format!("latest@{ONE}"));
    assert_eq!(found(&anew, &back, &sets, &runs(ONE)), None, "also where a person goes back");
    assert_eq!(found(&deployed(5, "bad"), &restore, &sets, &runs(TWO)), None, "a pod has other bits");
    let pinned = [replica_set(&deployed(4, &format!("latest@{ONE}")), 1)];
    assert!(found(&deployed(5, "latest"), &restore, &pinned, &[]).is_some(), "its template names the digest");
    // Without a known digest there is no better name.
    let unknown = Rollout { image: format!("{REPOSITORY}:latest").parse().unwrap(), ..restore };
    assert!(found(&deployed(5, "latest"), &unknown, &sets, &[]).is_some());
}

#[test]
fn pod_that_was_made_of_a_moved_tag_is_noticed() {
    let marker = json!({"metadata": {"annotations": {
        "rollhook.dev/revision": samples::rollout(6).id.to_string(),
        "rollhook.dev/template-revision": samples::rollout(4).id.to_string(),
    }}});
    let Object::Deployment(object) = deployed(4, "v1") else { panic!() };
    let kept = samples::deployment(merged(serde_json::to_value(object).unwrap(), marker));
    let restore = restore(6, 4, &format!("v1@{ONE}"));
    assert!(kept.is_kept(restore.id));
    let noticed = |pods: &[Pod]| runs_other_bits(&kept, &restore, pods);
    assert!(!noticed(&[pod(Some(4), &running(ONE)), pod(Some(5), &running(TWO))]), "the other is of the failed deploy");
    assert!(noticed(&[pod(Some(4), &running(ONE)), pod(Some(4), &running(TWO))]));
    assert!(!noticed(&[pod(Some(4), "")]), "simulated pods have no digest");
    assert!(!runs_other_bits(&deployed(6, "v1"), &restore, &[pod(Some(6), &running(TWO))]), "named by the digest");
}

#[test]
fn rollback_keeps_pods_that_run_of_another_image_than_the_one_that_is_set() {
    let sets = [replica_set(&deployed(4, "v1"), 1), replica_set(&deployed(5, "bad"), 2)];
    let stuck = deployed(5, "bad");
    let pods = [pod(Some(4), "")];
    assert_eq!(found(&stuck, &rollback(6, 4, "v1"), &sets, &pods).unwrap().0, Some(4));
    assert_eq!(found(&stuck, &rollback(6, 4, "v1"), &sets, &[]), None, "none runs: the digest is the better name");
    assert_eq!(found(&deployed(4, "v1"), &rollback(6, 4, "v1"), &sets, &pods), None, "it rolls again");
}

#[test]
fn revision_of_another_workload_is_none() {
    let mut other = samples::deployment(json!({}));
    let Object::Deployment(object) = &mut other else { panic!() };
    object.metadata.uid = Some("another".to_owned());
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "api", "controller": true,
                        "uid": samples::UID}]);
    let set = json!({"metadata": {"ownerReferences": owner}, "spec": {"selector": {}, "template": {}}});
    assert!(Retained::of_replica_set(listed(&set), &other).is_none());
    assert!(Retained::of_replica_set(listed(&set), &samples::deployment(json!({}))).is_some());
}

#[test]
fn controller_revision_holds_the_template_as_a_patch() {
    let set = stamped(samples::stateful_set(json!({})), &samples::rollout(4));
    let mut template = serde_json::to_value(set.template().unwrap()).unwrap();
    template["$patch"] = json!("replace");
    template["metadata"]["creationTimestamp"] = Value::Null;
    let owner = json!([{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "api", "controller": true,
                        "uid": samples::UID}]);
    let revision = json!({
        "metadata": {"name": "api-5d6f", "ownerReferences": owner},
        "data": {"spec": {"template": template}},
        "revision": 3,
    });
    let retained = Retained::of_controller_revision(listed(&revision), &set).unwrap();
    assert_eq!(retained.number, 3);
    let failed = stamped(samples::stateful_set(json!({})), &samples::rollout(5));
    let restore =
        Rollout { workload: samples::rollout_of(WorkloadKind::StatefulSet, 6).workload, ..restore(6, 4, "v4") };
    assert_eq!(found(&failed, &restore, &[retained], &[]).unwrap().0, Some(4));
}
