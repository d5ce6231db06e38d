use super::*;

#[track_caller]
fn url(text: &str) -> GitUrl {
    text.parse().unwrap_or_else(|why| panic!("{why}"))
}

#[test]
fn urls_that_are_taken() {
    for (text, protocol, host) in [
        ("https://git.example.com/shop/api.git", "https", Some("git.example.com")),
        ("https://git.example.com:8443/shop/api", "https", Some("git.example.com")),
        ("https://10.1.2.3/shop/api.git", "https", Some("10.1.2.3")),
        ("https://[2001:db8::1]:443/api.git", "https", Some("2001:db8::1")),
        ("ssh://git@git.example.com/shop/api.git", "ssh", Some("git.example.com")),
        ("ssh://git.example.com:2222/~ada/api.git", "ssh", Some("git.example.com")),
        ("git@git.example.com:shop/api.git", "ssh", Some("git.example.com")),
    ] {
        let url = url(text);
        assert_eq!((url.protocol(), url.host(), url.is_local()), (protocol, host, false), "{text}");
        assert_eq!(url.as_str().parse::<GitUrl>().unwrap(), url, "what is stored is read again");
    }
    assert_eq!(url("git@git.example.com:shop/api.git").as_str(), "ssh://git@git.example.com/shop/api.git");
}

#[test]
fn the_port_is_the_one_that_is_named() {
    for (text, port) in [
        ("https://git.example.com:8443/shop/api", Some(8443)),
        ("https://[2001:db8::1]:443/api.git", Some(443)),
        ("ssh://git@git.example.com:2222/api.git", Some(2222)),
        ("ssh://git@git.example.com/api:3000/api.git", None),
        ("git@git.example.com:shop/api.git", None),
        ("https://[2001:db8::1]/api.git", None),
        ("file:///srv/api:1/git", None),
    ] {
        assert_eq!(url(text).port(), port, "{text}");
    }
}

#[test]
fn urls_that_only_the_operator_allows() {
    for text in [
        "http://git.example.com/api.git",
        "file:///srv/git/api.git",
        "https://localhost/api.git",
        "https://LOCALHOST./api.git",
        "https://api.localhost/api.git",
        "https://127.0.0.1:3000/api.git",
        "https://127.9.9.9/api.git",
        "https://0.0.0.0/api.git",
        "https://169.254.169.254/latest/api.git",
        "https://[::1]/api.git",
        "https://[::]/api.git",
        "https://[fe80::1]/api.git",
        "https://[::ffff:127.0.0.1]/api.git",
        "https://[::ffff:169.254.169.254]/api.git",
        "https://[::127.0.0.1]/api.git",
        "https://[64:ff9b::a9fe:a9fe]/api.git",
        "ssh://git@127.0.0.1/api.git",
        "git@localhost:api.git",
    ] {
        assert!(url(text).is_local(), "{text}");
    }
}

#[test]
fn urls_that_are_refused() {
    for text in [
        "",
        "-uupload-pack=touch /tmp/x",
        "--upload-pack=x",
        "ext::sh -c touch% /tmp/x",
        "ext::https://x/y",
        "https::https://git.example.com/api.git",
        "/srv/git/api.git",
        "../api.git",
        "git://git.example.com/api.git",
        "ftp://git.example.com/api.git",
        "HTTPS://git.example.com/api.git",
        "https://git.example.com",
        "https://git.example.com/",
        "https:///api.git",
        "https://user:hunter2@git.example.com/api.git",
        "https://hunter2@git.example.com/api.git",
        "ssh://git:hunter2@git.example.com/api.git",
        "ssh://-oProxyCommand=x/api.git",
        "ssh://-oProxyCommand=x@git.example.com/api.git",
        "ssh://git@-oProxyCommand=x/api.git",
        "-oProxyCommand=x@git.example.com:api.git",
        "git@-oProxyCommand=x:api.git",
        "ssh://a@b@git.example.com/api.git",
        "https://git.example.com:port/api.git",
        "https://git.example.com:99999/api.git",
        "https://git.example.com:+1/api.git",
        "https://127.1/api.git",
        "https://2130706433/api.git",
        "https://0x7f000001/api.git",
        "https://0x7f.0.0.1/api.git",
        "https://0177.0.0.1/api.git",
        "https://[fe80::1%25eth0]/api.git",
        "https://[2001:db8::1]x/api.git",
        "https://[2001:db8::1]]/api.git",
        "https://[2001:db8::1/api.git",
        "https://git.example.com/api.git?x=1",
        "https://git.example.com/api.git#x",
        "https://git.example.com/../api.git",
        "https://git.example.com/shop/%2e%2E/prod/api.git",
        "https://git.example.com/shop/..%2Fprod/api.git",
        "https://git.example.com/shop%2f.%2e%2fprod/api.git",
        "https://git.example.com/shop/..;/prod/api.git",
        "https://git.example.com/shop/..%3B/prod/api.git",
        "https://git.example.com/shop/..%5cprod/api.git",
        "https://git.example.com/shop/%252e%252e/prod/api.git",
        "https://git example.com/api.git",
        "https://git.example.com/a\npi.git",
        "https://git.exämple.com/api.git",
        "https://git..example.com/api.git",
        "file://host/srv/api.git",
    ] {
        let why = text.parse::<GitUrl>().expect_err(text);
        assert!(!why.to_string().contains("hunter2"), "{why}");
    }
    assert!(format!("https://git.example.com/{}", "x".repeat(2048)).parse::<GitUrl>().is_err());
}

#[test]
fn branches_are_what_git_takes() {
    for text in ["main", "feature/login", "v1.2", "a-b_c", "ünïcode", "release/2026.01", "@x", "x@y"] {
        assert!(text.parse::<Branch>().is_ok(), "{text}");
    }
    for text in [
        "",
        "-x",
        "--all",
        "a..b",
        ".a",
        "a/.b",
        "a.",
        "a.lock",
        "a.lock/b",
        "/a",
        "a/",
        "a//b",
        "a b",
        "a~1",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a\\b",
        "a@{1}",
        "@",
        "HEAD",
        "refs/heads/main",
        "a\u{7f}",
        "a\tb",
    ] {
        assert!(text.parse::<Branch>().is_err(), "{text}");
    }
    assert!("x".repeat(256).parse::<Branch>().is_err());
}

#[test]
fn paths_stay_within_the_repository() {
    for (text, read) in [
        ("Dockerfile", "Dockerfile"),
        ("./Dockerfile", "Dockerfile"),
        ("docker/api/Dockerfile.prod", "docker/api/Dockerfile.prod"),
        (".", "."),
        ("./", "."),
        ("services/api/", "services/api"),
        ("..x/y", "..x/y"),
    ] {
        assert_eq!(text.parse::<RelativePath>().unwrap().as_str(), read, "{text}");
    }
    for text in [
        "",
        "/etc/passwd",
        "..",
        "../x",
        "a/../../b",
        "a/..",
        "a//b",
        "-f",
        "~/x",
        "a\\b",
        "a\nb",
        ".git",
        "x/.GIT/hooks",
    ] {
        assert!(text.parse::<RelativePath>().is_err(), "{text}");
    }
}

#[test]
fn image_repositories_are_without_tag_and_digest() {
    assert!("registry.example.com:5000/shop/api".parse::<ImageRepository>().is_ok());
    for text in ["", "registry.example.com/shop/api:v1", "shop/Api", "-x", "a b"] {
        assert!(text.parse::<ImageRepository>().is_err(), "{text}");
    }
}

#[test]
fn error_does_not_repeat_an_invalid_credentials_name() {
    assert!("forge-readonly".parse::<CredentialsName>().is_ok());
    for text in ["", "a/b", "..", "Hunter2!", "-a", "user:hunter2"] {
        let why = text.parse::<CredentialsName>().unwrap_err().to_string();
        assert!(!why.to_lowercase().contains("hunter2"), "{why}");
    }
}

#[test]
fn every_part_is_in_the_fingerprint() {
    let source = |change: fn(&mut GitSource)| {
        let mut source = GitSource {
            url: "https://git.example.com/shop/api.git".parse().unwrap(),
            branch: "main".parse().unwrap(),
            dockerfile: "Dockerfile".parse().unwrap(),
            context: ".".parse().unwrap(),
            image_repository: "registry.example.com/shop/api".parse().unwrap(),
            credentials: None,
        };
        change(&mut source);
        source.fingerprint()
    };
    let same = source(|_| {});
    assert_eq!(same, source(|_| {}));
    let changes: [fn(&mut GitSource); 6] = [
        |source| source.url = "https://git.example.com/shop/web.git".parse().unwrap(),
        |source| source.branch = "next".parse().unwrap(),
        |source| source.dockerfile = "Dockerfile.prod".parse().unwrap(),
        |source| source.context = "api".parse().unwrap(),
        |source| source.image_repository = "registry.example.com/shop/web".parse().unwrap(),
        |source| source.credentials = Some("ci".parse().unwrap()),
    ];
    for change in changes {
        assert_ne!(same, source(change));
    }
}
