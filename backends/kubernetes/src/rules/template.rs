//! The Deployment and the Service that are made for an app that has none.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::{
        apps::v1::{Deployment, DeploymentSpec},
        core::v1::{
            Container, ContainerPort, EnvVar, HTTPGetAction, LocalObjectReference, PodSpec, PodTemplateSpec, Probe,
            Service, ServicePort, ServiceSpec,
        },
    },
    apimachinery::pkg::{
        apis::meta::v1::{LabelSelector, ObjectMeta},
        util::intstr::IntOrString,
    },
};

use super::{
    object::{CHANGE_CAUSE, MANAGER, STAMP},
    patch,
};
use crate::workload::{Rollout, Template};

/// How long a pod must be ready to count as available, in seconds: without a probe, a container that dies after a few
/// seconds would count.
const MIN_READY_SECONDS: i32 = 10;

/// The Deployment, which carries the order from its first moment.
pub(crate) fn deployment(order: &Rollout, template: &Template) -> Deployment {
    let stamp = (STAMP.to_owned(), order.stamp.to_string());
    let cause = (CHANGE_CAUSE.to_owned(), patch::cause(order));
    let pod = PodSpec {
        containers: order
            .workload
            .containers
            .iter()
            .enumerate()
            .map(|(at, name)| container(order, template, at, name))
            .collect(),
        image_pull_secrets: template.pull_secret.clone().map(|name| vec![LocalObjectReference { name }]),
        ..PodSpec::default()
    };
    let pod_metadata = ObjectMeta {
        labels: Some(labels(order)),
        annotations: Some(BTreeMap::from([stamp.clone()])),
        ..ObjectMeta::default()
    };
    Deployment {
        metadata: ObjectMeta { annotations: Some(BTreeMap::from([stamp, cause])), ..metadata(order) },
        spec: Some(DeploymentSpec {
            replicas: Some(i32::try_from(template.replicas).unwrap_or(i32::MAX)),
            min_ready_seconds: Some(MIN_READY_SECONDS),
            selector: LabelSelector { match_labels: Some(selected(order)), ..LabelSelector::default() },
            template: PodTemplateSpec { metadata: Some(pod_metadata), spec: Some(pod) },
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

/// The Service of the same name, where the template has a port.
pub(crate) fn service(order: &Rollout, template: &Template) -> Option<Service> {
    let port = i32::from(template.port?);
    Some(Service {
        metadata: metadata(order),
        spec: Some(ServiceSpec {
            selector: Some(selected(order)),
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

/// The first container has the port and the probe; others get image and environment alone.
fn container(order: &Rollout, template: &Template, at: usize, name: &str) -> Container {
    let port = template.port.filter(|_| at == 0).map(i32::from);
    let env = template.env.iter();
    Container {
        name: name.to_owned(),
        image: Some(order.image.to_string()),
        env: Some(
            env.map(|(name, value)| EnvVar { name: name.clone(), value: Some(value.clone()), value_from: None })
                .collect(),
        ),
        ports: port.map(|port| vec![ContainerPort { container_port: port, ..ContainerPort::default() }]),
        readiness_probe: port.zip(template.readiness_path.clone()).map(|(port, path)| Probe {
            http_get: Some(HTTPGetAction {
                path: Some(path),
                port: IntOrString::Int(port),
                ..HTTPGetAction::default()
            }),
            ..Probe::default()
        }),
        ..Container::default()
    }
}

fn metadata(order: &Rollout) -> ObjectMeta {
    ObjectMeta {
        name: Some(order.workload.name.clone()),
        namespace: Some(order.app.namespace.as_str().to_owned()),
        labels: Some(labels(order)),
        ..ObjectMeta::default()
    }
}

fn labels(order: &Rollout) -> BTreeMap<String, String> {
    let mut labels = selected(order);
    labels.insert("app.kubernetes.io/managed-by".to_owned(), MANAGER.to_owned());
    labels
}

fn selected(order: &Rollout) -> BTreeMap<String, String> {
    BTreeMap::from([("app.kubernetes.io/name".to_owned(), order.workload.name.clone())])
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
            pull_secret: Some("registry".to_owned()),
            readiness_path: Some("/healthz".to_owned()),
        }
    }

    #[test]
    fn the_deployment_says_all_that_the_template_says() {
        let order = samples::order(1);
        let labels = json!({"app.kubernetes.io/name": "api", "app.kubernetes.io/managed-by": "rollhook"});
        assert_eq!(
            serde_json::to_value(deployment(&order, &template())).unwrap(),
            json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {
                    "name": "api",
                    "namespace": "shop-test",
                    "labels": labels,
                    "annotations": {STAMP: order.stamp.to_string(), CHANGE_CAUSE: "webhook: revision 1"},
                },
                "spec": {
                    "replicas": 2,
                    "minReadySeconds": 10,
                    "selector": {"matchLabels": {"app.kubernetes.io/name": "api"}},
                    "template": {
                        "metadata": {"labels": labels, "annotations": {STAMP: order.stamp.to_string()}},
                        "spec": {
                            "imagePullSecrets": [{"name": "registry"}],
                            "containers": [{
                                "name": "app",
                                "image": "registry.example.com/api:v1",
                                "env": [{"name": "MODE", "value": "test"}],
                                "ports": [{"containerPort": 8080}],
                                "readinessProbe": {"httpGet": {"path": "/healthz", "port": 8080}},
                            }],
                        },
                    },
                },
            })
        );
    }

    #[test]
    fn a_service_comes_with_a_port_only() {
        let order = samples::order(1);
        let service = service(&order, &template()).unwrap();
        let spec = serde_json::to_value(service.spec).unwrap();
        assert_eq!(
            spec,
            json!({"selector": {"app.kubernetes.io/name": "api"}, "ports": [{"port": 8080, "targetPort": 8080}]})
        );
        assert!(super::service(&order, &Template { port: None, ..template() }).is_none());
    }
}
