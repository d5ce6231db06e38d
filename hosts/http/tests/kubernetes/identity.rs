//! Callers who prove themselves by tokens of a real API server, whose roles say what they may do. Rollouts are simulated.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use rollhook_testing::{
    Call, Reply, Server,
    beds::{Kubectl, OwnCluster},
    server,
    server::registration,
    test_name, until,
};
use serde_json::{Value, json};

use crate::calls::calls;

/// A cluster, and a server that may do in it what the printed manifests say, with apps in `shop-test` and `shop-prod`.
struct World {
    cluster: OwnCluster,
    server: Server,
}

impl World {
    fn new(test: &str) -> Option<Self> {
        Self::logging(test, "info")
    }

    fn logging(test: &str, level: &str) -> Option<Self> {
        let cluster = OwnCluster::up(test)?;
        let kubectl = |namespace: &str| Kubectl { state: cluster.state.clone(), namespace: namespace.to_owned() };
        for namespace in ["rollhook", "ci", "shop-test", "shop-prod"] {
            kubectl("").run(&["create", "namespace", namespace]);
        }
        let start = server!().arguments(["--kubernetes-identity"]).variable("RUST_LOG", level);
        let arguments = ["manifests", "--app-namespace", "shop-test", "--kubernetes-identity"];
        let printed = start.command().args(arguments).output().unwrap();
        assert!(printed.status.success(), "{printed:?}");
        kubectl("").apply(&String::from_utf8(printed.stdout).unwrap());
        let kubeconfig = start.file("kubeconfig");
        kubectl("rollhook").write_kubeconfig("rollhook", &kubeconfig);
        let server = start.variable("KUBECONFIG", kubeconfig).run();
        Some(Self { cluster, server })
    }

    fn kubectl(&self, namespace: &str) -> Kubectl {
        Kubectl { state: self.cluster.state.clone(), namespace: namespace.to_owned() }
    }

    /// Makes a service account, and returns a token of it for this server.
    fn account(&self, name: &str) -> String {
        self.kubectl("ci").run(&["create", "serviceaccount", name]);
        self.token(name, "rollhook")
    }

    fn token(&self, account: &str, audience: &str) -> String {
        self.kubectl("ci").run(&["create", "token", account, "--audience", audience]).trim().to_owned()
    }

    /// Binds a ClusterRole to a service account in a namespace, by a RoleBinding of the account's name.
    fn bind(&self, namespace: &str, role: &str, account: &str) {
        let name = account;
        let (role, account) = (format!("--clusterrole={role}"), format!("--serviceaccount=ci:{account}"));
        self.kubectl(namespace).run(&["create", "rolebinding", name, &role, &account]);
    }

    fn call(&self, token: &str, method: &str, path: &str) -> Call {
        Call::to(self.server.address, method, path).header("authorization", &format!("Bearer {token}"))
    }

    /// Waits until the caller may read the app: the API server learns of bindings with a delay.
    fn until_bound(&self, token: &str, path: &str) {
        until("the binding counts", || self.call(token, "GET", path).send().status == 200);
    }
}

fn send(call: Call, body: &Value) -> Reply {
    if body.is_null() { call.send() } else { call.json(body).send() }
}

/// Returns the token with one claim replaced: its signature fits no longer.
fn forged(token: &str, name: &str, value: Value) -> String {
    let parts: Vec<&str> = token.split('.').collect();
    let mut claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(parts[1]).unwrap()).unwrap();
    claims[name] = value;
    format!("{}.{}.{}", parts[0], URL_SAFE_NO_PAD.encode(claims.to_string()), parts[2])
}

const ROLES: [&str; 3] = ["viewer", "deployer", "admin"];

#[test]
fn service_account_with_a_role_in_one_namespace_makes_the_calls_of_the_table_there_and_none_elsewhere() {
    let Some(world) = World::new(&test_name!()) else { return };
    let elsewhere = registration("elsewhere", &json!({ "environment": "prod", "image": "r.example.com/api:1" }));
    world.server.manage("POST", "/api/v1/apps").json(&elsewhere).expect(201);
    for (index, role) in ROLES.into_iter().enumerate() {
        let app = world.server.app(role);
        let token = world.account(role);
        world.bind("shop-test", &format!("rollhook-{role}"), role);
        world.until_bound(&token, &app.path);
        let who = world.call(&token, "GET", "/api/v1/whoami").expect(200).json();
        let expected = json!({ "actor": format!("system:serviceaccount:ci:{role}"), "roles": [], "in_cluster": true });
        assert_eq!(who, expected);
        let listed = world.call(&token, "GET", "/api/v1/apps?limit=200").expect(200).json()["apps"].clone();
        let listed = listed.as_array().unwrap();
        assert!(!listed.is_empty() && listed.iter().all(|app| app["namespace"] == "shop-test"), "{listed:?}");
        for (method, path, body, _) in calls("elsewhere") {
            let elsewhere = path.replace("shop-test", "shop-prod").replace("shop/test", "shop/prod");
            if elsewhere.contains("shop-prod/") {
                let reply = send(world.call(&token, method, &elsewhere), &body);
                assert_eq!((reply.status, reply.problem().as_str()), (404, "app-not-found"), "{role}: {elsewhere}");
            } else if elsewhere.contains("shop/prod") {
                assert_eq!(send(world.call(&token, method, &elsewhere), &body).status, 403, "{role}: {elsewhere}");
            }
        }
        for (method, path, body, may) in calls(role) {
            // Tokens, receivers, the audit and the list of requirements belong to no namespace.
            let is_wide = path.ends_with("/requirements")
                || ["/tokens", "/receivers", "/audit"].iter().any(|wide| path.contains(wide));
            let reply = send(world.call(&token, method, path), &body);
            let expected = may[index] && !is_wide;
            assert_eq!(reply.status != 403, expected, "{role}: {method} {path}: {} {}", reply.status, reply.text());
            assert!(reply.status < 500, "{role}: {method} {path}: {}", reply.text());
            if reply.status == 403 {
                assert_eq!(reply.problem(), "forbidden");
            }
        }
    }
    // Bound everywhere, the same role reaches everything, and the audit names those who were refused.
    let everywhere = ["--clusterrole=rollhook-admin", "--serviceaccount=ci:admin"];
    world.kubectl("").run(&["create", "clusterrolebinding", "admins", everywhere[0], everywhere[1]]);
    let token = world.token("admin", "rollhook");
    world.until_bound(&token, "/api/v1/apps/shop-prod/elsewhere");
    let entries = world.call(&token, "GET", "/api/v1/audit?limit=200").expect(200).json()["entries"].clone();
    let refused = |entry: &&Value| entry["allowed"] == false;
    let who: Vec<&Value> = entries.as_array().unwrap().iter().filter(refused).map(|entry| &entry["actor"]).collect();
    assert!(who.contains(&&json!("system:serviceaccount:ci:viewer")), "{who:?}");
    world.call(&token, "GET", "/api/v1/tokens").expect(200);
}

#[test]
fn history_names_the_service_account_that_deployed() {
    let Some(world) = World::new(&test_name!()) else { return };
    let app = world.server.app("api");
    let token = world.account("deployer");
    world.bind("shop-test", "rollhook-deployer", "deployer");
    world.until_bound(&token, &app.path);
    let deploys = world.call(&token, "POST", &format!("{}/deploys", app.path));
    deploys.json(&json!({ "image": "r.example.com/api:2" })).header("prefer", "wait=20").expect(200);
    let newest = &world.call(&token, "GET", &format!("{}/deploys", app.path)).expect(200).json()["deploys"][0];
    assert_eq!((&newest["actor"], &newest["trigger"]), (&json!("system:serviceaccount:ci:deployer"), &json!("manual")));
}

#[test]
fn token_that_the_cluster_does_not_vouch_for_is_refused_and_shown_nowhere() {
    let Some(world) = World::logging(&test_name!(), "trace") else { return };
    let app = world.server.app("api");
    let token = world.account("deployer");
    world.bind("shop-test", "rollhook-deployer", "deployer");
    world.until_bound(&token, &app.path);
    let other = world.token("deployer", "another-program");
    let kubernetes = world.kubectl("ci").run(&["create", "token", "deployer"]);
    for (what, refused) in [
        ("another audience", other.clone()),
        ("the API server's own audience", kubernetes.trim().to_owned()),
        ("another audience, said to be ours", forged(&other, "aud", json!(["rollhook"]))),
        ("another account", forged(&token, "sub", json!("system:serviceaccount:ci:admin"))),
        ("an expired one", forged(&token, "exp", json!(1_700_000_000))),
        ("half of it", token[..token.len() / 2].to_owned()),
    ] {
        let reply = world.call(&refused, "GET", &app.path).expect(401);
        assert_eq!(reply.problem(), "unauthorized", "{what}");
    }
    // The console has sessions of its own.
    let body = format!("token={token}");
    let form = world.server.call("POST", "/sign-in").header("content-type", "application/x-www-form-urlencoded");
    let form = form.header("sec-fetch-site", "same-origin").body(body.as_bytes()).send();
    assert!((400..500).contains(&form.status), "{}", form.status);
    assert!(form.text().contains("begins no session"), "{}", form.text());

    world.kubectl("ci").run(&["delete", "serviceaccount", "deployer"]);
    // The API server remembers a token for up to 10 s.
    until("the account is gone", || world.call(&token, "GET", &app.path).send().status == 401);
    // An account of the same name is another one.
    world.account("deployer");
    world.call(&token, "GET", &app.path).expect(401);
    let log = world.server.log();
    for secret in [&token, &other] {
        assert!(!log.contains(secret.rsplit('.').next().unwrap()), "a token is in the log");
    }
}

#[test]
fn made_up_tokens_of_the_cluster_s_issuer_use_up_nothing_that_new_ones_need() {
    let Some(world) = World::new(&test_name!()) else { return };
    let (token, app) = (world.account("deployer"), world.server.app("api"));
    world.bind("shop-test", "rollhook-deployer", "deployer");
    // More than a network's share of tokens of which nothing is known, and fewer than an address may fail with.
    for index in 0..40 {
        let made_up = forged(&token, "jti", json!(index.to_string()));
        world.call(&made_up, "GET", "/api/v1/whoami").expect(401);
    }
    world.until_bound(&token, &app.path);
    assert!(!world.server.log().contains("reading the keys of the API server failed"));
}

#[test]
fn right_that_is_taken_away_counts_no_longer_and_a_cluster_that_is_away_gives_none() {
    let Some(world) = World::new(&test_name!()) else { return };
    let app = world.server.app("api");
    let token = world.account("deployer");
    world.bind("shop-test", "rollhook-viewer", "deployer");
    let kubectl = world.kubectl("shop-test");
    let rules = ["--verb=create", "--resource=rollhookapps.rollhook.dev/rollback", "--resource-name=api"];
    kubectl.run(&["create", "role", "on-call", rules[0], rules[1], rules[2]]);
    kubectl.run(&["create", "rolebinding", "on-call", "--role=on-call", "--serviceaccount=ci:deployer"]);
    world.until_bound(&token, &app.path);
    let rollback = |token: &str| world.call(token, "POST", &format!("{}/rollback", app.path)).json(&json!({})).send();
    let status = || rollback(&token).status;
    until("the role counts", || status() == 409);
    kubectl.run(&["delete", "rolebinding", "on-call"]);
    until("the role is taken away", || status() == 403);
    let refused = rollback(&token).text();
    assert!(refused.contains("create rollhookapps/rollback"), "{refused}");

    world.cluster.service("apiserver", "stop");
    let away = world.call(&token, "GET", &app.path).expect(503);
    assert_eq!((away.problem().as_str(), away.header("retry-after").is_some()), ("review-unavailable", true));
    world.call(&token, "GET", "/api/v1/apps").expect(503);
    world.server.manage("GET", &app.path).expect(200);
    world.cluster.service("apiserver", "start");
    until("the cluster is asked again", || world.call(&token, "GET", &app.path).send().status == 200);
    kubectl.run(&["delete", "rolebinding", "deployer"]);
    until("the app is unknown", || world.call(&token, "GET", &app.path).send().status == 404);
}
