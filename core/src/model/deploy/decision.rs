//! A person's decision on a deploy whose checks came to no verdict.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::Actor;
use crate::{text::words, time::Timestamp};

/// The decision of a person in the place of checks that came to no verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// What was decided.
    pub ruling: Ruling,
    /// The person.
    pub by: Actor,
    /// When it was decided.
    pub at: Timestamp,
}

/// What a person decides in the place of checks that came to no verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ruling {
    /// The deploy succeeds.
    Pass,
    /// The deploy fails, as by a check that failed.
    Fail,
}

words! { Ruling: Pass = "pass", Fail = "fail", }

impl FromStr for Ruling {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let ruling = [Self::Pass, Self::Fail].into_iter().find(|ruling| ruling.as_str() == text);
        ruling.ok_or("must be pass or fail")
    }
}

impl Ruling {
    /// The word for what happened to the deploy: `accepted` or `rejected`.
    pub const fn participle(self) -> &'static str {
        match self {
            Self::Pass => "accepted",
            Self::Fail => "rejected",
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} by {}", self.ruling.participle(), self.by)
    }
}
