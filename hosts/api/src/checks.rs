//! Checks of apps.

use rollhook_core::{
    app::{Policy, Settings},
    check::{
        self, Check as CoreCheck, CheckMode, CheckName, CheckSecret, FAILURES, SECRET_MAX, VALUE_MAX, Verdict,
        WithoutVerdict,
    },
    ports::{KindOfCheck, Measured},
    request::{Field, Refusal},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use serde_json::Value;

use crate::{
    app::{field, invalid, word},
    configuration::setting_text,
    duration,
    openapi::schemas,
    words,
};

/// A request to set a check: the body of `PUT …/checks/{check}`. The check is then as it says, with defaults for what is absent.
#[derive(Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["kind"]))]
pub struct SetCheck {
    /// The kind, such as `http`; the list of the app's checks has the kinds there are.
    #[schemars(extend("pattern" = schemas::LABEL))]
    pub kind: String,
    /// The settings of its kind: texts and numbers, and of kind `command` a list of the program and its arguments.
    pub settings: Settings,
    /// What follows from a fail: `enforce` fails the deploy, and `observe` only shows it; by default `enforce`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::check_mode")]
    pub mode: Option<String>,
    /// The time between two measurements, from `1s` to `1h`; by default `15s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub every: Option<String>,
    /// The number of measurements in a row that must fail before the check fails; by default 3.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "whole")]
    #[schemars(extend("minimum" = *FAILURES.start(), "maximum" = *FAILURES.end()))]
    pub failures: Option<u32>,
    /// The time that a measurement may take, from `1s` to `20s`, by default `10s`; of kind `command` to `10m`, by default `1m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub timeout: Option<String>,
    /// What follows if there is nothing to judge by: `accept` lets the deploy succeed as not verified, and `wait` waits for a
    /// verdict; by default `accept`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::without_verdict")]
    pub without_verdict: Option<String>,
    /// The secret of a check that has one: what its `login` sends, or the key of a `webhook`'s signatures, `whsec_` and base64. No
    /// answer has it. Absent: the one that the check has stays, as long as the scheme, host and port of its URL do.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = SECRET_MAX, "writeOnly" = true))]
    pub secret: Option<String>,
}

/// Reads a whole number, which JSON may write as 3.0 too.
fn whole<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else { return Ok(None) };
    let text = number.to_string();
    let whole = text.strip_suffix(".0").unwrap_or(&text).parse();
    whole.map(Some).map_err(|_| D::Error::custom("must be a whole number"))
}

impl SetCheck {
    /// Returns the check of this name, and its secret.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self, name: CheckName) -> Result<(CoreCheck, Option<CheckSecret>), Refusal> {
        let length = |name, text: Option<String>, usual| match text {
            Some(text) => duration::parse(&text).ok_or_else(|| invalid(name, duration::RULE)),
            None => Ok(usual),
        };
        let new = CoreCheck::new(name, field(Field::CheckKind, self.kind.parse())?, self.settings);
        let mode = word(Field::CheckMode, self.mode, "must be enforce or observe")?;
        let every = length(Field::CheckEvery, self.every, new.every)?;
        let timeout = length(Field::CheckTimeout, self.timeout, new.timeout)?;
        let without_verdict = word(Field::CheckWithoutVerdict, self.without_verdict, "must be accept, wait or ask")?;
        let secret = field(Field::CheckSecret, self.secret.as_deref().map(str::parse).transpose())?;
        let check = new.with(|check| {
            check.mode = mode.unwrap_or_default();
            check.every = every;
            check.failures = self.failures.unwrap_or(check.failures);
            check.timeout = timeout;
            check.without_verdict = without_verdict.unwrap_or_default();
        });
        Ok((check, secret))
    }
}

/// A check of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Check {
    /// The name.
    pub name: String,
    /// The kind.
    pub kind: String,
    /// The settings of its kind.
    pub settings: Settings,
    /// What follows from a fail.
    #[schemars(schema_with = "schemas::check_mode")]
    pub mode: CheckMode,
    /// The time between two measurements.
    pub every: String,
    /// The number of measurements in a row that must fail before the check fails.
    pub failures: u32,
    /// The time that a measurement may take.
    pub timeout: String,
    /// What follows if there is nothing to judge by.
    #[schemars(schema_with = "schemas::without_verdict")]
    pub without_verdict: WithoutVerdict,
}

impl Check {
    /// Returns a check as it is on the wire.
    pub fn of(check: &CoreCheck) -> Self {
        Self {
            name: check.name.to_string(),
            kind: check.kind.to_string(),
            settings: check.settings.clone(),
            mode: check.mode,
            every: duration::format(check.every),
            failures: check.failures,
            timeout: duration::format(check.timeout),
            without_verdict: check.without_verdict,
        }
    }
}

/// A setting of a kind of checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckSetting {
    /// The member of the settings.
    pub name: String,
    /// What it says.
    pub about: String,
    /// Whether a check of the kind must have it.
    pub required: bool,
}

/// A kind of checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckKind {
    /// The word by which a check names it.
    pub kind: String,
    /// What it measures.
    pub about: String,
    /// Its settings.
    pub settings: Vec<CheckSetting>,
    /// What the secret of such a check is; absent: none has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The time that a measurement may take by default.
    pub timeout: String,
    /// The longest time that a measurement may be given.
    pub longest_timeout: String,
}

impl CheckKind {
    fn of(kind: &KindOfCheck) -> Self {
        let setting = |setting: &rollhook_core::ports::CheckSetting| CheckSetting {
            name: setting.name.to_owned(),
            about: setting.about.to_owned(),
            required: setting.required,
        };
        Self {
            kind: kind.kind.to_string(),
            about: kind.about.to_owned(),
            settings: kind.settings.iter().map(setting).collect(),
            secret: kind.secret.map(str::to_owned),
            timeout: duration::format(kind.kind.usual_timeout()),
            longest_timeout: duration::format(kind.kind.longest_timeout()),
        }
    }
}

/// Returns the value of a check's setting as people read it: a list is a program and its arguments.
pub fn check_setting_text(value: &Value) -> String {
    words::of_command(value).map_or_else(|| setting_text(value), |words| words::command_line(&words))
}

/// The checks of an app.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CheckList {
    /// The checks, in the order in which they were added.
    pub checks: Vec<Check>,
    /// How long a deploy is verified once its instances have settled; `0s`: until each check has come to a verdict.
    pub verify_for: String,
    /// How long the checks go on to measure a version once its deploy has succeeded; `0s`: not at all.
    pub watch_for: String,
    /// The kinds of checks that there are here.
    pub kinds: Vec<CheckKind>,
}

impl CheckList {
    /// Returns the checks of a policy.
    pub fn of(policy: &Policy, kinds: &[KindOfCheck]) -> Self {
        Self {
            checks: policy.checks.iter().map(Check::of).collect(),
            verify_for: duration::format(policy.verify_for),
            watch_for: duration::format(policy.watch_for),
            kinds: kinds.iter().map(CheckKind::of).collect(),
        }
    }
}

/// A measurement of a check that was tried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestedCheck {
    /// What was asked, with all placeholders filled in, and without a secret.
    pub request: String,
    /// The condition of a pass.
    pub condition: String,
    /// The verdict of this one measurement.
    #[schemars(schema_with = "schemas::verdict")]
    pub verdict: Verdict,
    /// The measured value; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxLength" = VALUE_MAX))]
    pub value: Option<String>,
    /// The number of samples that the value was made of; absent: it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// What was expected and seen, or why there is nothing to judge by.
    #[schemars(extend("maxLength" = check::MESSAGE_MAX))]
    pub message: String,
    /// The time of the measurement.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
}

impl TestedCheck {
    /// Returns the answer for a measurement.
    pub fn of(measured: Measured) -> Self {
        let Measured { request, condition, measurement } = measured;
        Self {
            request,
            condition,
            verdict: measurement.verdict,
            value: measurement.value,
            samples: measurement.samples,
            message: measurement.message,
            at: measurement.at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_names_its_faulty_field() {
        let text = |text: &str| Some(text.to_owned());
        let good = SetCheck { kind: "http".to_owned(), ..SetCheck::default() };
        let name = || "front".parse().unwrap();
        let command = SetCheck { kind: "command".to_owned(), ..SetCheck::default() };
        assert_eq!(command.parse(name()).unwrap().0.timeout, std::time::Duration::from_secs(60), "by its kind");
        let parsed = good.clone().parse(name()).unwrap();
        assert_eq!(parsed, (CoreCheck::new(name(), "http".parse().unwrap(), Settings::new()), None));
        for (request, expected) in [
            (SetCheck { kind: "HTTP".to_owned(), ..good.clone() }, Field::CheckKind),
            (SetCheck { kind: String::new(), ..good.clone() }, Field::CheckKind),
            (SetCheck { mode: text("warn"), ..good.clone() }, Field::CheckMode),
            (SetCheck { every: text("15"), ..good.clone() }, Field::CheckEvery),
            (SetCheck { timeout: text("soon"), ..good.clone() }, Field::CheckTimeout),
            (SetCheck { secret: text(""), ..good.clone() }, Field::CheckSecret),
            (SetCheck { without_verdict: text("guess"), ..good }, Field::CheckWithoutVerdict),
        ] {
            assert!(matches!(request.parse(name()), Err(Refusal::InvalidField(field, _)) if field == expected));
        }
    }
}
