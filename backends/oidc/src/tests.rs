//! The verifier against an issuer on this machine.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use futures_util::future::join_all;
use rollhook_core::ports::Clock;
use rollhook_management::{
    keyless::{IdToken, Issuer},
    ports::{IdentityVerifier, SignInProvider},
};
use rollhook_testing::fixtures;
use serde_json::{Value, json};

use crate::{Fetch, OidcSignIn, OidcVerifier, SignInClient, signature};

/// A clock that a test moves.
#[derive(Default)]
struct ManualClock(AtomicU64);

#[async_trait]
impl Clock for ManualClock {
    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    async fn sleep(&self, _: Duration) {}
}

struct World {
    at: fixtures::Issuer,
    issuer: Issuer,
    clock: Arc<ManualClock>,
    verifier: OidcVerifier,
}

impl World {
    fn new() -> Self {
        let (at, clock) = (fixtures::Issuer::start(), Arc::new(ManualClock::default()));
        let verifier = OidcVerifier::new(Fetch::new(true, "--allow-local-issuers"), clock.clone());
        Self { issuer: at.url.parse().unwrap(), at, clock, verifier }
    }

    fn pass(&self, seconds: u64) {
        self.clock.0.fetch_add(seconds, Ordering::Relaxed);
    }

    fn token(&self) -> IdToken {
        self.at.token(&json!({})).parse().unwrap()
    }

    async fn verify(&self, token: &IdToken) -> Result<bool, String> {
        self.verifier.verify(&self.issuer, token).await.map_err(|error| error.chain())
    }
}

#[tokio::test]
async fn a_token_is_verified_by_the_published_key_which_is_read_once() {
    let world = World::new();
    assert!(world.verifier.recognizes(&world.issuer, &world.token()), "worth a call");
    assert_eq!(world.at.calls(), 0, "which recognising does not make");
    for _ in 0..3 {
        assert_eq!(world.verify(&world.token()).await, Ok(true));
    }
    assert_eq!(world.at.calls(), 2, "the description and the keys");
    assert!(world.verifier.recognizes(&world.issuer, &world.token()));
}

#[tokio::test]
async fn a_forged_token_is_refused_and_costs_no_call() {
    let world = World::new();
    assert_eq!(world.verify(&world.token()).await, Ok(true));
    let claims = world.at.claims(&json!({}));
    let forged: IdToken = world.at.forge(&claims).parse().unwrap();
    assert_eq!(world.verify(&forged).await, Ok(false));
    assert!(!world.verifier.recognizes(&world.issuer, &forged));
    let real = world.at.sign(&claims);
    let (head, signature) = real.rsplit_once('.').unwrap();
    let other = world.at.token(&json!({ "repository_id": "75" }));
    let moved: IdToken = format!("{}.{signature}", other.rsplit_once('.').unwrap().0).parse().unwrap();
    assert_eq!(world.verify(&moved).await, Ok(false), "the signature of other claims");
    assert_eq!(world.verify(&format!("{head}.{signature}").parse().unwrap()).await, Ok(true));
    assert_eq!(world.at.calls(), 2);
}

#[tokio::test]
async fn a_key_of_another_type_verifies_nothing() {
    let world = World::new();
    let key = serde_json::from_value(world.at.keys()["keys"][1].clone()).unwrap();
    let (real, text) = (world.token(), world.at.token(&json!({})));
    assert!(signature::fits(&key, &real));
    let rest = text.split_once('.').unwrap().1;
    for alg in ["RS256", "PS256", "RS512", "ES384", "EdDSA"] {
        let header = URL_SAFE_NO_PAD.encode(json!({ "alg": alg, "kid": "key-1" }).to_string());
        let token: IdToken = format!("{header}.{rest}").parse().unwrap();
        assert!(!signature::fits(&key, &token), "{alg}");
        assert_eq!(world.verify(&token).await, Ok(false), "{alg}");
    }
}

#[tokio::test]
async fn a_rotated_key_is_found_at_once_and_the_withdrawn_one_is_refused() {
    let world = World::new();
    let before = world.token();
    assert_eq!(world.verify(&before).await, Ok(true));
    world.pass(61);
    world.at.rotate();
    assert_eq!(world.verify(&world.token()).await, Ok(true));
    assert_eq!(world.verify(&before).await, Ok(false));
}

#[tokio::test]
async fn unknown_key_ids_call_the_issuer_once_a_minute_whoever_sends_them() {
    let world = World::new();
    assert_eq!(world.verify(&world.token()).await, Ok(true));
    world.at.rotate();
    for _ in 0..20 {
        assert_eq!(world.verify(&world.token()).await, Ok(false));
        assert!(!world.verifier.recognizes(&world.issuer, &world.token()));
    }
    assert_eq!(world.at.calls(), 2);
    world.pass(60);
    let tokens: Vec<_> = (0..20).map(|_| world.token()).collect();
    let verified: Vec<_> = tokens.iter().map(|token| world.verify(token)).collect();
    for one in join_all(verified).await {
        assert_eq!(one, Ok(true));
    }
    assert_eq!(world.at.calls(), 4, "they wait for one read");
}

#[tokio::test]
async fn an_issuer_that_is_away_is_an_error_and_known_keys_go_on() {
    let world = World::new();
    world.at.answer_instead(Some("503 Service Unavailable"));
    assert!(world.verify(&world.token()).await.is_err());
    assert!(world.verify(&world.token()).await.is_err());
    assert_eq!(world.at.calls(), 1, "it is left alone for five seconds");
    world.at.answer_instead(None);
    world.pass(5);
    assert_eq!(world.verify(&world.token()).await, Ok(true));
    world.at.answer_instead(Some("503 Service Unavailable"));
    world.pass(3 * 3600);
    assert_eq!(world.verify(&world.token()).await, Ok(true), "an old key, which its issuer may confirm later");
    world.pass(12 * 3600);
    assert!(world.verify(&world.token()).await.is_err());
}

#[tokio::test]
async fn an_issuer_leads_nowhere_else() {
    let world = World::new();
    let elsewhere = fixtures::Issuer::start();
    let redirect = format!("302 Found\r\nLocation: {}/keys", elsewhere.url);
    world.at.answer_instead(Some(&redirect));
    assert!(world.verify(&world.token()).await.unwrap_err().contains("302"));
    world.at.answer_instead(None);
    for description in [
        json!({ "issuer": elsewhere.url, "jwks_uri": format!("{}/keys", world.at.url) }),
        json!({ "issuer": world.at.url, "jwks_uri": "file:///etc/passwd" }),
        json!({ "issuer": world.at.url }),
        json!({ "issuer": world.at.url, "jwks_uri": format!("{}/keys", world.at.url), "long": "x".repeat(300 * 1024) }),
        Value::Null,
    ] {
        world.pass(60);
        world.at.describe_instead(Some(description.clone()));
        assert!(world.verify(&world.token()).await.is_err(), "{description}");
    }
    assert_eq!(elsewhere.calls(), 0);
}

#[tokio::test]
async fn an_issuer_on_this_machine_is_not_called_unless_the_operator_allows_it() {
    let world = World::new();
    let strict = OidcVerifier::new(Fetch::new(false, "--allow-local-issuers"), world.clock.clone());
    assert!(strict.check(&world.issuer).unwrap_err().contains("--allow-local-issuers"));
    assert!(strict.verify(&world.issuer, &world.token()).await.is_err());
    assert_eq!(world.at.calls(), 0);
    assert!(world.verifier.check(&world.issuer).is_ok());
}

/// RFC 7515, appendices A.2 and A.3, and RFC 8037, appendix A.4. Their headers have no `kid`, so that the parts are
/// checked by themselves.
#[test]
fn published_vectors_are_verified() {
    use openidconnect::{
        JsonWebKey,
        core::{CoreJsonWebKey, CoreJwsSigningAlgorithm},
    };
    const CLAIMS: &str =
        "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let rsa = json!({ "kty": "RSA", "e": "AQAB", "n": concat!(
        "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-p",
        "CgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2Cap",
        "Hg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h",
        "4FRWyuXpoQ"
    ) });
    let rsa_signature = concat!(
        "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7",
        "t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi1",
        "2jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGl",
        "UPQGe77Rw"
    );
    let p256 = json!({
        "kty": "EC", "crv": "P-256", "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
        "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"
    });
    let p256_signature = "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
    let ed25519 = json!({ "kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
    let ed25519_signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    for (key, signed, signature, algorithm) in [
        (rsa, format!("eyJhbGciOiJSUzI1NiJ9.{CLAIMS}"), rsa_signature, CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256),
        (p256, format!("eyJhbGciOiJFUzI1NiJ9.{CLAIMS}"), p256_signature, CoreJwsSigningAlgorithm::EcdsaP256Sha256),
        (
            ed25519,
            "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc".to_owned(),
            ed25519_signature,
            CoreJwsSigningAlgorithm::EdDsa,
        ),
    ] {
        let key: CoreJsonWebKey = serde_json::from_value(key).unwrap();
        let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
        let fits = |signed: &str| key.verify_signature(&algorithm, signed.as_bytes(), &signature).is_ok();
        assert!(fits(&signed) && !fits(&signed[1..]), "{algorithm:?}");
    }
}

#[tokio::test]
async fn description_of_very_many_values_begins_no_sign_in() {
    let world = World::new();
    let settings = SignInClient {
        issuer: world.at.url.clone(),
        client_id: "rollhook".to_owned(),
        client_secret: None,
        redirect_url: "https://deploys.example.com/callback".to_owned(),
        scopes: Vec::new(),
        groups_claim: "groups".to_owned(),
        name: "Example".to_owned(),
    };
    for (claims, expected) in [(1_000, true), (5_000, false)] {
        let at = |path: &str| format!("{}/{path}", world.at.url);
        world.at.describe_instead(Some(json!({
            "issuer": world.at.url,
            "authorization_endpoint": at("authorize"),
            "jwks_uri": at("keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "claims_supported": vec!["sub"; claims],
        })));
        let fetch = Fetch::new(true, "--allow-local-issuers");
        let begun = OidcSignIn::new(settings.clone(), fetch, world.clock.clone()).unwrap().begin().await;
        assert_eq!(begun.as_ref().is_ok(), expected, "{claims}");
        if let Err(error) = begun {
            assert!(error.chain().contains("values"), "{}", error.chain());
        }
    }
}
