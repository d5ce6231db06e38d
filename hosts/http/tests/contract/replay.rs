//! Signed calls that somebody observed and sends again, against the real binary.

use std::time::{SystemTime, UNIX_EPOCH};

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use rollhook_testing::{image, server};

#[test]
fn replayed_signed_message_deploys_once_whatever_its_idempotency_key() {
    let server = server!().run();
    let app = server.app("api");
    let webhook = server.manage("GET", &format!("{}/webhook", app.path)).expect(200).json();
    let key = webhook["signing_key"].as_str().unwrap().strip_prefix("whsec_").unwrap();
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let signed = |id: &str| {
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&STANDARD.decode(key).unwrap()).unwrap();
        mac.update(format!("{id}.{at}.{}", image("v2")).as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let call = server.call("POST", &app.hook).json(&image("v2")).header("webhook-id", id);
        call.header("webhook-timestamp", &at.to_string()).header("webhook-signature", &format!("v1,{signature}"))
    };
    let first = signed("msg-1").header("idempotency-key", "first").expect(202);
    assert_eq!(first.json()["revision"], 2);
    for call in [signed("msg-1"), signed("msg-1").header("idempotency-key", "another")] {
        let again = call.header("x-service-token", &app.token).expect(202);
        assert_eq!((again.json()["revision"].as_u64(), again.header("idempotent-replayed")), (Some(2), Some("true")));
    }
    let next = signed("msg-2").header("idempotency-key", "first").expect(202);
    assert_eq!(next.json()["revision"], 3, "another message is another deploy");
}

#[test]
fn replayed_signed_body_deploys_once_whatever_its_idempotency_key() {
    let server = server!().run();
    let app = server.app("api");
    let signed = |tag: &str| server.call("POST", &app.hook).json(&image(tag)).sign(&app.token);
    let first = signed("v2").header("idempotency-key", "first").expect(202);
    assert_eq!(first.json()["revision"], 2);
    for (name, key) in [("idempotency-key", "another"), ("webhook-id", "msg-9"), ("x-github-delivery", "9")] {
        let again = signed("v2").header(name, key).expect(202);
        let (revision, replayed) = (again.json()["revision"].as_u64(), again.header("idempotent-replayed"));
        assert_eq!((revision, replayed), (Some(2), Some("true")), "{name}");
    }
    assert_eq!(signed("v2").expect(202).json()["revision"], 2, "without a key too");
    assert_eq!(signed("v3").header("idempotency-key", "first").expect(202).json()["revision"], 3, "another body");
    // The token cannot be observed with a signature alone: its holder deploys the same body as often as it wants.
    let by_token = |key: &str| server.call("POST", &app.hook).json(&image("v2")).header("idempotency-key", key);
    let by_token = |key: &str| by_token(key).header("x-service-token", &app.token).expect(202).json();
    assert_eq!(by_token("one")["revision"], 4);
    assert_eq!(by_token("two")["revision"], 5);
    assert_eq!(by_token("two")["revision"], 5);
}
