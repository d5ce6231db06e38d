//! The Secrets with which the pods of a namespace pull the images of a repository.

use rollhook_core::image::ImageRef;
use serde::Deserialize;

/// The most names of either kind that are kept.
const NAMES: usize = 4;

/// A pod, or a workload that makes pods, as far as it says how their images are pulled.
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

impl Spec {
    fn of_pods(&self) -> &Self {
        match self.job_template.as_ref().or(self.template.as_ref()) {
            Some(inner) => inner.spec.of_pods(),
            None => self,
        }
    }

    fn has_image_of(&self, repository: &str) -> bool {
        let mut containers = self.containers.iter().chain(&self.init_containers).flatten();
        let of = |container: &Named| Some(container.image.parse::<ImageRef>().ok()?.canonical_repository());
        containers.any(|container| of(container).as_deref() == Some(repository))
    }
}

/// The names of the Secrets with which the images of a repository may be pulled.
#[derive(Default)]
pub(crate) struct PullSecretNames {
    repository: String,
    /// Those of pods with an image of the repository.
    of_repository: Vec<String>,
    /// Those of other pods.
    others: Vec<String>,
}

impl PullSecretNames {
    /// Returns an empty list of the Secrets for an image.
    pub(crate) fn new(image: &ImageRef) -> Self {
        Self { repository: image.canonical_repository(), ..Self::default() }
    }

    /// Adds what a page of a list names.
    pub(crate) fn add(&mut self, page: Vec<ListedPuller>) {
        for listed in page {
            let pods = listed.spec.of_pods();
            let names = if pods.has_image_of(&self.repository) { &mut self.of_repository } else { &mut self.others };
            for secret in pods.image_pull_secrets.iter().flatten() {
                if names.len() < NAMES && !secret.name.is_empty() && !names.contains(&secret.name) {
                    names.push(secret.name.clone());
                }
            }
        }
    }

    /// Returns whether a pod with an image of the repository names one.
    pub(crate) fn has_own(&self) -> bool {
        !self.of_repository.is_empty()
    }

    /// Returns the names, those of pods with an image of the repository first.
    pub(crate) fn into_names(self) -> Vec<String> {
        let Self { of_repository, others, .. } = self;
        let others = others.into_iter().filter(|name| !of_repository.contains(name)).collect();
        [of_repository, others].concat()
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

    fn names(listed: Vec<Value>) -> Vec<String> {
        let mut names = PullSecretNames::new(&"registry.example.com/shop/api:v2".parse().unwrap());
        names.add(listed.into_iter().map(|listed| serde_json::from_value(listed).unwrap()).collect());
        names.into_names()
    }

    #[test]
    fn secrets_of_the_same_repository_come_first() {
        let deployment =
            json!({"spec": {"template": {"spec": pods("registry.example.com/shop/web:v1", &["web", "both"])}}});
        let job = json!({"spec": {"template": {"spec": pods("registry.example.com/shop/api@sha256:00", &["late"])}}});
        let cron = json!({"metadata": {"name": "nightly"}, "spec": {"jobTemplate": {"spec": {"template": {
            "spec": pods("registry.example.com/shop/api:v1", &["api", "both"]),
        }}}}});
        let pod = json!({"spec": pods("REGISTRY", &["late", ""])});
        assert_eq!(names(vec![deployment, job, cron, pod]), ["api", "both", "web", "late"]);
    }

    #[test]
    fn pods_without_secrets_name_none_and_many_names_are_cut() {
        let many: Vec<String> = (0..9).map(|number| format!("s{number}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let bare = json!({"spec": {"containers": [{"name": "app"}], "imagePullSecrets": null}});
        assert_eq!(names(vec![json!({}), bare.clone(), json!({"spec": {"template": {}}})]), [""; 0]);
        assert_eq!(names(vec![bare, json!({"spec": pods("api:v1", &many)})]), ["s0", "s1", "s2", "s3"]);
    }
}
