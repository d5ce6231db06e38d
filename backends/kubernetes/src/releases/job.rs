//! The Job of a run of a release command, of one by hand, or of a check's: one container like the app's own, with the image and the command.
//!
//! A pod of the run shares with the workload's pods what its command may need, and nothing by which others would take it for
//! one of them: no labels and annotations of theirs, no ports, no name in the network.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        batch::v1::{Job, JobSpec},
        core::v1::{
            Affinity, Container, PodAffinity, PodAffinityTerm, PodSpec, PodTemplateSpec, Volume,
            WeightedPodAffinityTerm,
        },
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use kube::core::SelectorExt;
use rollhook_core::{
    Error, Result,
    check::CheckKind,
    configuration::ConfigurationId,
    image::ImageRef,
    ports::{ReleaseRun, RunId, RunKind},
};

use crate::{
    client::parsed,
    rules::{
        configuration,
        object::{MANAGED_BY, MANAGER, Object},
    },
};

/// The label with the app's uid: on the Job, and on its pod.
const APP: &str = "rollhook.dev/release-app";
/// The label with the revision of a release command.
const REVISION: &str = "rollhook.dev/release-revision";
/// The label with the number of a run by hand.
const BY_HAND: &str = "rollhook.dev/run";
/// The label with the number of a check's run.
const CHECK: &str = "rollhook.dev/check-run";
/// The labels that are common to all runs and their pods: what a command may reach, as a NetworkPolicy says it, does not
/// depend on who runs it.
const COMMON: [(&str, &str); 2] = [(MANAGED_BY, MANAGER), ("app.kubernetes.io/component", "release-command")];
/// The annotation of a Job with the run's id.
const RUN: &str = "rollhook.dev/release";
/// The times that a command may run if no driver ends it: backstops beyond any app's own deadline, which is 4 hours at most,
/// and beyond any check's timeout.
const LIMIT_SECONDS: i64 = 5 * 3600;
const CHECK_LIMIT_SECONDS: i64 = CheckKind::COMMAND_TIMEOUT_MAX.as_secs().cast_signed() + 60;
/// The time that an ended run is kept, with its pod and so with its log.
const KEPT_SECONDS: i32 = 24 * 3600;
/// The most claims of storage that a run may have: each is read.
const CLAIMS: usize = 50;

/// The name of a run's Job.
pub(super) fn name(run: RunId) -> String {
    format!("{}{}", prefix(run), run.kind.number())
}

fn prefix(RunId { app, kind }: RunId) -> String {
    format!("{}-{app}-", kind.word())
}

/// The run of this one's app and kind by the name of its Job. Returns `None` if that is no such name.
pub(super) fn named(metadata: &ObjectMeta, like: RunId) -> Option<RunKind> {
    RunKind::named(like.kind.word(), metadata.name.as_deref()?.strip_prefix(&prefix(like))?)
}

const fn limit(kind: RunKind) -> i64 {
    match kind {
        RunKind::Release(_) | RunKind::ByHand(_) => LIMIT_SECONDS,
        RunKind::Check(_) => CHECK_LIMIT_SECONDS,
    }
}

/// The label that has a run's number.
const fn label(kind: RunKind) -> &'static str {
    match kind {
        RunKind::Release(_) => REVISION,
        RunKind::ByHand(_) => BY_HAND,
        RunKind::Check(_) => CHECK,
    }
}

/// The selector of a run's objects.
pub(super) fn selector(run: RunId) -> String {
    format!("{APP}={},{}={}", run.app, label(run.kind), run.kind.number())
}

/// The selector of the objects of all runs of this one's app and kind.
pub(super) fn selector_of_kind(run: RunId) -> String {
    let common = COMMON.map(|(name, value)| format!("{name}={value}")).join(",");
    format!("{APP}={},{},{common}", run.app, label(run.kind))
}

/// Whether the object is one of this run.
pub(super) fn is_of(metadata: &ObjectMeta, run: RunId) -> bool {
    let own = labels(run);
    metadata.labels.as_ref().is_some_and(|labels| own.iter().all(|(name, value)| labels.get(name) == Some(value)))
}

fn labels(run: RunId) -> BTreeMap<String, String> {
    let common = COMMON.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let own = [(APP, run.app.to_string()), (label(run.kind), run.kind.number().to_string())];
    common.into_iter().chain(own.map(|(name, value)| (name.to_owned(), value))).collect()
}

/// The claims of storage that the target's container mounts.
///
/// # Errors
/// `Invalid` if there are too many.
pub(super) fn claims(target: &Object, container: &str) -> Result<BTreeSet<String>> {
    let claim = |volume: Volume| Some(volume.persistent_volume_claim?.claim_name);
    let claims: BTreeSet<String> = mounted(target, container).into_iter().filter_map(claim).collect();
    if claims.len() > CLAIMS {
        return Err(Error::invalid(format!(
            "the container {container} of {} mounts {} PersistentVolumeClaims, and an app with a release command may have \
             {CLAIMS}: mount fewer",
            target.title(),
            claims.len()
        )));
    }
    Ok(claims)
}

/// The Job of a run in the target's own surroundings, suspended until it is started. It has the volumes that the target's
/// container mounts, without those that belong to one pod: the ones that a StatefulSet makes for each of its pods, and
/// those of `exclusive` claims; and the variables of this
/// configuration in place of those of the target's.
///
/// # Errors
/// `Invalid` if the target has no such container, or if its selector would select the run's pod.
pub(super) fn of(
    run: &ReleaseRun,
    target: &Object,
    container: &str,
    (image, command): (&ImageRef, &[String]),
    exclusive: &BTreeSet<String>,
    configuration: Option<ConfigurationId>,
) -> Result<Job> {
    let title = target.title();
    let (Some(own), Some(pod)) = (target.container(container), target.template().and_then(|found| found.spec.as_ref()))
    else {
        return Err(Error::invalid(format!("{title} has no container {container}")));
    };
    let labels = labels(run.id);
    if let Some(selector) = target.selector()
        && parsed(selector)?.matches(&labels)
    {
        return Err(Error::invalid(format!(
            "the selector of {title} selects the pod of a release command too, which would count as one of its own: name a \
             label in it that only its own pods have"
        )));
    }
    let is_exclusive = |volume: &Volume| {
        volume.persistent_volume_claim.as_ref().is_some_and(|claim| exclusive.contains(&claim.claim_name))
    };
    let volumes: Vec<Volume> = mounted(target, container).into_iter().filter(|volume| !is_exclusive(volume)).collect();
    let has_claims = volumes.iter().any(|volume| volume.persistent_volume_claim.is_some());
    let neighbours = target.selector().filter(|_| has_claims);
    let metadata = |annotations| ObjectMeta { labels: Some(labels.clone()), annotations, ..ObjectMeta::default() };
    let deploy = BTreeMap::from([(RUN.to_owned(), run.id.to_string())]);
    let container = Container {
        env_from: Some(configuration::env_from(Some(own), &run.app, configuration)),
        ..container_like(own, image, command, &volumes)
    };
    Ok(Job {
        metadata: ObjectMeta { name: Some(name(run.id)), ..metadata(Some(deploy)) },
        spec: Some(JobSpec {
            suspend: Some(true),
            completions: Some(1),
            parallelism: Some(1),
            // Any end of the pod ends the run: a command that was interrupted may have done part of its work.
            backoff_limit: Some(0),
            // A pod that is being deleted has no successor, which would run the command once more.
            pod_replacement_policy: Some("Failed".to_owned()),
            active_deadline_seconds: Some(limit(run.id.kind)),
            ttl_seconds_after_finished: Some(KEPT_SECONDS),
            template: PodTemplateSpec {
                metadata: Some(metadata(None)),
                spec: Some(pod_spec(pod, container, volumes, neighbours)),
            },
            ..JobSpec::default()
        }),
        status: None,
    })
}

/// The volumes of the target's template that its container mounts.
fn mounted(target: &Object, container: &str) -> Vec<Volume> {
    let Some(own) = target.container(container) else { return Vec::new() };
    let mounts = own.volume_mounts.iter().flatten().map(|mount| &mount.name);
    let names: BTreeSet<&String> =
        mounts.chain(own.volume_devices.iter().flatten().map(|device| &device.name)).collect();
    let made_per_pod: BTreeSet<&String> = match target {
        Object::StatefulSet(set) => {
            let claims = set.spec.iter().flat_map(|spec| spec.volume_claim_templates.iter().flatten());
            claims.filter_map(|claim| claim.metadata.name.as_ref()).collect()
        }
        Object::Deployment(_) | Object::DaemonSet(_) | Object::CronJob(_) => BTreeSet::new(),
    };
    let volumes = target.template().and_then(|template| template.spec.as_ref()?.volumes.as_ref());
    let is_mounted = |volume: &&Volume| names.contains(&volume.name) && !made_per_pod.contains(&volume.name);
    volumes.into_iter().flatten().filter(is_mounted).cloned().collect()
}

fn container_like(own: &Container, image: &ImageRef, command: &[String], volumes: &[Volume]) -> Container {
    let own = own.clone();
    let has = |name: &str| volumes.iter().any(|volume| volume.name == name);
    // Kubernetes replaces `$(NAME)`; a doubled `$` is one that it leaves alone.
    let mut words = command.iter().map(|word| word.replace('$', "$$"));
    Container {
        name: own.name,
        image: Some(image.to_string()),
        image_pull_policy: own.image_pull_policy,
        command: words.next().map(|program| vec![program]),
        args: Some(words.collect()),
        env: own.env,
        working_dir: own.working_dir,
        resources: own.resources,
        security_context: own.security_context,
        volume_mounts: own.volume_mounts.map(|mounts| mounts.into_iter().filter(|mount| has(&mount.name)).collect()),
        volume_devices: own
            .volume_devices
            .map(|devices| devices.into_iter().filter(|device| has(&device.name)).collect()),
        ..Container::default()
    }
}

/// The pod of a run, beside its `neighbours` if it fits there: a volume that only one node may use would keep it from starting
/// on another one. Of the workload's affinities only those to nodes are kept: the ones to and from pods speak of the
/// workload's own pods, beside which the command may run.
fn pod_spec(
    of_workload: &PodSpec,
    container: Container,
    volumes: Vec<Volume>,
    neighbours: Option<&LabelSelector>,
) -> PodSpec {
    let own = of_workload.clone();
    let node_affinity = own.affinity.and_then(|affinity| affinity.node_affinity);
    let pod_affinity = neighbours.map(beside);
    let has_affinity = node_affinity.is_some() || pod_affinity.is_some();
    PodSpec {
        containers: vec![container],
        restart_policy: Some("Never".to_owned()),
        volumes: (!volumes.is_empty()).then_some(volumes),
        affinity: has_affinity.then_some(Affinity { node_affinity, pod_affinity, pod_anti_affinity: None }),
        automount_service_account_token: own.automount_service_account_token,
        dns_config: own.dns_config,
        dns_policy: own.dns_policy,
        enable_service_links: own.enable_service_links,
        host_aliases: own.host_aliases,
        host_ipc: own.host_ipc,
        host_network: own.host_network,
        host_pid: own.host_pid,
        host_users: own.host_users,
        image_pull_secrets: own.image_pull_secrets,
        node_name: own.node_name,
        node_selector: own.node_selector,
        os: own.os,
        priority_class_name: own.priority_class_name,
        resource_claims: own.resource_claims,
        runtime_class_name: own.runtime_class_name,
        scheduler_name: own.scheduler_name,
        security_context: own.security_context,
        service_account_name: own.service_account_name.or(own.service_account),
        termination_grace_period_seconds: own.termination_grace_period_seconds,
        tolerations: own.tolerations,
        ..PodSpec::default()
    }
}

/// The preference for the nodes of the selected pods.
fn beside(pods: &LabelSelector) -> PodAffinity {
    let term = PodAffinityTerm {
        label_selector: Some(pods.clone()),
        topology_key: "kubernetes.io/hostname".to_owned(),
        ..PodAffinityTerm::default()
    };
    PodAffinity {
        preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
            pod_affinity_term: term,
            weight: 100,
        }]),
        required_during_scheduling_ignored_during_execution: None,
    }
}

#[cfg(test)]
mod tests {
    use rollhook_core::{
        app::AppUid,
        deploy::Revision,
        ports::{CheckRun, DeployId},
        run::RunNumber,
    };
    use serde_json::{Value, json};

    use super::*;
    use crate::rules::samples;

    fn run() -> ReleaseRun {
        let id = DeployId { app: AppUid::from_bits(u128::MAX), revision: Revision::new(7).unwrap() };
        ReleaseRun { app: "shop-test/api".parse().unwrap(), id: id.into() }
    }

    fn made(target: &Object, exclusive: &[&str]) -> Result<Job> {
        let command = ["bin/migrate", "--to=$(VERSION)", "$HOME"].map(str::to_owned);
        let exclusive = exclusive.iter().map(|&name| name.to_owned()).collect();
        let image = "registry.example.com/api:v7".parse().unwrap();
        of(&run(), target, "app", (&image, &command), &exclusive, None)
    }

    /// A template with all that a run has, and much that it has not.
    fn template() -> Value {
        json!({
            "metadata": {"labels": {"app": "api"}, "annotations": {"sidecar.example.com/inject": "true"}},
            "spec": {
                "serviceAccountName": "api",
                "imagePullSecrets": [{"name": "registry"}],
                "nodeSelector": {"disk": "ssd"},
                "tolerations": [{"key": "apps", "operator": "Exists"}],
                "securityContext": {"runAsUser": 1000},
                "hostname": "api", "subdomain": "api",
                "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
                "affinity": {
                    "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
                    "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "host"}]},
                },
                "initContainers": [{"name": "wait", "image": "wait:1", "volumeMounts": [{"name": "waiting", "mountPath": "/w"}]}],
                "containers": [
                    {
                        "name": "app", "image": "registry.example.com/api:v6", "imagePullPolicy": "Always",
                        "command": ["serve"], "args": ["--port=80"], "workingDir": "/srv",
                        "env": [{"name": "MODE", "value": "test"}],
                        "envFrom": [{"secretRef": {"name": "database"}}],
                        "ports": [{"containerPort": 80, "hostPort": 80}],
                        "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"httpGet": {"port": 80}},
                        "startupProbe": {"httpGet": {"port": 80}},
                        "lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}},
                        "resources": {"limits": {"memory": "128Mi"}},
                        "securityContext": {"readOnlyRootFilesystem": true},
                        "volumeMounts": [
                            {"name": "settings", "mountPath": "/etc/api"}, {"name": "keys", "mountPath": "/keys"},
                            {"name": "tmp", "mountPath": "/tmp"}, {"name": "tokens", "mountPath": "/tokens"},
                            {"name": "shared", "mountPath": "/shared"}, {"name": "one", "mountPath": "/one"},
                            {"name": "data", "mountPath": "/data"},
                        ],
                    },
                    {"name": "proxy", "image": "proxy:1"},
                ],
                "volumes": [
                    {"name": "settings", "configMap": {"name": "api"}}, {"name": "keys", "secret": {"secretName": "keys"}},
                    {"name": "tmp", "emptyDir": {}}, {"name": "tokens", "projected": {"sources": []}},
                    {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
                    {"name": "one", "persistentVolumeClaim": {"claimName": "only-one-pod"}},
                    {"name": "waiting", "secret": {"secretName": "of-another-container"}},
                ],
            },
        })
    }

    #[test]
    fn run_has_the_surroundings_of_the_target_and_nothing_that_selects_it() {
        let target = samples::deployment(json!({"spec": {"template": template()}}));
        let claims: Vec<String> = claims(&target, "app").unwrap().into_iter().collect();
        assert_eq!(claims, ["only-one-pod", "shared"]);
        let job = made(&target, &["only-one-pod"]).unwrap();
        assert!(is_of(&job.metadata, run().id));
        insta::assert_json_snapshot!(job);
    }

    #[test]
    fn all_kinds_of_workload_make_the_same_pod() {
        let of = |target: Object| serde_json::to_value(made(&target, &[]).unwrap()).unwrap();
        let template = json!({"template": template()});
        let deployment = of(samples::deployment(json!({"spec": template})));
        assert_eq!(of(samples::daemon_set(json!({"spec": template}))), deployment);
        assert_eq!(of(samples::stateful_set(json!({"spec": template}))), deployment);
        let mut alone = deployment;
        alone["spec"]["template"]["spec"]["affinity"].as_object_mut().unwrap().remove("podAffinity").unwrap();
        let cron_job = of(samples::cron_job(json!({"spec": {"jobTemplate": {"spec": template}}})));
        assert_eq!(cron_job, alone, "it has no selector");
    }

    #[test]
    fn run_without_claims_has_no_neighbours() {
        let affinity = |target: &Object, exclusive: &[&str]| {
            made(target, exclusive).unwrap().spec.unwrap().template.spec.unwrap().affinity
        };
        let target = samples::deployment(json!({"spec": {"template": template()}}));
        assert!(affinity(&target, &["only-one-pod"]).unwrap().pod_affinity.is_some());
        let exclusive = affinity(&target, &["only-one-pod", "shared"]).unwrap();
        assert!(exclusive.pod_affinity.is_none() && exclusive.node_affinity.is_some());
        assert_eq!(affinity(&samples::deployment(json!({})), &[]), None);
    }

    #[test]
    fn more_claims_than_are_read_are_refused() {
        let target = |count: usize| {
            let names = (0..count).map(|at| format!("claim-{at}"));
            let volume = |name: String| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
            let mount = |name: String| json!({"name": name, "mountPath": format!("/{name}")});
            let mounts: Vec<Value> = names.clone().map(mount).collect();
            let containers = json!([{"name": "app", "image": "api:v1", "volumeMounts": mounts}]);
            let volumes: Vec<Value> = names.map(volume).collect();
            samples::deployment(json!({"spec": {"template": {"spec": {"containers": containers, "volumes": volumes}}}}))
        };
        assert_eq!(claims(&target(CLAIMS), "app").unwrap().len(), CLAIMS);
        let refused = claims(&target(CLAIMS + 1), "app").unwrap_err();
        assert!(refused.to_string().contains("mounts 51 PersistentVolumeClaims"), "{refused}");
    }

    #[test]
    fn volumes_that_a_stateful_set_makes_for_each_pod_are_left_out() {
        let claims = json!([{"metadata": {"name": "data"}}, {"metadata": {"name": "tmp"}}]);
        let target = json!({"spec": {"template": template(), "volumeClaimTemplates": claims}});
        let job = serde_json::to_value(made(&samples::stateful_set(target), &[]).unwrap()).unwrap();
        let pod = &job["spec"]["template"]["spec"];
        let names = |list: &Value| -> Vec<String> {
            list.as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names(&pod["volumes"]), ["settings", "keys", "tokens", "shared", "one"]);
        assert_eq!(names(&pod["containers"][0]["volumeMounts"]), names(&pod["volumes"]));
    }

    #[test]
    fn name_of_a_run_fits() {
        let last = DeployId { app: AppUid::from_bits(u128::MAX), revision: Revision::new(i64::MAX as u64).unwrap() };
        let by_hand = RunKind::ByHand(RunNumber::new(i64::MAX as u64).unwrap());
        let last: RunId = last.into();
        let check = RunKind::Check(CheckRun::tried_out(Revision::new(i64::MAX as u64).unwrap(), u32::MAX));
        for run in [last, RunId { kind: by_hand, ..last }, RunId { kind: check, ..last }] {
            assert!(name(run).len() <= 63, "{}", name(run));
        }
    }

    #[test]
    fn runs_of_all_kinds_have_their_own_names_and_labels() {
        let release = run().id;
        let by_hand = RunId { kind: RunKind::ByHand(RunNumber::new(7).unwrap()), ..release };
        let metadata =
            |run: RunId| ObjectMeta { name: Some(name(run)), labels: Some(labels(run)), ..Default::default() };
        assert_eq!(named(&metadata(by_hand), by_hand), Some(by_hand.kind));
        assert_eq!(named(&metadata(by_hand), release), None);
        assert!(is_of(&metadata(by_hand), by_hand) && !is_of(&metadata(by_hand), release));
        assert!(!is_of(&metadata(release), by_hand));
        let check = CheckRun::new(Revision::FIRST, 2, 3);
        let of_check = RunId { kind: RunKind::Check(check), ..release };
        assert_eq!(named(&metadata(of_check), of_check), Some(of_check.kind));
        assert!([release, by_hand].into_iter().all(|run| named(&metadata(of_check), run).is_none()));
        assert!(!is_of(&metadata(of_check), release) && !is_of(&metadata(of_check), by_hand));
    }

    #[test]
    fn selector_that_selects_every_pod_is_refused() {
        let all = json!({"matchLabels": null, "matchExpressions": [{"key": "debug", "operator": "DoesNotExist"}]});
        let target = samples::deployment(json!({"spec": {"selector": all}}));
        let refused = made(&target, &[]).unwrap_err();
        assert!(refused.to_string().contains("selector of Deployment api"), "{refused}");
    }

    #[test]
    fn missing_container_is_refused() {
        let target = samples::deployment(json!({}));
        let image = "api:v1".parse().unwrap();
        assert!(of(&run(), &target, "web", (&image, &["true".to_owned()]), &BTreeSet::new(), None).is_err());
    }
}
