//! Configuration: the variables of an app, as they are shown and as they are changed.
//!
//! No text of a request is repeated by an error, but the name of a variable that is one: people paste values into the wrong
//! place.

mod posted;

use std::collections::BTreeSet;

use rollhook_core::{
    app::{AppId, InvalidName, Settings},
    configuration::{ShownVariable, VariableName, VariablesChange},
    deploy::Revision,
    lock::{LockReason, REASON_MAX},
    request::{ConfigureRequest, Field, IdempotencyKey, Refusal},
    service::{Configured, ShownConfiguration},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::posted::{PostedVariable, PostedVariables};
use crate::{DeployAnswer, deploy::is_false, openapi::schemas, words};

/// The configuration of a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Configuration {
    /// The revision that runs with it; null if nothing has succeeded yet.
    #[schemars(with = "Option<u64>")]
    pub revision: Option<Revision>,
    /// The variables, sorted by name; none if none was set through this service. Until something has succeeded, those of the
    /// version that failed last.
    pub variables: Vec<Variable>,
    /// All variables that the next deploy runs with, if a change of them waits for it; only beside the current revision's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub staged: Option<Vec<Variable>>,
    /// What containers are made with beside the variables, such as memory and ports, as far as it is set through this service.
    #[serde(default, skip_serializing_if = "Settings::is_empty")]
    #[schemars(schema_with = "schemas::made_with")]
    pub settings: Settings,
    /// All of these that the next deploy runs with, if a change waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::made_with")]
    pub staged_settings: Option<Settings>,
}

/// A variable of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Variable {
    /// The name.
    pub name: String,
    /// The length of the value in bytes.
    pub length: usize,
    /// A text that is the same for the same value of the same variable of this app, and tells nothing else of it.
    pub fingerprint: String,
    /// The value, if it was set as a plain one; no other value is ever shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Variable {
    fn of(shown: &ShownVariable) -> Self {
        Self {
            name: shown.name.to_string(),
            length: shown.length,
            fingerprint: shown.fingerprint.clone(),
            value: shown.value.clone(),
        }
    }
}

impl Configuration {
    /// Returns the configuration as it is on the wire.
    pub fn of(shown: &ShownConfiguration) -> Self {
        let variables = |of: &Vec<ShownVariable>| of.iter().map(Variable::of).collect();
        Self {
            revision: shown.revision,
            variables: variables(&shown.variables),
            staged: shown.staged.as_ref().map(variables),
            settings: shown.settings.clone(),
            staged_settings: shown.staged_settings.clone(),
        }
    }
}

/// The difference between two lists of variables, sorted by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VariableDiff {
    /// The name.
    pub name: String,
    /// The variable of the first list; null if it has none of this name.
    pub from: Option<Variable>,
    /// The variable of the second list; null if it has none of this name.
    pub to: Option<Variable>,
}

/// Returns the variables in which two lists differ.
pub fn differences(from: &[Variable], to: &[Variable]) -> Vec<VariableDiff> {
    let named = |variables: &[Variable], name: &str| variables.iter().find(|variable| variable.name == name).cloned();
    let names: BTreeSet<&str> = from.iter().chain(to).map(|variable| variable.name.as_str()).collect();
    let diffs = names.into_iter().map(|name| VariableDiff {
        name: name.to_owned(),
        from: named(from, name),
        to: named(to, name),
    });
    let differs = |diff: &VariableDiff| match (&diff.from, &diff.to) {
        (Some(from), Some(to)) => from.fingerprint != to.fingerprint || from.length != to.length,
        (_, _) => true,
    };
    diffs.filter(differs).collect()
}

impl VariableDiff {
    /// Returns the name with a sign: `+` if the variable is new in the second list, `-` if it is gone, `~` if it has another value.
    pub fn signed(&self) -> String {
        format!("{}{}", sign(self.from.is_some(), self.to.is_some()), self.name)
    }
}

/// The difference between two versions in what containers are made with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SettingDiff {
    /// The name.
    pub name: String,
    /// The value of the first version; null if it has none.
    pub from: Option<Value>,
    /// The value of the second version; null if it has none.
    pub to: Option<Value>,
}

/// Returns the settings in which two versions differ, sorted by name.
pub fn setting_differences(from: &Settings, to: &Settings) -> Vec<SettingDiff> {
    let names: BTreeSet<&String> = from.keys().chain(to.keys()).collect();
    let diffs = names.into_iter().map(|name| SettingDiff {
        name: name.clone(),
        from: from.get(name).cloned(),
        to: to.get(name).cloned(),
    });
    diffs.filter(|diff| diff.from != diff.to).collect()
}

impl SettingDiff {
    /// Returns the name with a sign, as [`VariableDiff::signed`] does.
    pub fn signed(&self) -> String {
        format!("{}{}", sign(self.from.is_some(), self.to.is_some()), self.name)
    }
}

/// Returns the variables and settings in which two configurations differ, by name and with a sign.
pub fn signed_differences(from: &Configuration, to: &Configuration) -> Vec<String> {
    let variables = differences(&from.variables, &to.variables);
    let settings = setting_differences(&from.settings, &to.settings);
    variables.iter().map(VariableDiff::signed).chain(settings.iter().map(SettingDiff::signed)).collect()
}

/// Returns the sign of a difference between what is in the first version and what is in the second.
fn sign(is_in_first: bool, is_in_second: bool) -> char {
    match (is_in_first, is_in_second) {
        (false, _) => '+',
        (true, false) => '-',
        (true, true) => '~',
    }
}

/// Returns a setting's value as people read it: a list by its entries, and one that is empty as none.
pub fn setting_text(value: &Value) -> String {
    let text = match value {
        Value::String(text) => text.clone(),
        Value::Array(values) => values.iter().map(setting_text).collect::<Vec<_>>().join(", "),
        Value::Object(members) => {
            let member = |(name, value): (&String, &Value)| match words::of_command(value) {
                Some(words) => format!("{name}={}", words::command_line(&words)),
                None => format!("{name}={}", value.as_str().unwrap_or_default()),
            };
            members.iter().map(member).collect::<Vec<_>>().join(", ")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
    };
    if text.is_empty() { "(none)".to_owned() } else { text }
}

/// A change of an app's configuration: the body of `PATCH …/config`. A misspelt field is refused.
// `Debug` shows no value.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigPatch {
    /// The variables to set: by their names, each a text, which is secret, or an object of `value` and `plain`. With Docker,
    /// those by which a proxy leads requests, such as `VIRTUAL_HOST`, take the role admin.
    #[schemars(schema_with = "posted::schema")]
    pub set: PostedVariables,
    /// The names of the variables to remove.
    #[schemars(schema_with = "posted::names")]
    pub unset: Vec<String>,
    /// With Docker: what containers are made with, by name; an empty value stands for none, and null for what others gave.
    #[serde(skip_serializing_if = "Settings::is_empty")]
    #[schemars(schema_with = "schemas::made_with")]
    pub settings: Settings,
    /// Whether the change waits for the next deploy, and is none of its own.
    #[serde(skip_serializing_if = "is_false")]
    pub staged: bool,
    /// Whether the values of the variables to remove have leaked: a rollback that would bring one of them back is refused, unless
    /// it says `with_revoked`.
    #[serde(skip_serializing_if = "is_false")]
    pub revoked: bool,
    /// The revision that the caller believes to be current; the call is refused if another one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<u64>", extend("minimum" = 1))]
    pub if_current: Option<Revision>,
    /// The reason for the change in spite of a lock: an admin's, for one that does not wait. The audit keeps it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minLength" = 1, "maxLength" = REASON_MAX))]
    pub break_glass: Option<String>,
}

impl ConfigPatch {
    /// Returns the reason for the change in spite of a lock.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], which does not repeat the text.
    pub fn break_glass(&self) -> Result<Option<LockReason>, Refusal> {
        let invalid = |rule: String| Refusal::InvalidField(Field::BreakGlass, rule);
        let Some(text) = &self.break_glass else { return Ok(None) };
        if self.staged {
            return Err(invalid("goes with a change that is deployed now; no lock refuses one that waits.".to_owned()));
        }
        text.parse().map(Some).map_err(|reason: InvalidName| invalid(format!("{}.", reason.rule)))
    }

    /// Returns the request.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], which repeats no text but a variable's name.
    pub fn parse(self, key: Option<IdempotencyKey>) -> Result<ConfigureRequest, Refusal> {
        let mut unset = BTreeSet::new();
        for text in &self.unset {
            unset.insert(name(Field::Unset, text)?);
        }
        if !self.settings.keys().all(|name| is_setting(name)) {
            let rule = "has a name that none has: lower-case letters and underscores, at most 63.".to_owned();
            return Err(Refusal::InvalidSetting("settings".to_owned(), rule));
        }
        let change = VariablesChange { set: self.set.parse()?, unset, settings: self.settings };
        if change.is_empty() {
            return Err(Refusal::InvalidField(Field::Set, "name a variable to set or to unset.".to_owned()));
        }
        if self.revoked && change.unset.is_empty() {
            return Err(Refusal::InvalidField(Field::Revoked, "goes with the names of variables to unset.".to_owned()));
        }
        Ok(ConfigureRequest::default().with(|request| {
            request.change = change;
            request.staged = self.staged;
            request.revoked = self.revoked;
            request.if_current = self.if_current;
            request.key = key;
        }))
    }
}

/// Returns whether a text may be the name of a setting. Which there are, the rollout driver knows.
fn is_setting(name: &str) -> bool {
    name.len() <= 63 && !name.is_empty() && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'_'))
}

/// Reads the name of a variable. A text that is none may be a value, and is not repeated.
fn name(field: Field, text: &str) -> Result<VariableName, Refusal> {
    let refusal = |invalid: InvalidName| Refusal::InvalidField(field, format!("a name {}.", invalid.rule));
    text.parse().map_err(refusal)
}

/// The answer to a change of the configuration: a deploy, unless there is none.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum ConfigAnswer {
    /// The deploy that brings the change.
    Deploy(Box<DeployAnswer>),
    /// Nothing is deployed now.
    Kept(ConfigKept),
}

/// The answer to a change of the configuration that deploys nothing now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ConfigKept {
    /// Project and environment, joined by a hyphen.
    pub namespace: String,
    /// The app's name.
    pub app: String,
    /// What became of the change.
    pub result: ConfigResult,
    /// The same, in a sentence.
    pub message: String,
    /// Whether an earlier call under the same key had this result; on the wire, the header `Idempotent-Replayed`.
    #[serde(skip)]
    pub replayed: bool,
}

/// The result of a change of the configuration that deploys nothing now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ConfigResult {
    /// The change waits for the next deploy.
    Staged,
    /// The change that was staged is withdrawn.
    Discarded,
    /// The app has just this configuration already.
    Unchanged,
}

impl ConfigKept {
    fn new(id: &AppId, result: ConfigResult, message: &str) -> Self {
        let (namespace, app) = (id.namespace.to_string(), id.name.to_string());
        Self { namespace, app, result, message: message.to_owned(), replayed: false }
    }

    /// Returns the answer to a call that withdraws what waits.
    pub fn discarded(id: &AppId, is_discarded: bool) -> Self {
        if is_discarded {
            Self::new(id, ConfigResult::Discarded, "What waited for the next deploy was withdrawn.")
        } else {
            Self::new(id, ConfigResult::Unchanged, "No change waits for the next deploy.")
        }
    }
}

impl ConfigAnswer {
    /// Returns the answer to a change.
    pub fn of(id: &AppId, configured: &Configured) -> Self {
        let kept = |result, message: &str| Self::Kept(ConfigKept::new(id, result, message));
        match configured {
            Configured::Deploy(accepted) => Self::Deploy(Box::new(DeployAnswer::accepted(id, accepted))),
            Configured::Staged { replayed } => {
                let staged = ConfigKept::new(id, ConfigResult::Staged, "The change waits for the next deploy.");
                Self::Kept(ConfigKept { replayed: *replayed, ..staged })
            }
            // The core's list of these is open to additions.
            Configured::Unchanged | _ => kept(ConfigResult::Unchanged, "The app has just this configuration already."),
        }
    }
}

#[cfg(test)]
mod tests;
