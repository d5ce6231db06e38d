//! Every kind of secret at every door, beside the table of the security page.

use std::{collections::BTreeSet, fs, sync::Arc};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rollhook_core::{
    Result,
    action::Action,
    app::AppId,
    check::CheckSecret,
    configuration::{Variable, VariablesChange},
    request::ConfigureRequest,
    token::Credentials,
};
use rollhook_management::{
    Management, NotificationPorts, Ports,
    access::{Permission, Realm, Role},
    keyless::{Presented, Trust},
    notifications::EventKind,
    ports::{AccessReviewer, BearerToken, ReviewScope, ReviewedCaller},
};
use rollhook_memory::SimulatedVerifier;
use serde_json::json;

use super::{INSTANT, VERIFIER, ada, challenge, let_people_in, login};
use crate::{
    notifications::bench::{FakeNotifier, FakeSealer, GOOD, wanted},
    world::{
        ManagedWorld, Signed,
        actions::{register, token},
    },
};

const ISSUER: &str = "https://token.example.com";
const CLUSTER: &str = "https://kubernetes.default.svc.cluster.local";
/// The audience of pipelines' tokens and of the cluster's: the same one, so that it keeps none from the other's door.
const AUDIENCE: &str = "rollhook";

/// A cluster that knows one token, whose holder may do everything.
struct Cluster(String);

#[async_trait]
impl AccessReviewer for Cluster {
    fn authority(&self) -> &str {
        "kubernetes"
    }

    fn audience(&self) -> &str {
        AUDIENCE
    }

    async fn authenticate(&self, token: &BearerToken) -> Result<Option<ReviewedCaller>> {
        let caller = || ReviewedCaller { name: "system:serviceaccount:ci:deployer".to_owned(), ..Default::default() };
        Ok((token.expose() == self.0).then(caller))
    }

    async fn allows(&self, _: &ReviewedCaller, _: Permission, _: ReviewScope<'_>) -> Result<bool> {
        Ok(true)
    }
}

/// A token of this issuer, with the claims that pipelines have.
fn jwt(issuer: &str) -> String {
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let claims = json!({
        "iss": issuer, "aud": AUDIENCE, "jti": "a", "repository_id": "7", "repository": "shop/api",
        "iat": 1_700_000_000, "exp": 1_700_003_600,
    });
    format!("{}.{}.AAAA", part(json!({ "alg": "RS256", "kid": "1" })), part(claims))
}

/// The ports of a plane that knows every kind of secret.
fn ports(world: &ManagedWorld) -> Ports {
    let notifications =
        NotificationPorts { notifier: Arc::new(FakeNotifier::default()), sealer: Arc::new(FakeSealer::default()) };
    Ports::new(world.records()).with(|ports| {
        ports.identities = Some(Arc::new(Signed));
        ports.reviewer = Some(Arc::new(Cluster(jwt(CLUSTER))));
        ports.notifications = Some(notifications);
    })
}

/// Returns the doors that a secret opens, in the words of the table.
async fn opened(management: &Management, id: &AppId, secret: &str) -> String {
    let bytes = secret.as_bytes();
    let by_header: Presented = Credentials::token(bytes).into();
    let by_identity = Presented { identity: Some(secret.parse()), ..Presented::default() };
    let mut is_webhook = false;
    for presented in [by_header, by_identity] {
        is_webhook |= management.authorize(id, &presented, b"{}").await.is_ok();
    }
    let doors = [
        ("the API's `Authorization: Bearer`", management.authenticate(bytes, None).await.is_ok()),
        ("the console's cookie", management.session(secret).await.is_ok()),
        ("the console's sign-in", management.begin_session(bytes, None).await.is_ok()),
        ("`POST /api/v1/login`", management.redeem_code(secret, VERIFIER).await.is_ok()),
        ("the app's webhook", is_webhook),
    ];
    let opened: Vec<_> = doors.iter().filter(|(_, is_open)| *is_open).map(|(door, _)| *door).collect();
    if opened.is_empty() { "nowhere here".to_owned() } else { opened.join(", ") }
}

#[test]
fn each_secret_opens_the_door_that_the_table_of_the_security_page_says_and_no_other() {
    let world = ManagedWorld::new(INSTANT);
    let management = world.managed(world.replica("two", 9), ports(&world));
    let_people_in(&management);
    world.run_managed(&management, async {
        let management = &management;
        let id = register(&world, "shop", "test").await;
        let api_token =
            management.create_api_token(&world.operator, token("pipeline", Role::Deployer)).await.unwrap().1;
        let claims = [("repository_id".to_owned(), "7".to_owned())].into();
        let trust = Trust::new(ISSUER.parse().unwrap(), AUDIENCE, claims).unwrap();
        management.add_trust(&world.operator, &id, trust).await.unwrap();
        let browser = management.begin_person_session(ada()).await.unwrap();
        let command_line = login(management, &browser).await.unwrap();
        let code = management.lend_session(&browser, &challenge()).await.unwrap().to_string();
        let access = management.allow(&world.operator, &id, Action::EnableWebhook).await.unwrap();
        let webhook = management.deployer().enable_webhook(&access).await.unwrap().token.expose().to_owned();
        let value = "postgres://shop:hunter2@db/shop";
        let set = [("DATABASE_URL".parse().unwrap(), Variable::new(value.to_owned(), false))].into();
        let change = VariablesChange { set, ..VariablesChange::default() };
        let access = management.allow(&world.operator, &id, Action::Configure).await.unwrap();
        let request = ConfigureRequest::default().with(|request| request.change = change);
        management.deployer().configure(&access, request).await.unwrap();
        let check = SimulatedVerifier::check_of("front".parse().unwrap(), 0.0).with(|check| {
            check.settings.insert("secret_for".to_owned(), "https://shop.example.com".into());
        });
        let of_check = "hunter2-of-a-check".parse::<CheckSecret>().unwrap();
        management.set_check(&world.operator, &id, check, Some(of_check.clone())).await.unwrap();
        let receiver = wanted("ops", GOOD, &[EventKind::Failed], Realm::Everything);
        let receiver = management.add_receiver(&world.operator, receiver).await.unwrap().1.unwrap();

        let secrets = [
            ("webhook token", webhook),
            ("id_token", jwt(ISSUER)),
            ("API token", api_token.expose().to_owned()),
            ("token of the cluster", jwt(CLUSTER)),
            ("session of the console", browser.to_string()),
            ("session of the command line", command_line),
            ("login code", code),
            ("receiver's secret", receiver.expose().to_owned()),
            ("value of a variable", value.to_owned()),
            ("secret of a check", of_check.expose().to_owned()),
        ];
        let table = table();
        let walked: BTreeSet<_> = secrets.iter().map(|(kind, _)| row(&table, kind)).collect();
        assert_eq!(walked.len(), table.len(), "every row of the table is walked");
        for (kind, secret) in &secrets {
            assert_eq!(opened(management, &id, secret).await, table[row(&table, kind)].1, "{kind}");
        }
    });
}

/// Returns the kinds of secrets of the security page, and where it says that each is accepted.
fn table() -> Vec<(String, String)> {
    let page = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md")).unwrap();
    let rows = page.lines().skip_while(|line| !line.starts_with("| secret | is accepted at")).skip(2);
    let rows = rows.take_while(|line| line.starts_with("| "));
    rows.map(|row| {
        let mut cells = row.trim_start_matches("| ").split(" | ");
        (cells.next().unwrap().to_owned(), cells.next().unwrap().to_owned())
    })
    .collect()
}

/// Returns the row of a kind of secret.
fn row(table: &[(String, String)], kind: &str) -> usize {
    table.iter().position(|(name, _)| name.starts_with(kind)).unwrap_or_else(|| panic!("no row: {kind}"))
}
