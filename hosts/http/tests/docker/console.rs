//! The console's form of a new app, on a machine with Docker.

use rollhook_testing::{App, Call, server, test_name};
use serde_json::json;

use crate::bench::Bench;

fn submit(bench: &Bench, path: &str, fields: &[(&str, &str)]) -> Call {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let call = bench.server.call("POST", path).header("sec-fetch-site", "same-origin");
    call.header("content-type", "application/x-www-form-urlencoded").body(body.as_bytes())
}

#[test]
fn container_is_made_as_the_consoles_form_says() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (name, network) = (bench.name("web"), bench.docker.network());
    let signed_in = submit(&bench, "/sign-in", &[("token", &bench.server.admin), ("name", "Ada")]).expect(303);
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();

    let form = bench.server.call("GET", "/apps/new").header("cookie", &cookie).expect(200).text();
    for told in ["Service of Compose", "name=\"template.network\"", "name=\"template.publish\"", "Replacement"] {
        assert!(form.contains(told), "{told}: {form}");
    }
    for foreign in ["StatefulSet", "Pull secret", "pods"] {
        assert!(!form.contains(foreign), "{foreign}: {form}");
    }

    let filled = |port| {
        let app = [("app", name.as_str()), ("project", "shop"), ("environment", "test"), ("image", "app:v1")];
        let settings = [
            ("workload.kind", "container"),
            ("template.network", network.as_str()),
            ("template.port", port),
            ("workload.readiness_path", "/version"),
            ("template.env", "MODE=a=b\r\nEMPTY="),
            ("template.memory", "64m"),
            ("template.labels", "team=shop"),
        ];
        submit(&bench, "/apps/new", &[&app[..], &settings].concat()).header("cookie", &cookie)
    };
    let refused = filled("808000").expect(422).text();
    assert!(refused.contains("Port: must be a whole number up to 65535."), "{refused}");
    assert!(
        refused.contains("MODE=a=b") && refused.contains("aria-invalid=\"true\""),
        "what was filled in stays: {refused}"
    );

    filled("8080").expect(303);
    let app = App::new("shop-test", &name, String::new());
    assert_eq!(bench.ended(&app, 1)["status"], "succeeded");
    assert_eq!(bench.version(&name), "v1");
    let made = bench.inspect(&name).unwrap();
    assert_eq!(
        (&made["HostConfig"]["NetworkMode"], &made["HostConfig"]["Memory"]),
        (&json!(network), &json!(64 << 20))
    );
    assert_eq!(made["Config"]["Labels"]["team"], "shop");
    let env = made["Config"]["Env"].as_array().unwrap();
    assert!(env.contains(&json!("MODE=a=b")) && env.contains(&json!("EMPTY=")), "{made}");
}

#[test]
fn form_that_describes_a_new_container_asks_before_another_one_is_adopted() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (name, port) = (bench.name("db"), rollhook_testing::free_address().port());
    bench.start(&name, &["-p", &format!("127.0.0.1:{port}:8080")], "app:v2");
    let signed_in = submit(&bench, "/sign-in", &[("token", &bench.server.admin), ("name", "Ada")]).expect(303);
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let app = [("app", name.as_str()), ("project", "shop"), ("environment", "test"), ("image", "app:v1")];
    let fields = [&app[..], &[("template.memory", "64m")]].concat();
    let filled =
        |more: &[(&str, &str)]| submit(&bench, "/apps/new", &[&fields[..], more].concat()).header("cookie", &cookie);
    let asked = filled(&[]).expect(409).text();
    assert!(asked.contains("without image, template.memory") && asked.contains("name=\"adopt\""), "{asked}");
    bench.server.manage("GET", &format!("/api/v1/apps/shop-test/{name}")).expect(404);
    let told = filled(&[("adopt", "yes")]).expect(200).text();
    assert!(told.contains("is registered in test") && told.contains(&format!("port {port}")), "{told}");
    bench.server.manage("GET", &format!("/api/v1/apps/shop-test/{name}")).expect(200);
}

/// A key of P-256.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbfwR+RJudXscgRBRpKX1XFDy3Pyu
dDxzgrfFmbjKjK1bCHhAO3T5aDFbJUqE4sX5Iv6uMX8q6lTyzMRwV9JDLA==
-----END PUBLIC KEY-----
";

#[test]
fn signers_are_named_in_the_settings_beside_those_of_the_environment() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let name = bench.name("web");
    bench.start(&name, &[], "app:v1");
    let app = bench.register(&name, &json!({}));
    let signed_in = submit(&bench, "/sign-in", &[("token", &bench.server.admin), ("name", "Ada")]).expect(303);
    let cookie = signed_in.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let settings = format!("/apps/shop-test/{name}/settings");
    let page = || bench.server.call("GET", &settings).header("cookie", &cookie).expect(200).text();
    let saved = |signers: &str| {
        let fields = [("require_signature", signers), ("require_attestation", "")];
        submit(&bench, &settings, &fields).header("cookie", &cookie)
    };

    let identity = "issuer=https://ci.test,subject=https://git.test/shop/*";
    saved(&format!("{identity}\r\n\r\nkey={}", KEY.replace('\n', "\r\n"))).expect(303);
    let policy = bench.server.manage("GET", &app.path).expect(200).json()["policy"].clone();
    assert_eq!(policy["require_signature"], json!([identity, format!("key={KEY}")]), "{policy}");
    let shown = page();
    assert!(shown.contains(identity) && shown.contains("BEGIN PUBLIC KEY") && !shown.contains("loosen"), "{shown}");
    let refused = saved("ada@example.com").expect(422).text();
    assert!(refused.contains("ada@example.com</textarea>") && refused.contains("key=FILE"), "{refused}");

    let demanded = json!({ "require_signature": ["issuer=https://id.test,subject=ada@example.com"] });
    bench.server.manage("PUT", "/api/v1/requirements/shop/test").json(&demanded).expect(200);
    let shown = page();
    assert!(
        shown.contains("The environment requires that images are signed by") && shown.contains("loosen"),
        "{shown}"
    );
}
