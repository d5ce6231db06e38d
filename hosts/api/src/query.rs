//! Members of queries: each is a text, which is parsed as the core's type.

use std::{fmt::Display, str::FromStr};

use serde::{Deserialize, Deserializer, Serializer, de::Error as _};

use crate::openapi::PAGE_MAX;

/// Writes a member as text.
pub(crate) fn serialize<T: Display, S: Serializer>(value: &Option<T>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&value.as_ref().map(ToString::to_string).unwrap_or_default())
}

/// Reads a member from text.
pub(crate) fn deserialize<'de, T: FromStr, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map(Some).map_err(|_| D::Error::custom("cannot be read"))
}

/// The number of entries of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageSize(usize);

impl PageSize {
    /// Returns a size, within the bounds of the API.
    pub fn new(entries: usize) -> Self {
        Self(entries.clamp(1, PAGE_MAX))
    }

    /// Returns the number.
    pub fn get(self) -> usize {
        self.0
    }
}

/// Members whose types say what a text must be.
pub(crate) mod worded {
    pub(crate) use super::serialize;
    use super::{Deserialize, Deserializer, Display, FromStr};

    pub(crate) fn deserialize<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        T: FromStr<Err: Display>,
        D: Deserializer<'de>,
    {
        String::deserialize(deserializer)?.parse().map(Some).map_err(serde::de::Error::custom)
    }
}

/// Sizes of pages.
pub(crate) mod page_size {
    use super::{Deserialize, Deserializer, PAGE_MAX, PageSize, Serializer};

    pub(crate) fn serialize<S: Serializer>(size: &Option<PageSize>, serializer: S) -> Result<S::Ok, S::Error> {
        super::serialize(&size.map(PageSize::get), serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<PageSize>, D::Error> {
        let size = String::deserialize(deserializer)?.parse().ok().filter(|size| (1..=PAGE_MAX).contains(size));
        let refused = || serde::de::Error::custom(format!("must be from 1 to {PAGE_MAX}"));
        size.map(|size| Some(PageSize(size))).ok_or_else(refused)
    }
}

/// The steps of deploys whose logs are read.
pub(crate) mod log_step {
    use serde::de::Error as _;

    pub(crate) use super::serialize;
    use super::{Deserialize, Deserializer};
    use crate::operations::LogStep;

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<LogStep>, D::Error> {
        String::deserialize(deserializer)?.parse().map(Some).map_err(D::Error::custom)
    }
}
