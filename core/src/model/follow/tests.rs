use proptest::prelude::*;

use super::*;

fn rule(text: &str) -> Follow {
    text.parse().unwrap()
}

fn newest(rule: &str, tags: &[&str]) -> Option<String> {
    let tags: Vec<Tag> = tags.iter().map(|tag| tag.parse().unwrap()).collect();
    self::rule(rule).newest(&tags).map(ToString::to_string)
}

fn unfollowed(rule: &str, tag: &str) -> Option<Unfollowed> {
    self::rule(rule).rank(&tag.parse().unwrap()).err()
}

#[test]
fn versions_are_ordered_as_semver_orders_them() {
    let newest = |tags: &[&str]| self::newest("semver:^1.4", tags);
    assert_eq!(newest(&["1.9.0", "1.10.0", "1.4.99"]).as_deref(), Some("1.10.0"));
    assert_eq!(newest(&["v1.5.0", "1.4.2"]).as_deref(), Some("v1.5.0"));
    assert_eq!(newest(&["2.0.0", "1.3.9", "latest", "1.4", "1.6.0-rc.1", "1.4.0"]).as_deref(), Some("1.4.0"));
    assert_eq!(newest(&["3.0.0", "7.9.0", "main"]), None);
    assert_eq!(newest(&[]), None);
    assert_eq!(self::newest("semver:*", &["7.9.0", "3.0.0", "7.10.0"]).as_deref(), Some("7.10.0"));
    assert_eq!(
        self::newest("semver:>=1.6.0-rc.1", &["1.5.9", "1.6.0-rc.2", "1.6.0-rc.10"]).as_deref(),
        Some("1.6.0-rc.10")
    );
}

#[test]
fn numbers_of_any_length_are_compared_as_numbers() {
    let newest = |tags: &[&str]| self::newest(r"regex:release-(?<n>\d+)", tags);
    assert_eq!(newest(&["release-9", "release-10", "release-1"]).as_deref(), Some("release-10"));
    assert_eq!(newest(&["release-0009", "release-8"]).as_deref(), Some("release-0009"));
    let long = format!("release-1{}", "0".repeat(60));
    assert_eq!(newest(&["release-99999999999999999999", &long]).as_deref(), Some(&*long));
    assert_eq!(newest(&["release-7-rc", "my-release-8", "release-6"]).as_deref(), Some("release-6"), "the whole tag");
}

#[test]
fn every_reading_finds_the_same_of_equal_tags() {
    for tags in [["v1.4.2", "1.4.2"], ["1.4.2", "v1.4.2"]] {
        assert_eq!(newest("semver:^1.4", &tags).as_deref(), Some("1.4.2"));
    }
    for tags in [["b-7", "a-7"], ["a-7", "b-7"]] {
        assert_eq!(newest(r"regex:[ab]-(?<n>\d+)", &tags).as_deref(), Some("a-7"));
    }
}

#[test]
fn tag_that_is_not_followed_says_why() {
    for (rule, tag, expected) in [
        ("tag:main", "main", None),
        ("tag:main", "main2", Some(Unfollowed::Other)),
        ("semver:^1.4", "1.4.0", None),
        ("semver:^1.4", "1.4", Some(Unfollowed::NoVersion)),
        ("semver:^1.4", "latest", Some(Unfollowed::NoVersion)),
        ("semver:^1.4", "99999999999999999999.0.0", Some(Unfollowed::NoVersion)),
        ("semver:^1.4", "1.5.0-alpine", Some(Unfollowed::Prerelease)),
        ("semver:^1.4", "2.0.0-rc.1", Some(Unfollowed::Unmet)),
        ("semver:^1.4", "2.0.0", Some(Unfollowed::Unmet)),
        (r"regex:r(?<n>\d+)", "main", Some(Unfollowed::NoMatch)),
        (r"regex:r(?<n>\d*)", "r", Some(Unfollowed::NoNumber)),
        (r"regex:r(?<n>\w+)", "rc", Some(Unfollowed::NoNumber)),
        (r"regex:main|r(?<n>\d+)", "main", Some(Unfollowed::NoNumber)),
    ] {
        assert_eq!(unfollowed(rule, tag), expected, "{rule} {tag}");
    }
}

#[test]
fn rules_are_checked_and_keep_their_text() {
    for text in ["tag:main", "semver:^1.4", "semver:>=1.4, <3", "semver:*", r"regex:^release-(?<n>\d+)$"] {
        let rule = rule(text);
        assert_eq!(rule.to_string(), text);
        assert_eq!(serde_json::from_value::<Follow>(serde_json::to_value(&rule).unwrap()).unwrap(), rule);
    }
    for text in [
        "",
        "main",
        "newest:main",
        "tag:",
        "tag:a b",
        "tag:-a",
        "semver:",
        "semver:newest",
        "regex:",
        r"regex:release-(\d+)",
        r"regex:)(?<n>\d+)(",
        "regex:(?<n>",
        r"regex:((?<n>\d{1000}){1000}){1000}",
        "tag:a\u{1b}b",
        &format!("semver:{}", "1".repeat(300)),
    ] {
        assert!(text.parse::<Follow>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn no_rule_and_no_tag_panics(kind in "(tag|semver|regex):", text in ".{0,60}", tag in "[a-zA-Z0-9_][a-zA-Z0-9_.-]{0,127}") {
        if let (Ok(rule), Ok(tag)) = (format!("{kind}{text}").parse::<Follow>(), tag.parse::<Tag>()) {
            let _rank = rule.rank(&tag);
        }
    }

    #[test]
    fn order_of_the_list_says_nothing(mut tags in proptest::collection::vec("v?[0-9]\\.[0-9]{1,2}\\.[0-9]", 0..20)) {
        let all = |tags: &[String]| newest("semver:*", &tags.iter().map(String::as_str).collect::<Vec<_>>());
        let expected = all(&tags);
        tags.reverse();
        prop_assert_eq!(all(&tags), expected);
    }
}
