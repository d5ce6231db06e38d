//! The variables that an app's instances run with, as far as they are set through this service.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    app::{InvalidName, Settings},
    request::{Field, Refusal},
    text::{checked_text, hex, random_id, with_fields},
    token::mac,
};

/// The most variables of an app.
pub const VARIABLES_MAX: usize = 500;
/// The most bytes of all variables in their stored form, which is JSON: sealed, they fit into one Secret of Kubernetes, which
/// holds 1 MiB, and the environment that they make is below Linux' 2 MiB.
pub const VARIABLES_BYTES_MAX: usize = 1_000_000;
/// The most bytes of all configurations of an environment's apps, those for their histories included.
pub const ENVIRONMENT_BYTES_MAX: u64 = 64 << 20;
/// The most bytes of a name and its value: Linux starts no program with a longer one.
pub const VARIABLE_BYTES_MAX: usize = 128 * 1024 - 2;
/// The most bytes of what instances are made with, as JSON.
pub const SETTINGS_BYTES_MAX: usize = 16 * 1024;
/// The longest name, as Kubernetes has it for the keys of a Secret.
const NAME_MAX: usize = 253;
/// The first characters of names that are not for people to set.
const RESERVED: [&str; 2] = ["ROLLHOOK_", "KUBERNETES_"];
/// The bytes of a salt.
pub const SALT_BYTES: usize = 16;
/// The number of bytes of a fingerprint that are shown.
const FINGERPRINT_BYTES: usize = 4;
/// The number of bytes of a fingerprint by which a value is known again.
const MARK_BYTES: usize = 16;

random_id! {
    /// The random id of one version of an app's configuration.
    ConfigurationId, "configuration"
}

impl ConfigurationId {
    /// The digits of an id that are shown, and that name what a platform keeps it in. They are more than the ten characters which
    /// generators of names, such as kustomize's, append to their own.
    pub const SHORT: usize = 16;

    /// Returns the first digits of the id.
    pub fn short(self) -> String {
        let mut digits = self.to_string();
        digits.truncate(Self::SHORT);
        digits
    }
}

checked_text! {
    /// The name of a variable: letters, digits and `_`, without a digit at its beginning (POSIX 8.1).
    VariableName, InvalidName, variable_name
}

fn variable_name(text: &str) -> Result<String, InvalidName> {
    let fail = |rule| Err(InvalidName::new("variable", text, rule));
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if text.is_empty() || !text.bytes().all(is_word) || text.starts_with(|first: char| first.is_ascii_digit()) {
        return fail("must be letters, digits and underscores, and begin with no digit");
    }
    if text.len() > NAME_MAX {
        return fail("must be at most 253 characters");
    }
    if RESERVED.iter().any(|reserved| text.starts_with(reserved)) {
        return fail("is reserved: names that begin with ROLLHOOK_ or KUBERNETES_ are set by the platform");
    }
    Ok(text.to_owned())
}

/// The value of a variable. `Debug` shows none, and its memory is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Variable {
    value: Zeroizing<String>,
    /// Whether the value may be shown.
    pub is_plain: bool,
}

impl Variable {
    /// Returns a variable of this value.
    pub fn new(value: impl Into<Zeroizing<String>>, is_plain: bool) -> Self {
        Self { value: value.into(), is_plain }
    }

    /// The value: only for the environment of instances, and for sealing.
    pub fn expose(&self) -> &str {
        &self.value
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Variable(…)")
    }
}

/// The variables of one version of an app's configuration. `Debug` shows their names and the settings alone: by the salt, values
/// could be guessed from the fingerprints that people see.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Variables {
    /// The variables by their names.
    pub entries: BTreeMap<VariableName, Variable>,
    /// What instances are made with beside their variables, such as memory and ports, as far as it is set through this service.
    /// Only the rollout driver reads it, and it is no secret.
    pub settings: Settings,
    /// The random key of the fingerprints, of all versions of one app's configuration.
    salt: [u8; SALT_BYTES],
}

impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { entries, settings, salt: _ } = self;
        f.debug_struct("Variables").field("entries", entries).field("settings", settings).finish_non_exhaustive()
    }
}

/// A variable as it is shown to people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownVariable {
    /// The name.
    pub name: VariableName,
    /// The value, if it may be shown.
    pub value: Option<String>,
    /// The length of the value in bytes.
    pub length: usize,
    /// A text that is the same for the same value of the same variable of the app. It does not reveal the value.
    pub fingerprint: String,
}

impl Variables {
    /// Returns no variables, with the key of the fingerprints of those to come.
    pub fn empty(salt: [u8; SALT_BYTES]) -> Self {
        Self { salt, ..Self::default() }
    }

    /// Returns no variables, with the same key of fingerprints.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::empty(self.salt)
    }

    /// Returns the variables as people may see them.
    pub fn shown(&self) -> Vec<ShownVariable> {
        let shown = |(name, variable): (&VariableName, &Variable)| {
            let fingerprint = self.fingerprint(name, variable);
            ShownVariable {
                name: name.clone(),
                value: variable.is_plain.then(|| variable.expose().to_owned()),
                length: variable.expose().len(),
                fingerprint: hex(&fingerprint[..FINGERPRINT_BYTES]),
            }
        };
        self.entries.iter().map(shown).collect()
    }

    /// Returns the longer fingerprint of a variable's value, which other configurations of the app are compared with; `None`
    /// without such a variable.
    pub fn mark(&self, name: &VariableName) -> Option<String> {
        let variable = self.entries.get(name)?;
        Some(hex(&self.fingerprint(name, variable)[..MARK_BYTES]))
    }

    fn fingerprint(&self, name: &VariableName, variable: &Variable) -> [u8; 32] {
        mac(&self.salt, &[name.as_str().as_bytes(), b"=", variable.expose().as_bytes()])
    }

    /// Returns the variables as one text, which a store seals.
    pub fn to_text(&self) -> Zeroizing<String> {
        let variables =
            self.entries.iter().map(|(name, variable)| (name.as_str(), variable.expose(), variable.is_plain));
        let text = Text { salt: self.salt, variables: variables.collect(), settings: &self.settings };
        Zeroizing::new(serde_json::to_string(&text).unwrap_or_default())
    }

    /// Returns the variables of a text that [`Variables::to_text`] made; `None` for any other.
    pub fn from_text(text: &str) -> Option<Self> {
        let text: OwnedText = serde_json::from_str(text).ok()?;
        let entries = text.variables.into_iter().map(|(name, value, is_plain)| (name, Variable::new(value, is_plain)));
        Some(Self { entries: entries.collect(), settings: text.settings, salt: text.salt })
    }
}

/// The stored form.
#[derive(Serialize)]
struct Text<'a> {
    salt: [u8; SALT_BYTES],
    variables: Vec<(&'a str, &'a str, bool)>,
    #[serde(skip_serializing_if = "Settings::is_empty")]
    settings: &'a Settings,
}

/// The stored form, as it is read.
#[derive(Deserialize)]
struct OwnedText {
    salt: [u8; SALT_BYTES],
    variables: Vec<(VariableName, String, bool)>,
    #[serde(default)]
    settings: Settings,
}

/// A version of an app's configuration, as a deploy brings it to its target.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Configuration {
    /// The version.
    pub id: ConfigurationId,
    /// Its variables; empty where a call needs none of them.
    pub variables: Variables,
    /// Whether the deploy brings it. Otherwise the app had it before, or goes back, which is never refused.
    pub is_new: bool,
    /// The version that a new one takes the place of.
    pub(crate) before: Option<ConfigurationId>,
    /// The variables that the version before has with the same value.
    pub(crate) unchanged: BTreeSet<VariableName>,
}

with_fields!(Configuration);

impl Configuration {
    /// Returns a version whose variables are not at hand.
    pub fn of(id: ConfigurationId) -> Self {
        Self { id, variables: Variables::default(), is_new: false, before: None, unchanged: BTreeSet::new() }
    }

    /// Returns whether the deploy brings a variable, or another value of it: then it is refused where others have set that variable
    /// in the target as well. Else the value of the others stays.
    pub fn brings(&self, name: &str) -> bool {
        self.is_new && !self.unchanged.iter().any(|unchanged| unchanged.as_str() == name)
    }

    /// Returns the version with its variables, by those of the version before.
    pub(crate) fn filled(&self, variables: Variables, before: Option<&Variables>) -> Self {
        let values = before.map(|before| &before.entries);
        let is_same = |(name, value): &(&VariableName, &Variable)| {
            values.and_then(|values| values.get(*name)).is_some_and(|before| before.expose() == value.expose())
        };
        let unchanged = variables.entries.iter().filter(is_same).map(|(name, _)| name.clone()).collect();
        Self { unchanged, variables, ..self.clone() }
    }
}

/// The most variables that a sentence names.
const NAMED_MAX: usize = 10;

/// Returns a remark on the variables that others have set in the target as well, so that their values stay; `None` without any.
pub fn remark_on_others<'a>(names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    let names = listed(names);
    (!names.is_empty()).then(|| format!("others set {names} too, and their values are used"))
}

/// Returns the first of these names, and the number of the others.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let names: Vec<&str> = names.into_iter().collect();
    let (named, more) = names.split_at(names.len().min(NAMED_MAX));
    named.join(", ") + &if more.is_empty() { String::new() } else { format!(" and {} more", more.len()) }
}

/// A change of variables, and of what instances are made with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariablesChange {
    /// The variables to set.
    pub set: BTreeMap<VariableName, Variable>,
    /// The names of variables to remove.
    pub unset: BTreeSet<VariableName>,
    /// What instances are made with, by name: each value takes the place of the one before, and null is for a setting that is
    /// not set any more.
    pub settings: Settings,
}

impl VariablesChange {
    /// Returns whether nothing is to be changed.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.unset.is_empty() && self.settings.is_empty()
    }

    /// Returns the variables with the change made.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`] for a change that contradicts itself, and for more than instances can be started with.
    pub fn apply(&self, mut variables: Variables) -> Result<Variables, Refusal> {
        if self.is_empty() {
            return Err(Refusal::InvalidField(Field::Set, "name a variable to set or to unset.".to_owned()));
        }
        if let Some(both) = self.set.keys().find(|name| self.unset.contains(name)) {
            return Err(Refusal::InvalidField(Field::Unset, format!("{both} is to be set as well.")));
        }
        for name in &self.unset {
            if variables.entries.remove(name).is_none() {
                return Err(Refusal::InvalidField(Field::Unset, format!("there is no variable {name}.")));
            }
        }
        variables.entries.extend(self.set.clone());
        for (name, value) in &self.settings {
            if value.is_null() {
                variables.settings.remove(name);
            } else {
                variables.settings.insert(name.clone(), value.clone());
            }
        }
        checked(variables)
    }
}

fn checked(variables: Variables) -> Result<Variables, Refusal> {
    let refuse = |rule: String| Err(Refusal::InvalidField(Field::Set, rule));
    for (name, variable) in &variables.entries {
        let length = name.as_str().len() + variable.expose().len();
        if variable.expose().contains('\0') {
            return refuse(format!(
                "the value of {name} has a NUL character, which no environment can hold; encode it."
            ));
        }
        if length > VARIABLE_BYTES_MAX {
            return refuse(format!(
                "{name} has {length} bytes, and a variable may have {VARIABLE_BYTES_MAX} with its name."
            ));
        }
    }
    if variables.entries.len() > VARIABLES_MAX {
        return refuse(format!("there would be {} variables, and {VARIABLES_MAX} may be.", variables.entries.len()));
    }
    let bytes = serde_json::to_string(&variables.settings).map_or(usize::MAX, |text| text.len());
    if bytes > SETTINGS_BYTES_MAX {
        let rule = format!("would have {bytes} bytes as JSON, and {SETTINGS_BYTES_MAX} may be.");
        return Err(Refusal::InvalidSetting("settings".to_owned(), rule));
    }
    let bytes = variables.to_text().len();
    if bytes > VARIABLES_BYTES_MAX {
        return refuse(format!("all variables would have {bytes} bytes as JSON, and {VARIABLES_BYTES_MAX} may be."));
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> VariableName {
        text.parse().unwrap()
    }

    fn setting(name_of: &str, value: &str) -> VariablesChange {
        let set = [(name(name_of), Variable::new(value.to_owned(), false))].into();
        VariablesChange { set, ..VariablesChange::default() }
    }

    #[test]
    fn names_are_those_of_an_environment() {
        for good in ["A", "_a9", "DATABASE_URL"] {
            assert_eq!(good.parse::<VariableName>().unwrap().as_str(), good);
        }
        for bad in ["", "9A", "A-B", "A B", "Ä", "A=B", "ROLLHOOK_X", "KUBERNETES_PORT", &"A".repeat(254)] {
            assert!(bad.parse::<VariableName>().is_err(), "{bad}");
        }
    }

    #[test]
    fn stored_text_has_every_character_of_a_value_and_debug_has_none() {
        let value = "line one\nline \"two\"\t= ä \u{1f600} $HOME";
        let variables = setting("A", value).apply(Variables::empty([7; SALT_BYTES])).unwrap();
        assert_eq!(Variables::from_text(&variables.to_text()), Some(variables.clone()));
        let shown = format!("{variables:?}");
        assert!(shown.contains("VariableName") && !shown.contains("line") && !shown.contains("7, 7"), "{shown}");
        assert_eq!(Variables::from_text("{}"), None);
    }

    #[test]
    fn secret_is_shown_by_what_compares_it() {
        let variables = setting("A", "secret").apply(Variables::empty([7; SALT_BYTES])).unwrap();
        let plain = VariablesChange {
            set: [(name("B"), Variable::new("open".to_owned(), true))].into(),
            ..VariablesChange::default()
        };
        let variables = plain.apply(variables).unwrap();
        let shown = variables.shown();
        assert_eq!((shown[0].value.as_deref(), shown[0].length), (None, 6));
        assert_eq!(shown[1].value.as_deref(), Some("open"));
        let same = setting("A", "secret").apply(variables.clone()).unwrap();
        assert_eq!(same.shown()[0].fingerprint, shown[0].fingerprint);
        let other = setting("A", "secreT").apply(variables).unwrap();
        assert_ne!(other.shown()[0].fingerprint, shown[0].fingerprint);
        let elsewhere = setting("A", "secret").apply(Variables::empty([8; SALT_BYTES])).unwrap();
        assert_ne!(elsewhere.shown()[0].fingerprint, shown[0].fingerprint, "values cannot be tried out elsewhere");
    }

    #[test]
    fn settings_are_stored_beside_the_variables() {
        let change = |settings: serde_json::Value| VariablesChange {
            settings: settings.as_object().unwrap().clone(),
            ..VariablesChange::default()
        };
        let variables = setting("A", "secret").apply(Variables::empty([7; SALT_BYTES])).unwrap();
        assert!(!variables.to_text().contains("settings"), "as before there were any");
        let made = change(serde_json::json!({"memory": "1g", "publish": []})).apply(variables.clone()).unwrap();
        assert_eq!(Variables::from_text(&made.to_text()), Some(made.clone()));
        assert_eq!(made.entries, variables.entries);
        let next = change(serde_json::json!({"memory": null, "publish": ["8080:80"]})).apply(made).unwrap();
        assert_eq!(serde_json::Value::Object(next.settings), serde_json::json!({"publish": ["8080:80"]}));
        let large = change(serde_json::json!({ "labels": "a".repeat(SETTINGS_BYTES_MAX) })).apply(variables);
        assert!(matches!(large, Err(Refusal::InvalidSetting(name, _)) if name == "settings"));
    }

    #[test]
    fn impossible_changes_are_refused_by_the_variable() {
        let none = Variables::default();
        let refused = |change: VariablesChange| change.apply(none.clone()).unwrap_err().to_string();
        assert_eq!(refused(VariablesChange::default()), "set: name a variable to set or to unset.");
        let unset = VariablesChange { unset: [name("A")].into(), ..VariablesChange::default() };
        assert_eq!(refused(unset), "unset: there is no variable A.");
        let both = VariablesChange { unset: [name("A")].into(), ..setting("A", "b") };
        assert_eq!(refused(both), "unset: A is to be set as well.");
        assert!(refused(setting("A", "a\0b")).contains("NUL"));
        assert!(refused(setting("A", &"a".repeat(VARIABLE_BYTES_MAX))).starts_with("set: A has 131071 bytes"));
        let many = (0..=VARIABLES_MAX).map(|number| (name(&format!("A{number}")), Variable::new(String::new(), false)));
        let many = VariablesChange { set: many.collect(), ..VariablesChange::default() };
        assert_eq!(refused(many), "set: there would be 501 variables, and 500 may be.");
        // JSON writes a line feed as two characters: the form in which they are stored counts.
        for value in ["a".repeat(120_000), "\n".repeat(60_000)] {
            let large = (0..9).map(|number| (name(&format!("A{number}")), Variable::new(value.clone(), false)));
            let large = VariablesChange { set: large.collect(), ..VariablesChange::default() };
            assert!(refused(large).starts_with("set: all variables would have 1080"));
        }
    }
}
