//! The tags that a person may have meant by one that is missing.

use std::cmp::Reverse;

use crate::image::Tag;

/// The most tags that are named.
const NEAREST_MAX: usize = 5;

/// Returns those of a repository's tags that are spelt most like a missing one, the nearest first: by the length of the
/// common beginning, then by the number of changed characters, then by the alphabet. Which was pushed last says nothing
/// of what was meant.
pub(super) fn nearest(missing: &str, tags: impl IntoIterator<Item = Tag>) -> Vec<Tag> {
    let rank = |tag: &Tag| (Reverse(common_prefix(missing, tag.as_str())), distance(missing, tag.as_str()));
    let meant = tags.into_iter().filter(|tag| !tag.is_of_signatures());
    let mut ranked: Vec<_> = meant.map(|tag| (rank(&tag), tag)).collect();
    ranked.sort_unstable();
    // Registries whose tags change meanwhile may list one on two pages.
    ranked.dedup();
    ranked.into_iter().take(NEAREST_MAX).map(|(_, tag)| tag).collect()
}

/// Returns the number of bytes with which both begin; tags are ASCII.
fn common_prefix(one: &str, other: &str) -> usize {
    one.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count()
}

/// Returns the number of bytes to insert, remove or replace that make the one the other.
fn distance(one: &str, other: &str) -> usize {
    let other = other.as_bytes();
    // The distances of the beginning of `one` that was read to each beginning of `other`.
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (read, byte) in one.bytes().enumerate() {
        let mut diagonal = read;
        let mut left = read + 1;
        for (cell, against) in row.iter_mut().zip(std::iter::once(None).chain(other.iter().map(Some))) {
            let above = *cell;
            *cell = match against {
                None => left,
                Some(against) => (left + 1).min(above + 1).min(diagonal + usize::from(byte != *against)),
            };
            left = *cell;
            diagonal = above;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(missing: &str, tags: &[&str]) -> Vec<String> {
        nearest(missing, tags.iter().map(|tag| tag.parse().unwrap())).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn distance_is_the_number_of_changed_characters() {
        for (one, other, expected) in
            [("", "", 0), ("abc", "", 3), ("", "abc", 3), ("abc", "abc", 0), ("kitten", "sitting", 3), ("ab", "ba", 2)]
        {
            assert_eq!(distance(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn common_beginning_comes_before_few_changes() {
        assert_eq!(
            named("v1.2", &["w1.2", "v1.2.10-alpine", "v1.3", "latest"]),
            ["v1.2.10-alpine", "v1.3", "w1.2", "latest"]
        );
        assert_eq!(named("v1.4", &["v1.20", "v1.2", "v1.3"]), ["v1.2", "v1.3", "v1.20"]);
    }

    #[test]
    fn order_of_the_list_says_nothing() {
        let expected = named("main-5", &["main-1", "main-2", "main-3", "dev"]);
        assert_eq!(expected, named("main-5", &["dev", "main-3", "main-2", "main-1"]));
        assert_eq!(expected, ["main-1", "main-2", "main-3", "dev"]);
    }

    #[test]
    fn signatures_of_an_image_are_none() {
        let digest = format!("sha256-{}", "0".repeat(64));
        let tags = [digest.as_str(), &format!("{digest}.sig"), "sha256-1", "signed"];
        assert_eq!(named("sinned", &tags), ["signed", "sha256-1"]);
    }

    #[test]
    fn few_are_named_and_each_once() {
        let tags = ["a", "b", "c", "d", "e", "f", "a"];
        assert_eq!(named("g", &tags), ["a", "b", "c", "d", "e"]);
        assert!(named("g", &[]).is_empty());
    }
}
