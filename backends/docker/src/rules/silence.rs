//! What an image says by its labels and variables, and a container must not get from it: a proxy or another tool of the
//! machine would act on it, so that whoever can push an image could have another app's requests sent to it.
//!
//! The engine adds an image's labels and variables to those that a container is made with. One that is given as empty stays
//! empty. What the container before was given by its maker is the owner's choice, also if an image says the same.

use serde_json::{Map, Value, json};

use super::{
    container::{Container, OURS},
    given,
    variables::SetVariables,
};
use crate::description::DESCRIPTION;

/// Labels that describe an image. Of all others, some tool may act on them.
const DESCRIPTIVE: [&str; 24] = [
    "architecture",
    "author",
    "authors",
    "build-date",
    "created",
    "description",
    "distribution-scope",
    "documentation",
    "io.buildah.version",
    "io.k8s.description",
    "io.k8s.display-name",
    "io.openshift.tags",
    "license",
    "licenses",
    "maintainer",
    "name",
    "release",
    "revision",
    "summary",
    "title",
    "url",
    "vcs-ref",
    "vendor",
    "version",
];
/// The beginnings of further ones.
const DESCRIPTIVE_STARTS: [&str; 3] = ["org.opencontainers.", "org.label-schema.", "com.redhat."];

fn is_descriptive(label: &str) -> bool {
    DESCRIPTIVE.contains(&label) || DESCRIPTIVE_STARTS.iter().any(|start| label.starts_with(start))
}

/// Returns the labels of an image that say something, and that a container must not get from it: all but descriptive ones.
pub(crate) fn silenced(brought: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let labels = brought["Labels"].as_object().into_iter().flatten();
    labels.filter(|(name, value)| !is_descriptive(name) && **value != "")
}

/// Returns the variables of an image that lead requests to containers, and say something, as it has them.
fn steering(brought: &Value) -> impl Iterator<Item = &Value> {
    let variables = brought["Env"].as_array().into_iter().flatten();
    variables.filter(|entry| DESCRIPTION.steers(given::variable(entry)) && !is_empty(entry))
}

fn is_empty(entry: &Value) -> bool {
    entry.as_str().is_none_or(|entry| entry.split_once('=').is_none_or(|(_, value)| value.is_empty()))
}

/// Makes what the image brings along say nothing, in the document that makes a container of the one before.
pub(crate) fn silence(config: &mut Map<String, Value>, model: &Container, set: &SetVariables, brought: &Value) {
    let before = &model.object["Config"];
    let labels = silenced(brought).filter(|(name, value)| is_ours(name) || before["Labels"].get(*name) != Some(*value));
    let labels: Vec<&String> = labels.map(|(name, _)| name).collect();
    let had = before["Env"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_given = |entry: &Value| had.contains(entry) && !set.has(given::variable(entry));
    let variables: Vec<&str> = steering(brought).filter(|entry| !is_given(entry)).map(given::variable).collect();
    empty(config, labels, variables);
}

/// Makes what the image brings along say nothing, in the document that makes a container by a registration's settings.
pub(crate) fn silence_new(config: &mut Map<String, Value>, brought: &Value) {
    let labels = silenced(brought).map(|(name, _)| name).collect();
    empty(config, labels, steering(brought).map(given::variable).collect());
}

/// Takes the variables that lead requests to a container out of the document that makes one which serves none.
pub(crate) fn take_out_steering(config: &mut Map<String, Value>, brought: &Value) {
    if let Some(Value::Array(given)) = config.get_mut("Env") {
        given.retain(|entry| !DESCRIPTION.steers(given::variable(entry)));
    }
    empty(config, Vec::new(), steering(brought).map(given::variable).collect());
}

/// Adds these labels and variables, as far as they are not given, without a value.
fn empty(config: &mut Map<String, Value>, labels: Vec<&String>, variables: Vec<&str>) {
    if let Value::Object(given) = config.entry("Labels").or_insert_with(|| json!({})) {
        for label in labels {
            given.entry(label.clone()).or_insert_with(|| "".into());
        }
    }
    if let Value::Array(given) = config.entry("Env").or_insert_with(|| json!([])) {
        for variable in variables {
            if given.iter().all(|entry| given::variable(entry) != variable) {
                given.push(format!("{variable}=").into());
            }
        }
    }
}

fn is_ours(label: &str) -> bool {
    label.starts_with(OURS)
}

/// Whether a label of a container is empty because its image says something by it: it is no choice of the container's maker.
pub(super) fn was_label(label: &str, value: &Value, defaults: &Value) -> bool {
    let is_of_image = || silenced(defaults).any(|(name, _)| name == label);
    *value == "" && is_of_image()
}

/// The same of a variable, `NAME=`.
pub(super) fn was_variable(entry: &Value, defaults: &Value) -> bool {
    let name = given::variable(entry);
    is_empty(entry) && steering(defaults).any(|own| given::variable(own) == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{
        container::DEPLOY,
        recreation::body,
        release::RELEASE,
        samples::{configured, container, rollout, with},
    };

    fn model(config: Value) -> Container {
        with(container("web", "running"), "/Config", config)
    }

    fn labels(made: &Value) -> &Map<String, Value> {
        made["Labels"].as_object().unwrap()
    }

    #[test]
    fn labels_of_an_image_that_do_not_describe_it_say_nothing() {
        let brought = json!({ "Labels": {
            "traefik.http.routers.x.rule": "Host(`pay.example.com`)", "ofelia.enabled": "true", "com.example.tool": "act",
            "version": "2", "org.opencontainers.image.source": "https://example.com", "empty": "",
        } });
        let before = model(json!({ "Labels": { "com.example.tool": "act", "given": "" }, "Env": [] }));
        let made = body(&before, &json!({}), &rollout(2), "web:v2", &brought);
        for silenced in ["traefik.http.routers.x.rule", "ofelia.enabled"] {
            assert_eq!(labels(&made)[silenced], "", "{silenced}");
        }
        for own in ["version", "org.opencontainers.image.source", "empty"] {
            assert_eq!(labels(&made).get(own), None, "{own}");
        }
        assert_eq!(labels(&made)["com.example.tool"], "act", "its maker gave it");
        // The next image brings none of them along.
        let before = model(json!({ "Labels": made["Labels"], "Env": made["Env"] }));
        let made = body(&before, &brought, &rollout(3), "web:v3", &json!({}));
        assert_eq!(labels(&made).get("ofelia.enabled"), None, "nothing is piled up");
        assert_eq!(labels(&made)["given"], "");
    }

    #[test]
    fn labels_of_ours_do_not_come_with_an_image() {
        let brought = json!({ "Labels": { RELEASE: "a/7", "dev.rollhook.unknown": "x", DEPLOY: "other/9" } });
        // Also not where the container before has the same from its image.
        let before = model(json!({ "Labels": { RELEASE: "a/7" } }));
        let made = body(&before, &brought, &rollout(2), "web:v2", &brought);
        assert_eq!((&labels(&made)[RELEASE], &labels(&made)["dev.rollhook.unknown"]), (&json!(""), &json!("")));
        assert_eq!(labels(&made)[DEPLOY], rollout(2).id.to_string());
    }

    #[test]
    fn variables_of_an_image_lead_no_requests_to_a_container() {
        let brought = json!({ "Env": [
            "VIRTUAL_HOST=pay.example.com", "LETSENCRYPT_HOST=pay.example.com", "SERVICE_80_NAME=pay", "SERVICE_NAME=pay",
            "VIRTUAL_ENV=/venv", "SERVICE_URL=http://db", "ACME_EMAIL=",
        ] });
        let before = model(json!({ "Env": ["SERVICE_NAME=pay", "MODE=live"] }));
        let made = body(&before, &json!({}), &rollout(2), "web:v2", &brought);
        let silenced = ["VIRTUAL_HOST=", "LETSENCRYPT_HOST=", "SERVICE_80_NAME="];
        let given = ["SERVICE_NAME=pay", "MODE=live"];
        assert_eq!(made["Env"], json!([given.as_slice(), silenced.as_slice()].concat()));
        // They are nobody's choice: the app's configuration may set them.
        let before = model(json!({ "Env": made["Env"], "Labels": made["Labels"] }));
        let set = configured(3, 7, &[("VIRTUAL_HOST", "web.example.com")]);
        assert_eq!(crate::rules::recreation::conflict(&before, &brought, &set), None);
        let made = body(&before, &brought, &set, "web:v3", &brought);
        let env: Vec<&str> = made["Env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(env.contains(&"VIRTUAL_HOST=web.example.com") && !env.contains(&"VIRTUAL_HOST="), "{env:?}");
        // An image that says what was set before does not keep it.
        let before = model(json!({ "Env": made["Env"], "Labels": made["Labels"] }));
        let brought = json!({ "Env": ["VIRTUAL_HOST=web.example.com"] });
        let made = body(&before, &json!({}), &rollout(4), "web:v4", &brought);
        let env = made["Env"].as_array().unwrap();
        assert!(
            env.contains(&json!("VIRTUAL_HOST=")) && !env.contains(&json!("VIRTUAL_HOST=web.example.com")),
            "{env:?}"
        );
    }

    #[test]
    fn container_that_serves_no_requests_has_no_variables_that_lead_some_there() {
        let mut config = Map::new();
        config.insert("Env".to_owned(), json!(["VIRTUAL_HOST=web.example.com", "MODE=live"]));
        take_out_steering(&mut config, &json!({ "Env": ["LETSENCRYPT_HOST=a", "VIRTUAL_HOST=b", "ACME_EMAIL="] }));
        assert_eq!(config["Env"], json!(["MODE=live", "LETSENCRYPT_HOST=", "VIRTUAL_HOST="]));
        let mut config = Map::new();
        silence_new(&mut config, &json!({ "Env": ["VIRTUAL_HOST=b"], "Labels": { "caddy": "b", "name": "web" } }));
        assert_eq!((&config["Env"], &config["Labels"]), (&json!(["VIRTUAL_HOST="]), &json!({ "caddy": "" })));
    }
}
