//! The Job that a build is.
//!
//! Its one container runs the builder's image, which is told by its environment what to build, and by files what to build
//! it with; it answers by its termination message. It knows nothing of the cluster that it runs in: no token, no names of
//! services, and by the namespace's NetworkPolicy no way but out.

use k8s_openapi::api::{batch::v1::Job, core::v1::Secret};
use rollhook_core::{Error, Result, ports::BuildSpec};
use serde_json::{Value, json};

use super::{
    names::{ABOUT, About, job as name, labels},
    seen::CONTAINER,
    settings::{Profile, Settings},
};

/// How long a build may run, whatever becomes of those who wait for it: a backstop, beyond any app's own deadline, which
/// may be a week, and by which its driver ends it.
const LIMIT_SECONDS: i64 = 8 * 24 * 3600;
/// How long a build is remembered once it has ended, with its pod and so with its log.
const KEPT_SECONDS: i32 = 3 * 24 * 3600;
/// How long a builder may take to end when it is told to.
const GRACE_SECONDS: i64 = 10;
/// Nobody's number on the node: the user of BuildKit without root.
const USER: i64 = 1000;
/// Where the builder finds credentials.
const RUN: &str = "/run/rollhook";
/// Where BuildKit keeps its state: not on the container's own file system, on which it could not lay its own.
const STATE: &str = "/var/lib/rollhook";
/// How much of the node's disk a build's state may take; a node that ran out of it would end others as well.
const DISK: &str = "20Gi";

/// The Job of an order, suspended until it has a place. `mark` is a word that no other Job of the same name had: its
/// Secret is called by it, so that one which is about to vanish with an earlier Job is never taken for it.
///
/// # Errors
/// `Corrupt` where what is made here is no Job, which would be a mistake of ours.
pub(super) fn of(order: &BuildSpec, settings: &Settings, profile: Profile, mark: &str) -> Result<Job> {
    let about = About::of(order, settings.places.get());
    let about =
        serde_json::to_string(&about).map_err(|error| Error::corrupt("a build's order cannot be written", error))?;
    let labels = labels(order.id);
    let job = json!({
        "metadata": {"name": name(order.id), "labels": labels, "annotations": {ABOUT: about}},
        "spec": {
            "suspend": true,
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            // A pod that is lost through no fault of its own has a successor, and never beside itself.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
            "activeDeadlineSeconds": LIMIT_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod(order, settings, profile, mark)},
        },
    });
    serde_json::from_value(job).map_err(|error| Error::corrupt("a build's Job cannot be made", error))
}

/// Whether the API server has kept what confines the build: one that does not know a field drops it without a word, and a
/// build that was to be root of its own user namespace would be root of the node.
pub(super) fn is_confined(job: &Job, profile: Profile) -> bool {
    let host_users = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()?.host_users);
    profile != Profile::UserNamespace || host_users == Some(false)
}

fn pod(order: &BuildSpec, settings: &Settings, profile: Profile, mark: &str) -> Value {
    let (of_pod, of_container) = security(profile);
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": of_pod,
        "containers": [{
            "name": CONTAINER,
            "image": settings.image.to_string(),
            "env": environment(order, settings, profile),
            "securityContext": of_container,
            "resources": resources(settings),
            "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File",
            "volumeMounts": [{"name": "state", "mountPath": STATE}],
        }],
        "volumes": [{"name": "state", "emptyDir": {"sizeLimit": DISK}}],
    });
    if profile == Profile::UserNamespace {
        pod["hostUsers"] = json!(false);
    }
    let files = files(order, settings);
    if !files.is_empty() {
        // The ssh client wants its key for itself, unless somebody else owns it.
        let mode = if profile == Profile::Rootless { 0o440 } else { 0o400 };
        let secret = json!({"secretName": format!("{}-{mark}", name(order.id)), "defaultMode": mode, "items": files});
        push(&mut pod["volumes"], json!({"name": "credentials", "secret": secret}));
        let mount = json!({"name": "credentials", "mountPath": RUN, "readOnly": true});
        push(&mut pod["containers"][0]["volumeMounts"], mount);
    }
    pod
}

fn push(list: &mut Value, item: Value) {
    if let Value::Array(list) = list {
        list.push(item);
    }
}

/// The security contexts of the pod and of its container.
///
/// BuildKit's own examples for Kubernetes say what it needs: in a user namespace all of that namespace's privileges; as an
/// ordinary user a node that does not forbid what makes user namespaces, which the default profiles of seccomp and
/// AppArmor do.
fn security(profile: Profile) -> (Value, Value) {
    match profile {
        Profile::UserNamespace | Profile::Privileged => (json!({}), json!({"privileged": true})),
        Profile::Rootless => {
            let unconfined = json!({"type": "Unconfined"});
            let pod = json!({
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": unconfined, "appArmorProfile": unconfined,
            });
            // newuidmap, which gives the user its namespace, is a program with privileges of its own.
            (pod, json!({"privileged": false, "allowPrivilegeEscalation": true}))
        }
    }
}

fn resources(settings: &Settings) -> Value {
    let (cpu, memory) = (settings.cpu.as_str(), settings.memory.as_str());
    // A build takes what processors others leave; memory cannot be taken back, so that all of it is set aside.
    json!({
        "requests": {"cpu": "10m", "memory": memory},
        "limits": {"cpu": cpu, "memory": memory},
    })
}

fn environment(order: &BuildSpec, settings: &Settings, profile: Profile) -> Vec<Value> {
    let source = &order.source;
    let variables = [
        ("ROLLHOOK_APP", order.app.to_string()),
        ("ROLLHOOK_REVISION", order.id.revision.to_string()),
        ("ROLLHOOK_SOURCE_URL", source.url.as_str().to_owned()),
        ("ROLLHOOK_BRANCH", source.branch.to_string()),
        ("ROLLHOOK_COMMIT", order.commit.to_string()),
        ("ROLLHOOK_DOCKERFILE", source.dockerfile.to_string()),
        ("ROLLHOOK_CONTEXT", source.context.to_string()),
        ("ROLLHOOK_IMAGE_REPOSITORY", source.image_repository.to_string()),
        ("ROLLHOOK_CACHE", format!("{}:buildcache", source.image_repository)),
        ("ROLLHOOK_CREDENTIALS", source.credentials.as_ref().map(ToString::to_string).unwrap_or_default()),
        ("ROLLHOOK_BUILDKIT_PROFILE", profile.to_string()),
        ("ROLLHOOK_INSECURE_REGISTRIES", settings.insecure_registries.join(",")),
    ];
    // Kubernetes replaces `$(NAME)` in values; a doubled `$` is one that it leaves alone.
    variables.map(|(name, value)| json!({"name": name, "value": value.replace('$', "$$")})).into()
}

/// The key of the source's credentials in the build's Secret.
pub(super) const SOURCE_KEY: &str = "source";
/// The key of the host keys by which ssh knows hosts.
pub(super) const HOSTS_KEY: &str = "known_hosts";
/// The key of the registry's.
pub(super) const REGISTRY_KEY: &str = "config.json";

/// Where the builder finds each part of the build's Secret.
fn files(order: &BuildSpec, settings: &Settings) -> Vec<Value> {
    let source = order.source.credentials.as_ref();
    let source = source.map(|name| json!({"key": SOURCE_KEY, "path": format!("source/{name}")}));
    let by_ssh = order.source.url.protocol() == "ssh" && settings.credentials.is_some();
    let hosts = by_ssh.then(|| json!({"key": HOSTS_KEY, "path": "source/known_hosts"}));
    let registry = settings.registry_config.as_ref();
    let registry = registry.map(|_| json!({"key": REGISTRY_KEY, "path": "registry/config.json"}));
    source.into_iter().chain(hosts).chain(registry).collect()
}

/// The Secret with what a Job's builder needs to be let in. It is removed once the build has ended; at the latest it
/// vanishes with the Job.
pub(super) fn secret(job: &Job, parts: Vec<(&str, Vec<u8>)>) -> Secret {
    use k8s_openapi::{
        ByteString,
        apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    };
    let meta = &job.metadata;
    let owner = OwnerReference {
        api_version: "batch/v1".to_owned(),
        kind: "Job".to_owned(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    Secret {
        metadata: ObjectMeta {
            name: secret_name(job).map(str::to_owned),
            labels: meta.labels.clone(),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(parts.into_iter().map(|(key, bytes)| (key.to_owned(), ByteString(bytes))).collect()),
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    }
}

/// The name of the Secret that the Job's pods have mounted; none where they need none.
pub(super) fn secret_name(job: &Job) -> Option<&str> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod?.volumes.iter().flatten().find_map(|volume| volume.secret.as_ref()?.secret_name.as_deref())
}

/// The keys that the Job's pods take from the build's Secret.
pub(super) fn wanted_keys(job: &Job) -> Vec<String> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let volumes = pod.into_iter().flat_map(|pod| pod.volumes.iter().flatten());
    let items = volumes.filter_map(|volume| volume.secret.as_ref()?.items.as_ref()).flatten();
    items.map(|item| item.key.clone()).collect()
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::samples;
    use rollhook_core::{app::AppUid, ports::DeployId};

    use super::*;

    fn order() -> BuildSpec {
        BuildSpec {
            app: samples::app("shop", "test", "api").id,
            id: DeployId { app: AppUid::from_bits(0xa11), revision: samples::revision(7) },
            source: samples::git_source(),
            commit: "0123456".parse().unwrap(),
        }
    }

    fn settings() -> Settings {
        let image = format!("registry.example.com/rollhook/builder@{}", samples::digest(1));
        Settings::new(image.parse().unwrap(), "rollhook-builds".parse().unwrap())
    }

    fn of_profile(profile: Profile) -> Value {
        serde_json::to_value(of(&order(), &settings(), profile, "x1").unwrap()).unwrap()
    }

    #[test]
    fn a_job_without_root() {
        insta::assert_json_snapshot!(of_profile(Profile::Rootless));
    }

    #[test]
    fn a_job_in_a_user_namespace_differs_in_what_confines_it() {
        let job = of(&order(), &settings(), Profile::UserNamespace, "x1").unwrap();
        assert!(is_confined(&job, Profile::UserNamespace));
        insta::assert_json_snapshot!(confinement(&serde_json::to_value(&job).unwrap()));
        let mut dropped = job;
        dropped.spec.as_mut().unwrap().template.spec.as_mut().unwrap().host_users = None;
        assert!(!is_confined(&dropped, Profile::UserNamespace));
        assert!(is_confined(&dropped, Profile::Rootless));
    }

    #[test]
    fn a_privileged_job_says_so() {
        insta::assert_json_snapshot!(confinement(&of_profile(Profile::Privileged)));
    }

    #[test]
    fn nothing_is_privileged_without_a_word() {
        assert_eq!(
            of_profile(Profile::Rootless)["spec"]["template"]["spec"]["containers"][0]["securityContext"]["privileged"],
            false
        );
        assert_eq!(of_profile(Profile::UserNamespace)["spec"]["template"]["spec"]["hostUsers"], false);
    }

    fn confinement(job: &Value) -> Value {
        let pod = &job["spec"]["template"]["spec"];
        json!({
            "hostUsers": pod["hostUsers"], "pod": pod["securityContext"],
            "container": pod["containers"][0]["securityContext"],
        })
    }

    #[test]
    fn a_build_gets_just_the_credentials_that_it_needs() {
        let (mut order, mut settings) = (order(), settings());
        let pod = |order: &BuildSpec, settings: &Settings| {
            let job = of(order, settings, Profile::UserNamespace, "x1").unwrap();
            (
                secret_name(&job).is_some(),
                wanted_keys(&job),
                serde_json::to_value(job).unwrap()["spec"]["template"]["spec"].clone(),
            )
        };
        assert!(!pod(&order, &settings).0);
        order.source.credentials = Some("shop".parse().unwrap());
        settings.credentials = Some("/etc/credentials".into());
        let (wants, keys, spec) = pod(&order, &settings);
        assert!(wants);
        assert_eq!(keys, [SOURCE_KEY]);
        assert_eq!(spec["volumes"][1]["secret"]["defaultMode"], 0o400);
        assert_eq!(spec["volumes"][1]["secret"]["items"][0]["path"], "source/shop");
        settings.registry_config = Some("/etc/config.json".into());
        assert_eq!(pod(&order, &settings).1, [SOURCE_KEY, REGISTRY_KEY]);
        order.source.url = "ssh://git@git.example.com/shop/api.git".parse().unwrap();
        assert_eq!(pod(&order, &settings).1, [SOURCE_KEY, HOSTS_KEY, REGISTRY_KEY]);
        assert!(!spec.to_string().contains("/etc/credentials"), "a pod need not know where the server keeps its files");
    }

    #[test]
    fn what_a_source_says_is_no_reference_to_a_variable() {
        let mut order = order();
        order.source.dockerfile = "build/$(ROLLHOOK_APP)".parse().unwrap();
        let job = serde_json::to_value(of(&order, &settings(), Profile::Rootless, "x1").unwrap()).unwrap();
        assert!(job["spec"].to_string().contains("build/$$(ROLLHOOK_APP)"));
    }

    #[test]
    fn the_secret_goes_with_just_its_job() {
        let settings = Settings { registry_config: Some("/etc/config.json".into()), ..settings() };
        let mut job = of(&order(), &settings, Profile::Rootless, "x1").unwrap();
        job.metadata.uid = Some("the-uid".to_owned());
        let secret = secret(&job, vec![(REGISTRY_KEY, b"{}".to_vec())]);
        assert_eq!(secret.metadata.owner_references.unwrap()[0].uid, "the-uid");
        assert_eq!(secret.metadata.name.unwrap(), format!("{}-x1", name(order().id)));
    }
}
