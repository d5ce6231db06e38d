use base64::{Engine as _, prelude::BASE64_STANDARD};
use serde_json::{Value, json};

use super::*;
use crate::recorded::{IDENTITY, ROOT_LOG, ROOT_TIMES, Recorded, attested, identity, key, other_key, signed_by};

fn meets(verdict: &Verdict) -> &str {
    match verdict {
        Verdict::Meets(by) => by,
        Verdict::Fails(_) | Verdict::Other => panic!("{verdict:?}"),
    }
}

fn fails(verdict: &Verdict, why: &str) {
    assert!(matches!(verdict, Verdict::Fails(line) if line.contains(why)), "{verdict:?} is not because of {why}");
}

fn digest(number: u8) -> Digest {
    format!("sha256:{number:064x}").parse().unwrap()
}

/// Returns a trust root with one of its lists emptied.
fn without(root: &str, list: &str) -> String {
    let mut root: Value = serde_json::from_str(root).unwrap();
    root[list] = json!([]);
    root.to_string()
}

#[test]
fn key_signs() {
    for recorded in [Recorded::key_3(), Recorded::key_2()] {
        assert_eq!(meets(&recorded.verdict(&signed_by(&[key()]), ROOT_TIMES)), format!("signature by {}", key()));
        meets(&recorded.verdict(&signed_by(&[identity(), other_key(), key()]), ROOT_TIMES));
        fails(&recorded.verdict(&signed_by(&[other_key()]), ROOT_TIMES), "by another key");
        fails(&recorded.verdict(&signed_by(&[identity()]), ROOT_TIMES), "by another key");
        fails(&recorded.verdict_for(&digest(7), &signed_by(&[key()]), ROOT_TIMES), "of another image");
        let attested = attested("slsa-provenance", key());
        assert_eq!(recorded.verdict(&attested, ROOT_TIMES), Verdict::Other);
    }
}

#[test]
fn identity_signs_at_a_time_that_is_proven() {
    let all = [(Recorded::times_3(), ROOT_TIMES), (Recorded::log_3(), ROOT_LOG), (Recorded::log_2(), ROOT_LOG)];
    for (recorded, root) in all {
        assert_eq!(meets(&recorded.verdict(&signed_by(&[identity()]), root)), format!("signature by {IDENTITY}"));
        let below: Signer = "issuer=https://issuer.test,subject=https://git.test/shop/*".parse().unwrap();
        meets(&recorded.verdict(&signed_by(&[below]), root));
        for other in [
            "issuer=https://issuer.test,subject=https://git.test/shop/api/.ci/release.yml@refs/heads/main",
            "issuer=https://other.test,subject=https://git.test/shop/api/.ci/release.yml@refs/tags/v1",
            "issuer=https://issuer.test,subject=https://git.test/other/*",
        ] {
            fails(&recorded.verdict(&signed_by(&[other.parse().unwrap()]), root), IDENTITY);
        }
        fails(&recorded.verdict(&signed_by(&[key()]), root), IDENTITY);
        fails(&recorded.verdict_for(&digest(7), &signed_by(&[identity()]), root), "of another image");
    }
}

/// The certificates of all recorded signatures have ended: what proves the time decides.
#[test]
fn certificate_without_a_proven_time_counts_for_nothing() {
    let required = signed_by(&[identity()]);
    let timeless = Recorded::times_3().changed(|bundle| {
        bundle["verificationMaterial"]["timestampVerificationData"] = Value::Null;
    });
    fails(&timeless.verdict(&required, ROOT_TIMES), "does not hold");
    let of_another = Recorded::times_3().changed(|bundle| {
        let other = Recorded::attest_times_3();
        let other: Value = serde_json::from_str(&other.body).unwrap();
        let times = &other["verificationMaterial"]["timestampVerificationData"];
        bundle["verificationMaterial"]["timestampVerificationData"] = times.clone();
    });
    fails(&of_another.verdict(&required, ROOT_TIMES), "does not hold");
    let promise = "/verificationMaterial/tlogEntries/0/inclusionPromise/signedEntryTimestamp";
    for (path, value) in [
        ("/verificationMaterial/tlogEntries", json!([])),
        ("/verificationMaterial/tlogEntries/0/integratedTime", json!("1700000000")),
        ("/verificationMaterial/tlogEntries/0/inclusionPromise", Value::Null),
        ("/verificationMaterial/tlogEntries/0/inclusionProof", Value::Null),
        (promise, json!("MEUCIQ==")),
    ] {
        let changed = Recorded::log_3().changed(|bundle| *bundle.pointer_mut(path).unwrap() = value);
        fails(&changed.verdict(&required, ROOT_LOG), "does not hold");
    }
}

#[test]
fn trust_root_decides_who_vouches() {
    let required = signed_by(&[identity()]);
    fails(&Recorded::log_3().verdict(&required, ROOT_TIMES), "does not hold");
    fails(&Recorded::times_3().verdict(&required, ROOT_LOG), "does not hold");
    let public = Trust::new(None).unwrap();
    let candidate = Recorded::times_3().read().unwrap();
    let judged = verdict(&candidate, &Recorded::times_3().image, Demand::of(&required)[0], &public);
    fails(&judged, "does not hold");
    for (root, why) in [
        ("", "cannot be read"),
        ("{}", "cannot be read"),
        (&*without(ROOT_TIMES, "certificateAuthorities"), "no certificate authority"),
        (&*without(ROOT_TIMES, "timestampAuthorities"), "neither a log nor a timestamp authority"),
    ] {
        let refused = Trust::new(Some(root)).err().unwrap();
        assert!(refused.contains(why), "{refused}");
    }
}

#[test]
fn attestation_is_of_its_builder_and_no_signature() {
    let builder = "slsa-provenance,builder=https://ci.test/shop/builder@v1";
    let kept = Recorded::attest_key_3();
    let line = meets(&kept.verdict(&attested(builder, key()), ROOT_TIMES)).to_owned();
    assert_eq!(line, format!("attestation by {}, built by https://ci.test/shop/builder@v1", key()));
    meets(&kept.verdict(&attested("slsa-provenance", key()), ROOT_TIMES));
    meets(&kept.verdict(&attested("slsa-provenance,builder=https://ci.test/shop/*", key()), ROOT_TIMES));
    meets(&Recorded::attest_times_3().verdict(&attested(builder, identity()), ROOT_TIMES));
    let other = attested("slsa-provenance,builder=https://ci.test/other/*", key());
    fails(&kept.verdict(&other, ROOT_TIMES), "an attestation of the builder https://ci.test/shop/builder@v1");
    fails(&kept.verdict(&attested(builder, other_key()), ROOT_TIMES), "by another key");
    meets(&Recorded::attest_key_2().verdict(&attested(builder, key()), ROOT_TIMES));
    meets(&Recorded::attest_log_2().verdict(&attested(builder, identity()), ROOT_LOG));
    fails(&Recorded::attest_key_2().verdict(&attested(builder, other_key()), ROOT_TIMES), "by another key");
    assert_eq!(kept.verdict(&signed_by(&[key()]), ROOT_TIMES), Verdict::Other);
    assert_eq!(Recorded::key_3().verdict(&attested(builder, key()), ROOT_TIMES), Verdict::Other);
}

#[test]
fn what_was_changed_later_does_not_hold() {
    let statement = |recorded: &Recorded, change: &dyn Fn(&mut Value)| {
        recorded.changed(|bundle| {
            let payload = &mut bundle["dsseEnvelope"]["payload"];
            let text = BASE64_STANDARD.decode(payload.as_str().unwrap()).unwrap();
            let mut statement = serde_json::from_slice(&text).unwrap();
            change(&mut statement);
            *payload = json!(BASE64_STANDARD.encode(statement.to_string()));
        })
    };
    let other_subject = |it: &mut Value| it["subject"][0]["digest"]["sha256"] = json!(format!("{:064x}", 7));
    let required = signed_by(&[key(), identity()]);
    for (recorded, root, why) in [
        (Recorded::key_3(), ROOT_TIMES, "by another key"),
        (Recorded::times_3(), ROOT_TIMES, "does not hold"),
        (Recorded::log_3(), ROOT_LOG, "does not hold"),
    ] {
        fails(&statement(&recorded, &other_subject).verdict_for(&digest(7), &required, root), why);
    }
    let kept = Recorded::attest_key_3();
    let builder = attested("slsa-provenance,builder=https://evil.test/builder@v1", key());
    let changed = statement(&kept, &|it| {
        it["predicate"]["runDetails"]["builder"]["id"] = json!("https://evil.test/builder@v1");
    });
    fails(&changed.verdict(&builder, ROOT_TIMES), "by another key");
    let unnamed = statement(&kept, &|it| it["predicate"] = json!([]));
    fails(&unnamed.verdict(&builder, ROOT_TIMES), "names no builder");
}

/// A bundle that was changed anywhere either cannot be read, or counts for nothing unless it says the same as before.
#[test]
fn damaged_signatures_are_judged_without_a_panic() {
    for (recorded, root) in [(Recorded::times_3(), ROOT_TIMES), (Recorded::log_3(), ROOT_LOG)] {
        let trust = Trust::new(Some(root)).unwrap();
        let required = signed_by(&[identity()]);
        for at in (0..recorded.body.len()).step_by(11) {
            let mut bytes = recorded.body.clone().into_bytes();
            bytes[at] ^= 1;
            let Ok(body) = String::from_utf8(bytes) else { continue };
            let changed = Recorded { body, ..recorded.clone() };
            let Ok(candidate) = changed.read() else { continue };
            if let Verdict::Meets(by) = verdict(&candidate, &recorded.image, Demand::of(&required)[0], &trust) {
                assert!(by.ends_with(IDENTITY), "{by}");
            }
        }
    }
}

#[test]
fn keys_of_unknown_algorithms_are_refused_when_they_are_named() {
    assert_eq!(crate::trust::check(&signed_by(&[key(), identity()])), Ok(()));
    // A key of the curve secp256k1.
    let other = "key=-----BEGIN PUBLIC KEY-----\nMFYwEAYHKoZIzj0CAQYFK4EEAAoDQgAEeb5mfvncu6xVoGKVzocLBwKb/NstzijZWfKBWxb4F5hIOtp3JqPEZV2k+/wOEQio/Re0SKaFVBmcR9CP+xDUuA==\n-----END PUBLIC KEY-----";
    let refused = crate::trust::check(&signed_by(&[other.parse().unwrap()])).unwrap_err();
    assert!(refused.contains("of an algorithm that is not known"), "{refused}");
}

/// The entry that a log promised for a signature is of that signature, its certificate and its image, and of no other.
#[test]
fn entry_of_a_log_in_an_annotation_is_verified() {
    const ENTRY: &str = "dev.sigstore.cosign/bundle";
    let required = signed_by(&[identity()]);
    let entry: Value = serde_json::from_str(&Recorded::log_2().annotations[ENTRY]).unwrap();
    let with = |change: &dyn Fn(&mut Value)| {
        let (mut recorded, mut entry) = (Recorded::log_2(), entry.clone());
        change(&mut entry);
        recorded.annotations.insert(ENTRY.to_owned(), entry.to_string());
        recorded.verdict(&required, ROOT_LOG)
    };
    meets(&with(&|_| {}));
    fails(&with(&|entry| entry["Payload"]["integratedTime"] = json!(1_700_000_000)), "does not hold");
    fails(&with(&|entry| entry["Payload"]["logIndex"] = json!(7)), "does not hold");
    fails(&with(&|entry| entry["SignedEntryTimestamp"] = json!("MEUCIQ==")), "does not hold");
    let mut none = Recorded::log_2();
    none.annotations.remove(ENTRY);
    fails(&none.verdict(&required, ROOT_LOG), "has no entry in a log");
    let mut keyless = Recorded::log_2();
    keyless.annotations.remove("dev.sigstore.cosign/certificate");
    fails(&keyless.verdict(&required, ROOT_LOG), "by another key");
    let mut other = Recorded::log_2();
    let signature = Recorded::key_2().annotations["dev.cosignproject.cosign/signature"].clone();
    other.annotations.insert("dev.cosignproject.cosign/signature".to_owned(), signature);
    fails(&other.verdict(&required, ROOT_LOG), "does not hold");
    let mut payload = Recorded::log_2();
    payload.body = payload.body.replace(payload.image.as_str(), digest(7).as_str());
    fails(&payload.verdict_for(&digest(7), &required, ROOT_LOG), "does not hold");
}
