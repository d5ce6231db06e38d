//! Checks: how an app shows that a version serves its users, beyond running.

mod secret;

use std::{fmt, str::FromStr, time::Duration};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    app::{InvalidName, Settings, label},
    configuration::ConfigurationId,
    text::{checked_text, hex, with_fields, words},
    time::{Timestamp, millis},
};

pub use secret::{CheckSecret, SECRET_MAX};

checked_text! {
    /// A check's name within its app, such as `front-page`: a DNS-1123 label.
    CheckName, InvalidName, |text| label("check", text)
}
checked_text! {
    /// A kind of checks, which the verifier knows, such as `http`: a DNS-1123 label.
    CheckKind, InvalidName, |text| label("kind of check", text)
}

/// The most checks of an app.
pub const CHECKS_MAX: usize = 10;
/// The bounds of [`Check::every`].
pub const EVERY: std::ops::RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(3600);
/// The bounds of [`Check::failures`].
pub const FAILURES: std::ops::RangeInclusive<u32> = 1..=100;
/// The least [`Check::timeout`].
pub const TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// The longest time that a measurement looks back, unless a check is measured less often.
const WINDOW_MAX: Duration = Duration::from_secs(300);
/// The time for a platform's call that ends the command of a check.
pub(crate) const END_TIME: Duration = Duration::from_secs(5);
/// The longest time for which a deploy is verified.
pub const VERIFY_FOR_MAX: Duration = Duration::from_secs(24 * 3600);
/// The longest time for which a version is watched after its deploy has succeeded.
pub const WATCH_FOR_MAX: Duration = Duration::from_secs(24 * 3600);

impl CheckKind {
    /// The kind that runs a command with the image of the deploy: the one that needs no verifier, but a platform that runs
    /// commands.
    pub const COMMAND: &str = "command";
    /// The longest time of a check's command.
    pub const COMMAND_TIMEOUT_MAX: Duration = Duration::from_secs(600);

    /// Returns whether checks of the kind run a command.
    pub fn is_command(&self) -> bool {
        self.as_str() == Self::COMMAND
    }

    /// How long a measurement may take, unless its check says otherwise.
    pub fn usual_timeout(&self) -> Duration {
        Duration::from_secs(if self.is_command() { 60 } else { 10 })
    }

    /// The greatest [`Check::timeout`] of the kind.
    pub fn longest_timeout(&self) -> Duration {
        if self.is_command() { Self::COMMAND_TIMEOUT_MAX } else { Duration::from_secs(20) }
    }
}

/// What follows from a check's verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckMode {
    /// A fail fails the deploy.
    #[default]
    Enforce,
    /// Everything is measured and shown, and nothing follows.
    Observe,
}

words! { CheckMode: Enforce = "enforce", Observe = "observe", }

/// What follows if a check comes to no verdict, since there is nothing to judge by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WithoutVerdict {
    /// The deploy succeeds, and its entry says that it was not verified.
    #[default]
    Accept,
    /// The deploy stays in verification until there is a verdict, a newer deploy, or a cancel.
    Wait,
    /// The deploy stays in verification until there is a verdict, or a person decides in its place; as with
    /// [`Wait`](Self::Wait), a newer deploy or a cancel ends it too.
    Ask,
}

words! { WithoutVerdict: Accept = "accept", Wait = "wait", Ask = "ask", }

/// A check of an app.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Check {
    /// The check's name within the app.
    pub name: CheckName,
    /// The kind, which the verifier knows.
    pub kind: CheckKind,
    /// The settings with all defaults filled in, as [`Verifier::check`](crate::ports::Verifier::check) returned them. Only the
    /// verifier reads them.
    pub settings: Settings,
    /// What follows from its verdict.
    #[serde(default)]
    pub mode: CheckMode,
    /// The time between the beginnings of two measurements.
    #[serde(with = "millis", rename = "every_ms")]
    pub every: Duration,
    /// The number of measurements in a row that must fail before the check fails.
    pub failures: u32,
    /// How long a measurement may take; one that takes longer has measured nothing.
    #[serde(with = "millis", rename = "timeout_ms")]
    pub timeout: Duration,
    /// What follows if there is nothing to judge by.
    #[serde(default)]
    pub without_verdict: WithoutVerdict,
    /// The id under which the store of configurations keeps the check's secret, which only
    /// [`Deployer::set_check`](crate::service::Deployer::set_check) gives; `None`: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<ConfigurationId>,
}

with_fields!(Check);

impl Check {
    /// Returns an enforced check that fails after three failed measurements in a row, one every 15 s.
    pub fn new(name: CheckName, kind: CheckKind, settings: Settings) -> Self {
        Self {
            name,
            timeout: kind.usual_timeout(),
            kind,
            settings,
            mode: CheckMode::default(),
            every: Duration::from_secs(15),
            failures: 3,
            without_verdict: WithoutVerdict::default(),
            secret: None,
        }
    }

    /// Returns how long a measurement lasts at most: of a command, its timeout and the call that ends it.
    pub(crate) fn longest_measurement(&self) -> Duration {
        if self.kind.is_command() { self.timeout + END_TIME } else { self.timeout }
    }

    /// Returns a short text that identifies what the check measures: its kind, settings and secret.
    pub fn fingerprint(&self) -> String {
        hex(&self.digest()[..8])
    }

    fn digest(&self) -> [u8; 32] {
        let settings = serde_json::to_string(&self.settings).unwrap_or_default();
        let secret = self.secret.map(|id| format!(" {id}")).unwrap_or_default();
        Sha256::digest(format!("{} {settings}{secret}", self.kind)).into()
    }

    /// Returns a number that tells the check, which is at this place among those of its app, apart from the others, and from
    /// itself with other settings.
    pub(crate) fn discriminator(&self, place: usize) -> u32 {
        let [high, low, ..] = self.digest();
        (u32::try_from(place % 16).unwrap_or_default() << 16) | u32::from(u16::from_be_bytes([high, low]))
    }

    /// Returns the program and the arguments of a check of kind [`CheckKind::COMMAND`]; `None` of any other one, and if its
    /// settings have none.
    pub fn command(&self) -> Option<Vec<String>> {
        let words = self.settings.get(Self::COMMAND_SETTING).filter(|_| self.kind.is_command())?.as_array()?;
        let command = words.iter().map(|word| word.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()?;
        (!command.is_empty()).then_some(command)
    }

    /// The setting of a check of kind [`CheckKind::COMMAND`] that has the program and its arguments.
    pub const COMMAND_SETTING: &str = "command";

    /// Returns how far a measurement looks back whose instances have served for so long.
    pub fn window(&self, serves: Duration) -> Duration {
        serves.min(WINDOW_MAX.max(self.every)).max(Duration::from_secs(1))
    }
}

/// The outcome of a measurement, and the verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The condition holds.
    Pass,
    /// The condition does not hold.
    Fail,
    /// There is nothing to judge by: no data, too few samples, no answer, or none that can be read. It is neither of the others.
    None,
}

words! { Verdict: Pass = "pass", Fail = "fail", None = "none", }

/// A measurement of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Measurement {
    /// When it began.
    pub at: Timestamp,
    /// What it says.
    pub verdict: Verdict,
    /// The measured value as people read it, such as `503` or `0.013`; at most 200 characters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The number of samples that the value was made of, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// A sentence for people: what was expected and what was seen, or why there is nothing to judge by; at most 300 characters.
    pub message: String,
}

with_fields!(Measurement);

/// What a check would have measured at a time before a deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PastValue {
    /// The time.
    pub at: Timestamp,
    /// The value, as a [`Measurement`] has it, of at most [`PAST_VALUE_MAX`] characters; `None`: there was no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// The most [`PastValue`]s that are kept of a check.
pub const PAST_VALUES_MAX: usize = 12;
/// The bound of [`PastValue::value`], in characters: a number that is cut would be another one.
pub const PAST_VALUE_MAX: usize = 32;

/// The bound of [`Measurement::value`], in characters.
pub const VALUE_MAX: usize = 200;
/// The bound of [`Measurement::message`], in characters.
pub const MESSAGE_MAX: usize = 300;

impl Measurement {
    /// Returns a measurement without a value; a text that is too long is cut.
    pub fn new(at: Timestamp, verdict: Verdict, message: &str) -> Self {
        Self { at, verdict, value: None, samples: None, message: message.chars().take(MESSAGE_MAX).collect() }
    }

    /// Returns the measurement with its value; a text that is too long is cut.
    #[must_use]
    pub fn of(self, value: &str) -> Self {
        Self { value: Some(value.chars().take(VALUE_MAX).collect()), ..self }
    }
}
