//! The settings by which a missing workload is made, as answers show them.

use rollhook_core::app::Settings;
use serde_json::Value;

use crate::words;

/// The setting of a target that is a member of its own on the wire.
pub(crate) const TEMPLATE: &str = "template";

/// The setting whose items are the words of one command.
const COMMAND: &str = "command";

/// Returns the settings of a target's template that say something. Of maps, such as environment variables and labels,
/// only the names are shown: their values may be secrets.
pub(crate) fn shown(target: &Settings) -> Settings {
    let template = target.get(TEMPLATE).and_then(Value::as_object);
    template.into_iter().flatten().filter_map(|(name, value)| Some((name.clone(), said(value)?))).collect()
}

fn said(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Array(items) => (!items.is_empty()).then(|| value.clone()),
        Value::Object(map) => (!map.is_empty()).then(|| map.keys().map(String::as_str).collect()),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(value.clone()),
    }
}

/// Returns a line for each setting, by the words of the flags.
pub(crate) fn lines(shown: &Settings) -> Vec<String> {
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let line = |(name, value): (&String, &Value)| {
        let several = value.as_array().map(|items| {
            let items: Vec<String> = items.iter().map(text).collect();
            if name == COMMAND { words::command_line(&items) } else { items.join(", ") }
        });
        let values = several.unwrap_or_else(|| text(value));
        format!("{} {values}", name.replace('_', "-"))
    };
    shown.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn settings_are_shown_without_the_values_of_maps() {
        let target = json!({ "kind": "container", "template": {
            "command": ["sh", "-c", "a b"], "port": 8080, "readiness_path": null, "publish": [], "labels": {}, "network": "shop",
            "env": { "TOKEN": "hunter2", "MODE": "a" }, "volumes": ["data:/data", "/srv:/srv:ro"]
        } });
        let shown = shown(target.as_object().unwrap());
        let expected = json!({
            "command": ["sh", "-c", "a b"], "env": ["MODE", "TOKEN"], "network": "shop", "port": 8080,
            "volumes": ["data:/data", "/srv:/srv:ro"]
        });
        assert_eq!(Value::Object(shown.clone()), expected);
        assert_eq!(lines(&shown)[0], "command sh -c 'a b'");
        assert_eq!(
            lines(&shown)[1..],
            ["env MODE, TOKEN", "network shop", "port 8080", "volumes data:/data, /srv:/srv:ro"]
        );
        assert!(super::shown(&Settings::new()).is_empty());
    }
}
