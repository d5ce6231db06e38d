//! The Job of a build.
//!
//! Its one container runs the builder's image, which reads the build from its environment and credentials from files,
//! and answers by its termination message. It has no access to the cluster that it runs in: no token, no names of
//! services, and by the namespace's NetworkPolicy only connections to the outside.

use k8s_openapi::{
    ByteString,
    api::{
        batch::v1::Job,
        core::v1::{Secret, SecretVolumeSource},
    },
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use rollhook_core::{Error, Result, ports::BuildSpec};
use serde_json::{Value, json};

use super::{
    names::{SPEC, StoredSpec, job as name, labels},
    observe::CONTAINER,
    settings::{Profile, Settings},
};

/// The time that a build may run if no driver ends it: a backstop beyond any app's own deadline, which is at most 4 h, and
/// an hour in which the cluster cannot be reached.
const LIMIT_SECONDS: i64 = 6 * 3600;
/// The time that an ended build is kept, with its pod and so with its log.
const KEPT_SECONDS: i32 = 3 * 24 * 3600;
/// The time that a builder has to end after it was told to.
const GRACE_SECONDS: i64 = 10;
/// The user of BuildKit without root: a number that no user of the node has.
const USER: i64 = 1000;
/// The directory of the credentials.
const RUN: &str = "/run/rollhook";
/// The directory of BuildKit's state: outside of the container's own file system, on which it could not mount its own.
const STATE: &str = "/var/lib/rollhook";
/// The most disk space that a build's state may take; a node that ran out of it would end other pods as well.
const DISK: &str = "20Gi";

/// The Job of a spec, suspended until it has a slot. No other Job of the same name had this suffix: its Secret is
/// named by it, so that the Secret of an earlier Job, which is deleted with that, is never taken for its own.
///
/// # Errors
/// `Corrupt` if the result is no Job, which would be a defect of this function.
pub(super) fn of(spec: &BuildSpec, settings: &Settings, profile: Profile, suffix: &str) -> Result<Job> {
    let stored = serde_json::to_string(&StoredSpec::of(spec, settings.slots.get()))
        .map_err(|error| Error::corrupt("a build's spec cannot be written", error))?;
    let labels = labels(spec.id);
    let job = json!({
        "metadata": {"name": name(spec.id), "labels": labels, "annotations": {SPEC: stored}},
        "spec": {
            "suspend": true,
            "completions": 1,
            "parallelism": 1,
            "backoffLimit": 0,
            // A pod that was disrupted from outside has a successor, which begins after its end.
            "podReplacementPolicy": "Failed",
            "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]},
            "activeDeadlineSeconds": LIMIT_SECONDS,
            "ttlSecondsAfterFinished": KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": pod(spec, settings, profile, suffix)},
        },
    });
    serde_json::from_value(job).map_err(|error| Error::corrupt("a build's Job cannot be made", error))
}

/// Whether the API server has kept the fields that confine the build: it silently drops fields that it does not know,
/// and a build meant to be root of its own user namespace would be root of the node.
pub(super) fn is_confined(job: &Job, profile: Profile) -> bool {
    let host_users = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()?.host_users);
    profile != Profile::UserNamespace || host_users == Some(false)
}

fn pod(spec: &BuildSpec, settings: &Settings, profile: Profile, suffix: &str) -> Value {
    let (pod_security, container_security) = security(profile);
    let mut pod = json!({
        "restartPolicy": "Never",
        "automountServiceAccountToken": false,
        "enableServiceLinks": false,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": pod_security,
        "containers": [{
            "name": CONTAINER,
            "image": settings.image.to_string(),
            "env": environment(spec, settings, profile),
            "securityContext": container_security,
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
    let files = files(spec, settings);
    if !files.is_empty() {
        // ssh refuses a key that others may read, unless another user owns it.
        let mode = if profile == Profile::Rootless { 0o440 } else { 0o400 };
        let secret = json!({"secretName": format!("{}-{suffix}", name(spec.id)), "defaultMode": mode, "items": files});
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
/// They follow BuildKit's own examples for Kubernetes: in a user namespace it needs all of that namespace's privileges;
/// as an ordinary user it needs the system calls that make user namespaces, which the default profiles of seccomp and
/// AppArmor forbid.
fn security(profile: Profile) -> (Value, Value) {
    match profile {
        Profile::UserNamespace | Profile::Privileged => (json!({}), json!({"privileged": true})),
        Profile::Rootless => {
            let unconfined = json!({"type": "Unconfined"});
            let pod = json!({
                "runAsNonRoot": true, "runAsUser": USER, "runAsGroup": USER, "fsGroup": USER,
                "seccompProfile": unconfined, "appArmorProfile": unconfined,
            });
            // newuidmap, which sets up the user namespace, is a program with privileges of its own.
            (pod, json!({"privileged": false, "allowPrivilegeEscalation": true}))
        }
    }
}

fn resources(settings: &Settings) -> Value {
    let (cpu, memory) = (settings.cpu.as_str(), settings.memory.as_str());
    // A build uses the processor time that others leave; memory cannot be taken back, so that all of it is reserved.
    json!({
        "requests": {"cpu": "10m", "memory": memory},
        "limits": {"cpu": cpu, "memory": memory},
    })
}

fn environment(spec: &BuildSpec, settings: &Settings, profile: Profile) -> Vec<Value> {
    let source = &spec.source;
    let variables = [
        ("ROLLHOOK_APP", spec.app.to_string()),
        ("ROLLHOOK_REVISION", spec.id.revision.to_string()),
        ("ROLLHOOK_SOURCE_URL", source.url.as_str().to_owned()),
        ("ROLLHOOK_BRANCH", source.branch.to_string()),
        ("ROLLHOOK_COMMIT", spec.commit.to_string()),
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
/// The key of the URLs that an ssh key is for.
pub(super) const URLS_KEY: &str = "source.url";
/// The key of the host keys that ssh accepts.
pub(super) const HOSTS_KEY: &str = "known_hosts";
/// The key of the registry's credentials.
pub(super) const REGISTRY_KEY: &str = "config.json";

/// The files in which the builder finds the parts of the build's Secret.
fn files(spec: &BuildSpec, settings: &Settings) -> Vec<Value> {
    let by_ssh = spec.source.url.protocol() == "ssh";
    let name = spec.source.credentials.as_ref();
    let source = name.map(|name| json!({"key": SOURCE_KEY, "path": format!("source/{name}")}));
    let urls = name.filter(|_| by_ssh);
    let urls = urls.map(|name| json!({"key": URLS_KEY, "path": format!("source/{name}.url")}));
    let hosts =
        (by_ssh && settings.credentials.is_some()).then(|| json!({"key": HOSTS_KEY, "path": "source/known_hosts"}));
    let registry = settings.registry_config.as_ref();
    let registry = registry.map(|_| json!({"key": REGISTRY_KEY, "path": "registry/config.json"}));
    source.into_iter().chain(urls).chain(hosts).chain(registry).collect()
}

/// The Secret with the credentials of a Job's builder. It is deleted once the build has ended, at the latest with the
/// Job.
pub(super) fn secret(job: &Job, parts: Vec<(&str, Vec<u8>)>) -> Secret {
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

/// The name of the Secret that the Job's pods mount. Returns `None` if they need none.
pub(super) fn secret_name(job: &Job) -> Option<&str> {
    secrets(job).find_map(|secret| secret.secret_name.as_deref())
}

/// The keys of the build's Secret that the Job's pods mount.
pub(super) fn wanted_keys(job: &Job) -> Vec<String> {
    secrets(job).filter_map(|secret| secret.items.as_ref()).flatten().map(|item| item.key.clone()).collect()
}

fn secrets(job: &Job) -> impl Iterator<Item = &SecretVolumeSource> {
    let pod = job.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    pod.into_iter().flat_map(|pod| pod.volumes.iter().flatten()).filter_map(|volume| volume.secret.as_ref())
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::samples;
    use rollhook_core::{app::AppUid, ports::DeployId};

    use super::*;

    fn spec() -> BuildSpec {
        let id = DeployId { app: AppUid::from_bits(0xa11), revision: samples::revision(7) };
        BuildSpec::new(samples::app("shop", "test", "api").id, id, samples::git_source(), "0123456".parse().unwrap())
    }

    fn settings() -> Settings {
        let image = format!("registry.example.com/rollhook/builder@{}", samples::digest(1));
        Settings::new(image.parse().unwrap(), "rollhook-builds".parse().unwrap())
    }

    fn of_profile(profile: Profile) -> Value {
        serde_json::to_value(of(&spec(), &settings(), profile, "x1").unwrap()).unwrap()
    }

    #[test]
    fn job_without_root() {
        insta::assert_json_snapshot!(of_profile(Profile::Rootless));
    }

    #[test]
    fn job_in_a_user_namespace() {
        let job = of(&spec(), &settings(), Profile::UserNamespace, "x1").unwrap();
        assert!(is_confined(&job, Profile::UserNamespace));
        insta::assert_json_snapshot!(confinement(&serde_json::to_value(&job).unwrap()));
        let mut dropped = job;
        dropped.spec.as_mut().unwrap().template.spec.as_mut().unwrap().host_users = None;
        assert!(!is_confined(&dropped, Profile::UserNamespace));
        assert!(is_confined(&dropped, Profile::Rootless));
    }

    #[test]
    fn privileged_job() {
        insta::assert_json_snapshot!(confinement(&of_profile(Profile::Privileged)));
    }

    #[test]
    fn job_is_privileged_by_choice_alone() {
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
    fn build_mounts_only_the_credentials_that_it_needs() {
        let (mut spec, mut settings) = (spec(), settings());
        let pod = |spec: &BuildSpec, settings: &Settings| {
            let job = of(spec, settings, Profile::UserNamespace, "x1").unwrap();
            (
                secret_name(&job).is_some(),
                wanted_keys(&job),
                serde_json::to_value(job).unwrap()["spec"]["template"]["spec"].clone(),
            )
        };
        assert!(!pod(&spec, &settings).0);
        spec.source.credentials = Some("shop".parse().unwrap());
        settings.credentials = Some("/etc/credentials".into());
        let (mounts, keys, template) = pod(&spec, &settings);
        assert!(mounts);
        assert_eq!(keys, [SOURCE_KEY]);
        assert_eq!(template["volumes"][1]["secret"]["defaultMode"], 0o400);
        assert_eq!(template["volumes"][1]["secret"]["items"][0]["path"], "source/shop");
        settings.registry_config = Some("/etc/config.json".into());
        assert_eq!(pod(&spec, &settings).1, [SOURCE_KEY, REGISTRY_KEY]);
        spec.source.url = "ssh://git@git.example.com/shop/api.git".parse().unwrap();
        assert_eq!(pod(&spec, &settings).1, [SOURCE_KEY, URLS_KEY, HOSTS_KEY, REGISTRY_KEY]);
        assert!(!template.to_string().contains("/etc/credentials"), "the paths of the server stay with the server");
    }

    #[test]
    fn dollar_sign_of_a_source_is_escaped() {
        let mut spec = spec();
        spec.source.dockerfile = "build/$(ROLLHOOK_APP)".parse().unwrap();
        let job = serde_json::to_value(of(&spec, &settings(), Profile::Rootless, "x1").unwrap()).unwrap();
        assert!(job["spec"].to_string().contains("build/$$(ROLLHOOK_APP)"));
    }

    #[test]
    fn secret_is_owned_by_its_job() {
        let settings = Settings { registry_config: Some("/etc/config.json".into()), ..settings() };
        let mut job = of(&spec(), &settings, Profile::Rootless, "x1").unwrap();
        job.metadata.uid = Some("the-uid".to_owned());
        let secret = secret(&job, vec![(REGISTRY_KEY, b"{}".to_vec())]);
        assert_eq!(secret.metadata.owner_references.unwrap()[0].uid, "the-uid");
        assert_eq!(secret.metadata.name.unwrap(), format!("{}-x1", name(spec().id)));
    }
}
