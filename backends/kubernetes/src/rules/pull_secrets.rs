//! The Secrets with which the pods of a namespace pull the images of a repository.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use rollhook_core::image::ImageRef;
use serde::Deserialize;

/// The most names of Secrets that are kept, of one workload and of a namespace.
const NAMES: usize = 16;
/// The most workloads of a namespace that are kept.
const WORKLOADS: usize = 2_000;

/// A workload of a list, as far as it says how the images of its pods are pulled.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ListedPuller {
    spec: Spec,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    containers: Option<Vec<Named>>,
    init_containers: Option<Vec<Named>>,
    image_pull_secrets: Option<Vec<Named>>,
    selector: Option<LabelSelector>,
    /// The pods of a workload or of a Job.
    template: Option<Box<ListedPuller>>,
    /// The Jobs of a CronJob.
    job_template: Option<Box<ListedPuller>>,
}

/// A container with its image, or a Secret.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    name: String,
    image: String,
}

/// A workload, with what its pods pull.
#[derive(Debug)]
pub(crate) struct Puller {
    repositories: Vec<String>,
    /// The names of the Secrets; empty: those of its service account, which stand in its pods.
    pub(crate) secrets: Vec<String>,
    /// The selector of its pods, if it names no Secrets; a CronJob has none.
    pub(crate) selector: Option<LabelSelector>,
}

impl From<ListedPuller> for Puller {
    fn from(mut listed: ListedPuller) -> Self {
        let selector = listed.spec.selector.take();
        let pods = of_pods(listed.spec);
        let containers = pods.containers.into_iter().chain(pods.init_containers).flatten();
        let of = |container: Named| Some(container.image.parse::<ImageRef>().ok()?.canonical_repository());
        let mut repositories: Vec<String> = containers.filter_map(of).collect();
        repositories.dedup();
        let mut secrets: Vec<String> = Vec::new();
        for Named { name, .. } in pods.image_pull_secrets.into_iter().flatten() {
            if secrets.len() < NAMES && !name.is_empty() && !secrets.contains(&name) {
                secrets.push(name);
            }
        }
        let selector = selector.filter(|_| secrets.is_empty());
        Self { repositories, secrets, selector }
    }
}

fn of_pods(mut spec: Spec) -> Spec {
    match spec.job_template.take().or_else(|| spec.template.take()) {
        Some(inner) => of_pods(inner.spec),
        None => spec,
    }
}

/// The workloads of a namespace.
#[derive(Debug, Default)]
pub(crate) struct Pullers(Vec<Puller>);

impl Pullers {
    /// Adds a page of a list.
    pub(crate) fn add(&mut self, page: Vec<ListedPuller>) {
        let room = WORKLOADS - self.0.len();
        self.0.extend(page.into_iter().take(room).map(Puller::from));
    }

    /// Returns the workloads with an image of the same repository.
    pub(crate) fn of(&self, image: &ImageRef) -> impl Iterator<Item = &Puller> {
        let repository = image.canonical_repository();
        self.0.iter().filter(move |puller| puller.repositories.contains(&repository))
    }

    /// Returns the names of the Secrets of all workloads, each once.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for name in self.0.iter().flat_map(|puller| &puller.secrets) {
            if names.len() < NAMES && !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pods(image: &str, secrets: &[&str]) -> Value {
        let secrets: Vec<Value> = secrets.iter().map(|name| json!({"name": name})).collect();
        json!({"containers": [{"name": "app", "image": image}], "initContainers": null, "imagePullSecrets": secrets})
    }

    fn pullers(listed: Vec<Value>) -> Pullers {
        let mut pullers = Pullers::default();
        pullers.add(listed.into_iter().map(|listed| serde_json::from_value(listed).unwrap()).collect());
        pullers
    }

    #[test]
    fn secrets_of_a_workload_are_those_of_its_pods() {
        let selector = json!({"matchLabels": {"app": "web"}});
        let web = pods("registry.example.com/shop/web:v1", &["web", "both", "", "web"]);
        let deployment = json!({"spec": {"selector": selector, "template": {"spec": web}}});
        let cron = json!({"metadata": {"name": "nightly"}, "spec": {"jobTemplate": {"spec": {"template": {
            "spec": pods("registry.example.com/shop/api:v1", &["api", "both"]),
        }}}}});
        let bare = json!({"spec": {"template": {"spec": pods("registry.example.com/shop/api:v1", &[])}}});
        let all = pullers(vec![deployment, cron, bare, json!({"spec": pods("REGISTRY", &["pod"])})]);
        assert_eq!(all.secrets(), ["web", "both", "api", "pod"]);
        let of = |image: &str| -> Vec<Vec<String>> {
            all.of(&image.parse().unwrap()).map(|puller| puller.secrets.clone()).collect()
        };
        assert_eq!(of("registry.example.com/shop/api:v2"), [vec!["api", "both"], vec![]]);
        assert_eq!(of("registry.example.com/shop/web"), [["web", "both"]]);
        assert!(of("registry.example.com/shop").is_empty());
        let of_account =
            json!({"spec": {"selector": {"matchLabels": {"app": "web"}}, "template": {"spec": pods("web", &[])}}});
        assert!(pullers(vec![of_account]).of(&"web".parse().unwrap()).all(|puller| puller.selector.is_some()));
    }

    #[test]
    fn what_names_none_has_none_and_many_names_are_cut() {
        let many: Vec<String> = (0..20).map(|number| format!("s{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let bare = json!({"spec": {"containers": [{"name": "app"}], "imagePullSecrets": null}});
        assert_eq!(pullers(vec![json!({}), bare, json!({"spec": {"template": {}}})]).secrets(), [""; 0]);
        assert_eq!(pullers(vec![json!({"spec": pods("api:v1", &many)})]).secrets().len(), NAMES);
    }
}
