//! Callers whom an authority outside of the service knows: they may do what it says at the very call, and no more.

use std::{
    collections::{BTreeSet, HashMap},
    mem,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rollhook_core::{
    Error, Result,
    action::Action as AppAction,
    app::{AppId, FullName},
    ports::AppPage,
    request::{Field, PromoteRequest, Refusal as CoreRefusal},
};
use rollhook_management::{
    Management, Ports, Refusal,
    access::{Action, Permission, Principal, Role},
    locks::NewLock,
    ports::{AccessReviewer, BearerToken, ReviewScope, ReviewedCaller, SignatureCheck},
};
use serde_json::json;

use crate::world::{
    ManagedWorld,
    actions::{realm, refusal, register, token},
};

const INSTANT: Duration = Duration::ZERO;
const NAME: &str = "system:serviceaccount:ci:deployer";

/// An authority that knows these tokens and rights, and the questions that it was asked.
#[derive(Default)]
struct Authority {
    callers: Mutex<HashMap<String, &'static str>>,
    /// Permission and scope: `get apps` in ``, `shop-test` or `shop-test/api`.
    rights: Mutex<BTreeSet<(String, String)>>,
    questions: Mutex<Vec<String>>,
    /// What is known of the signatures of tokens; of others, nothing is.
    signatures: Mutex<HashMap<String, SignatureCheck>>,
    is_away: Mutex<bool>,
}

impl Authority {
    fn ask(&self, question: String) -> Result<()> {
        self.questions.lock().unwrap().push(question);
        match *self.is_away.lock().unwrap() {
            true => Err(Error::Unavailable { what: "away".to_owned(), cause: None }),
            false => Ok(()),
        }
    }

    fn grant(&self, action: Action, scope: &str) {
        self.rights.lock().unwrap().insert((action.permission().to_string(), scope.to_owned()));
    }

    fn revoke_all(&self) {
        self.rights.lock().unwrap().clear();
    }

    /// The questions since the last call.
    fn questions(&self) -> Vec<String> {
        mem::take(&mut self.questions.lock().unwrap())
    }
}

#[async_trait]
impl AccessReviewer for Authority {
    fn authority(&self) -> &str {
        "kubernetes"
    }

    fn audience(&self) -> &str {
        "rollhook"
    }

    async fn signature(&self, token: &BearerToken) -> SignatureCheck {
        self.signatures.lock().unwrap().get(token.expose()).copied().unwrap_or(SignatureCheck::Unknown)
    }

    async fn authenticate(&self, token: &BearerToken) -> Result<Option<ReviewedCaller>> {
        self.ask("whose token is it?".to_owned())?;
        let name = self.callers.lock().unwrap().get(token.expose()).copied();
        Ok(name.map(|name| ReviewedCaller { name: name.to_owned(), ..ReviewedCaller::default() }))
    }

    async fn allows(&self, caller: &ReviewedCaller, permission: Permission, scope: ReviewScope<'_>) -> Result<bool> {
        assert_eq!(caller.name, NAME);
        let scopes = match scope {
            ReviewScope::Everything => vec![String::new()],
            ReviewScope::Namespace(namespace) => vec![String::new(), namespace.to_string()],
            ReviewScope::App(namespace, name) => {
                vec![String::new(), namespace.to_string(), format!("{namespace}/{name}")]
            }
        };
        self.ask(format!("{permission} in {}", scopes.last().unwrap()))?;
        let rights = self.rights.lock().unwrap();
        Ok(scopes.into_iter().any(|scope| rights.contains(&(permission.to_string(), scope))))
    }
}

fn jwt(claims: &serde_json::Value) -> String {
    let part = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.AAAA", part(&json!({ "alg": "RS256", "kid": "1" })), part(claims))
}

/// A token that is for us, and ends in an hour.
fn good() -> String {
    jwt(&json!({ "aud": ["rollhook"], "exp": 1_700_003_600, "sub": NAME }))
}

/// A replica that asks the authority.
fn asking(world: &ManagedWorld) -> (Arc<Authority>, Arc<Management>) {
    let authority = Arc::new(Authority::default());
    authority.callers.lock().unwrap().insert(good(), NAME);
    let reviewer = Some(Arc::clone(&authority) as Arc<dyn AccessReviewer>);
    let ports = Ports::new(world.records()).with(|ports| ports.reviewer = reviewer);
    (authority, world.managed(world.replica("two", 9), ports))
}

async fn caller(management: &Management) -> Principal {
    management.authenticate(good().as_bytes(), None).await.unwrap()
}

fn belongs_to_no_namespace(action: Action) -> bool {
    matches!(action, Action::ManageTokens | Action::ManageSessions | Action::ManageReceivers | Action::ReadAudit)
}

/// The scope in which an action is granted to one who may do it in `shop-test` alone.
fn scope(action: Action) -> &'static str {
    if belongs_to_no_namespace(action) { "" } else { "shop-test" }
}

/// Ends the lock of the other party, by which locking is another action.
async fn unlock(management: &Management, id: &AppId) {
    management.unlock(&Principal::trusted("another"), id).await.unwrap();
}

#[test]
fn permission_to_pass_locks_is_none_to_deploy() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        let id = register(&world, "shop", "test").await;
        let who = caller(&management).await;
        let reason = "an outage".parse().unwrap();
        authority.grant(Action::Read, "shop-test");
        authority.grant(Action::BreakGlass, "shop-test");
        let access = management.break_glass(&who, &id, &reason).await.unwrap();
        assert!(!access.allows(rollhook_core::action::Action::Deploy));
        authority.grant(Action::Deploy, "shop-test");
        let access = management.break_glass(&who, &id, &reason).await.unwrap();
        assert!(access.allows(rollhook_core::action::Action::Deploy));
    });
}

#[test]
fn each_permission_allows_its_own_action_in_its_namespace_and_nothing_else() {
    for granted in Action::ALL.iter().copied() {
        let world = ManagedWorld::new(INSTANT);
        let (authority, management) = asking(&world);
        world.run_managed(&management, async {
            let (id, elsewhere) = (register(&world, "shop", "test").await, register(&world, "shop", "prod").await);
            let who = caller(&management).await;
            assert_eq!(who.actor().to_string(), NAME);
            for action in Action::ALL.iter().copied() {
                authority.revoke_all();
                authority.grant(Action::Read, "shop-test");
                authority.grant(granted, scope(granted));
                // An action on an app elsewhere finds none; one on none is not of this namespace.
                if !matches!(action, Action::Register | Action::Require) && !belongs_to_no_namespace(action) {
                    let refused = refusal(&management, &who, &elsewhere, action).await;
                    assert_eq!(
                        refused,
                        Some(CoreRefusal::AppNotFound(elsewhere.clone()).into()),
                        "{granted}: {action} elsewhere"
                    );
                }
                // The granted action comes last: it may delete the app.
                if granted == action {
                    continue;
                }
                unlock(&management, &id).await;
                let expected = (action != Action::Read).then_some(Refusal::NotGranted(action));
                assert_eq!(refusal(&management, &who, &id, action).await, expected, "{granted}: {action}");
            }
            unlock(&management, &id).await;
            assert_eq!(refusal(&management, &who, &id, granted).await, None, "{granted}");
            authority.revoke_all();
            assert_ne!(refusal(&management, &who, &id, granted).await, None, "{granted}: taken away");
        });
    }
}

#[test]
fn app_that_the_caller_may_not_read_is_unknown_to_it_whatever_else_it_may() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        let id = register(&world, "shop", "test").await;
        let who = caller(&management).await;
        authority.grant(Action::Rollback, "");
        let unknown = Some(CoreRefusal::AppNotFound(id.clone()).into());
        assert_eq!(refusal(&management, &who, &id, Action::Rollback).await, unknown);
        authority.grant(Action::Read, "shop-test/api");
        assert_eq!(refusal(&management, &who, &id, Action::Rollback).await, None, "named alone");
        // An image of another environment is promoted by those alone who may read it.
        register(&world, "shop", "prod").await;
        authority.grant(Action::Promote, "shop-test");
        let names = ("shop".parse().unwrap(), "prod".parse().unwrap(), "api".parse().unwrap());
        let from = FullName { project: names.0, environment: names.1, name: names.2 };
        let refused = management.promote(&who, &id, PromoteRequest::new(from.clone())).await.unwrap_err();
        assert_eq!(refused, CoreRefusal::AppNotFoundIn(from).into());
    });
}

#[test]
fn only_tokens_of_our_audience_and_time_are_asked_about() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        // The store's clock is known.
        register(&world, "shop", "test").await;
        management.create_api_token(&world.operator, token("a-ci", Role::Viewer)).await.unwrap();
        world.sleep(1).await;
        for claims in [
            json!({ "aud": "other", "exp": 1_700_003_600 }),
            json!({ "exp": 1_700_003_600 }),
            json!({ "aud": "rollhook" }),
            json!({ "aud": "rollhook", "exp": 1_699_999_000 }),
        ] {
            let refused = management.authenticate(jwt(&claims).as_bytes(), None).await.unwrap_err();
            assert_eq!(refused, Refusal::UNAUTHORIZED, "{claims}");
        }
        for text in ["", "rh_x", "rhl_x", "a.b.c"] {
            assert_eq!(
                management.authenticate(text.as_bytes(), None).await.unwrap_err(),
                Refusal::UNAUTHORIZED,
                "{text}"
            );
        }
        assert_eq!(authority.questions(), <[&str; 0]>::default());
        let unknown = jwt(&json!({ "aud": "rollhook", "exp": 1_700_003_600, "sub": "a stranger" }));
        assert_eq!(management.authenticate(unknown.as_bytes(), None).await.unwrap_err(), Refusal::UNAUTHORIZED);
        assert_eq!(authority.questions().len(), 1);
    });
}

#[test]
fn flood_of_made_up_tokens_is_asked_about_at_a_bounded_rate_and_known_callers_all_the_same() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        caller(&management).await;
        authority.questions();
        for index in 0..1000 {
            let made_up = jwt(&json!({ "aud": "rollhook", "exp": 1_700_003_600, "jti": index }));
            let refused = management.authenticate(made_up.as_bytes(), None).await.unwrap_err();
            assert!(matches!(refused, Refusal::UNAUTHORIZED | Refusal::ReviewUnavailable), "{refused}");
        }
        assert!(authority.questions().len() <= 100);
        assert!(management.recognizes_api_token(good().as_bytes()), "worth a call, whatever others do");
        caller(&management).await;
        world.sleep(2 * 3600).await;
        assert_eq!(management.authenticate(good().as_bytes(), None).await.unwrap_err(), Refusal::UNAUTHORIZED);
        assert!(!management.recognizes_api_token(good().as_bytes()), "its time is over");
    });
}

/// A token that is for us, and that nobody has issued.
fn made_up(index: u32) -> String {
    jwt(&json!({ "aud": "rollhook", "exp": 1_700_003_600, "jti": index }))
}

#[test]
fn flood_from_one_network_leaves_the_others_their_share() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    let from = |network: u32| Some(IpAddr::V4(network.into()));
    world.run_managed(&management, async {
        for index in 0..1000 {
            let _ = management.authenticate_from(from(1), made_up(index).as_bytes(), None).await;
        }
        assert!(authority.questions().len() <= 20);
        let flooding = management.authenticate_from(from(1), good().as_bytes(), None).await;
        assert_eq!(flooding.unwrap_err(), Refusal::ReviewUnavailable);
        assert!(management.authenticate_from(from(2), good().as_bytes(), None).await.is_ok());
    });
}

#[test]
fn new_token_that_the_authority_signed_is_asked_about_whatever_strangers_send() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        for index in 0..1000 {
            let network = Some(IpAddr::V4(index.into()));
            let _ = management.authenticate_from(network, made_up(index).as_bytes(), None).await;
        }
        assert_eq!(management.authenticate(good().as_bytes(), None).await.unwrap_err(), Refusal::ReviewUnavailable);
        authority.signatures.lock().unwrap().insert(good(), SignatureCheck::Valid);
        assert!(management.authenticate(good().as_bytes(), None).await.is_ok());
    });
}

#[test]
fn account_that_mints_tokens_is_one_caller_with_one_rate() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    let minted =
        |index: u32, name: &str| jwt(&json!({ "aud": "rollhook", "exp": 1_700_003_600, "sub": name, "jti": index }));
    let issue = |token: &str, name: &'static str| {
        authority.signatures.lock().unwrap().insert(token.to_owned(), SignatureCheck::Valid);
        authority.callers.lock().unwrap().insert(token.to_owned(), name);
    };
    let known = |token: &str| management.known_caller(token.as_bytes());
    let another = "system:serviceaccount:ci:another";
    world.run_managed(&management, async {
        for index in 0..100 {
            issue(&minted(index, NAME), NAME);
            let _ = management.authenticate(minted(index, NAME).as_bytes(), None).await;
        }
        assert_eq!(authority.questions().len(), 20);
        assert!(known(&minted(0, NAME)).is_some());
        assert_eq!(known(&minted(0, NAME)), known(&minted(1, NAME)));
        issue(&minted(0, another), another);
        assert!(management.authenticate(minted(0, another).as_bytes(), None).await.is_ok(), "it has its own rate");
        let (one, other) = (known(&minted(0, NAME)).unwrap(), known(&minted(0, another)).unwrap());
        assert!(one.party != other.party && one.environment == other.environment, "accounts of one namespace");
        let (id, account) = (register(&world, "shop", "test").await, "system:serviceaccount:shop-test:deployer");
        issue(&minted(0, account), account);
        management.authenticate(minted(0, account).as_bytes(), None).await.unwrap();
        management.read_environment(&id).await;
        let (account, webhook) = (known(&minted(0, account)).unwrap(), management.webhook_caller(&id));
        assert!(account.project.is_some() && account.environment == webhook.environment, "of one environment");
    });
}

#[test]
fn token_whose_signature_is_none_of_the_authoritys_is_refused_unasked() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        authority.signatures.lock().unwrap().insert(made_up(1), SignatureCheck::Invalid);
        let refused = management.authenticate(made_up(1).as_bytes(), None).await;
        assert_eq!(refused.unwrap_err(), Refusal::UNAUTHORIZED, "it counts as a failure of its sender");
        assert_eq!(authority.questions(), <[&str; 0]>::default());
        // A signature proves no caller.
        authority.signatures.lock().unwrap().insert(made_up(2), SignatureCheck::Valid);
        assert_eq!(management.authenticate(made_up(2).as_bytes(), None).await.unwrap_err(), Refusal::UNAUTHORIZED);
        assert_eq!(authority.questions().len(), 1);
    });
}

#[test]
fn caller_whom_the_authority_forgets_is_like_a_stranger() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        caller(&management).await;
        assert!(management.recognizes_api_token(good().as_bytes()));
        authority.callers.lock().unwrap().clear();
        assert_eq!(management.authenticate(good().as_bytes(), None).await.unwrap_err(), Refusal::UNAUTHORIZED);
        assert!(!management.recognizes_api_token(good().as_bytes()));
    });
}

#[test]
fn authority_that_is_away_is_neither_a_yes_nor_a_no() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        let id = register(&world, "shop", "test").await;
        for action in Action::ALL.iter().copied() {
            authority.grant(action, "");
        }
        let who = caller(&management).await;
        *authority.is_away.lock().unwrap() = true;
        let away = Refusal::ReviewUnavailable;
        assert_eq!(management.authenticate(good().as_bytes(), None).await.unwrap_err(), away);
        assert_eq!(management.confirm(&who).await.unwrap_err(), away);
        assert_eq!(management.open(&who, &id).await.unwrap_err(), away);
        assert_eq!(management.allow(&who, &id, AppAction::Rollback).await.map(drop).unwrap_err(), away);
        assert_eq!(management.apps(&who, AppPage::first(10)).await.unwrap_err(), away);
        assert_eq!(management.api_tokens(&who).await.unwrap_err(), away);
        assert_eq!(management.audited(&who, None, 10).await.unwrap_err(), away);
        assert!(management.open(&world.operator, &id).await.is_ok(), "others are not concerned");
    });
}

#[test]
fn lists_show_the_namespaces_that_the_caller_may_read_and_ask_for_each_once() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        for project in ["blog", "shop", "wiki"] {
            for environment in ["prod", "test"] {
                register(&world, project, environment).await;
                let (reason, project) = ("a freeze".parse().unwrap(), project.parse().unwrap());
                let (lock, environment) = (NewLock { reason, ttl: None }, environment.parse().unwrap());
                management.lock_environment(&world.operator, &project, &environment, lock).await.unwrap();
            }
        }
        let who = caller(&management).await;
        authority.questions();
        let page = AppPage::first;
        let names = async |limit| -> Vec<String> {
            let listed = management.apps(&who, page(limit)).await.unwrap();
            listed.iter().flatten().map(|state| state.app.id.to_string()).collect()
        };
        let locks = async || management.environment_locks(&who).await.unwrap().len();
        assert_eq!((names(10).await.len(), locks().await), (0, 0));
        assert_eq!(authority.questions().len(), 14, "for everything, and for each of six namespaces, by each list");
        authority.grant(Action::Read, "shop-prod");
        authority.grant(Action::Read, "wiki-test");
        assert_eq!(names(1).await, ["shop-prod/api"]);
        assert_eq!((names(10).await, locks().await), (vec!["shop-prod/api".to_owned(), "wiki-test/api".to_owned()], 2));
        authority.questions();
        authority.grant(Action::Read, "");
        assert_eq!((names(10).await.len(), locks().await), (6, 6));
        assert_eq!(authority.questions().len(), 2);
    });
}

#[test]
fn list_of_too_many_namespaces_asks_the_caller_to_name_one() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.idle(async {
        for index in 0..501 {
            register(&world, &format!("p{index}"), "test").await;
        }
        let who = caller(&management).await;
        let refused = management.apps(&who, AppPage::first(200)).await.unwrap_err();
        assert!(matches!(refused, Refusal::Core(CoreRefusal::InvalidField(Field::Namespace, _))), "{refused}");
        assert!(authority.questions().len() <= 502);
        authority.grant(Action::Read, "p7-test");
        let page = AppPage::first(200).of("p7-test".parse::<rollhook_core::app::Namespace>().unwrap());
        assert_eq!(management.apps(&who, page).await.unwrap().len(), 1);
    });
}

#[test]
fn no_session_begins_by_such_a_token_and_none_of_its_text_is_shown() {
    let world = ManagedWorld::new(INSTANT);
    let (_, management) = asking(&world);
    world.run_managed(&management, async {
        let refused = management.begin_session(good().as_bytes(), None).await.unwrap_err();
        assert_eq!(refused, Refusal::NoSession);
        let shown = format!("{:?}", caller(&management).await);
        assert!(!shown.contains(good().split('.').nth(1).unwrap()), "{shown}");
    });
}

#[test]
fn caller_of_a_cluster_makes_tokens_by_a_right_on_the_whole_cluster_alone() {
    let world = ManagedWorld::new(INSTANT);
    let (authority, management) = asking(&world);
    world.run_managed(&management, async {
        let who = caller(&management).await;
        authority.grant(Action::ManageTokens, "shop-test");
        let refused = management.create_api_token(&who, token("a-ci", Role::Viewer)).await.unwrap_err();
        assert_eq!(refused, Refusal::NotGranted(Action::ManageTokens));
        authority.grant(Action::ManageTokens, "");
        let made = management.create_api_token(&who, token("a-ci", Role::Viewer)).await.unwrap().0;
        assert_eq!((made.created_by.to_string().as_str(), made.grant.realm), (NAME, realm("shop", "test")));
    });
}
