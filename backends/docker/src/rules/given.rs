//! The settings that were given to a container although they equal its image's own.
//!
//! Inspecting a container tells both mixed, so that such a setting looks as if the image had brought it along, and would
//! go when a later image brings another one. A container that a deploy makes names them in a label. Of a container that
//! another party made they are unknown.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::container::{Container, GIVEN, OURS};

/// The settings of an image that a container replaces as a whole.
pub(crate) const WHOLE: [&str; 9] =
    ["Entrypoint", "Cmd", "WorkingDir", "User", "StopSignal", "Healthcheck", "Shell", "ArgsEscaped", "OnBuild"];
/// The settings of an image that a container adds to, by key.
pub(crate) const KEYED: [&str; 3] = ["Labels", "ExposedPorts", "Volumes"];

/// The names of such settings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given(BTreeSet<String>);

impl Given {
    /// Reads the names that a container carries.
    pub(crate) fn of(container: &Container) -> Self {
        let names = container.label(GIVEN).and_then(|label| serde_json::from_str(label).ok());
        Self(names.unwrap_or_default())
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    pub(crate) fn has_key(&self, name: &str, key: &str) -> bool {
        self.0.contains(&keyed(name, key))
    }
}

/// A setting, unless it is not set: engines 29 leave out what an image does not set, and write null or an empty value for
/// a container.
pub(crate) fn set(value: Option<&Value>) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null | Value::Bool(false) => false,
        Value::String(text) => !text.is_empty(),
        Value::Array(list) => !list.is_empty(),
        Value::Object(keys) => !keys.is_empty(),
        Value::Bool(true) | Value::Number(_) => true,
    })
}

/// Names, in the document that makes a container, the given settings that equal what the image brings along.
pub(crate) fn mark(body: &mut Value, brought: &Value) {
    let Some(config) = body.as_object() else { return };
    body["Labels"][GIVEN] = json!(equal(config, brought)).to_string().into();
}

fn equal(config: &Map<String, Value>, brought: &Value) -> BTreeSet<String> {
    let is_same = |given: Option<&Value>, own: &Value| given.is_some_and(|given| !given.is_null() && given == own);
    let whole = WHOLE.iter().filter(|name| is_same(config.get(**name), &brought[**name]));
    let mut names: BTreeSet<String> = whole.map(|name| (*name).to_owned()).collect();
    for name in KEYED {
        let given = config.get(name).and_then(Value::as_object).into_iter().flatten();
        let given = given.filter(|(key, value)| brought[name].get(key) == Some(value) && !key.starts_with(OURS));
        names.extend(given.map(|(key, _)| keyed(name, key)));
    }
    let own = brought["Env"].as_array().map(Vec::as_slice).unwrap_or_default();
    let given = config.get("Env").and_then(Value::as_array).into_iter().flatten();
    names.extend(given.filter(|entry| own.contains(entry)).map(|entry| keyed("Env", variable(entry))));
    names
}

/// The name of a variable, of `NAME=value`. Values stay out of labels, which others read.
pub(crate) fn variable(entry: &Value) -> &str {
    let entry = entry.as_str().unwrap_or_default();
    entry.split_once('=').map_or(entry, |(name, _)| name)
}

fn keyed(name: &str, key: &str) -> String {
    format!("{name} {key}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::samples::{container, with};

    #[test]
    fn given_settings_that_equal_the_images_own_are_named_without_values() {
        let brought = json!({"Env": ["MODE=production", "PATH=/bin"], "User": "app", "ExposedPorts": {"80/tcp": {}}});
        let mut body = json!({
            "Env": ["MODE=production", "KEY=hunter2"], "User": "app", "Cmd": null,
            "ExposedPorts": {"80/tcp": {}, "81/tcp": {}}, "Labels": {},
        });
        mark(&mut body, &brought);
        assert_eq!(body["Labels"][GIVEN], r#"["Env MODE","ExposedPorts 80/tcp","User"]"#);
        let given = Given::of(&with(container("web", "running"), "/Config/Labels", body["Labels"].clone()));
        assert!(given.has("User") && given.has_key("Env", "MODE") && !given.has_key("Env", "PATH"));
        assert_eq!(Given::of(&container("web", "running")), Given::default());
        let mut other = json!({"Env": ["MODE=test"], "Labels": {}});
        mark(&mut other, &brought);
        assert_eq!(other["Labels"], json!({GIVEN: "[]"}), "others are told by what they are");
    }
}
