//! Lists of a payload that are read up to a bound: a push of 25 MiB may list millions of changes.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, SeqAccess, Visitor},
};

/// The most changes of branches and tags in one push.
pub(crate) const CHANGES_MAX: usize = 1_000;
/// The most commits of a push that are kept: as many as GitHub lists.
pub(crate) const COMMITS_MAX: usize = 2_048;

/// The first elements of a list. Those beyond the bound are passed over.
pub(crate) struct Bounded<T, const MOST: usize> {
    pub(crate) elements: Vec<T>,
    /// Whether the list has more elements.
    pub(crate) has_more: bool,
}

impl<T, const MOST: usize> Bounded<T, MOST> {
    /// Returns an empty list.
    pub(crate) const fn none() -> Self {
        Self { elements: Vec::new(), has_more: false }
    }
}

impl<'de, T: Deserialize<'de>, const MOST: usize> Deserialize<'de> for Bounded<T, MOST> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(First(PhantomData))
    }
}

/// Reads the first elements of a list.
struct First<T, const MOST: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MOST: usize> Visitor<'de> for First<T, MOST> {
    type Value = Bounded<T, MOST>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut elements = Vec::new();
        while elements.len() < MOST {
            match list.next_element()? {
                Some(element) => elements.push(element),
                None => return Ok(Bounded { elements, has_more: false }),
            }
        }
        let mut has_more = false;
        while list.next_element::<IgnoredAny>()?.is_some() {
            has_more = true;
        }
        Ok(Bounded { elements, has_more })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_beyond_the_bound_are_passed_over() {
        let read = |text: &str| serde_json::from_str::<Bounded<u8, 2>>(text).map(|read| (read.elements, read.has_more));
        assert_eq!(read("[]").unwrap(), (vec![], false));
        assert_eq!(read("[1, 2]").unwrap(), (vec![1, 2], false));
        assert_eq!(read("[1, 2, {\"a\": [\"\"]}, 300]").unwrap(), (vec![1, 2], true));
        for text in ["[300]", "[1, 2, ]", "[1, 2, {]", "{}", "null"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
