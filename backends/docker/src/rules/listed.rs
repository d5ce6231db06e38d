//! Containers as the engine's lists have them: what rollhook reads of them. The rest is skipped while the list arrives; a
//! container has the labels of its image, which may be of any length.

use serde::Deserialize;

use crate::settings::Workload;

/// A container of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct ListedContainer {
    pub(crate) id: String,
    #[serde(rename = "ImageID")]
    pub(crate) image_id: String,
    names: Option<Vec<String>>,
    pub(crate) state: String,
    /// The time at which it was made, in seconds.
    pub(crate) created: Option<i64>,
}

impl ListedContainer {
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        bare(self.names.as_ref())
    }
}

fn bare(names: Option<&Vec<String>>) -> impl Iterator<Item = &str> {
    names.into_iter().flatten().map(|name| name.trim_start_matches('/'))
}

/// A container of a list of those that have published ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct PublishingContainer {
    names: Option<Vec<String>>,
    labels: Option<TargetLabels>,
    ports: Option<Vec<PublishedPort>>,
}

/// The labels by which a container's target is known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct TargetLabels {
    #[serde(rename = "dev.rollhook.target")]
    target: Option<String>,
    #[serde(rename = "com.docker.compose.project")]
    project: Option<String>,
    #[serde(rename = "com.docker.compose.service")]
    service: Option<String>,
}

/// A port of a container, and the one of this machine that leads there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct PublishedPort {
    #[serde(rename = "IP")]
    pub(crate) ip: String,
    #[serde(rename = "PublicPort")]
    pub(crate) port: Option<u16>,
    #[serde(rename = "Type")]
    pub(crate) protocol: String,
}

impl PublishingContainer {
    /// The name for people.
    pub(crate) fn name(&self) -> &str {
        bare(self.names.as_ref()).next().unwrap_or_default()
    }

    pub(crate) fn ports(&self) -> impl Iterator<Item = &PublishedPort> {
        self.ports.iter().flatten()
    }

    /// Whether the container is the target's.
    pub(crate) fn is_of(&self, workload: &Workload) -> bool {
        let labels = self.labels.as_ref();
        if let Some(target) = labels.and_then(|labels| labels.target.as_deref()) {
            return target == workload.key();
        }
        match workload.service() {
            Some((project, service)) => labels.is_some_and(|labels| {
                labels.project.as_deref() == Some(project) && labels.service.as_deref() == Some(service)
            }),
            None => bare(self.names.as_ref()).any(|name| name == workload.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{
        rules::container::{COMPOSE_PROJECT, COMPOSE_SERVICE, TARGET},
        settings::Kind,
    };

    #[test]
    fn container_with_a_port_is_of_its_labels_target_or_else_of_its_name() {
        let listed = |labels: serde_json::Value| -> PublishingContainer {
            let ports = json!([{ "IP": "0.0.0.0", "PrivatePort": 80, "PublicPort": 8080, "Type": "tcp" }, {
                "PrivatePort": 81, "Type": "tcp",
            }]);
            serde_json::from_value(json!({ "Names": ["/web"], "Labels": labels, "Ports": ports })).unwrap()
        };
        let web = Workload::named(Kind::Container, "web");
        let service = Workload::named(Kind::Compose, "shop/web");
        assert!(listed(json!({})).is_of(&web) && listed(json!(null)).is_of(&web));
        assert!(!listed(json!({ TARGET: "container/other" })).is_of(&web));
        let of_service = listed(json!({ COMPOSE_PROJECT: "shop", COMPOSE_SERVICE: "web" }));
        assert!(of_service.is_of(&service) && !listed(json!({})).is_of(&service));
        assert_eq!((of_service.name(), of_service.ports().count()), ("web", 2));
    }
}
