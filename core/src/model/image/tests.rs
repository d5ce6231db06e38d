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
    assert!(list(&["UPPER/*"]).is_err() || list(&["UPPER/*"]).unwrap().allow(&image("UPPER/x:1")));
    assert!(list(&["a b"]).is_err());
}
