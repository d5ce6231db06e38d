//! Roles, API tokens and the audit, against the real binary.

use rollhook_testing::{Call, Server, server};
use serde_json::{Value, json};

use crate::calls::calls;

/// Makes an API token, and returns its text.
fn token(server: &Server, body: &Value) -> String {
    let made = server.manage("POST", "/api/v1/tokens").json(body).expect(201).json();
    made["token"].as_str().unwrap().to_owned()
}

fn call(server: &Server, token: &str, method: &str, path: &str) -> Call {
    Call::to(server.address, method, path).header("authorization", &format!("Bearer {token}"))
}

#[test]
fn each_role_makes_the_calls_of_the_table_and_no_others() {
    let server = server!().run();
    for (index, role) in ["viewer", "deployer", "admin"].into_iter().enumerate() {
        server.app(role);
        let body = json!({ "name": format!("a-{role}"), "role": role, "project": "shop", "environment": "test" });
        let token = token(&server, &body);
        for (method, path, body, may) in calls(role) {
            let call = call(&server, &token, method, path);
            let reply = if body.is_null() { call.send() } else { call.json(&body).send() };
            assert_eq!(reply.status != 403, may[index], "{role}: {method} {path}: {} {}", reply.status, reply.text());
            assert!(reply.status < 500, "{role}: {method} {path}: {}", reply.text());
            if reply.status == 403 {
                assert_eq!(reply.problem(), "forbidden");
            }
        }
    }
    // Every refusal is in the audit.
    let entries = server.manage("GET", "/api/v1/audit?limit=200").expect(200).json()["entries"].clone();
    let refused = |who: &str| {
        let entries = entries.as_array().unwrap().iter();
        entries.filter(|entry| entry["actor"] == who && entry["allowed"] == false).count()
    };
    let expected = |role: usize| calls("api").iter().filter(|(.., may)| !may[role]).count();
    assert_eq!(
        [refused("a-viewer"), refused("a-deployer"), refused("a-admin")],
        [expected(0), expected(1), expected(2)]
    );
}

#[test]
fn token_of_another_project_finds_and_lists_nothing_of_this_one() {
    let server = server!().run();
    server.app("api");
    let stranger = token(&server, &json!({ "name": "blog", "role": "admin", "project": "blog" }));
    for (method, path, body, _) in calls("api").into_iter().filter(|(_, path, ..)| path.starts_with("/api/v1/apps/")) {
        let call = call(&server, &stranger, method, path);
        let reply = if body.is_null() { call.send() } else { call.json(&body).send() };
        assert_eq!((reply.status, reply.problem().as_str()), (404, "app-not-found"), "{method} {path}");
    }
    let apps = call(&server, &stranger, "GET", "/api/v1/apps").expect(200).json();
    assert_eq!(apps["apps"], json!([]));
    let register = json!({ "project": "shop", "environment": "test", "app": "b", "image": "r.example.com/b:1" });
    call(&server, &stranger, "POST", "/api/v1/apps").json(&register).expect(403);
    let wider = json!({ "name": "more", "role": "viewer" });
    call(&server, &stranger, "POST", "/api/v1/tokens").json(&wider).expect(403);
    assert_eq!(
        call(&server, &stranger, "GET", "/api/v1/tokens").expect(200).json()["tokens"].as_array().unwrap().len(),
        1
    );
    assert_eq!(
        call(&server, &stranger, "GET", "/api/v1/audit").expect(200).json()["entries"].as_array().unwrap().len(),
        1
    );
}

#[test]
fn token_is_the_actor_of_its_deploys_whatever_name_the_caller_claims() {
    let server = server!().run();
    let app = server.app("api");
    let ci = token(&server, &json!({ "name": "ci-shop", "role": "deployer", "project": "shop" }));
    let deploy = |token: &str| {
        let posted =
            call(&server, token, "POST", &format!("{}/deploys", app.path)).header("x-rollhook-actor", "mallory");
        let posted = posted.json(&json!({ "image": "r.example.com/api:2" })).expect(202).json();
        let entry = call(&server, &server.admin, "GET", posted["url"].as_str().unwrap()).expect(200).json();
        entry["actor"].as_str().unwrap().to_owned()
    };
    assert_eq!(deploy(&ci), "ci-shop");
    assert_eq!(deploy(&server.admin), "mallory (admin)", "people share the admin token, and name themselves");
    let whoami = call(&server, &ci, "GET", "/api/v1/whoami").expect(200).json();
    let roles = json!([{ "role": "deployer", "project": "shop" }]);
    assert_eq!(whoami, json!({ "actor": "ci-shop", "roles": roles, "in_cluster": false }));
}

#[test]
fn revoked_or_unknown_token_is_401_and_no_answer_or_log_has_a_token() {
    let mut server = server!().run();
    let body = json!({ "name": "a-ci", "role": "viewer", "expires": "90d" });
    let ci = token(&server, &body);
    assert_eq!(server.manage("POST", "/api/v1/tokens").json(&body).expect(409).problem(), "token-exists");
    call(&server, &ci, "GET", "/api/v1/apps").expect(200);
    server.restart();
    call(&server, &ci, "GET", "/api/v1/apps").expect(200);
    let listed = server.manage("GET", "/api/v1/tokens").expect(200).json();
    let shown = &listed["tokens"][0];
    assert_eq!((&shown["name"], &shown["role"]), (&json!("a-ci"), &json!("viewer")));
    assert!(shown["expires_at"].is_string() && shown["last_used_at"].is_string(), "{shown}");
    server.manage("DELETE", "/api/v1/tokens/a-ci").expect(204);
    assert_eq!(server.manage("DELETE", "/api/v1/tokens/a-ci").expect(404).problem(), "token-not-found");
    assert_eq!(call(&server, &ci, "GET", "/api/v1/apps").expect(401).problem(), "unauthorized");
    server.restart();
    call(&server, &ci, "GET", "/api/v1/apps").expect(401);
    let audit = server.manage("GET", "/api/v1/audit?limit=2").expect(200).json();
    assert_eq!(audit["entries"].as_array().unwrap().len(), 2);
    let next = audit["next"].as_str().unwrap();
    let rest = server.manage("GET", &format!("/api/v1/audit?limit=2&after={next}")).expect(200).json();
    assert_eq!(rest["entries"][0]["subject"], "API token a-ci, made: viewer of everything", "{rest}");
    let said = format!("{listed}{audit}{rest}{}", server.recipe().log());
    assert!(!said.contains(&ci) && !said.contains(&server.admin));
    assert!(said.contains("rollhook::audit"), "the log has the audit");
    for (body, field) in [
        (json!({ "name": "A", "role": "viewer" }), "name"),
        (json!({ "name": "a", "role": "owner" }), "role"),
        (json!({ "name": "a", "role": "viewer", "environment": "test" }), "environment"),
        (json!({ "name": "a", "role": "viewer", "expires": "soon" }), "expires"),
    ] {
        assert_eq!(server.manage("POST", "/api/v1/tokens").json(&body).expect(422).json()["field"], field);
    }
    server.manage("GET", "/api/v1/audit?after=x").expect(400);
}

#[test]
fn locked_app_answers_423_with_the_reason_and_the_time_to_wait() {
    let server = server!().run();
    let app = server.app("api");
    let hook = |tag: &str| {
        let image = json!({ "image": format!("r.example.com/api:{tag}") });
        server.call("POST", &app.hook).header("x-service-token", &app.token).json(&image)
    };
    let lock = format!("{}/lock", app.path);
    for bad in
        [json!({}), json!({ "reason": "" }), json!({ "reason": "a\nb" }), json!({ "reason": "a", "expires": "soon" })]
    {
        assert_eq!(server.manage("PUT", &lock).json(&bad).expect(422).problem(), "invalid-field", "{bad}");
    }
    let until = json!({ "reason": "release freeze", "expires": "2h" });
    let locked = server.manage("PUT", &lock).json(&until).expect(200).json();
    assert_eq!((&locked["locks"][0]["on"], &locked["locks"][0]["reason"]), (&json!("app"), &json!("release freeze")));
    let refused = hook("2").expect(423);
    assert_eq!(refused.problem(), "locked");
    let wait: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((7_000..=7_200).contains(&wait), "{wait}");
    let problem = refused.json();
    assert_eq!(problem["lock"]["reason"], "release freeze");
    assert!(problem["detail"].as_str().unwrap().contains("\"release freeze\""), "{problem}");
    // A webhook has no glass to break.
    for reason in [json!("please"), json!(true)] {
        let image = json!({ "image": "r.example.com/api:2", "break_glass": reason });
        server.call("POST", &app.hook).header("x-service-token", &app.token).json(&image).expect(423);
    }
    server.manage("POST", &format!("{}/rollback", app.path)).json(&json!({ "revision": 1 })).expect(202);
    let glass = json!({ "image": "r.example.com/api:3", "break_glass": "the shop is down" });
    server.manage("POST", &format!("{}/deploys", app.path)).json(&glass).expect(202);
    let audit = server.manage("GET", "/api/v1/audit").expect(200).text();
    assert!(audit.contains("app shop-test/api: the shop is down"), "{audit}");
    server.manage("DELETE", &lock).expect(200);
    hook("4").expect(202);

    server.manage("PUT", "/api/v1/locks/shop/test").json(&json!({ "reason": "fair" })).expect(200);
    assert_eq!(hook("5").expect(423).header("retry-after").unwrap(), "300");
    let create = json!({ "project": "shop", "environment": "test", "app": "late", "image": "r.example.com/b:1" });
    server.manage("POST", "/api/v1/apps").json(&create).expect(423);
    let locks = server.manage("GET", "/api/v1/locks").expect(200).json();
    assert_eq!((&locks["locks"][0]["project"], &locks["locks"][0]["on"]), (&json!("shop"), &json!("environment")));
    let viewer = token(&server, &json!({ "name": "blog", "role": "admin", "project": "blog" }));
    assert_eq!(call(&server, &viewer, "GET", "/api/v1/locks").expect(200).json()["locks"], json!([]));
    server.manage("DELETE", "/api/v1/locks/shop/test").expect(204);
    hook("5").expect(202);
}

#[test]
fn rotated_token_and_the_one_before_are_let_in() {
    let server = server!().run();
    let app = server.app("api");
    let opens = |token: &str| {
        let image = json!({ "image": "r.example.com/api:2" });
        server.call("POST", &app.hook).header("x-service-token", token).json(&image).send().status
    };
    let rotate = format!("{}/webhook/rotate", app.path);
    server.manage("POST", &rotate).json(&json!({ "overlap": "200h" })).expect(422);
    let rotated = server.manage("POST", &rotate).expect(200).json();
    let new = rotated["token"].as_str().unwrap().to_owned();
    assert!(rotated["previous_until"].is_string(), "{rotated}");
    assert_eq!([opens(&app.token), opens(&new), opens("rh_nothing")], [202, 202, 401]);
    let masked = server.manage("GET", &format!("{}/webhook?masked=true", app.path)).expect(200).json();
    assert_eq!((&masked["token"], &masked["previous_until"]), (&json!(""), &rotated["previous_until"]));
    // A call that is repeated because its answer was lost ends no token that CI has.
    assert_eq!(server.manage("POST", &rotate).expect(409).problem(), "rotated-already");
    assert_eq!([opens(&app.token), opens(&new)], [202, 202]);
}
