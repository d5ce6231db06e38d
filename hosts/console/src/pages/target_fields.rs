//! The part of the form of a new app that says what is deployed to, by the rollout driver's own description.

use rollhook_api::CreateApp;
use rollhook_core::{
    app::Settings,
    ports::{SettingValue, TargetDescription, TargetSetting},
    text::escaped,
};
use serde_json::Value;

/// The prefix of the fields' names, as refusals name the settings of all targets.
const WORKLOAD: &str = "workload.";

/// The kinds and settings of a target, with the values that the form has.
pub(super) struct TargetFields {
    pub(super) kinds: Vec<Kind>,
    /// The settings of all targets.
    pub(super) all: Vec<SettingField>,
    /// The settings by which a target is created.
    pub(super) creation: Vec<SettingField>,
}

/// A kind of target.
pub(super) struct Kind {
    pub(super) value: &'static str,
    pub(super) label: &'static str,
    pub(super) is_chosen: bool,
}

/// A setting with the value that the form has.
pub(super) struct SettingField {
    /// The name in the form and in refusals.
    pub(super) name: String,
    /// The id in the page.
    pub(super) id: String,
    pub(super) label: &'static str,
    pub(super) help: &'static str,
    pub(super) value: String,
    input: SettingValue,
}

/// A value that a setting does not take.
pub(super) struct Invalid {
    pub(super) name: String,
    /// The rule that it breaks, as a sentence with the setting's label.
    pub(super) sentence: String,
}

impl TargetFields {
    /// Returns the fields with these values.
    pub(super) fn new(described: &TargetDescription, value: &impl Fn(&str) -> Option<String>) -> Self {
        let chosen = value("workload.kind").unwrap_or_default();
        let kind = |(value, label): &(&'static str, &'static str)| Kind { value, label, is_chosen: *value == chosen };
        let field = |setting: &TargetSetting| {
            let name = field_name(setting);
            let value = value(&name).unwrap_or_default();
            let id = name.replace('.', "-");
            SettingField { name, id, label: setting.label, help: setting.help, value, input: setting.value }
        };
        let fields = |of_creation: bool| {
            let settings = described.settings.iter();
            settings.filter(|setting| setting.in_template().is_some() == of_creation).map(field).collect()
        };
        Self { kinds: described.kinds.iter().map(kind).collect(), all: fields(false), creation: fields(true) }
    }

    /// Returns whether the settings by which a target is created are shown at once.
    pub(super) fn is_open(&self, wrong: &str) -> bool {
        self.creation.iter().any(|field| !field.value.is_empty() || field.name == wrong)
    }

    /// Whether there is nothing to choose.
    pub(super) fn is_empty(&self) -> bool {
        self.kinds.is_empty() && self.all.is_empty()
    }
}

impl SettingField {
    /// Whether the value has several lines.
    pub(super) fn has_lines(&self) -> bool {
        matches!(self.input, SettingValue::Texts | SettingValue::Pairs)
    }

    /// The words to choose from, if it is one of several.
    pub(super) fn words(&self) -> &'static [&'static str] {
        if let SettingValue::Word(words) = self.input { words } else { &[] }
    }

    pub(super) fn is_number(&self) -> bool {
        self.input == SettingValue::Number
    }
}

fn field_name(setting: &TargetSetting) -> String {
    match setting.in_template() {
        Some(_) => setting.name.to_owned(),
        None => format!("{WORKLOAD}{}", setting.name),
    }
}

/// Fills in the settings that the form has. What it leaves out is the driver's to fill in.
///
/// # Errors
/// [`Invalid`] for a value that cannot be sent; the driver checks the others.
pub(super) fn fill_in(
    wanted: CreateApp,
    described: &TargetDescription,
    field: &impl Fn(&str) -> Option<String>,
) -> Result<CreateApp, Invalid> {
    let (mut workload, mut template) = (Settings::new(), Settings::new());
    if !described.kinds.is_empty() {
        workload.extend(field("workload.kind").map(|kind| ("kind".to_owned(), Value::from(kind))));
    }
    for setting in described.settings {
        let name = field_name(setting);
        let Some(text) = field(&name) else { continue };
        let value = value(setting.value, &text)
            .map_err(|rule| Invalid { name, sentence: format!("{} {rule}.", setting.label) })?;
        match setting.in_template() {
            Some(name) => template.insert(name.to_owned(), value),
            None => workload.insert(setting.name.to_owned(), value),
        };
    }
    Ok(CreateApp { workload, template, ..wanted })
}

/// The most lines of a setting: each is a value of the request, of which a call of the API has as many.
const LINES_MAX: usize = 1_500;

fn value(takes: SettingValue, text: &str) -> Result<Value, &'static str> {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let has_lines = matches!(takes, SettingValue::Texts | SettingValue::Pairs);
    if has_lines && lines().nth(LINES_MAX).is_some() {
        return Err("must have at most 1,500 lines");
    }
    Ok(match takes {
        SettingValue::Text | SettingValue::Word(_) => text.into(),
        SettingValue::Number => text.parse::<u64>().map_err(|_| "must be a whole number")?.into(),
        SettingValue::Texts => lines().collect(),
        SettingValue::Pairs => {
            let pair = |line: &str| match line.split_once('=') {
                Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), Value::from(value))),
                Some(_) | None => Err("must be NAME=VALUE, a line each"),
            };
            Value::Object(lines().map(pair).collect::<Result<_, _>>()?)
        }
    })
}

/// Returns a refusal's text with the label of the setting that it names, as the form has it.
pub(super) fn in_words(described: &TargetDescription, about: &str, text: &str) -> String {
    let known = described.settings.iter().find(|setting| field_name(setting) == about);
    let label = known.map(|setting| setting.label).or((about == "workload.kind").then_some("Kind"));
    let rule = text.strip_prefix(about).and_then(|rest| rest.strip_prefix(": "));
    escaped(&match (label, rule) {
        (Some(label), Some(rule)) => format!("{label}: {rule}"),
        (_, _) => text.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tests::MACHINE;

    fn filled(described: &TargetDescription, fields: &[(&str, &str)]) -> Result<CreateApp, Invalid> {
        let given = |name: &str| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned());
        fill_in(CreateApp::default(), described, &given)
    }

    #[test]
    fn request_has_the_settings_that_were_filled_in() {
        let fields = [
            ("workload.kind", "compose"),
            ("workload.name", "shop/web"),
            ("template.port", "8080"),
            ("template.env", "MODE=a=b\r\n\r\n EMPTY=\r\n"),
            ("template.volumes", "data:/data\r\n/srv:/srv:ro"),
            ("template.unknown", "1"),
        ];
        let wanted = filled(&MACHINE, &fields).ok().unwrap();
        assert_eq!(Value::Object(wanted.workload), json!({ "kind": "compose", "name": "shop/web" }));
        let template = json!({
            "port": 8080, "env": { "MODE": "a=b", "EMPTY": "" }, "volumes": ["data:/data", "/srv:/srv:ro"]
        });
        assert_eq!(Value::Object(wanted.template), template);
        let none = filled(&TargetDescription::UNKNOWN, &fields).ok().unwrap();
        assert!(none.workload.is_empty() && none.template.is_empty(), "a driver without settings gets none");
    }

    #[test]
    fn value_that_cannot_be_sent_is_named_by_its_label() {
        let lines = |count: usize| "A=1\n".repeat(count);
        assert!(filled(&MACHINE, &[("template.env", &lines(LINES_MAX))]).is_ok());
        for (name, value, sentence) in [
            ("template.env", &*lines(LINES_MAX + 1), "Environment must have at most 1,500 lines."),
            ("template.volumes", &lines(LINES_MAX + 1), "Volumes must have at most 1,500 lines."),
            ("template.port", "-1", "Port must be a whole number."),
            ("template.env", "MODE", "Environment must be NAME=VALUE, a line each."),
            ("template.env", "=x", "Environment must be NAME=VALUE, a line each."),
        ] {
            let invalid = filled(&MACHINE, &[(name, value)]).err().unwrap();
            assert_eq!((invalid.name.as_str(), invalid.sentence.as_str()), (name, sentence));
        }
    }

    #[test]
    fn refusal_of_a_setting_has_its_label() {
        let told = |about: &str, text: &str| in_words(&MACHINE, about, text);
        assert_eq!(told("template.port", "template.port: must be free."), "Port: must be free.");
        assert_eq!(told("workload.kind", "workload.kind: must be known."), "Kind: must be known.");
        assert_eq!(told("workload.name", "Another app has it."), "Another app has it.");
        assert_eq!(told("git.url", "git.url: \u{1b}"), "git.url: \\u{1b}");
    }
}
