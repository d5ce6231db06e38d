//! The settings of a check, as texts.

use std::collections::BTreeMap;

use rollhook_core::{
    app::Settings,
    ports::{CheckSetting, KindOfCheck},
    text::quoted,
};
use serde_json::Value;

/// The longest value, in characters.
const VALUE_MAX: usize = 4_096;

/// The texts of settings by their names.
pub(crate) type Texts = BTreeMap<&'static str, String>;

/// Returns the settings as texts; null is absent, and a list becomes its values with commas between.
///
/// # Errors
/// The setting that is unknown, missing or no text.
pub(crate) fn read(kind: &KindOfCheck, settings: &Settings) -> Result<Texts, String> {
    let mut texts = Texts::new();
    for (name, value) in settings.iter().filter(|(_, value)| !value.is_null()) {
        let known = kind.settings.iter().find(|known| known.name == name);
        let Some(CheckSetting { name, .. }) = known else {
            let names: Vec<_> = kind.settings.iter().map(|setting| setting.name).collect();
            let (kind, name) = (&kind.kind, quoted(name));
            return Err(format!("{kind} has no setting {name}; it has {}.", names.join(", ")));
        };
        let text = text(value).ok_or_else(|| format!("{name} must be a text or a number."))?;
        if text.is_empty() || text.chars().count() > VALUE_MAX {
            return Err(format!("{name} must have 1 to {VALUE_MAX} characters."));
        }
        texts.insert(name, text);
    }
    let missing = kind.settings.iter().find(|setting| setting.required && !texts.contains_key(setting.name));
    match missing {
        Some(missing) => Err(format!("{} must be given.", missing.name)),
        None => Ok(texts),
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Array(values) => values.iter().map(text).collect::<Option<Vec<_>>>().map(|texts| texts.join(",")),
        Value::Null | Value::Object(_) => None,
    }
}

/// Returns texts as the settings of a check, without those that are absent.
pub(crate) fn written<const N: usize>(texts: [(&str, Option<String>); N]) -> Settings {
    let present = texts.into_iter().filter_map(|(name, text)| Some((name.to_owned(), Value::String(text?))));
    present.collect()
}
