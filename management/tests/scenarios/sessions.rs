//! Sessions as their owners and the admins of everything see and end them.

use std::time::Duration;

use rollhook_core::ports::Clock as _;
use rollhook_management::{
    Management, Outcome, Refusal,
    access::{
        Action, Grant, GroupGrant, NewApiToken, Person, Principal, Realm, Role, SESSION_IDLE, SignInGrants, SignedIn,
    },
    ports::{RecordKey, RecordKind},
};
use sha2::{Digest, Sha256};

use crate::world::{
    ManagedWorld,
    actions::{realm, token},
    is_unauthorized,
};

/// The secret of a command line.
const VERIFIER: &str = "verifier";

fn world() -> ManagedWorld {
    let world = ManagedWorld::new(Duration::ZERO);
    let_people_in(&world.management);
    world
}

fn let_people_in(management: &Management) {
    let grant = Grant { role: Role::Viewer, realm: realm("shop", "test") };
    let grants = [GroupGrant { group: "viewers".to_owned(), grant }].into();
    management.let_people_in(SignInGrants { provider: "login.example.com".to_owned(), grants });
}

fn person(name: &str) -> Person {
    Person {
        subject: name.to_owned(),
        name: name.to_owned(),
        provider: "login.example.com".to_owned(),
        groups: vec!["viewers".to_owned()],
    }
}

/// Lends a session to a command line, and returns its secret.
async fn login(management: &Management, session: &str) -> Outcome<String> {
    let challenge = RecordKey::of_hash(Sha256::digest(VERIFIER).into());
    let code = management.lend_session(session, &challenge).await?;
    Ok(management.redeem_code(&code, VERIFIER).await?.0.to_string())
}

async fn listed(management: &Management, who: &Principal) -> Vec<SignedIn> {
    management.sessions(who, None, 100).await.unwrap().0
}

fn names(sessions: &[SignedIn]) -> Vec<String> {
    let mut names: Vec<_> = sessions.iter().map(|session| session.actor.to_string()).collect();
    names.sort();
    names
}

#[test]
fn admin_of_everything_sees_every_session_and_others_see_their_own() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let text = management.create_api_token(&world.operator, token("ci-shop", Role::Deployer)).await.unwrap().1;
        let of_token = management.begin_session(text.expose().as_bytes(), None).await.unwrap().0;
        let ada = management.begin_person_session(person("ada")).await.unwrap();
        let of_ada = login(management, &ada).await.unwrap();
        management.begin_person_session(person("eve")).await.unwrap();
        let (ada_shown, eve_shown) = ("ada via login.example.com", "eve via login.example.com");

        let all = listed(management, &world.operator).await;
        assert_eq!(names(&all), [ada_shown, ada_shown, "ci-shop", eve_shown]);
        let lent = all.iter().find(|session| session.lent_by.is_some()).unwrap();
        let lender = all.iter().find(|session| Some(&session.id) == lent.lent_by.as_ref()).unwrap();
        assert_eq!((lent.actor.to_string(), &lent.actor), (ada_shown.to_owned(), &lender.actor));
        assert!(all.iter().all(|session| !session.is_current));

        let by_browser = management.session(&ada).await.unwrap();
        let by_command_line = management.authenticate(of_ada.as_bytes(), None).await.unwrap();
        for who in [&by_browser, &by_command_line] {
            let own = listed(management, who).await;
            assert_eq!(names(&own), [ada_shown, ada_shown]);
            assert_eq!(own.iter().filter(|session| session.is_current).count(), 1);
        }
        let by_token = management.authenticate(text.expose().as_bytes(), None).await.unwrap();
        assert_eq!(names(&listed(management, &by_token).await), ["ci-shop"]);
        assert_eq!(names(&listed(management, &management.session(&of_token).await.unwrap()).await), ["ci-shop"]);

        let grant = Grant { role: Role::Admin, realm: realm("shop", "test") };
        let admin_of_one = Principal::new("an-admin", [grant]);
        let refused = management.sessions(&admin_of_one, None, 10).await;
        assert_eq!(refused.unwrap_err(), Refusal::Forbidden(Action::ManageSessions, None));
        management.revoke_api_token(&world.operator, &"ci-shop".parse().unwrap()).await.unwrap();
        assert_eq!(names(&listed(management, &world.operator).await), [ada_shown, ada_shown, eve_shown]);
    });
}

#[test]
fn id_of_a_session_opens_nothing_and_is_no_key_of_its_record() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let ada = management.begin_person_session(person("ada")).await.unwrap();
        let id = listed(management, &world.operator).await.remove(0).id;
        let records = world.records().list(RecordKind::Session, None, 10).await.unwrap();
        assert!(!records[0].key.as_str().contains(id.as_str()) && !ada.contains(id.as_str()));
        assert!(is_unauthorized(management.session(id.as_str()).await));
        assert!(is_unauthorized(management.authenticate(id.as_str().as_bytes(), None).await));
        assert!(is_unauthorized(management.session(records[0].key.as_str()).await));
    });
}

#[test]
fn ended_session_is_refused_on_every_replica_with_its_streams_and_what_it_lent() {
    let world = world();
    world.idle(async {
        let (management, other) = (&world.management, world.managed_replica("two", 7));
        let_people_in(&other);
        let ada = management.begin_person_session(person("ada")).await.unwrap();
        let of_ada = login(management, &ada).await.unwrap();
        let eve = management.begin_person_session(person("eve")).await.unwrap();
        let streams = [other.session(&ada).await.unwrap(), other.authenticate(of_ada.as_bytes(), None).await.unwrap()];
        let all = listed(management, &world.operator).await;
        let is_ada = |session: &&SignedIn| session.lent_by.is_none() && session.actor.to_string().starts_with("ada");
        let id = all.iter().find(is_ada).unwrap().id.clone();
        management.end_session_of_id(&world.operator, &id).await.unwrap();
        for stream in &streams {
            assert!(is_unauthorized(other.confirm(stream).await));
        }
        assert!(is_unauthorized(other.session(&ada).await) && other.session(&eve).await.is_ok());
        assert!(is_unauthorized(other.authenticate(of_ada.as_bytes(), None).await));
        let again = management.end_session_of_id(&world.operator, &id).await;
        assert_eq!(again.unwrap_err(), Refusal::SessionNotFound(id.clone()));
        let audit = management.audited(&world.operator, None, 1).await.unwrap().0;
        let entry = &audit[0].entry;
        assert_eq!(entry.subject, format!("session {id} of ada via login.example.com, ended"));
        assert_eq!((entry.action.as_str(), &entry.realm), ("manage sessions", &Realm::Everything));
    });
}

#[test]
fn command_lines_session_ends_alone() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let ada = management.begin_person_session(person("ada")).await.unwrap();
        let of_ada = login(management, &ada).await.unwrap();
        let own = listed(management, &management.session(&ada).await.unwrap()).await;
        let lent = own.iter().find(|session| session.lent_by.is_some()).unwrap();
        management.end_session_of_id(&world.operator, &lent.id).await.unwrap();
        assert!(is_unauthorized(management.authenticate(of_ada.as_bytes(), None).await));
        assert!(management.session(&ada).await.is_ok());
    });
}

#[test]
fn every_session_of_a_person_ends_and_nobody_elses() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let mut secrets = Vec::new();
        for _ in 0..3 {
            secrets.push(management.begin_person_session(person("ada")).await.unwrap());
        }
        let of_ada = login(management, &secrets[0]).await.unwrap();
        let eve = management.begin_person_session(person("eve")).await.unwrap();
        let ended = management.end_sessions_of(&world.operator, "ada via login.example.com").await.unwrap();
        assert_eq!(ended, 4);
        for secret in &secrets {
            assert!(is_unauthorized(management.session(secret).await));
        }
        assert!(is_unauthorized(management.authenticate(of_ada.as_bytes(), None).await));
        assert!(management.session(&eve).await.is_ok());
        assert_eq!(management.end_sessions_of(&world.operator, "ada").await.unwrap(), 0);
    });
}

#[test]
fn every_session_of_a_person_ends_whatever_name_the_provider_stated() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let (before, after) = ("ada@example.com via login.example.com", "Ada@Example.com via login.example.com");
        let named = |name: &str| Person { name: name.to_owned(), ..person("ada") };
        for way in ["admin, by the old name", "admin, by the new name", "herself", "everywhere"] {
            let old = management.begin_person_session(named("ada@example.com")).await.unwrap();
            let new = management.begin_person_session(named("Ada@Example.com")).await.unwrap();
            let of_old = login(management, &old).await.unwrap();
            let eve = management.begin_person_session(person("eve")).await.unwrap();
            let challenge = RecordKey::of_hash(Sha256::digest(VERIFIER).into());
            let code = management.lend_session(&old, &challenge).await.unwrap();
            match way {
                "everywhere" => management.end_sessions_like(&new).await.unwrap(),
                "herself" => {
                    let who = management.session(&new).await.unwrap();
                    assert_eq!(management.end_sessions_of(&who, before).await.unwrap(), 3);
                }
                way => {
                    let name = if way.ends_with("old name") { before } else { after };
                    assert_eq!(management.end_sessions_of(&world.operator, name).await.unwrap(), 3, "{way}");
                }
            }
            for ended in [&*old, &new, &of_old] {
                assert!(is_unauthorized(management.session(ended).await), "{way}");
            }
            assert!(is_unauthorized(management.authenticate(of_old.as_bytes(), None).await), "{way}");
            assert!(is_unauthorized(management.redeem_code(&code, VERIFIER).await), "{way}");
            assert!(management.session(&eve).await.is_ok(), "{way}");
        }
    });
}

#[test]
fn caller_without_the_right_ends_its_own_sessions_and_finds_no_others() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let ada = management.begin_person_session(person("ada")).await.unwrap();
        let second = management.begin_person_session(person("ada")).await.unwrap();
        let eve = management.begin_person_session(person("eve")).await.unwrap();
        let (who, of_eve) = (management.session(&ada).await.unwrap(), management.session(&eve).await.unwrap());
        let foreign = listed(management, &of_eve).await.remove(0).id;
        let refused = management.end_session_of_id(&who, &foreign).await;
        assert_eq!(refused.unwrap_err(), Refusal::SessionNotFound(foreign));
        let refused = management.end_sessions_of(&who, "eve via login.example.com").await;
        assert_eq!(refused.unwrap_err(), Refusal::Forbidden(Action::ManageSessions, None));
        assert!(management.session(&eve).await.is_ok());

        let other = listed(management, &who).await.into_iter().find(|session| !session.is_current).unwrap();
        management.end_session_of_id(&who, &other.id).await.unwrap();
        assert!(is_unauthorized(management.session(&second).await) && management.session(&ada).await.is_ok());
        assert_eq!(management.end_sessions_of(&who, "ada via login.example.com").await.unwrap(), 1);
        assert!(is_unauthorized(management.session(&ada).await));
    });
}

#[test]
fn list_says_when_a_session_was_used_and_when_it_ends_and_comes_in_parts() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let ada = management.begin_person_session(person("ada")).await.unwrap();
        world.clock.sleep(Duration::from_secs(3600)).await;
        management.keep_session(&ada).await.unwrap();
        let used = listed(management, &world.operator).await.remove(0);
        assert_eq!(used.last_used_at, Some(used.began_at.after(Duration::from_secs(3600))));
        assert_eq!(used.ends_at, used.began_at.after(SESSION_IDLE + Duration::from_secs(3600)));

        for _ in 0..4 {
            world.clock.sleep(Duration::from_secs(1)).await;
            management.begin_person_session(person("eve")).await.unwrap();
        }
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let (part, next) = management.sessions(&world.operator, after, 2).await.unwrap();
            assert!(part.len() <= 2);
            found.extend(part);
            after = next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(found.len(), 5);
        assert!(found.windows(2).all(|pair| pair[0].began_at >= pair[1].began_at), "newest first");
    });
}

#[test]
fn sessions_of_one_person_or_token_are_one_caller() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let known = |secret: &str| management.known_caller(secret.as_bytes()).unwrap();
        let mut of_ada = Vec::new();
        for _ in 0..2 {
            let session = management.begin_person_session(person("ada")).await.unwrap();
            of_ada.push(known(&session));
            of_ada.push(known(&login(management, &session).await.unwrap()));
        }
        assert!(of_ada.iter().all(|caller| caller == &of_ada[0]), "{of_ada:?}");
        let eve = management.begin_person_session(person("eve")).await.unwrap();
        assert_ne!(known(&eve), of_ada[0]);

        let text = management.create_api_token(&world.operator, token("ci-shop", Role::Deployer)).await.unwrap().1;
        assert_eq!(management.known_caller(text.expose().as_bytes()), None, "the token has not called yet");
        let session = management.begin_session(text.expose().as_bytes(), None).await.unwrap().0;
        let of_token = known(text.expose());
        assert_eq!(
            [known(&session), known(&login(management, &session).await.unwrap())],
            [(); 2].map(|()| of_token.clone())
        );
        management.ready().await.unwrap();
        assert_eq!(known(text.expose()), of_token, "as it is listed");
        management.end_session(&session).await.unwrap();
        assert_eq!(management.known_caller(session.as_bytes()), None);
    });
}

#[test]
fn tokens_of_one_environment_are_callers_of_one_environment() {
    let world = world();
    world.idle(async {
        let management = &world.management;
        let mut known = Vec::new();
        for (name, realm) in [("a", realm("shop", "test")), ("b", realm("shop", "test")), ("c", Realm::Everything)] {
            let grant = Grant { role: Role::Viewer, realm };
            let wanted = NewApiToken { name: name.parse().unwrap(), grant, ttl: None };
            let text = management.create_api_token(&world.operator, wanted).await.unwrap().1;
            management.authenticate(text.expose().as_bytes(), None).await.unwrap();
            known.push(management.known_caller(text.expose().as_bytes()).unwrap());
        }
        assert!(known[0].party != known[1].party && known[0].environment.is_some());
        assert_eq!(known[0].environment, known[1].environment);
        assert_eq!((&known[2].environment, &known[2].project), (&None, &None));
    });
}
