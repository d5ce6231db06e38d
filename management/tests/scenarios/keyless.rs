//! Pipelines that prove themselves by id_tokens: one token is one call, and a refused call is explained to those who may
//! know of it.

use std::{net::IpAddr, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rollhook_core::{
    action::Action as AppAction,
    app::{AppId, Policy},
    deploy::Trigger,
    ports::Clock,
    request::{DeployRequest, IdempotencyKey, KeyHeader},
    text::hash_of,
    token::{Credentials, NotAToken, Token},
};
use rollhook_management::{
    Caller, Management, Ports, Refusal,
    keyless::{APP_TOKENS_MAX, BoundCall, IdToken, Presented, TooWide, Trust},
    ports::{IdentityVerifier, NewRecord, RecordKey, RecordKind},
};
use serde_json::json;

use crate::world::{self, ManagedWorld, Signed, actions::register, image};

const ISSUER: &str = "https://token.example.com";
const AUDIENCE: &str = "https://deploy.example.com";

/// The management plane of a replica that verifies id_tokens.
fn verifying(world: &ManagedWorld) -> Arc<Management> {
    let identities = Some(Arc::new(Signed) as Arc<dyn IdentityVerifier>);
    world.managed(world.replica("two", 9), Ports::new(world.records()).with(|ports| ports.identities = identities))
}

/// An id_token of this repository and with this id, which is valid for an hour.
fn id_token(repository: &str, id: &str) -> IdToken {
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "iss": ISSUER, "aud": AUDIENCE, "jti": id, "repository_id": repository, "repository": "shop/api",
        "iat": 1_700_000_000, "exp": 1_700_003_600,
    });
    format!("{}.{}.AAAA", part(&json!({ "alg": "RS256", "kid": "1" })), part(&claims)).parse().unwrap()
}

fn by_identity(token: IdToken) -> Presented {
    Presented { identity: Some(Ok(token)), ..Presented::default() }
}

fn secret(token: &Token) -> Presented {
    Credentials::token(token.expose().as_bytes()).into()
}

/// Registers `shop-test/api`, which trusts the repository 7.
async fn trusting(world: &ManagedWorld, management: &Management) -> AppId {
    let id = register(world, "shop", "test").await;
    let claims = [("repository_id".to_owned(), "7".to_owned())].into_iter().collect();
    let trust = Trust::new(ISSUER.parse().unwrap(), AUDIENCE, claims).unwrap();
    management.add_trust(&world.operator, &id, trust).await.unwrap();
    id
}

fn key(text: &str, request: [u8; 32]) -> Option<IdempotencyKey> {
    IdempotencyKey::new(KeyHeader::IdempotencyKey, text, request).ok()
}

#[test]
fn id_token_is_bound_to_one_call_which_may_be_repeated() {
    let world = ManagedWorld::new(Duration::ZERO);
    let management = verifying(&world);
    world.run_managed(&management, async {
        let id = trusting(&world, &management).await;
        let authorize =
            async |id_token: IdToken, body: &[u8]| management.authorize(&id, &by_identity(id_token), body).await;
        assert_eq!(authorize(id_token("8", "a"), b"{}").await.unwrap_err(), Refusal::UNAUTHORIZED);
        let proof = authorize(id_token("7", "a"), b"{}").await.unwrap();
        assert!(!proof.reading().allows(AppAction::Deploy), "before it is bound");
        let bound = async || management.bound(&proof, None).await.unwrap().map(|(_, key)| key);
        assert_eq!(bound().await, None);
        assert!(world.records().list(RecordKind::IdToken, None, 1).await.unwrap().is_empty(), "nothing is written");
        let BoundCall { access, key: own, is_newly_bound } = management.bind(&proof, None).await.unwrap();
        assert_eq!(is_newly_bound, Some(true));
        assert_eq!(bound().await, own);
        for action in AppAction::ALL.iter().copied() {
            let is_allowed = matches!(action, AppAction::Read | AppAction::Deploy);
            assert_eq!(access.allows(action), is_allowed, "{action}: a pipeline may what its token may");
        }
        assert!(own.is_some(), "such a call always has a key");
        let again = management.bind(&proof, None).await.unwrap();
        assert_eq!((again.key, again.is_newly_bound), (own.clone(), Some(false)));
        let request = DeployRequest::image(image("registry.example.com/api:v2")).with(|request| request.key = own);
        let accepted = management.deployer().submit(&access, request.clone()).await.unwrap();
        assert_eq!(accepted.deploy.trigger, Trigger::Webhook);
        assert!(accepted.deploy.actor.to_string().contains("shop/api"), "{}", accepted.deploy.actor);
        assert!(management.deployer().submit(&access, request).await.unwrap().replayed);

        let other_body = authorize(id_token("7", "a"), b"{ }").await.unwrap();
        assert_eq!(management.bind(&other_body, None).await.unwrap_err(), Refusal::UNAUTHORIZED);
        assert_eq!(management.bound(&other_body, None).await.unwrap_err(), Refusal::UNAUTHORIZED);
        let other_key = management.bind(&proof, key("other", [1; 32])).await;
        assert_eq!(other_key.unwrap_err(), Refusal::UNAUTHORIZED);
        let next = authorize(id_token("7", "b"), b"{ }").await.unwrap();
        assert_eq!(management.bind(&next, key("other", [1; 32])).await.unwrap().key, key("other", [1; 32]));
    });
}

#[test]
fn used_id_tokens_of_an_app_are_bounded_and_a_call_may_still_be_repeated() {
    let world = ManagedWorld::new(Duration::ZERO);
    let management = verifying(&world);
    world.run_managed(&management, async {
        let id = trusting(&world, &management).await;
        let proof = async |number: u32| {
            let id_token = id_token("7", &number.to_string());
            management.authorize(&id, &by_identity(id_token), b"{}").await.unwrap()
        };
        let first = proof(0).await;
        for number in 0..APP_TOKENS_MAX / 2 {
            let bound = management.bind(&proof(number).await, None).await.unwrap();
            assert_eq!(bound.is_newly_bound, Some(true));
        }
        let beyond = proof(APP_TOKENS_MAX).await;
        let refused = Refusal::TooManyIdTokens(APP_TOKENS_MAX, "app");
        assert_eq!(management.bind(&beyond, None).await.unwrap_err(), refused);
        assert_eq!(management.bind(&first, None).await.unwrap().is_newly_bound, Some(false));
        world.clock.sleep(Duration::from_secs(70)).await;
        assert_eq!(management.bind(&beyond, None).await.unwrap().is_newly_bound, Some(true));
    });
}

#[test]
fn each_credential_that_is_presented_must_be_valid() {
    let world = ManagedWorld::new(Duration::ZERO);
    let management = verifying(&world);
    world.run_managed(&management, async {
        let id = trusting(&world, &management).await;
        let access = world.access(&id).await;
        let good = management.deployer().enable_webhook(&access).await.unwrap().token;
        let presented = |token: &Token, identity| Presented { identity: Some(identity), ..secret(token) };
        for (presented, is_valid) in [
            (secret(&good), true),
            (presented(&good, Ok(id_token("7", "a"))), true),
            (presented(&good, Ok(id_token("8", "a"))), false),
            (presented(&good, Err(NotAToken)), false),
            (presented(&world.deployer.new_token(), Ok(id_token("7", "a"))), false),
            (Presented::default(), false),
        ] {
            let answer = management.authorize(&id, &presented, b"{}").await;
            assert_eq!(answer.is_ok(), is_valid, "{presented:?}");
            assert_eq!(management.recognizes(&id, &presented, b"{}"), is_valid, "{presented:?}");
            let is_unauthorized = answer.err().is_none_or(|refusal| refusal == Refusal::UNAUTHORIZED);
            assert!(is_unauthorized, "the same for every fault");
        }
    });
}

#[test]
fn refused_call_is_explained_by_its_first_fault_to_those_who_may_read_calls() {
    let world = ManagedWorld::new(Duration::ZERO);
    let management = verifying(&world);
    world.run_managed(&management, async {
        let id = trusting(&world, &management).await;
        let access = world.access(&id).await;
        let deployer = management.deployer();
        let replaced = deployer.enable_webhook(&access).await.unwrap().token;
        let good = deployer.rotate_webhook(&access, Duration::from_secs(60)).await.unwrap().token;
        world.sleep(61).await;
        management.authorize(&id, &secret(&good), b"{}").await.unwrap();
        let (unknown, trusted, other) =
            (world.deployer.new_token(), || Some(Ok(id_token("7", "a"))), || Some(Ok(id_token("8", "a"))));
        let presented = |token: &Token, identity| Presented { identity, ..secret(token) };
        for (number, (presented, reason)) in [
            (Presented::default(), "no-credentials"),
            (presented(&unknown, None), "wrong-token"),
            (presented(&replaced, None), "replaced-token"),
            (Presented { identity: other(), ..Presented::default() }, "wrong-id-token"),
            (Presented { identity: Some(Err(NotAToken)), ..Presented::default() }, "unreadable-header"),
            (presented(&good, other()), "wrong-id-token"),
            (presented(&good, Some(Err(NotAToken))), "unreadable-header"),
            (presented(&unknown, trusted()), "wrong-token"),
            (presented(&replaced, trusted()), "replaced-token"),
        ]
        .into_iter()
        .enumerate()
        {
            assert_eq!(management.authorize(&id, &presented, b"{}").await.unwrap_err(), Refusal::UNAUTHORIZED);
            let source = IpAddr::from([10, 0, 0, u8::try_from(number).unwrap()]);
            let caller = Caller { at: world.now(), source, credentials: &presented };
            management.note_refused_call(&id, &caller, b"{}");
            let calls = management.webhook_calls(&world.operator, &id).await.unwrap();
            let call = calls.iter().find(|call| call.source == source).unwrap();
            assert_eq!(call.answer.reason.map(|(word, _)| word), Some(reason), "{number}: {:?}", call.credentials);
        }
    });
}

#[test]
fn trust_of_an_earlier_version_goes_on_and_is_shown_as_too_wide() {
    let world = ManagedWorld::new(Duration::ZERO);
    let management = verifying(&world);
    world.run_managed(&management, async {
        let id = register(&world, "shop", "test").await;
        let app = management.deployer().find_app(&id).await.unwrap().unwrap().app;
        let claims = json!({ "repository_id": "7", "ref": "refs/heads/main" });
        let trusts = json!([{ "issuer": ISSUER, "audience": AUDIENCE, "claims": claims }]);
        let document = json!({ "app": app.uid, "trusts": trusts }).to_string();
        let key = RecordKey::of_hash(hash_of([&*id.to_string()]));
        world.records().write(RecordKind::Trusts, NewRecord { key, document, ttl: None }, None).await.unwrap();
        let known = management.trusts(&world.operator, &id).await.unwrap();
        assert_eq!(known[0].too_wide(), Some(TooWide::AnyEvent));
        let refused = Trust::new(ISSUER.parse().unwrap(), AUDIENCE, known[0].claims().clone());
        assert!(refused.is_err(), "it would not be added now");
    });
}

#[test]
fn trust_ends_with_the_webhook_and_with_the_app() {
    let world = ManagedWorld::new(Duration::ZERO);
    let management = verifying(&world);
    world.run_managed(&management, async {
        let id = trusting(&world, &management).await;
        let call = by_identity(id_token("7", "a"));
        assert!(management.authorize(&id, &call, b"{}").await.is_ok());
        management.disable_webhook(&world.operator, &id).await.unwrap();
        assert_eq!(management.authorize(&id, &call, b"{}").await.unwrap_err(), Refusal::UNAUTHORIZED);
        assert_eq!(management.trusts(&world.operator, &id).await.unwrap(), []);
        management.delete(&world.operator, &id).await.unwrap();

        let wanted = world::registration("api", Policy::default()).with(|app| app.take_over = true);
        management.register(&world.operator, wanted, None).await.unwrap();
        assert_eq!(management.authorize(&id, &call, b"{}").await.unwrap_err(), Refusal::UNAUTHORIZED);
    });
}
