//! Signatures that real cosign makes, at real registries, in the ways that its documentation names; without internet.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod promises;
mod world;

use rollhook_core::{
    error::Error,
    ports::{ImageVerifier, Verified},
    requirement::Requirement,
};
use rollhook_testing::{
    fixtures::{
        RegistryProgram,
        scripted::{Answer, Server, digest},
    },
    test_name,
};
use serde_json::json;
use world::{BUILDER, BUNDLE, IDENTITY, World, environment, verifier};

#[tokio::test]
async fn keys_sign_in_the_forms_of_both_versions() {
    for program in [RegistryProgram::Distribution, RegistryProgram::GoContainerregistry] {
        let Some(world) = World::start(&test_name!(), program) else { return };
        for way in ["key-3", "key-2", "refer-key-2"] {
            if !world.knows(&test_name!(), way) {
                continue;
            }
            let image = world.image(&format!("shop/{way}"));
            assert_eq!(world.verify(&image, &world.signed_by_key("cosign.pub")).await, not_signed(&[]));
            world.sign(way, &image, &[]);
            let Verified::Signed { by } = world.verify(&image, &world.signed_by_key("cosign.pub")).await else {
                panic!("{way} at {program:?} is not found")
            };
            assert!(by.len() == 1 && by[0].starts_with("signature by key=sha256:"), "{by:?}");
            let other = not_signed(&["a signature by another key, or one that does not hold"]);
            assert_eq!(world.verify(&image, &world.signed_by_key("other.pub")).await, other, "{way}");
            // Behind another one that does not count.
            world.sign(way, &image, &[("KEY", "other.key")]);
            assert!(matches!(world.verify(&image, &world.signed_by_key("other.pub")).await, Verified::Signed { .. }));
            assert!(matches!(world.verify(&image, &world.signed_by_key("cosign.pub")).await, Verified::Signed { .. }));
        }
    }
}

#[tokio::test]
async fn identities_sign_with_certificates_of_minutes() {
    let Some(world) = World::start(&test_name!(), RegistryProgram::Distribution) else { return };
    for (way, root) in [("times-3", "root-times.json"), ("log-3", "root-log.json"), ("log-2", "root-log.json")] {
        if !world.knows(&test_name!(), way) {
            continue;
        }
        let image = world.image(&format!("shop/{way}"));
        world.sign(way, &image, &[]);
        let signed = Verified::Signed { by: vec![format!("signature by {IDENTITY}")] };
        assert_eq!(world.verify_with(root, &image, &requirement(IDENTITY, None)).await, signed, "{way}");
        let other = requirement("issuer=https://issuer.test,subject=https://git.test/other/*", None);
        let found = not_signed(&[&format!("a signature by {IDENTITY}")]);
        assert_eq!(world.verify_with(root, &image, &other).await, found, "{way}");
        // Those who vouch for it are strangers to another trust root.
        let Verified::NotSigned { found } =
            verifier(None).verify(&environment(), &image, &requirement(IDENTITY, None)).await.unwrap()
        else {
            panic!("{way}: the public instance vouches for a test")
        };
        assert!(found.len() == 1 && found[0].contains("does not hold"), "{found:?}");
    }
}

#[tokio::test]
async fn attestations_name_their_builder() {
    let Some(world) = World::start(&test_name!(), RegistryProgram::Distribution) else { return };
    let attested = format!("slsa-provenance,builder={BUILDER}");
    for (way, signer, root) in [
        ("attest-key-3", world.key("cosign.pub"), "root-times.json"),
        ("attest-times-3", IDENTITY.to_owned(), "root-times.json"),
        ("attest-key-2", world.key("cosign.pub"), "root-times.json"),
        ("attest-log-2", IDENTITY.to_owned(), "root-log.json"),
    ] {
        if !world.knows(&test_name!(), way) {
            continue;
        }
        let image = world.image(&format!("shop/{way}"));
        world.sign(way, &image, &[("TYPE", "vuln")]);
        let required = requirement(&signer, Some(&attested));
        let Verified::NotSigned { found } = world.verify_with(root, &image, &required).await else { panic!("{way}") };
        assert!(found.is_empty(), "{way}: another kind of statement: {found:?}");
        world.sign(way, &image, &[]);
        let Verified::NotSigned { .. } = world.verify_with(root, &image, &required).await else {
            panic!("{way}: an attestation is no signature")
        };
        let alone = format!("{attested},{signer}");
        let alone = Requirement::new(Vec::new(), Some(alone.parse().unwrap())).unwrap();
        let Verified::Signed { by } = world.verify_with(root, &image, &alone).await else { panic!("{way}") };
        assert!(by[0].ends_with(&format!(", built by {BUILDER}")), "{by:?}");
        let key_way = if way.ends_with('2') { "key-2" } else { "key-3" };
        if signer != IDENTITY {
            world.sign(key_way, &image, &[]);
            let Verified::Signed { by } = world.verify_with(root, &image, &required).await else { panic!("{way}") };
            assert_eq!(by.len(), 2, "{by:?}");
        }
    }
}

#[tokio::test]
async fn signature_of_another_image_counts_for_nothing() {
    let Some(world) = World::start(&test_name!(), RegistryProgram::Distribution) else { return };
    for way in ["key-3", "key-2"] {
        if !world.knows(&test_name!(), way) {
            continue;
        }
        let (signed, other) = (world.image(&format!("shop/{way}")), world.other_image(&format!("shop/{way}")));
        world.sign(way, &signed, &[]);
        world.copy_signatures(&signed, &other);
        let found = world.verify(&other, &world.signed_by_key("cosign.pub")).await;
        assert_eq!(found, not_signed(&["a signature of another image"]), "{way}");
    }
}

#[tokio::test]
async fn registry_that_is_away_makes_no_verdict() {
    let address = rollhook_testing::free_address();
    let image = format!("{address}/shop/api@sha256:{:064x}", 7).parse().unwrap();
    let answer = verifier(None).verify(&environment(), &image, &requirement(IDENTITY, None)).await;
    assert!(matches!(answer, Err(Error::Unavailable { .. })), "{answer:?}");
    let tagged = format!("{address}/shop/api:v1").parse().unwrap();
    let answer = verifier(None).verify(&environment(), &tagged, &requirement(IDENTITY, None)).await;
    assert!(matches!(answer, Err(Error::Invalid { .. })), "{answer:?}");
}

/// Those who may push can pile up what looks like signatures: so much is read of it, and no more.
#[tokio::test]
async fn very_many_signatures_are_not_all_read() {
    const LISTED: usize = 1_000;
    let layer = json!({"mediaType": BUNDLE, "digest": digest(b"{}"), "size": 2});
    let manifest = json!({"schemaVersion": 2, "layers": [layer]}).to_string();
    let own = digest(manifest.as_bytes());
    let server = Server::answering(move |asked| {
        let part = json!({"mediaType": "m", "artifactType": BUNDLE, "digest": own, "size": 1});
        let index = json!({"schemaVersion": 2, "manifests": vec![part; LISTED]});
        match asked.path.as_str() {
            path if path.contains("/referrers/") => {
                let media_type = "application/vnd.oci.image.index.v1+json";
                Answer::status(200).header("content-type", media_type).body(index.to_string())
            }
            path if path.contains("/blobs/") => Answer::status(200).body("{}"),
            path if path.ends_with(&own) => Answer::status(200).body(manifest.clone()),
            _ => Answer::status(404).body(r#"{"errors": [{"code": "MANIFEST_UNKNOWN"}]}"#),
        }
    });
    let image = format!("{}/shop/api@sha256:{:064x}", server.address, 7).parse().unwrap();
    let answer = verifier(None).verify(&environment(), &image, &requirement(IDENTITY, None)).await.unwrap();
    let Verified::NotSigned { found } = answer else { panic!("{answer:?}") };
    assert!(found.iter().any(|line| line.contains("more than 64 signatures")), "{found:?}");
    assert!(server.lines().len() < 150, "{}", server.lines().len());
}

fn requirement(signer: &str, attestation: Option<&str>) -> Requirement {
    let attestation = attestation.map(|words| words.parse().unwrap());
    Requirement::new(vec![signer.parse().unwrap()], attestation).unwrap()
}

fn not_signed(found: &[&str]) -> Verified {
    Verified::NotSigned { found: found.iter().map(|line| (*line).to_owned()).collect() }
}
