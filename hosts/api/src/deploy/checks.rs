//! What the checks of an app say of a deploy.

use rollhook_core::{
    check::{CheckMode, Verdict},
    deploy::{self, Verification},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::openapi::schemas;

/// What a check of the app says of a deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckOutcome {
    /// The check's name.
    pub name: String,
    /// Whether its verdict decides: `enforce`, or `observe`.
    #[schemars(schema_with = "schemas::check_mode")]
    pub mode: CheckMode,
    /// The verdict: `pass`, `fail`, or `none` if there was nothing to judge by. Absent before there is one, and if the deploy
    /// ended before. While a person is asked, a check without a verdict is measured on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::verdict")]
    pub verdict: Option<Verdict>,
    /// The condition that a pass must meet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<String>,
    /// The value that was measured last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// What was measured last, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The last measurements, oldest first, at most 20; in lists the last one.
    #[serde(default)]
    pub measurements: Vec<Measurement>,
    /// The values of the same query in the time before the deploy, oldest first, at most 12, for comparison; absent where there are
    /// none, and in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<PastValue>,
}

/// What a check would have measured at a time before the deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PastValue {
    /// The time.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// The value; absent where there was no number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// A measurement of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Measurement {
    /// When it began.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// What it says.
    #[schemars(schema_with = "schemas::verdict")]
    pub verdict: Verdict,
    /// The measured value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The number of samples that the value was made of, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples: Option<u64>,
    /// What was expected and what was seen, or why there is nothing to judge by, in a sentence.
    pub message: String,
}

impl CheckOutcome {
    /// Returns what the checks say of a deploy, in the order of the app's policy.
    pub(super) fn of(verification: &Verification) -> Vec<Self> {
        verification.checks.iter().map(Self::of_one).collect()
    }

    fn of_one(result: &deploy::CheckResult) -> Self {
        let last = result.last();
        Self {
            name: result.name.to_string(),
            mode: result.mode,
            verdict: result.verdict,
            condition: Some(result.condition.clone()).filter(|condition| !condition.is_empty()),
            value: last.and_then(|last| last.value.clone()),
            message: last.map(|last| last.message.clone()),
            measurements: result.measurements.iter().map(Measurement::of).collect(),
            before: result.before.iter().map(PastValue::of).collect(),
        }
    }
}

impl PastValue {
    fn of(past: &rollhook_core::check::PastValue) -> Self {
        Self { at: past.at, value: past.value.clone() }
    }
}

impl Measurement {
    fn of(measurement: &rollhook_core::check::Measurement) -> Self {
        Self {
            at: measurement.at,
            verdict: measurement.verdict,
            value: measurement.value.clone(),
            samples: measurement.samples,
            message: measurement.message.clone(),
        }
    }
}
