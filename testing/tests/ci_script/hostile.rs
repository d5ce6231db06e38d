//! Answers that are not what they seem, and secrets that stay secret.

use rollhook_testing::{server, test_name};
use serde_json::json;

use crate::{
    app,
    front::{Answer, Front},
    job::{Job, in_every_shell},
};

const HOOK: &str = "/api/v1/webhook/shop-test/api";

#[test]
fn text_of_the_server_is_no_command_to_the_terminal_or_the_ci_system() {
    let text = "\u{1b}[2J\u{9b}x\u{202e}\u{2066}\n::error::injected\r\n##[command]x ###vso[x] %0A::warning::y `<b>|";
    let evidence = json!({ "container": text, "pod": null, "events": [text, "::stop-commands::x"], "log": [text] });
    let deploy =
        json!({ "status": "failed", "on_cluster": true, "namespace": "../x", "app": "y", "evidence": evidence });
    let problem = json!({ "detail": text, "revision": 2, "deploy": deploy }).to_string();
    in_every_shell(&test_name!(), |shell| {
        for gitlab in [false, true] {
            let front = Front::start(HOOK, vec![Answer::Told("424 Failed", problem.clone())]);
            let job = Job::new(shell, &front.url, "t").on_github();
            let job = if gitlab { job.without("GITHUB_ACTIONS") } else { job };
            let ended = job.run().exits(3);
            let all = format!("{}{}{}{}", ended.out, ended.err, job.read("summary"), job.read("output"));
            for bad in ["\u{1b}", "\u{9b}", "\u{202e}", "\u{2066}", "\r", "##[", "##v"] {
                assert!(!all.contains(bad), "{bad:?} in {all:?}");
            }
            for line in all.lines().filter(|line| line.trim_start().starts_with("::")) {
                let ours = ["::error title=Deploy::", "::warning title=Deploy::", "::group::Evidence", "::endgroup::"];
                assert!(ours.iter().any(|begin| line.starts_with(begin)), "{line:?}");
                assert!(!line.contains("%0A"), "{line:?}");
            }
            assert!(!job.read("summary").contains("`<b>"), "{all}");
            assert!(job.read("output").ends_with("status=failed\nurl=\n"), "{}", job.read("output"));
        }
    });
}

#[test]
fn strings_are_read_with_their_escapes_and_nothing_else_is_taken_for_json() {
    in_every_shell(&test_name!(), |shell| {
        let answer = r#" {"a":{"revision":9,"status":"failed"},"b":[1,{"status":"x"},"\\\"}"],"status" : "succeeded",
            "revision":2,"namespace":"shop","app":"api","image":"a\"b\\c\/d\u0041\u00e9\ud83d\u001b\t\nä","n":-1.5e3,"t":true,"z":null,"e":{},"l":[]} "#;
        let front = Front::start(HOOK, vec![Answer::Told("200 OK", answer.to_owned())]);
        let ended = Job::new(shell, &front.url, "t").run().ok();
        let expected = "Revision 2 succeeded: shop/api runs a\"b\\c/dA\\u00e9\\ud83d\\u001b  ä\n";
        assert_eq!(ended.out, expected, "{ended:?}");
        for broken in [
            "",
            "{",
            "<html>",
            "[]",
            "{\"revision\":2",
            "{\"revision\":2,\"status\":\"succeeded\"} x",
            "{\"revision\":\"2\\",
            "{\"status\":\"succeeded\"}",
            "{\"revision\":2,\"status\":\"failed\"}",
            "{\"revision\":\"two\",\"status\":\"succeeded\"}",
            &"[".repeat(10_000),
        ] {
            let front = Front::start(HOOK, vec![Answer::Told("200 OK", broken.to_owned())]);
            let ended = Job::new(shell, &front.url, "t").run().exits(1);
            assert!(ended.err.contains("HTTP 200"), "{broken}: {ended:?}");
        }
    });
}

#[test]
fn the_token_is_in_no_process_list_no_environment_and_no_trace() {
    let server = server!().unlimited().run();
    in_every_shell(&test_name!(), |shell| {
        let app = app(&server, shell);
        let job = Job::of(shell, &server, &app).on_github().traced();
        job.replace("curl", r#"{ printf '%s\n' "$@"; env; } >> "$HOME/seen"; exec "$REAL" "$@""#);
        let good = job.run().ok();
        let bad = job.with("IMAGE", "r.example.com/api:missing");
        let failed = bad.run().exits(3);
        let seen = bad.read("seen");
        assert!(seen.contains("Idempotency-Key: 33-2-deploy-") && seen.contains("SERVICE_WEBHOOK_URL="), "{seen}");
        for text in [&seen, &good.out, &good.err, &failed.out, &failed.err, &bad.read("summary"), &bad.read("output")] {
            assert!(!text.contains(&app.token), "{text}");
        }
    });
}

#[test]
fn no_secret_is_in_a_childs_environment_even_if_the_job_exports_the_scripts_variables() {
    let token = json!({ "value": "secret-id-token" }).to_string();
    let succeeded = json!({ "revision": 2, "status": "succeeded" }).to_string();
    in_every_shell(&test_name!(), |shell| {
        let maker = Front::start("/token", vec![Answer::Told("200 OK", token.clone())]);
        let front = Front::start(HOOK, vec![Answer::Told("200 OK", succeeded.clone())]);
        let job = || {
            let names = ["token", "id_token", "maker_token", "proof", "config"];
            names.into_iter().fold(Job::new(shell, &front.url, "secret-token"), |job, name| job.with(name, "x"))
        };
        let gitlab = || job().without("SERVICE_WEBHOOK_TOKEN").with("ROLLHOOK_ID_TOKEN", "secret-id-token");
        let github = || {
            let job = job().without("SERVICE_WEBHOOK_TOKEN").with("ACTIONS_ID_TOKEN_REQUEST_URL", &maker.url);
            job.with("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "secret-of-the-run")
        };
        for job in [job(), job().exporting(), gitlab(), gitlab().exporting(), github(), github().exporting()] {
            job.replace("curl", r#"{ printf '%s\n' "$@"; env; } >> "$HOME/seen"; exec "$REAL" "$@""#);
            job.run().ok();
            let seen = job.read("seen");
            assert!(seen.contains("SERVICE_WEBHOOK_URL=") && !seen.contains("secret"), "{seen}");
        }
        let sent = [front.calls(), maker.calls()].concat().concat();
        for secret in ["X-Service-Token: secret-token\r", "Bearer secret-id-token\r", "Bearer secret-of-the-run\r"] {
            assert!(sent.contains(secret), "{secret}: {sent}");
        }
    });
}

#[test]
fn a_redirect_is_not_followed_with_the_token() {
    in_every_shell(&test_name!(), |shell| {
        let elsewhere = Front::start("/", vec![Answer::Closed]);
        let head: &'static str = format!("302 Found\r\nLocation: {}", elsewhere.url).leak();
        let front = Front::start(HOOK, vec![Answer::Told(head, String::new())]);
        let ended = Job::new(shell, &front.url, "t").run().exits(1);
        assert!(ended.err.contains("redirect") && elsewhere.calls().is_empty(), "{ended:?}");
    });
}
