//! Secrets and the doors that each is accepted at: each kind opens one, and what stems from a sign-in ends with it.

mod turns;
mod walk;

use std::time::Duration;

use rollhook_core::ports::Clock as _;
use rollhook_management::{
    Management, Outcome,
    access::{
        Grant, GroupGrant, LOGIN_CODES_MAX, LOGIN_MAX, PERSON_SESSION_MAX, Person, Role, SESSION_MAX, SESSIONS_MAX,
        SignInGrants,
    },
    ports::{NewRecord, RecordKey, RecordKind},
};

use crate::world::{
    ManagedWorld,
    actions::{realm, token},
    is_unauthorized,
};

const INSTANT: Duration = Duration::ZERO;
const HOUR: Duration = Duration::from_secs(3600);
/// The secret of a command line.
const VERIFIER: &str = "verifier";

/// SHA-256 of [`VERIFIER`].
fn challenge() -> RecordKey {
    "88c9eae68eb300b2971a2bec9e5a26ff4179fd661d6b7d861e4c6557b9aaee14".parse().unwrap()
}

fn world() -> ManagedWorld {
    let world = ManagedWorld::new(INSTANT);
    let_people_in(&world.management);
    world
}

fn let_people_in(management: &Management) {
    let grant = Grant { role: Role::Viewer, realm: realm("shop", "test") };
    let grants = [GroupGrant { group: "viewers".to_owned(), grant }].into();
    management.let_people_in(SignInGrants { provider: "login.example.com".to_owned(), grants });
}

fn ada() -> Person {
    Person {
        subject: "1".to_owned(),
        name: "ada@example.com".to_owned(),
        provider: "login.example.com".to_owned(),
        groups: vec!["viewers".to_owned()],
    }
}

/// Lends a session to a command line, and returns its secret.
async fn login(management: &Management, session: &str) -> Outcome<String> {
    let code = management.lend_session(session, &challenge()).await?;
    Ok(management.redeem_code(&code, VERIFIER).await?.0.to_string())
}

async fn count(world: &ManagedWorld, kind: RecordKind) -> usize {
    world.records().list(kind, None, 10_000).await.unwrap().len()
}

#[test]
fn command_lines_secret_is_no_browsers_session_in_any_call() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let browser = management.begin_person_session(ada()).await.unwrap();
        let command_line = login(management, &browser).await.unwrap();
        assert!(is_unauthorized(management.session(&command_line).await));
        assert!(is_unauthorized(management.lend_session(&command_line, &challenge()).await));
        assert!(!management.recognizes_session(&command_line));
        management.keep_session(&command_line).await.unwrap();
        management.end_session(&command_line).await.unwrap();
        management.end_sessions_like(&command_line).await.unwrap();
        assert!(management.authenticate(command_line.as_bytes(), None).await.is_ok(), "it was not touched");
        let sessions = count(&world, RecordKind::Session).await;
        assert!(management.begin_session(command_line.as_bytes(), None).await.is_err());
        assert_eq!(count(&world, RecordKind::Session).await, sessions, "nothing is written for it");
    });
}

#[test]
fn what_a_persons_session_lends_ends_twelve_hours_after_the_sign_in() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let browser = management.begin_person_session(ada()).await.unwrap();
        for _ in 0..11 {
            world.clock.sleep(HOUR).await;
            management.keep_session(&browser).await.unwrap();
        }
        let late = login(management, &browser).await.unwrap();
        let proven = management.authenticate(late.as_bytes(), None).await.unwrap();
        world.clock.sleep(HOUR.saturating_sub(Duration::from_secs(1))).await;
        assert!(management.authenticate(late.as_bytes(), None).await.is_ok());
        world.clock.sleep(Duration::from_secs(1)).await;
        assert!(is_unauthorized(management.authenticate(late.as_bytes(), None).await));
        assert!(is_unauthorized(management.confirm(&proven).await));
        assert!(PERSON_SESSION_MAX >= LOGIN_MAX);
    });
}

#[test]
fn what_a_tokens_session_lends_ends_with_the_longest_time_of_that_session() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let text = management.create_api_token(&world.operator, token("pipeline", Role::Deployer)).await.unwrap().1;
        let browser = management.begin_session(text.expose().as_bytes(), None).await.unwrap().0;
        let hours = SESSION_MAX.as_secs() / 3600;
        for _ in 0..hours - 1 {
            world.clock.sleep(HOUR).await;
            management.keep_session(&browser).await.unwrap();
        }
        let late = login(management, &browser).await.unwrap();
        world.clock.sleep(HOUR).await;
        assert!(is_unauthorized(management.authenticate(late.as_bytes(), None).await));
    });
}

#[test]
fn sign_out_ends_what_the_session_lent_and_its_codes() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let (one, two) = (
            management.begin_person_session(ada()).await.unwrap(),
            management.begin_person_session(ada()).await.unwrap(),
        );
        let (of_one, of_two) = (login(management, &one).await.unwrap(), login(management, &two).await.unwrap());
        let code = management.lend_session(&one, &challenge()).await.unwrap();
        let lasting = management.authenticate(of_one.as_bytes(), None).await.unwrap();
        management.end_session(&one).await.unwrap();
        assert!(is_unauthorized(management.authenticate(of_one.as_bytes(), None).await));
        assert!(is_unauthorized(management.confirm(&lasting).await), "a stream ends too");
        assert!(is_unauthorized(management.redeem_code(&code, VERIFIER).await));
        assert!(is_unauthorized(management.lend_session(&one, &challenge()).await));
        assert!(management.authenticate(of_two.as_bytes(), None).await.is_ok(), "the other browser's goes on");
        assert_eq!((count(&world, RecordKind::Session).await, count(&world, RecordKind::LoginCode).await), (2, 0));
    });
}

#[test]
fn sign_out_everywhere_ends_every_session_and_code_on_every_replica() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let other = world.managed_replica("two", 7);
        let (one, two) = (
            management.begin_person_session(ada()).await.unwrap(),
            management.begin_person_session(ada()).await.unwrap(),
        );
        let of_one = login(management, &one).await.unwrap();
        let code = management.lend_session(&one, &challenge()).await.unwrap();
        other.end_sessions_like(&two).await.unwrap();
        assert!(is_unauthorized(management.redeem_code(&code, VERIFIER).await));
        assert!(is_unauthorized(management.authenticate(of_one.as_bytes(), None).await));
        assert!(is_unauthorized(management.session(&one).await) && is_unauthorized(management.session(&two).await));
        assert_eq!((count(&world, RecordKind::Session).await, count(&world, RecordKind::LoginCode).await), (0, 0));
    });
}

#[test]
fn stream_of_a_tokens_session_ends_with_the_session_and_not_only_with_the_token() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let text = management.create_api_token(&world.operator, token("pipeline", Role::Deployer)).await.unwrap().1;
        let browser = management.begin_session(text.expose().as_bytes(), None).await.unwrap().0;
        let command_line = login(management, &browser).await.unwrap();
        let lasting = management.authenticate(command_line.as_bytes(), None).await.unwrap();
        assert!(management.confirm(&lasting).await.is_ok());
        management.end_session(&browser).await.unwrap();
        assert!(is_unauthorized(management.confirm(&lasting).await));
        assert!(management.authenticate(text.expose().as_bytes(), None).await.is_ok());
    });
}

#[test]
fn code_is_redeemed_once_by_callers_at_the_same_time() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let other = world.managed_replica("two", 7);
        let browser = management.begin_person_session(ada()).await.unwrap();
        let code = management.lend_session(&browser, &challenge()).await.unwrap();
        let (one, two) =
            futures_util::future::join(management.redeem_code(&code, VERIFIER), other.redeem_code(&code, VERIFIER))
                .await;
        assert!(one.is_ok() != two.is_ok());
    });
}

/// Stores a person's session as earlier versions did.
async fn begin_earlier(world: &ManagedWorld, secret: &str) {
    use sha2::{Digest, Sha256};
    let document = r#"{"subject":["login.example.com","1"],"person":"ada via login.example.com","groups":["viewers"]}"#;
    let key = RecordKey::of_hash(Sha256::digest(secret).into());
    let record = NewRecord { key, document: document.to_owned(), ttl: Some(8 * HOUR) };
    world.records().write(RecordKind::Session, record, None).await.unwrap();
}

#[test]
fn session_of_an_earlier_version_goes_on_lends_and_ends() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        begin_earlier(&world, "one").await;
        begin_earlier(&world, "two").await;
        assert!(management.session("one").await.is_ok());
        let lent = login(management, "one").await.unwrap();
        assert!(management.authenticate(lent.as_bytes(), None).await.is_ok());
        management.end_session("one").await.unwrap();
        assert!(is_unauthorized(management.session("one").await));
        assert!(is_unauthorized(management.authenticate(lent.as_bytes(), None).await));
        let new = management.begin_person_session(ada()).await.unwrap();
        management.end_sessions_like(&new).await.unwrap();
        assert!(is_unauthorized(management.session("two").await), "sign-out everywhere finds it");
    });
}

#[test]
fn repeated_sign_ins_of_one_token_leave_a_bounded_number_of_sessions_and_the_newest_of_them() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let text = management.create_api_token(&world.operator, token("viewer", Role::Viewer)).await.unwrap().1;
        let other = management.begin_person_session(ada()).await.unwrap();
        let mut secrets = Vec::new();
        for _ in 0..5 * SESSIONS_MAX {
            secrets.push(management.begin_session(text.expose().as_bytes(), Some("eve")).await.unwrap().0);
            world.clock.sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(count(&world, RecordKind::Session).await, SESSIONS_MAX + 1);
        assert_eq!(count(&world, RecordKind::SessionList).await, 2);
        let (old, new) = secrets.split_at(4 * SESSIONS_MAX);
        assert!(is_unauthorized(management.session(old.last().unwrap()).await));
        for secret in new {
            assert!(management.session(secret).await.is_ok());
        }
        assert!(management.session(&other).await.is_ok(), "nobody else loses a session");
    });
}

#[test]
fn session_has_a_bounded_number_of_codes_and_the_newest_of_them() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let browser = management.begin_person_session(ada()).await.unwrap();
        let mut codes = Vec::new();
        for _ in 0..50 {
            codes.push(management.lend_session(&browser, &challenge()).await.unwrap());
        }
        assert_eq!(count(&world, RecordKind::LoginCode).await, LOGIN_CODES_MAX);
        assert!(is_unauthorized(management.redeem_code(&codes[40], VERIFIER).await));
        assert!(management.redeem_code(codes.last().unwrap(), VERIFIER).await.is_ok());
    });
}

#[test]
fn repeated_logins_of_command_lines_keep_the_browsers_session_and_a_bounded_number() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let browser = management.begin_person_session(ada()).await.unwrap();
        for _ in 0..3 * SESSIONS_MAX {
            let newest = login(management, &browser).await.unwrap();
            assert!(management.authenticate(newest.as_bytes(), None).await.is_ok());
        }
        assert!(management.session(&browser).await.is_ok());
        assert_eq!(count(&world, RecordKind::Session).await, SESSIONS_MAX);
        assert_eq!(count(&world, RecordKind::LoginCode).await, 0);
    });
}
