use super::*;

const SHA256: &str = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const OTHER: &str = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn image(text: &str) -> ImageRef {
    text.parse().unwrap()
}

#[test]
fn sound_references_parse_and_print_as_given() {
    let digested = format!("registry.example.com/api:v1@{SHA256}");
    for text in [
        "nginx",
        "nginx:1.27",
        "library/nginx",
        "localhost/api:v1",
        "localhost:5000/api",
        "127.0.0.1:5000/app:v1",
        "[::1]:5000/app:v1",
        "[2001:db8::1]/app",
        "registry.example.com/shop/api:abc123f",
        "Registry.Example.com/api:V1",
        "REGISTRY:5000/api:v1",
        "a/b__c/d.e/f_g/h---i:x",
        digested.as_str(),
    ] {
        assert_eq!(image(text).to_string(), text);
    }
    assert_eq!(image("localhost:5000/api").repository(), "localhost:5000/api");
    assert_eq!(image("localhost:5000/api:v2").tag(), Some("v2"));
}

#[test]
fn unsound_references_are_refused_with_a_rule() {
    let long = "a".repeat(256);
    for text in [
        "",
        ":v1",
        "/api",
        "api/",
        "api//web",
        "API",
        "shop/API:v1",
        "UPPER/case:1",
        "Shop/api",
        "LOCALHOST/api",
        "api:",
        "api:.x",
        "api:-x",
        "api: x",
        "api:x y",
        "api___web",
        "api._web",
        "-api",
        "api-",
        "api@sha256:abc",
        "api@md5:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        "host:port/api",
        "host:70000/api",
        "host:/api",
        "[::1/api",
        "[zz]/api",
        "[::1]x/api",
        "[::1]]/api",
        "example.com./api",
        "exa mple.com/api",
        "api\n",
        "http://registry.example.com/api",
        long.as_str(),
    ] {
        assert!(text.parse::<ImageRef>().is_err(), "{text:?} was taken");
    }
}

#[test]
fn the_same_repository_may_be_spelt_differently() {
    for text in ["nginx", "library/nginx", "docker.io/nginx", "docker.io/library/nginx", "index.docker.io/nginx"] {
        assert_eq!(image(text).canonical_repository(), "docker.io/library/nginx");
    }
    assert_eq!(image("shop/api").canonical_repository(), "docker.io/shop/api");
    assert_eq!(image("localhost/api").canonical_repository(), "localhost/api");
}

#[test]
fn the_same_bits_are_told_by_digest_where_both_are_known() {
    let digest = SHA256.parse().unwrap();
    let other = OTHER.parse().unwrap();
    let tagged = image("api:latest");
    assert!(tagged.same_bits(None, &image("api:latest"), None));
    assert!(tagged.same_bits(None, &image("api"), None));
    assert!(!tagged.same_bits(Some(&digest), &tagged, Some(&other)));
    assert!(tagged.same_bits(Some(&digest), &image("api:v2"), Some(&digest)));
    assert!(tagged.same_bits(Some(&digest), &image(&format!("api:v2@{SHA256}")), None));
    assert!(tagged.same_bits(Some(&digest), &tagged, None));
    assert!(!tagged.same_bits(Some(&digest), &image("web:latest"), Some(&digest)));
}

#[test]
fn allowed_repositories() {
    let list =
        |entries: &[&str]| Repositories::try_from(entries.iter().map(|entry| (*entry).to_owned()).collect::<Vec<_>>());
    let allowed =
        list(&["registry.example.com/shop/api", "registry.example.com/tools/*", "nginx", "quay.io/*"]).unwrap();
    assert!(allowed.allow(&image("registry.example.com/shop/api:v1")));
    assert!(allowed.allow(&image("registry.example.com/tools/a/b:v1")));
    assert!(allowed.allow(&image("docker.io/library/nginx:1")));
    assert!(allowed.allow(&image("quay.io/x/y:1")));
    assert!(!allowed.allow(&image("registry.example.com/shop/api2:v1")));
    assert!(!allowed.allow(&image("registry.example.com/shop:v1")));
    assert!(!allowed.allow(&image("registry.example.com/tools:v1")));
    assert!(!allowed.allow(&image("quay.io.evil.example/x:1")));
    assert!(list(&[]).unwrap().allow(&image("anything:1")));
    assert!(list(&["UPPER/*"]).is_err());
    assert!(list(&["UPPER:5000/*"]).unwrap().allow(&image("UPPER:5000/x:1")));
    assert!(list(&["a b"]).is_err());
}

/// The cases of the distribution project's own tests (`reference_test.go`, `normalize_test.go`), read as container
/// runtimes read them, but for capitals in a first part that has neither a dot nor a port.
#[test]
fn references_are_those_of_distributions_grammar() {
    let (sha256, sha512) = (format!("sha256:{}", "f".repeat(64)), format!("sha512:{}", "f".repeat(128)));
    let id = "1a3f5e7d9c1b3a5f7e9d1c3b5a7f9e1d3c5b7a9f1e3d5d7c9b1a3f5e7d9c1b3a";
    for (text, valid) in [
        ("test_com".to_owned(), true),
        ("test.com:tag".to_owned(), true),
        ("test.com:5000".to_owned(), true),
        ("test.com/repo:tag".to_owned(), true),
        ("test:5000/repo".to_owned(), true),
        (format!("test:5000/repo@{sha256}"), true),
        (format!("test:5000/repo:tag@{sha256}"), true),
        (String::new(), false),
        (":justtag".to_owned(), false),
        (format!("@{sha256}"), false),
        ("repo@sha256:ffffffffffffffffffffffffffffffffff".to_owned(), false),
        (format!("validname@invaliddigest:{}", "f".repeat(64)), false),
        ("Uppercase:tag".to_owned(), false),
        ("test:5000/Uppercase/lowercase:tag".to_owned(), false),
        ("lowercase:Uppercase".to_owned(), true),
        ("aa/asdf$$^/aa".to_owned(), false),
        ("sub-dom1.foo.com/bar/baz/quux:some-long-tag".to_owned(), true),
        ("b.gcr.io/test.example.com/my-app:test.example.com".to_owned(), true),
        (format!("xn--7o8h.com/myimage:xn--7o8h.com@{sha512}"), true),
        ("foo_bar.com:8080".to_owned(), true),
        ("foo/foo_bar.com:8080".to_owned(), true),
        ("192.168.1.1".to_owned(), true),
        ("192.168.1.1:5000/repo:5050".to_owned(), true),
        // Addresses in brackets.
        ("[2001:db8::1]".to_owned(), false),
        ("[2001:db8::1]:5000".to_owned(), false),
        ("[2001:db8::1]:tag".to_owned(), false),
        ("[2001:db8::1]/repo".to_owned(), true),
        ("[2001:db8:1:2:3:4:5:6]/repo:tag".to_owned(), true),
        (format!("[2001:db8::1]:5000/repo:tag@{sha256}"), true),
        ("[2001:db8::]:5000/repo".to_owned(), true),
        ("[::1]:5000/repo".to_owned(), true),
        ("[fe80::1%eth0]:5000/repo".to_owned(), false),
        ("[fe80::1%@invalidzone]:5000/repo".to_owned(), false),
        ("[::ffff:1.2.3.4]:5000/a".to_owned(), false),
        ("[2001:db8:3:4::192.0.2.33]:5000/debian".to_owned(), false),
        ("fc00::1:5000/debian".to_owned(), false),
        // The limit is on the path, with the parts of Docker Hub that are not written.
        (format!("example.com/{}:tag", "a".repeat(255)), true),
        (format!("example.com/{}:tag", "a".repeat(256)), false),
        (format!("{}/{}", ["a"; 120].join("."), "a".repeat(255)), true),
        (format!("{}a:tag-puts-this-over-max", "a/".repeat(127)), true),
        (format!("domain/{}:tag", "a".repeat(256)), false),
        ("a".repeat(247), true),
        ("a".repeat(248), false),
        // A name that is an image's id.
        (id.to_owned(), false),
        (format!("docker.io/{id}"), true),
        (format!("{id}:v1"), true),
        ("thisisthesongthatneverendsitgoesonandonandonthisisthesongthatnev".to_owned(), true),
        // Names.
        ("LOCALDOMAIN/library/debian".to_owned(), false),
        ("Docker/docker".to_owned(), false),
        ("docker/Docker".to_owned(), false),
        ("docker.io/docker/Docker".to_owned(), false),
        ("docker///docker".to_owned(), false),
        ("docker-/docker".to_owned(), false),
        ("-docker.io/docker/docker".to_owned(), false),
        ("____/____".to_owned(), false),
        ("_docker/_docker".to_owned(), false),
        ("dock__er/docker".to_owned(), true),
        ("docker---rules/docker".to_owned(), true),
        ("dock..er/docker".to_owned(), false),
        ("dock_.er/docker".to_owned(), false),
        ("dock-.er/docker".to_owned(), false),
        ("docker/".to_owned(), false),
        ("https://forge.example.com/docker/docker".to_owned(), false),
    ] {
        assert_eq!(text.parse::<ImageRef>().is_ok(), valid, "{text:?}");
    }
}

#[test]
fn a_registrys_definite_answer_is_told_from_one_that_may_pass() {
    for answer in [
        "manifest for web:v9 not found: manifest unknown: manifest unknown",
        "failed to resolve reference \"r.example.com/api:v9\": r.example.com/api:v9: not found",
        "pull access denied for web, repository does not exist or may require 'docker login'",
    ] {
        assert!(super::is_refused_for_good(answer), "{answer}");
    }
    let other = "failed to pull and unpack image \"r.example.com/api:1\": no match for platform in manifest: not found";
    assert!(super::is_refused_for_good(other));
    for answer in [
        "dial tcp: lookup r.example.com: no such host",
        "toomanyrequests: You have reached your unauthenticated pull rate limit: access denied",
        "received unexpected HTTP status: 503 Service Unavailable",
        "context deadline exceeded",
        "no space left on device",
        "unexpected status from HEAD request: 401 Unauthorized",
        "failed to pull image \"r.example.com/access denied/manifest-unknown:1\": connection refused",
        "failed to prepare extraction snapshot: parent snapshot sha256:1 does not exist: not found",
    ] {
        assert!(!super::is_refused_for_good(answer), "{answer}");
    }
}
