//! The decision of a person on a deploy whose checks came to no verdict.

use rollhook_core::{
    deploy::{self, Ruling},
    request::{Field, Refusal},
    time::Timestamp,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::openapi::schemas;

/// A person's verdict on a deploy: the body of `POST …/deploys/{revision}/verdict`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VerdictPost {
    /// `pass`: the deploy succeeds; or `fail`: it fails with the reason `check-failed`, and the version before is restored as after
    /// every failure.
    #[schemars(schema_with = "schemas::ruling")]
    pub verdict: String,
}

impl VerdictPost {
    /// Returns the request of this ruling.
    pub fn new(ruling: Ruling) -> Self {
        Self { verdict: ruling.to_string() }
    }

    /// Returns what the person decided.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`].
    pub fn parse(&self) -> Result<Ruling, Refusal> {
        self.verdict.parse().map_err(|rule| Refusal::InvalidField(Field::Verdict, format!("{rule}.")))
    }
}

/// A person's decision in the place of checks that came to no verdict: asked for, or made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Decision {
    /// The time since which it is or was waited for.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub awaited_since: Timestamp,
    /// The checks without a verdict, each with what was measured last, in one line.
    pub reason: String,
    /// What the person decided; absent before, and where the deploy ended otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::ruling")]
    pub verdict: Option<Ruling>,
    /// The person.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When it was decided.
    #[serde(default, with = "crate::time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Option<Timestamp>,
}

impl Decision {
    /// Returns the decision on an entry; `None` if nobody was asked.
    pub(super) fn of(entry: &deploy::Deploy) -> Option<Box<Self>> {
        let verification = entry.verification.as_deref()?;
        let made = verification.decision.as_ref();
        Some(Box::new(Self {
            awaited_since: verification.awaited_since?,
            reason: verification.gap().unwrap_or_default(),
            verdict: made.map(|made| made.ruling),
            by: made.map(|made| made.by.to_string()),
            at: made.map(|made| made.at),
        }))
    }
}
