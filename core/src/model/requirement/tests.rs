use super::*;

/// A key of P-256.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbfwR+RJudXscgRBRpKX1XFDy3Pyu
dDxzgrfFmbjKjK1bCHhAO3T5aDFbJUqE4sX5Iv6uMX8q6lTyzMRwV9JDLA==
-----END PUBLIC KEY-----
";
const WORKFLOW: &str = "https://github.com/shop/api/.github/workflows/release.yml@refs/tags/v1.2";

fn identity() -> Signer {
    format!("issuer=https://token.actions.githubusercontent.com,subject={WORKFLOW}").parse().unwrap()
}

#[test]
fn signer_is_a_key_or_an_identity() {
    let key: Signer = format!("key={KEY}").parse().unwrap();
    let Signer::Key(public) = &key else { panic!("{key:?}") };
    assert_eq!(public.as_pem(), KEY);
    assert_eq!(key.to_string(), format!("key={}", public.fingerprint()));
    let identity = identity();
    let Signer::Identity { issuer, subject } = &identity else { panic!("{identity:?}") };
    assert_eq!((issuer.as_str(), subject.as_str()), ("https://token.actions.githubusercontent.com", WORKFLOW));
    for signer in [key, identity] {
        let text = serde_json::to_string(&signer).unwrap();
        assert_eq!(serde_json::from_str::<Signer>(&text).unwrap(), signer, "{text}");
    }
    for text in [
        "",
        "key=",
        "key=sha256:abc",
        "issuer=https://a.example",
        "subject=a",
        "issuer=,subject=a",
        "issuer=a,subject=b c",
        "issuer=a,issuer=b,subject=c",
        "issuer=a,subject=b,builder=c",
        "me@example.com",
        "me,issuer=a,subject=b",
        &format!("key={KEY},issuer=a,subject=b"),
        &format!("issuer={},subject=b", "x".repeat(TEXT_MAX + 1)),
    ] {
        assert!(text.parse::<Signer>().is_err(), "{text}");
    }
}

#[test]
fn key_is_public_and_whole() {
    assert_eq!(KEY.replace('\n', "\r\n").parse::<PublicKey>().unwrap().as_pem(), KEY);
    let private = KEY.replace("PUBLIC", "PRIVATE").parse::<PublicKey>().unwrap_err();
    assert!(!private.to_string().contains("MFkw"), "{private}");
    for text in [
        KEY.replace("MFkw", "MFgw"),
        KEY.replace("DLA==", ""),
        KEY.replace("MFkw", "ä"),
        KEY.replace("PUBLIC KEY", "CERTIFICATE"),
        format!("{KEY}{KEY}"),
        "x".repeat(5_000),
    ] {
        assert!(text.parse::<PublicKey>().is_err(), "{text}");
    }
}

#[test]
fn pattern_ends_where_a_part_of_a_url_does() {
    let pattern = |text: &str| text.parse::<TextPattern>();
    let tags = pattern("https://github.com/shop/api/.github/workflows/release.yml@refs/tags/*").unwrap();
    assert!(tags.matches(WORKFLOW));
    for other in [
        "https://github.com/shop/api/.github/workflows/release.yml@refs/tags/",
        "https://github.com/shop/api/.github/workflows/release.yml@refs/heads/main",
        "https://evil.example/https://github.com/shop/api/.github/workflows/release.yml@refs/tags/v1",
    ] {
        assert!(!tags.matches(other), "{other}");
    }
    assert!(pattern("a@example.com").unwrap().matches("a@example.com"));
    assert!(!pattern("a@example.com").unwrap().matches("aa@example.com"));
    for text in ["*", "https://*", "https://github.com/*", "https://github.com/shop*", "*@example.com", "a*b", "a/*/*"]
    {
        assert!(pattern(text).is_err(), "{text}");
    }
}

#[test]
fn attestation_has_its_builder_and_its_own_signer() {
    for text in [
        "slsa-provenance builder=https://b.example/x@refs/tags/*",
        "slsa-provenance,builder=https://b.example/x@refs/tags/*",
    ] {
        let read: Attestation = text.parse().unwrap();
        assert_eq!(read.to_string(), "slsa-provenance,builder=https://b.example/x@refs/tags/*");
        assert_eq!(read.signer, None);
    }
    let own: Attestation = "slsa-provenance issuer=https://a.example,subject=b".parse().unwrap();
    assert_eq!(own.signer.as_ref().unwrap().to_string(), "issuer=https://a.example,subject=b");
    let keyed: Attestation = format!("slsa-provenance,builder=b,key={KEY}").parse().unwrap();
    let text = serde_json::to_string(&keyed).unwrap();
    assert_eq!(serde_json::from_str::<Attestation>(&text).unwrap(), keyed);
    for text in ["", "spdx", "slsa-provenance builder=", "slsa-provenance,subject=a", "slsa-provenance x", "builder=a"]
    {
        assert!(text.parse::<Attestation>().is_err(), "{text}");
    }
}

#[test]
fn requirement_demands_something_and_names_who_signs_it() {
    let attestation: Attestation = "slsa-provenance,builder=b".parse().unwrap();
    let own: Attestation = "slsa-provenance,issuer=a,subject=b".parse().unwrap();
    assert!(Requirement::new(Vec::new(), None).is_err());
    assert!(Requirement::new(Vec::new(), Some(attestation.clone())).is_err(), "anybody could write it");
    assert!(Requirement::new(vec![identity(); SIGNERS_MAX + 1], None).is_err());
    let both = Requirement::new(vec![identity()], Some(attestation)).unwrap();
    assert_eq!(both.attesters(), both.signers());
    assert_eq!(both.to_string(), format!("signed by {}, attested as slsa-provenance,builder=b", identity()));
    let alone = Requirement::new(Vec::new(), Some(own)).unwrap();
    assert_eq!((alone.attesters().len(), alone.signers().len()), (1, 0));
    assert!(Requirement::new(vec![identity()], None).unwrap().attesters().is_empty());
    let text = serde_json::to_string(&both).unwrap();
    assert_eq!(serde_json::from_str::<Requirement>(&text).unwrap(), both);
    assert!(serde_json::from_str::<Requirement>("{}").is_err());
}
