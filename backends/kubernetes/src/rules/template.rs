//! The Deployment and the Service that are made for an app that has none.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Capabilities, Container, ContainerPort, EnvFromSource, EnvVar, HTTPGetAction, LocalObjectReference,
            PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ResourceRequirements, SeccompProfile, SecretEnvSource,
            SecurityContext, Service, ServicePort, ServiceSpec,
        },
    },
    apimachinery::pkg::{
        api::resource::Quantity,
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};

use super::{
    configuration,
    object::{CHANGE_CAUSE, MANAGED_BY, MANAGER, STAMP},
    patch,
    scale::STOPPED_FROM,
};
use crate::workload::{PodSecurity, Rollout, Template};

/// How long a pod must be ready to count as available, in seconds: without a probe, a container that dies after a few
/// seconds would count.
const MIN_READY_SECONDS: i32 = 10;

/// The Deployment, which carries the stamp from the start.
pub(crate) fn deployment(rollout: &Rollout, template: &Template) -> Deployment {
    let stops = rollout.is_made_stopped;
    let stopped_from = stops.then(|| (STOPPED_FROM.to_owned(), template.replicas.to_string()));
    let replicas = if stops { 0 } else { template.replicas };
    let stamp = (STAMP.to_owned(), rollout.id.to_string());
    let cause = (CHANGE_CAUSE.to_owned(), patch::cause(rollout));
    let pod = PodSpec {
        containers: rollout.workload.containers.iter().map(|name| container(rollout, template, name)).collect(),
        image_pull_secrets: template.pull_secret.clone().map(|name| vec![LocalObjectReference { name }]),
        security_context: Some(PodSecurityContext {
            run_as_non_root: is_restricted(template).then_some(true),
            seccomp_profile: Some(SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() }),
            ..PodSecurityContext::default()
        }),
        ..PodSpec::default()
    };
    let pod_metadata = ObjectMeta {
        labels: Some(labels(rollout)),
        annotations: Some(BTreeMap::from([stamp.clone()])),
        ..ObjectMeta::default()
    };
    Deployment {
        metadata: ObjectMeta {
            annotations: Some([stamp, cause].into_iter().chain(stopped_from).collect()),
            ..metadata(rollout)
        },
        spec: Some(DeploymentSpec {
            replicas: Some(i32::try_from(replicas).unwrap_or(i32::MAX)),
            min_ready_seconds: Some(MIN_READY_SECONDS),
            selector: LabelSelector { match_labels: Some(selector_labels(rollout)), ..LabelSelector::default() },
            template: PodTemplateSpec { metadata: Some(pod_metadata), spec: Some(pod) },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// The Service of the same name, where the template has a port.
pub(crate) fn service(rollout: &Rollout, template: &Template) -> Option<Service> {
    let port = i32::from(template.port?);
    Some(Service {
        metadata: metadata(rollout),
        spec: Some(ServiceSpec {
            selector: Some(selector_labels(rollout)),
            ports: Some(vec![ServicePort {
                port,
                target_port: Some(IntOrString::Int(port)),
                ..ServicePort::default()
            }]),
            ..ServiceSpec::default()
        }),
        status: None,
    })
}

fn container(rollout: &Rollout, template: &Template, name: &str) -> Container {
    let port = template.port.map(i32::from);
    let variable = |(name, value): (&String, &String)| EnvVar {
        name: name.clone(),
        value: Some(value.clone()),
        ..EnvVar::default()
    };
    let secret = |name: &String| EnvFromSource {
        secret_ref: Some(SecretEnvSource { name: name.clone(), ..SecretEnvSource::default() }),
        ..EnvFromSource::default()
    };
    let own =
        Container { env_from: Some(template.env_from_secrets.iter().map(secret).collect()), ..Container::default() };
    Container {
        name: name.to_owned(),
        image: Some(rollout.image.to_string()),
        env: Some(template.env.iter().map(variable).collect()),
        env_from: Some(configuration::env_from(Some(&own), &rollout.app, rollout.configuration)),
        ports: port.map(|port| vec![ContainerPort { container_port: port, ..ContainerPort::default() }]),
        readiness_probe: port.zip(template.readiness_path.clone()).map(|(port, path)| Probe {
            http_get: Some(HTTPGetAction {
                path: Some(path),
                port: IntOrString::Int(port),
                ..HTTPGetAction::default()
            }),
            ..Probe::default()
        }),
        resources: resources(template),
        security_context: is_restricted(template).then(|| SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities { drop: Some(vec!["ALL".to_owned()]), add: None }),
            ..SecurityContext::default()
        }),
        ..Container::default()
    }
}

fn is_restricted(template: &Template) -> bool {
    template.pod_security == PodSecurity::Restricted
}

/// Memory is reserved as far as it may be used, since a node takes it back by ending the container alone; processor time
/// is reserved, and may be exceeded while others leave it.
fn resources(template: &Template) -> Option<ResourceRequirements> {
    let amount = |name: &str, text: &Option<String>| Some((name.to_owned(), Quantity(text.clone()?)));
    let (cpu, memory) = (amount("cpu", &template.cpu), amount("memory", &template.memory));
    let requests: BTreeMap<_, _> = cpu.into_iter().chain(memory.clone()).collect();
    (!requests.is_empty()).then(|| ResourceRequirements {
        requests: Some(requests),
        limits: memory.map(|memory| [memory].into()),
        ..ResourceRequirements::default()
    })
}

fn metadata(rollout: &Rollout) -> ObjectMeta {
    ObjectMeta {
        name: Some(rollout.workload.name.clone()),
        namespace: Some(rollout.namespace().to_owned()),
        labels: Some(labels(rollout)),
        ..ObjectMeta::default()
    }
}

fn labels(rollout: &Rollout) -> BTreeMap<String, String> {
    let mut labels = selector_labels(rollout);
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

fn selector_labels(rollout: &Rollout) -> BTreeMap<String, String> {
    BTreeMap::from([("app.kubernetes.io/name".to_owned(), rollout.workload.name.clone())])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples;

    fn template() -> Template {
        Template {
            replicas: 2,
            port: Some(8080),
            env: BTreeMap::from([("MODE".to_owned(), "test".to_owned())]),
            env_from_secrets: vec!["api-env".to_owned()],
            pull_secret: Some("registry".to_owned()),
            readiness_path: Some("/healthz".to_owned()),
            cpu: Some("500m".to_owned()),
            memory: Some("256Mi".to_owned()),
            pod_security: PodSecurity::Restricted,
        }
    }

    #[test]
    fn deployment_has_all_settings_of_the_template() {
        let rollout = samples::rollout(1);
        let labels = json!({"app.kubernetes.io/name": "api", "app.kubernetes.io/managed-by": "rollhook"});
        assert_eq!(
            serde_json::to_value(deployment(&rollout, &template())).unwrap(),
            json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {
                    "name": "api",
                    "namespace": "shop-test",
                    "labels": labels,
                    "annotations": {STAMP: rollout.id.to_string(), CHANGE_CAUSE: "webhook: revision 1"},
                },
                "spec": {
                    "replicas": 2,
                    "minReadySeconds": 10,
                    "selector": {"matchLabels": {"app.kubernetes.io/name": "api"}},
                    "template": {
                        "metadata": {"labels": labels, "annotations": {STAMP: rollout.id.to_string()}},
                        "spec": {
                            "imagePullSecrets": [{"name": "registry"}],
                            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                            "containers": [{
                                "name": "app",
                                "image": "registry.example.com/api:v1",
                                "env": [{"name": "MODE", "value": "test"}],
                                "envFrom": [{"secretRef": {"name": "api-env"}}],
                                "ports": [{"containerPort": 8080}],
                                "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
                                "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "256Mi"}},
                                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
                            }],
                        },
                    },
                },
            })
        );
    }

    #[test]
    fn image_that_is_root_runs_under_the_profile_baseline() {
        let template = Template { pod_security: PodSecurity::Baseline, cpu: None, memory: None, ..template() };
        let spec = deployment(&samples::rollout(1), &template).spec.unwrap().template.spec.unwrap();
        let pod = serde_json::to_value(spec).unwrap();
        assert_eq!(pod["securityContext"], json!({"seccompProfile": {"type": "RuntimeDefault"}}));
        assert!(
            pod["containers"][0].get("securityContext").is_none() && pod["containers"][0].get("resources").is_none()
        );
    }

    #[test]
    fn service_is_made_only_with_a_port() {
        let rollout = samples::rollout(1);
        let service = service(&rollout, &template()).unwrap();
        let spec = serde_json::to_value(service.spec).unwrap();
        assert_eq!(
            spec,
            json!({"selector": {"app.kubernetes.io/name": "api"}, "ports": [{"port": 8080, "targetPort": 8080}]})
        );
        assert!(super::service(&rollout, &Template { port: None, ..template() }).is_none());
    }
}
