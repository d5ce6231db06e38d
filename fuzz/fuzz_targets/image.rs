//! Image references: what is taken, what is printed, and what counts as equal, against the distribution project's
//! grammar as regular expressions.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use regex::Regex;
use rollhook_core::image::{Digest, ImageRef, Repositories};
use rollhook_fuzz::assert_clean;

const DIGEST: &str = "sha256:[a-f0-9]{64}|sha512:[a-f0-9]{128}";

fn whole(expression: &str) -> Regex {
    Regex::new(&format!("^(?:{expression})$")).expect("an expression")
}

static REFERENCE: LazyLock<Regex> = LazyLock::new(|| {
    let tag = "[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}";
    whole(&format!("(?<repository>[^@]+?)(?::(?<tag>{tag}))?(?:@(?<digest>{DIGEST}))?"))
});
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    let label = "[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9]";
    whole(&format!(r"(?:(?:{label})(?:\.(?:{label}))*|\[(?<address>[^\]]*)\])(?::(?<port>[0-9]+))?"))
});
static ID: LazyLock<Regex> = LazyLock::new(|| whole("[a-f0-9]{64}"));
static PATH: LazyLock<Regex> = LazyLock::new(|| {
    let component = "[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    whole(&format!("{component}(?:/{component})*"))
});

/// Repository, tag and digest, as the grammar has them.
fn expected(text: &str) -> Option<[Option<&str>; 3]> {
    let parts = REFERENCE.captures(text)?;
    let part = |name| parts.name(name).map(|part| part.as_str());
    let repository = part("repository")?;
    let is_host = |first: &str| first == "localhost" || first.contains(['.', ':', '[']);
    let (host, path) = match repository.split_once('/') {
        Some((first, path)) if is_host(first) => (Some(first), path),
        _ => (None, repository),
    };
    let is_hub = host.is_none_or(|host| matches!(host, "docker.io" | "index.docker.io"));
    let unwritten = if is_hub && !path.contains('/') { "library/".len() } else { 0 };
    let sound =
        unwritten + path.len() <= 255 && PATH.is_match(path) && host.is_none_or(sound_host) && !ID.is_match(text);
    sound.then(|| [Some(repository), part("tag"), part("digest")])
}

fn sound_host(host: &str) -> bool {
    let Some(parts) = HOST.captures(host) else { return false };
    let port = parts.name("port").is_none_or(|port| port.as_str().parse::<u16>().is_ok());
    let address = parts.name("address").map(|address| address.as_str());
    port && address.is_none_or(|address| !address.contains('.') && address.parse::<std::net::Ipv6Addr>().is_ok())
}

fuzz_target!(|text: &str| {
    // Two references, to be compared.
    let mut images = Vec::new();
    for line in text.splitn(2, '\n') {
        match line.parse::<ImageRef>() {
            Ok(image) => {
                let parts = [Some(image.repository()), image.tag(), image.digest().map(Digest::as_str)];
                assert_eq!(expected(line), Some(parts), "{line:?}");
                is_itself(&image, line);
                images.push(image);
            }
            Err(invalid) => {
                assert_eq!(expected(line), None, "{line:?}: {invalid}");
                assert_clean(&invalid.to_string(), line);
            }
        }
    }
    if let [one, other] = images.as_slice() {
        compare(one, other);
    }
});

fn is_itself(image: &ImageRef, text: &str) {
    assert_eq!(image.to_string(), text);
    assert!(text.is_ascii() && !text.contains(|c: char| c.is_control() || c == ' '));
    let json = serde_json::to_string(image).expect("a text");
    assert_eq!(serde_json::from_str::<ImageRef>(&json).expect("it was one"), *image);
    assert!(image.same_bits(None, image, None));

    let latest = image.clone().or_latest();
    assert!(latest.tag().is_some() || latest.digest().is_some());
    assert!(latest.same_bits(None, image, None), "a name without a tag means latest");
    let unpinned = image.clone().unpinned();
    assert_eq!(unpinned.digest().is_some(), image.tag().is_none() && image.digest().is_some());

    let full = image.canonical_repository();
    if full.len() < 254 {
        in_full(image, &full);
    }
}

fn in_full(image: &ImageRef, full: &str) {
    let parsed: ImageRef = full.parse().expect("a full name is a name");
    assert_eq!(parsed.canonical_repository(), full, "the full name of a full name");
    // A webhook that may deploy from just this repository may, and from one beside or below it may not.
    let allow = |entry: String| Repositories::try_from(vec![entry]).expect("a repository").allow(image);
    assert!(allow(image.repository().to_owned()) && allow(full.to_owned()));
    assert!(!allow(format!("{full}/*")) && !allow(format!("{full}/x")) && !allow(format!("{full}x")));
    let (parent, _) = full.rsplit_once('/').expect("a full name has a host");
    assert!(allow(format!("{parent}/*")));
}

fn compare(one: &ImageRef, other: &ImageRef) {
    let same = one.same_bits(None, other, None);
    assert_eq!(same, other.same_bits(None, one, None), "equality goes both ways");
    assert!(one != other || same);
    let same_repository = one.canonical_repository() == other.canonical_repository();
    assert!(!same || same_repository);
    if let (Some(a), Some(b)) = (one.digest(), other.digest()) {
        assert_eq!(same, same_repository && a == b, "where both digests are known, they decide");
    }
    for digest in [one.digest(), other.digest()].into_iter().flatten() {
        let (one, other) = (one.clone().pinned(digest.clone()), other.clone().pinned(digest.clone()));
        assert_eq!(one.same_bits(None, &other, None), same_repository);
    }
}
