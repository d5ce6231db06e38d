//! Principals: each does what its roles allow, and no more; API tokens and the audit.
#![allow(clippy::wildcard_enum_match_arm, reason = "a test that cannot go on ends")]

use std::time::Duration;

use rollhook_core::{
    action::Action as AppAction,
    app::{FullName, Policy},
    configuration::{Variable, VariablesChange},
    ports::{AppPage, Clock as _},
    request::{ConfigureRequest, DeployRequest, Field, PromoteRequest, Refusal as CoreRefusal},
    service::Configured,
    token::Token,
};
use rollhook_management::{
    Management, Outcome, Refusal,
    access::{
        Action, Adopted, AuditEntry, Audited, Grant, GroupGrant, LOGIN_MAX, NewApiToken, PERSON_SESSION_MAX, Person,
        Principal, Realm, Role, SESSION_IDLE, SESSION_MAX, SignInGrants, replace_admin_token,
    },
};

use crate::world::{
    self, ManagedWorld,
    actions::{realm, refusal, register, token},
};

const INSTANT: Duration = Duration::ZERO;

fn principal(role: Role, realm: Realm) -> Principal {
    Principal::new(&format!("a-{role}"), [Grant { role, realm }])
}

#[test]
fn each_role_can_do_what_the_table_says_and_no_more() {
    for role in Role::ALL {
        // Deleting comes last, for nothing is left to act on then.
        let (delete, others): (Vec<_>, Vec<_>) = Action::ALL.iter().partition(|action| **action == Action::Delete);
        let world = ManagedWorld::new(INSTANT);
        world.run(async {
            let id = register(&world, "shop", "test").await;
            for action in others.into_iter().chain(delete).copied() {
                // Sessions belong to no realm.
                let realm = if action == Action::ManageSessions { Realm::Everything } else { realm("shop", "test") };
                let who = principal(role, realm);
                let refused = refusal(&world.management, &who, &id, action).await;
                let expected = (!role.may(action)).then_some(Refusal::Forbidden(action, Some(role)));
                assert_eq!(refused, expected, "{role} may {action}");
            }
        });
    }
}

#[test]
fn app_outside_of_every_realm_is_unknown() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let id = register(&world, "a-b", "c").await;
        // The other pair spells the same namespace.
        for realm in [realm("a", "b-c"), realm("shop", "test"), Realm::Project { project: "a".parse().unwrap() }] {
            let who = principal(Role::Admin, realm);
            for action in Action::ALL
                .iter()
                .filter(|action| !matches!(action, Action::Register | Action::ManageReceivers | Action::ReadAudit))
            {
                let refused = refusal(&world.management, &who, &id, *action).await;
                let expected = if matches!(action, Action::ManageTokens | Action::Require) {
                    let may = who.may(*action, &self::realm("shop", "test"));
                    (!may).then_some(Refusal::Forbidden(*action, None))
                } else if *action == Action::ManageSessions {
                    Some(Refusal::Forbidden(Action::ManageSessions, None))
                } else {
                    Some(CoreRefusal::AppNotFound(id.clone()).into())
                };
                assert_eq!(refused, expected, "{action}");
            }
        }
        assert!(world.management.open(&world.operator, &id).await.is_ok(), "and it is still there");
    });
}

#[test]
fn list_shows_only_apps_of_the_callers_realms_in_whole_pages() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        for project in ["blog", "shop", "wiki"] {
            for environment in ["prod", "test"] {
                register(&world, project, environment).await;
            }
        }
        let who = principal(Role::Viewer, Realm::Project { project: "shop".parse().unwrap() });
        let page = |after, limit| AppPage::first(limit).after(after);
        let names = |listed: &[rollhook_core::ports::ListedApp]| -> Vec<String> {
            listed.iter().flatten().map(|state| state.app.id.to_string()).collect()
        };
        let first = world.management.apps(&who, page(None, 1)).await.unwrap();
        assert_eq!(names(&first), ["shop-prod/api"]);
        let after = first[0].as_ref().unwrap().app.id.clone();
        assert_eq!(names(&world.management.apps(&who, page(Some(after), 5)).await.unwrap()), ["shop-test/api"]);
        assert_eq!(world.management.apps(&world.operator, page(None, 10)).await.unwrap().len(), 6);
    });
}

#[test]
fn promotion_from_an_app_that_the_caller_may_not_read_finds_none() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        register(&world, "shop", "prod").await;
        let from = FullName {
            project: "shop".parse().unwrap(),
            environment: "prod".parse().unwrap(),
            name: "api".parse().unwrap(),
        };
        let who = principal(Role::Admin, realm("shop", "test"));
        let refused = world.management.promote(&who, &id, PromoteRequest::new(from.clone())).await.unwrap_err();
        assert_eq!(refused, CoreRefusal::AppNotFoundIn(from).into());
    });
}

#[test]
fn what_containers_are_made_with_is_for_those_who_may_change_the_app() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let volumes = serde_json::json!({ "volumes": ["/:/host"] });
        let settings = volumes.as_object().unwrap().clone();
        let change = VariablesChange { settings, ..VariablesChange::default() };
        let request = ConfigureRequest::default().with(|request| request.change = change);
        let configured = async |role| {
            let who = principal(role, realm("shop", "test"));
            world.management.configure(&who, &id, request.clone(), None).await.unwrap_err()
        };
        assert!(matches!(configured(Role::Deployer).await, Refusal::Forbidden { .. }));
        let asked = configured(Role::Admin).await;
        assert!(matches!(asked, Refusal::Core(CoreRefusal::CannotBeConfigured(_))), "{asked:?}");
    });
}

#[test]
fn variables_that_a_promotion_lacks_are_named_to_those_who_may_list_both() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let prod = register(&world, "shop", "prod").await;
        let test = register(&world, "shop", "test").await;
        let set = [("URL".parse().unwrap(), Variable::new("hunter2".to_owned(), false))].into();
        let change = VariablesChange { set, ..VariablesChange::default() };
        let request = ConfigureRequest::default().with(|request| request.change = change);
        let configured = world.management.configure(&world.operator, &prod, request, None).await.unwrap();
        assert_eq!(configured, Configured::Staged { replayed: false }, "nothing runs yet");
        let access = world.management.allow(&world.operator, &prod, AppAction::Deploy).await.unwrap();
        let image = DeployRequest::image("registry.example.com/api:2".parse().unwrap());
        let accepted = world.deployer.submit(&access, image).await.unwrap();
        world.ended(&access, accepted.deploy.revision.get()).await;

        let from = FullName {
            project: "shop".parse().unwrap(),
            environment: "prod".parse().unwrap(),
            name: "api".parse().unwrap(),
        };
        let promote = || PromoteRequest::new(from.clone());
        let with_role_there = |role| {
            let here = Grant { role: Role::Deployer, realm: realm("shop", "test") };
            Principal::new("a", [here, Grant { role, realm: realm("shop", "prod") }])
        };
        let (blind, sees) = (with_role_there(Role::Viewer), with_role_there(Role::Deployer));
        let refused = world.management.promote(&sees, &test, promote()).await.unwrap_err();
        let variables = vec!["URL".parse().unwrap()];
        assert_eq!(refused, CoreRefusal::VariablesMissing { from: prod.clone(), variables }.into());
        world.management.promote(&blind, &test, promote()).await.unwrap();
        let confirmed = promote().with(|request| request.without_variables = true);
        world.management.promote(&sees, &test, confirmed).await.unwrap();
    });
}

async fn made(management: &Management, who: &Principal, wanted: NewApiToken) -> Token {
    management.create_api_token(who, wanted).await.unwrap().1
}

#[test]
fn api_token_proves_its_name_and_role_on_every_replica() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let text = made(&world.management, &world.operator, token("a-ci", Role::Deployer)).await;
        let other = world.managed_replica("two", 7);
        for management in [&world.management, &other] {
            let proven = management.authenticate(text.expose().as_bytes(), Some("mallory")).await.unwrap();
            assert_eq!(proven.actor().to_string(), "a-ci", "a claimed name counts for the shared token alone");
            assert_eq!(proven.grants(), [token("a-ci", Role::Deployer).grant]);
        }
        assert!(other.recognizes_api_token(text.expose().as_bytes()));
        let refused = world.management.authenticate(world.deployer.new_token().expose().as_bytes(), None).await;
        assert_eq!(refused.unwrap_err(), Refusal::UNAUTHORIZED);

        world.management.revoke_api_token(&world.operator, &"a-ci".parse().unwrap()).await.unwrap();
        for management in [&world.management, &other] {
            let refused = management.authenticate(text.expose().as_bytes(), None).await;
            assert_eq!(refused.unwrap_err(), Refusal::UNAUTHORIZED);
            assert!(!management.recognizes_api_token(text.expose().as_bytes()));
        }
        assert_eq!(world.management.api_tokens(&world.operator).await.unwrap(), []);
        // The name is free again.
        made(&world.management, &world.operator, token("a-ci", Role::Viewer)).await;
    });
}

#[test]
fn api_token_ends_with_its_time() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let wanted = NewApiToken { ttl: Some(Duration::from_secs(60)), ..token("a-ci", Role::Deployer) };
        let text = made(&world.management, &world.operator, wanted).await;
        world.clock.sleep(Duration::from_secs(59)).await;
        // Its use is written down, which must not make it last longer.
        assert!(world.management.authenticate(text.expose().as_bytes(), None).await.is_ok());
        let listed = world.management.api_tokens(&world.operator).await.unwrap();
        assert!(listed[0].last_used_at.is_some() && listed[0].expires_at.is_some());
        world.clock.sleep(Duration::from_secs(2)).await;
        let refused = world.management.authenticate(text.expose().as_bytes(), None).await;
        assert_eq!(refused.unwrap_err(), Refusal::UNAUTHORIZED);
    });
}

#[test]
fn nobody_makes_or_sees_a_token_beyond_the_own_realm() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        made(&world.management, &world.operator, NewApiToken { grant: Grant::ALL, ..token("root", Role::Admin) }).await;
        let who = principal(Role::Admin, realm("shop", "test"));
        made(&world.management, &who, token("a-ci", Role::Admin)).await;
        for realm in [Realm::Everything, realm("shop", "prod"), Realm::Project { project: "shop".parse().unwrap() }] {
            let wanted = NewApiToken { grant: Grant { role: Role::Viewer, realm }, ..token("more", Role::Viewer) };
            let refused = world.management.create_api_token(&who, wanted).await.unwrap_err();
            assert_eq!(refused, Refusal::Forbidden(Action::ManageTokens, None));
        }
        let seen = world.management.api_tokens(&who).await.unwrap();
        assert_eq!(seen.iter().map(|token| token.name.as_str()).collect::<Vec<_>>(), ["a-ci"]);
        let refused = world.management.revoke_api_token(&who, &"root".parse().unwrap()).await.unwrap_err();
        assert_eq!(refused, Refusal::TokenNotFound("root".parse().unwrap()));
        let taken = world.management.create_api_token(&world.operator, token("a-ci", Role::Viewer)).await.unwrap_err();
        assert_eq!(taken, Refusal::TokenExists("a-ci".parse().unwrap()));
        for reserved in ["ci", "auto", "admin"] {
            let refused = world.management.create_api_token(&world.operator, token(reserved, Role::Admin)).await;
            assert!(
                matches!(refused, Err(Refusal::Core(CoreRefusal::InvalidField(Field::TokenName, _)))),
                "{reserved}"
            );
        }
    });
}

#[test]
fn revoked_admin_token_is_not_adopted_again() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let (old, new) = (world.deployer.new_token(), world.deployer.new_token());
        assert!(!world.management.has_admin_token().await.unwrap());
        assert_eq!(world.management.adopt_admin_token(&old).await.unwrap(), Adopted::Valid);
        assert_eq!(
            world.management.adopt_admin_token(&old).await.unwrap(),
            Adopted::Valid,
            "a restart presents it again"
        );
        assert_eq!(
            world.management.adopt_admin_token(&new).await.unwrap(),
            Adopted::Other,
            "a file does not replace it"
        );
        let proven = world.management.authenticate(old.expose().as_bytes(), Some("alice")).await.unwrap();
        assert_eq!(proven.actor().to_string(), "alice (admin)", "people share it, and name themselves");

        let records = world.records();
        replace_admin_token(&*records, &new, world.operator.actor()).await.unwrap();
        assert!(world.management.authenticate(old.expose().as_bytes(), None).await.is_err());
        assert!(world.management.authenticate(new.expose().as_bytes(), None).await.is_ok());
        let again = world.management.adopt_admin_token(&old).await.unwrap();
        assert_eq!(again, Adopted::Revoked, "an old file does not bring it back");
        let set = replace_admin_token(&*records, &old, world.operator.actor()).await;
        assert!(set.is_err(), "nor does setting it");
        world.management.revoke_api_token(&world.operator, &"admin".parse().unwrap()).await.unwrap();
        let again = world.management.adopt_admin_token(&old).await.unwrap();
        assert_eq!(again, Adopted::Revoked, "not even if there is no other");
    });
}

#[test]
fn audit_has_every_act_of_management_and_every_refusal() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let other = register(&world, "blog", "test").await;
        let (viewer, deployer) =
            (principal(Role::Viewer, realm("shop", "test")), principal(Role::Deployer, realm("shop", "test")));
        for (who, app, action) in [
            (&deployer, &id, AppAction::EnableWebhook),
            (&deployer, &id, AppAction::ReadToken),
            (&world.operator, &other, AppAction::EnableWebhook),
        ] {
            assert!(world.management.allow(who, app, action).await.is_ok());
        }
        for (who, action) in
            [(&viewer, AppAction::ReadToken), (&viewer, AppAction::Rollback), (&deployer, AppAction::Change)]
        {
            let refused = world.management.allow(who, &id, action).await.unwrap_err();
            assert!(matches!(refused, Refusal::Forbidden(..)), "{refused}");
        }
        let said = |entries: Vec<Audited>| -> Vec<String> {
            let said = |e: AuditEntry| {
                format!("{} {}: {}, {}", e.actor, e.action, e.subject, if e.is_allowed { "done" } else { "refused" })
            };
            let mut said: Vec<_> = entries.into_iter().map(|audited| said(audited.entry)).collect();
            said.sort();
            said
        };
        let admin = principal(Role::Admin, realm("shop", "test"));
        let mine = world.management.audited(&admin, None, 100).await.unwrap().0;
        assert_eq!(
            said(mine),
            [
                "a-deployer change policy and source: app shop-test/api, refused",
                "a-deployer enable the webhook: app shop-test/api, done",
                "a-deployer read the webhook's token: app shop-test/api, done",
                "a-viewer read the webhook's token: app shop-test/api, refused",
                "a-viewer roll back: app shop-test/api, refused",
                "alice register apps: app shop-test/api, done",
            ]
        );
        assert_eq!(world.management.audited(&world.operator, None, 100).await.unwrap().0.len(), 8);
        let refused = world.management.audited(&deployer, None, 100).await.unwrap_err();
        assert_eq!(refused, Refusal::Forbidden(Action::ReadAudit, Some(Role::Deployer)));
    });
}

#[test]
fn session_stands_for_its_token_on_every_replica_and_ends_with_it() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let text = made(&world.management, &world.operator, token("ada", Role::Deployer)).await;
        let other = world.managed_replica("two", 7);
        let begin = || world.management.begin_session(text.expose().as_bytes(), None);
        let (one, two) = (begin().await.unwrap().0, begin().await.unwrap().0);
        for management in [&world.management, &other] {
            let principal = management.session(&one).await.unwrap();
            assert_eq!((principal.actor().to_string(), principal.grants().len()), ("ada".to_owned(), 1));
        }
        let refused = |outcome: Outcome<Principal>| assert_eq!(outcome.unwrap_err(), Refusal::UNAUTHORIZED);
        refused(other.session("0").await);
        refused(other.session(text.expose()).await);
        world.management.end_session(&one).await.unwrap();
        refused(other.session(&one).await);
        assert!(other.session(&two).await.is_ok());
        let three = begin().await.unwrap().0;
        other.end_sessions_like(&two).await.unwrap();
        for ended in [&two, &three] {
            refused(world.management.session(ended).await);
        }
        let last = begin().await.unwrap().0;
        other.revoke_api_token(&world.operator, &"ada".parse().unwrap()).await.unwrap();
        refused(world.management.session(&last).await);
        assert!(world.management.begin_session(text.expose().as_bytes(), None).await.is_err());
    });
}

#[test]
fn session_ends_when_it_is_idle_and_after_a_week_in_any_case() {
    let world = ManagedWorld::new(INSTANT);
    world.idle(async {
        let text = made(&world.management, &world.operator, token("ada", Role::Deployer)).await;
        let begin = || world.management.begin_session(text.expose().as_bytes(), None);
        let idle = begin().await.unwrap().0;
        world.clock.sleep(SESSION_IDLE).await;
        assert!(world.management.session(&idle).await.is_err());
        let used = begin().await.unwrap().0;
        let hours = SESSION_MAX.as_secs() / 3600;
        for hour in 1..hours {
            world.clock.sleep(Duration::from_secs(3600)).await;
            assert!(world.management.session(&used).await.is_ok(), "hour {hour}");
            world.management.keep_session(&used).await.unwrap();
        }
        world.clock.sleep(Duration::from_secs(3600)).await;
        assert!(world.management.session(&used).await.is_err());
    });
}

/// A person of the provider, with a role on the app's environment.
fn person(subject: &str, name: &str, role: Role) -> Person {
    let (provider, groups) = ("login.example.com".to_owned(), vec!["everybody".to_owned(), role.to_string()]);
    Person { subject: subject.to_owned(), name: name.to_owned(), provider, groups }
}

/// Lets people in, with a role by a group of its name.
fn let_people_in(management: &Management, roles: &[Role]) {
    let grant = |role: &Role| GroupGrant {
        group: role.to_string(),
        grant: Grant { role: *role, realm: realm("shop", "test") },
    };
    let grants = roles.iter().map(grant).collect();
    management.let_people_in(SignInGrants { provider: "login.example.com".to_owned(), grants });
}

#[test]
fn person_has_the_grants_of_the_sign_in_on_every_replica_for_twelve_hours_at_most() {
    let world = ManagedWorld::new(INSTANT);
    world.idle(async {
        let id = register(&world, "shop", "test").await;
        let other = world.managed_replica("two", 7);
        [&*world.management, &*other].into_iter().for_each(|management| let_people_in(management, &Role::ALL));
        let secret = world.management.begin_person_session(person("1", "ada@example.com", Role::Viewer)).await.unwrap();
        let principal = other.session(&secret).await.unwrap();
        assert_eq!(principal.actor().to_string(), "ada@example.com via login.example.com");
        assert!(other.open(&principal, &id).await.is_ok());
        assert_eq!(
            other.allow(&principal, &id, AppAction::ReadToken).await.unwrap_err(),
            Refusal::Forbidden(Action::ReadToken, Some(Role::Viewer))
        );
        assert!(other.confirm(&principal).await.is_ok());
        for hour in 1..PERSON_SESSION_MAX.as_secs() / 3600 {
            world.clock.sleep(Duration::from_secs(3600)).await;
            world.management.keep_session(&secret).await.unwrap();
            assert!(other.session(&secret).await.is_ok(), "hour {hour}");
        }
        world.clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(other.session(&secret).await.unwrap_err(), Refusal::UNAUTHORIZED);
        assert_eq!(other.confirm(&principal).await.unwrap_err(), Refusal::UNAUTHORIZED, "also for a call that lasts");
    });
}

#[test]
fn role_that_the_operator_takes_from_a_group_is_gone_after_the_restart() {
    let world = ManagedWorld::new(INSTANT);
    world.idle(async {
        let_people_in(&world.management, &Role::ALL);
        let begin =
            async |role| world.management.begin_person_session(person("1", "eve@example.com", role)).await.unwrap();
        let (admin, viewer) = (begin(Role::Admin).await, begin(Role::Viewer).await);
        let restarted = world.managed_replica("two", 7);
        assert!(restarted.session(&viewer).await.is_err(), "the server has no provider of sign-ins any more");
        let_people_in(&restarted, &[Role::Viewer]);
        assert_eq!(restarted.session(&admin).await.unwrap_err(), Refusal::UNAUTHORIZED);
        assert!(restarted.session(&viewer).await.is_ok());
    });
}

#[test]
fn sign_out_everywhere_ends_the_sessions_of_the_person_whatever_its_roles_were() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let_people_in(&world.management, &Role::ALL);
        let begin = async |subject, name, role| {
            world.management.begin_person_session(person(subject, name, role)).await.unwrap()
        };
        let before = begin("1", "ada@example.com", Role::Viewer).await;
        let after = begin("1", "ada@new.example.com", Role::Admin).await;
        let namesake = begin("2", "ada@example.com", Role::Viewer).await;
        world.management.end_sessions_like(&after).await.unwrap();
        for ended in [&before, &after] {
            assert!(world.management.session(ended).await.is_err());
        }
        assert!(world.management.session(&namesake).await.is_ok());
        let nobody = Person { groups: vec!["everybody".to_owned()], ..person("3", "nora", Role::Viewer) };
        assert_eq!(world.management.begin_person_session(nobody).await.unwrap_err(), Refusal::UNAUTHORIZED);
    });
}

#[test]
fn persons_name_is_taken_for_no_token_and_for_no_service() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let_people_in(&world.management, &Role::ALL);
        for name in ["auto", "ci", "admin", "ada (admin)", "GitHub: ada", "a\u{1b}[2J\u{202e}", &"x".repeat(500)] {
            let secret = world.management.begin_person_session(person("1", name, Role::Viewer)).await.unwrap();
            let shown = world.management.session(&secret).await.unwrap().actor().to_string();
            assert!(shown.ends_with(" via login.example.com"), "{shown}");
            assert!(!shown.contains(char::is_control) && shown.chars().count() <= 128, "{shown}");
        }
    });
}

#[test]
fn namespace_of_another_pair_tells_nothing_of_its_apps() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        register(&world, "shop-eu", "prod").await;
        let who = principal(Role::Admin, Realm::Project { project: "shop".parse().unwrap() });
        for name in ["api", "other"] {
            let app = world::registration(name, Policy::default());
            let app = app.with(|app| {
                app.project = "shop".parse().unwrap();
                app.environment = "eu-prod".parse().unwrap();
            });
            let refused = world.management.register(&who, app, None).await.unwrap_err();
            let Refusal::Core(CoreRefusal::InvalidField(Field::Environment, why)) = refused else {
                panic!("{name}: {refused}")
            };
            assert!(why.contains("shop-eu-prod belongs to another project"), "{name}: {why}");
        }
    });
}

#[test]
fn refusals_of_one_caller_do_not_fill_the_audit() {
    let world = ManagedWorld::new(INSTANT);
    world.run(async {
        let id = register(&world, "shop", "test").await;
        let viewer = principal(Role::Viewer, realm("shop", "test"));
        for _ in 0..500 {
            world.management.allow(&viewer, &id, AppAction::ReadToken).await.unwrap_err();
        }
        let entries = world.management.audited(&world.operator, None, 1000).await.unwrap().0;
        assert_eq!(entries.iter().filter(|audited| !audited.entry.is_allowed).count(), 100);
    });
}

#[test]
fn command_line_borrows_a_session_by_a_code_that_counts_once_for_the_holder_of_its_secret() {
    let world = ManagedWorld::new(INSTANT);
    world.idle(async {
        let (management, other) = (&world.management, world.managed_replica("two", 7));
        [&**management, &*other].into_iter().for_each(|management| let_people_in(management, &Role::ALL));
        let session = management.begin_person_session(person("1", "ada@example.com", Role::Viewer)).await.unwrap();
        // SHA-256 of "verifier".
        let challenge = "88c9eae68eb300b2971a2bec9e5a26ff4179fd661d6b7d861e4c6557b9aaee14".parse().unwrap();
        let code = management.lend_session(&session, &challenge).await.unwrap();
        let (token, principal) = other.redeem_code(&code, "verifier").await.unwrap();
        assert_eq!(principal.actor().to_string(), "ada@example.com via login.example.com");
        let unauthorized = Refusal::UNAUTHORIZED;
        assert_eq!(other.redeem_code(&code, "verifier").await.unwrap_err(), unauthorized, "once");
        let code = management.lend_session(&session, &challenge).await.unwrap();
        assert_eq!(other.redeem_code(&code, "guess").await.unwrap_err(), unauthorized);
        assert_eq!(other.redeem_code(&code, "verifier").await.unwrap_err(), unauthorized, "a guess uses it up");
        let late = management.lend_session(&session, &challenge).await.unwrap();
        world.clock.sleep(Duration::from_secs(60)).await;
        assert_eq!(other.redeem_code(&late, "verifier").await.unwrap_err(), unauthorized, "a minute later");

        assert!(other.authenticate(token.as_bytes(), None).await.is_ok());
        assert!(other.authenticate(session.as_bytes(), None).await.is_err(), "a browser's secret is no bearer token");
        management.end_session(&session).await.unwrap();
        assert_eq!(other.authenticate(token.as_bytes(), None).await.unwrap_err(), unauthorized);
    });
}

#[test]
fn command_lines_session_of_a_token_ends_with_the_token_and_after_half_a_day() {
    let world = ManagedWorld::new(INSTANT);
    world.idle(async {
        let text = made(&world.management, &world.operator, token("ada", Role::Deployer)).await;
        let challenge = "88c9eae68eb300b2971a2bec9e5a26ff4179fd661d6b7d861e4c6557b9aaee14".parse().unwrap();
        let login = async || {
            let session = world.management.begin_session(text.expose().as_bytes(), None).await.unwrap().0;
            let code = world.management.lend_session(&session, &challenge).await.unwrap();
            world.management.redeem_code(&code, "verifier").await.unwrap().0
        };
        let first = login().await;
        world.clock.sleep(LOGIN_MAX).await;
        assert!(world.management.authenticate(first.as_bytes(), None).await.is_err());
        let second = login().await;
        assert!(world.management.authenticate(second.as_bytes(), None).await.is_ok());
        world.management.revoke_api_token(&world.operator, &"ada".parse().unwrap()).await.unwrap();
        assert!(world.management.authenticate(second.as_bytes(), None).await.is_err());
    });
}
