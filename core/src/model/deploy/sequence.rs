//! The order of a webhook's deploys, as their caller counts them.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::app::InvalidName;

/// The highest sequence: the greatest whole number that every JSON reader keeps exactly.
pub const SEQUENCE_MAX: u64 = (1 << 53) - 1;

/// The place of a deploy among those of its app's webhook, such as the number of the CI run: a webhook's deploy with a lower
/// one than an earlier deploy had is out of order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Sequence(u64);

impl Sequence {
    /// Returns this sequence; `None` unless it is between 1 and [`SEQUENCE_MAX`].
    pub const fn new(number: u64) -> Option<Self> {
        if 1 <= number && number <= SEQUENCE_MAX { Some(Self(number)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Sequence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Sequence {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        // Written in one way, as JSON writes numbers.
        let digits = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten().and_then(Self::new);
        number.ok_or_else(|| {
            InvalidName::new("sequence", text, "must be a whole number from 1 to 9007199254740991, or none")
        })
    }
}

impl TryFrom<u64> for Sequence {
    type Error = InvalidName;

    fn try_from(number: u64) -> Result<Self, InvalidName> {
        number.to_string().parse()
    }
}

impl From<Sequence> for u64 {
    fn from(sequence: Sequence) -> Self {
        sequence.0
    }
}

/// The order of a deploy among those of its app's webhook, as the caller states it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Nothing is stated: of a commit that is to be built, its source says whether it is older than what came before.
    #[default]
    Unstated,
    /// The deploy has this place.
    Sequence(Sequence),
    /// The deploy has no place: it goes on although its commit may be older than what came before.
    Exempt,
}

impl Order {
    /// Returns the sequence, if one is stated.
    pub const fn sequence(self) -> Option<Sequence> {
        match self {
            Self::Sequence(sequence) => Some(sequence),
            Self::Unstated | Self::Exempt => None,
        }
    }
}

impl From<Option<Sequence>> for Order {
    fn from(sequence: Option<Sequence>) -> Self {
        sequence.map_or(Self::Unstated, Self::Sequence)
    }
}

impl FromStr for Order {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        if text == "none" { Ok(Self::Exempt) } else { text.parse().map(Self::Sequence) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_is_a_positive_whole_number_that_json_keeps() {
        for good in ["1", "42", "9007199254740991"] {
            assert_eq!(good.parse::<Sequence>().unwrap().to_string(), good);
        }
        for bad in ["", "0", "-1", "+1", "01", "1.0", "1e3", " 1", "run-7", "9007199254740992", "18446744073709551617"]
        {
            let error = bad.parse::<Sequence>().unwrap_err().to_string();
            assert!(error.contains("must be a whole number from 1 to 9007199254740991, or none"), "{bad}: {error}");
        }
        assert!(serde_json::from_str::<Sequence>("0").is_err());
        assert_eq!(serde_json::from_str::<Sequence>("7").unwrap(), Sequence::new(7).unwrap());
    }
}
