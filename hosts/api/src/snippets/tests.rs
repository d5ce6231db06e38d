//! The snippets, run by real shells and a real curl against a server that answers as told.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    process::{Command, Output},
    sync::{Arc, Mutex},
    thread,
};

use super::*;

const TOKEN: &str = "rh_0123456789abcdefghijABCDEFGHIJ0000000";

const AUDIENCE: &str = "https://deploys.example.com";

fn posted() -> Posted {
    Posted::Image("registry.example.com/shop/api".to_owned())
}

#[test]
fn snippets_as_printed() {
    let snippets = Snippets::new(&posted());
    insta::assert_snapshot!("gitlab_ci", snippets.gitlab_ci);
    insta::assert_snapshot!("github_actions", snippets.github_actions);
    insta::assert_snapshot!("shell", snippets.shell);
    let keyless = KeylessSnippets::new(&posted(), AUDIENCE).unwrap();
    insta::assert_snapshot!("gitlab_ci_keyless", keyless.gitlab_ci);
    insta::assert_snapshot!("github_actions_keyless", keyless.github_actions);
    let snippets = Snippets::new(&Posted::Commit);
    insta::assert_snapshot!("gitlab_ci_of_a_git_app", snippets.gitlab_ci);
    assert!(!snippets.github_actions.contains("IMAGE") && !snippets.shell.contains("IMAGE"));
}

/// What a CI system takes out of its YAML.
fn gitlab_script() -> String {
    let job: serde_json::Value = serde_saphyr::from_str(&Snippets::new(&posted()).gitlab_ci).unwrap();
    assert_eq!(job["deploy"]["variables"]["IMAGE"], "registry.example.com/shop/api:$CI_COMMIT_SHA");
    assert_eq!(job["deploy"]["script"].as_array().unwrap().len(), 1);
    job["deploy"]["script"][0].as_str().unwrap().to_owned()
}

fn github_script() -> String {
    let jobs: serde_json::Value = serde_saphyr::from_str(&Snippets::new(&posted()).github_actions).unwrap();
    let step = &jobs["jobs"]["deploy"]["steps"][0];
    assert_eq!(step["env"]["IMAGE"], "registry.example.com/shop/api:${{ github.sha }}");
    assert_eq!(step["env"]["SERVICE_WEBHOOK_TOKEN"], "${{ secrets.SERVICE_WEBHOOK_TOKEN }}");
    step["run"].as_str().unwrap().to_owned()
}

/// A request as it came: head and body.
type Seen = Arc<Mutex<Vec<(String, String)>>>;

/// Answers with these statuses in turn, and the last one ever after.
fn server(statuses: &'static [u16]) -> (String, Seen) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/api/v1/webhook/shop-test/api", listener.local_addr().unwrap());
    let seen = Seen::default();
    let record = Arc::clone(&seen);
    thread::spawn(move || {
        for (index, stream) in listener.incoming().enumerate() {
            let status = statuses[index.min(statuses.len() - 1)];
            record.lock().unwrap().push(answer(stream.unwrap(), status));
        }
    });
    (url, seen)
}

/// Status 0 reads the call and closes without a word, as a server that is killed does.
fn answer(mut stream: TcpStream, status: u16) -> (String, String) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        assert!(reader.read_line(&mut head).unwrap() > 0);
    }
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:").map(|rest| rest.trim().to_owned()));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    reader.read_exact(&mut body).unwrap();
    if status == 0 {
        return (head, String::from_utf8(body).unwrap());
    }
    let text = format!(r#"{{"status": {status}, "detail": "as told"}}"#);
    let extra = if status == 302 { "Location: /elsewhere\r\n" } else { "" };
    let head_out = format!("HTTP/1.1 {status} X\r\n{extra}Content-Length: {}\r\nConnection: close\r\n\r\n", text.len());
    stream.write_all(format!("{head_out}{text}").as_bytes()).unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// Runs a script as a CI system does; curl's own retries are cut to two seconds so that the test need not wait.
fn run(shell: &[&str], script: &str, url: &str, timeout: &str) -> Output {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join(".curlrc"), "retry-max-time = 2\n").unwrap();
    Command::new(shell[0])
        .args(&shell[1..])
        .arg("-c")
        .arg(script)
        .env_clear()
        .env("PATH", std::env::var("PATH").unwrap())
        .env("CURL_HOME", home.path())
        .env("SERVICE_WEBHOOK_URL", url)
        .env("SERVICE_WEBHOOK_TOKEN", TOKEN)
        .env("IMAGE", "registry.example.com/shop/api:abc123f")
        .env("COMMIT", "abc123f")
        .env("DEPLOY_TIMEOUT", timeout)
        .envs([("CI_PIPELINE_ID", "11"), ("CI_JOB_ID", "22")])
        .envs([("GITHUB_RUN_ID", "33"), ("GITHUB_RUN_ATTEMPT", "2"), ("GITHUB_JOB", "deploy")])
        .output()
        .unwrap()
}

fn plain() -> String {
    Snippets::new(&posted()).shell
}

/// Every shell that is on this machine; `sh` always is.
fn shells() -> Vec<Vec<&'static str>> {
    let all = [vec!["sh"], vec!["dash"], vec!["bash", "-e"], vec!["busybox", "sh"]];
    let there = |shell: &Vec<&str>| Command::new(shell[0]).args(["-c", ":"]).output().is_ok();
    all.into_iter().filter(there).collect()
}

#[track_caller]
fn exit_code(statuses: &'static [u16], timeout: &str) -> (i32, String, String, usize) {
    let (url, seen) = server(statuses);
    let output = run(&["sh"], &gitlab_script(), &url, timeout);
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let calls = seen.lock().unwrap().len();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr), calls)
}

#[test]
fn success_is_green_in_every_shell_and_snippet() {
    thread::scope(|scope| {
        for shell in shells() {
            for (script, key) in [(gitlab_script(), "11-22"), (github_script(), "33-2-deploy"), (plain(), "")] {
                let shell = shell.clone();
                scope.spawn(move || is_green(&shell, &script, key));
            }
        }
    });
}

fn is_green(shell: &[&str], script: &str, key: &str) {
    let (url, seen) = server(&[202, 200]);
    let output = run(shell, script, &url, "60");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{shell:?} {output:?}");
    assert!(said.contains("as told") && !said.contains(TOKEN), "{said}");
    let calls = seen.lock().unwrap();
    assert_eq!(calls.len(), 2);
    let keys: Vec<_> = calls.iter().map(|(head, _)| header(head, "idempotency-key")).collect();
    assert_eq!(keys[0], keys[1], "a repetition is the same call");
    assert!(key.is_empty() || keys[0] == key, "{keys:?}");
    for (head, body) in calls.iter() {
        assert_eq!(header(head, "x-service-token"), TOKEN);
        assert_eq!(header(head, "prefer"), "wait=50");
        assert_eq!(header(head, "content-type"), "application/json");
        assert_eq!(body, r#"{"image":"registry.example.com/shop/api:abc123f","commit":"abc123f"}"#);
    }
}

fn header(head: &str, name: &str) -> String {
    let found = head.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
}

#[test]
fn success_at_once_is_one_call() {
    let (code, _, said, calls) = exit_code(&[200], "60");
    assert_eq!((code, calls), (0, 1), "{said}");
}

#[test]
fn a_failed_deploy_is_red_and_says_why() {
    let (code, body, said, calls) = exit_code(&[202, 424], "60");
    assert_eq!((code, calls), (1, 2), "{said}");
    assert!(body.contains("\"status\": 424"), "{body}");
    assert!(said.contains("did not succeed"), "{said}");
}

#[test]
fn a_wrong_token_is_red_without_a_repetition() {
    let (code, body, said, calls) = exit_code(&[401], "60");
    assert_eq!((code, calls), (1, 1), "{said}");
    assert!(body.contains("401"), "{body}");
}

#[test]
fn a_broken_server_is_red() {
    let (code, _, said, calls) = exit_code(&[500], "60");
    assert_eq!(code, 1, "{said}");
    assert!(calls > 1, "curl repeats it");
}

#[test]
fn a_server_that_recovers_is_green() {
    assert_eq!(exit_code(&[503, 200], "60").0, 0);
}

#[test]
fn a_call_that_was_cut_off_is_repeated_and_not_for_ever() {
    assert_eq!(exit_code(&[202, 0, 200], "60").0, 0);
    let (code, _, said, calls) = exit_code(&[0], "60");
    assert_eq!(code, 1, "{said}");
    assert!(calls >= 3 && said.contains("may have been accepted"), "{calls}: {said}");
}

#[test]
fn a_redirect_is_red() {
    assert_eq!(exit_code(&[302], "60").0, 1);
    assert_eq!(exit_code(&[204], "60").0, 1);
}

#[test]
fn no_server_is_red() {
    // A port that was free a moment ago may be another test's by now.
    let output = run(&["sh"], &github_script(), "http://127.0.0.1:1/", "60");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[test]
fn a_deploy_that_does_not_end_is_red_after_the_stated_time() {
    let (code, _, said, calls) = exit_code(&[202], "3");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("not ended after 3 s"), "{said}");
    assert!(calls >= 2);
}

#[test]
fn a_missing_variable_is_red_before_any_call() {
    for missing in ["unset SERVICE_WEBHOOK_TOKEN", "SERVICE_WEBHOOK_TOKEN=", "unset SERVICE_WEBHOOK_URL", "unset IMAGE"]
    {
        let (url, seen) = server(&[200]);
        let output = run(&["sh"], &format!("{missing}\n{}", gitlab_script()), &url, "3");
        assert_ne!(output.status.code(), Some(0), "{missing}");
        assert!(seen.lock().unwrap().is_empty(), "{missing}");
    }
}

fn keyless_gitlab_script() -> String {
    let job: serde_json::Value = serde_saphyr::from_str(&keyless().gitlab_ci).unwrap();
    assert_eq!(job["deploy"]["id_tokens"]["ROLLHOOK_ID_TOKEN"]["aud"], AUDIENCE);
    job["deploy"]["script"][0].as_str().unwrap().to_owned()
}

fn keyless_github_script() -> String {
    let jobs: serde_json::Value = serde_saphyr::from_str(&keyless().github_actions).unwrap();
    assert_eq!(jobs["jobs"]["deploy"]["permissions"]["id-token"], "write");
    let step = &jobs["jobs"]["deploy"]["steps"][0];
    assert!(step["env"]["SERVICE_WEBHOOK_TOKEN"].is_null());
    step["run"].as_str().unwrap().to_owned()
}

fn keyless() -> KeylessSnippets {
    KeylessSnippets::new(&posted(), AUDIENCE).unwrap()
}

/// Runs a script without the app's token, as a CI system that makes id_tokens does.
fn run_keyless(shell: &[&str], script: &str, webhook: &str, github: &str) -> Output {
    let environment = format!(
        "unset SERVICE_WEBHOOK_TOKEN\nROLLHOOK_ID_TOKEN=gitlab.id.token\nACTIONS_ID_TOKEN_REQUEST_TOKEN=of-the-run\n\
         ACTIONS_ID_TOKEN_REQUEST_URL='{github}?api-version=2.0'\n"
    );
    run(shell, &format!("{environment}{script}"), webhook, "60")
}

/// Answers GitHub's call for a token, each time with another one.
fn github() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/token", listener.local_addr().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&seen);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") {
                assert!(reader.read_line(&mut head).unwrap() > 0);
            }
            let mut seen = record.lock().unwrap();
            seen.push(head);
            let text = format!(r#"{{"count":1984,"value":"github.id.{}"}}"#, seen.len());
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", text.len());
            stream.write_all(format!("{head}{text}").as_bytes()).unwrap();
        }
    });
    (url, seen)
}

#[test]
fn keyless_jobs_prove_themselves_by_id_tokens_in_every_shell() {
    for shell in shells() {
        let (url, seen) = server(&[202, 200]);
        let output = run_keyless(&shell, &keyless_gitlab_script(), &url, "http://127.0.0.1:1/");
        assert_eq!(output.status.code(), Some(0), "{shell:?} {output:?}");
        for (head, _) in seen.lock().unwrap().iter() {
            assert_eq!(header(head, "authorization"), "Bearer gitlab.id.token");
            assert_eq!(header(head, "idempotency-key"), "11-22");
            assert_eq!(header(head, "x-service-token"), "");
        }
        let ((url, seen), (tokens, asked)) = (server(&[202, 200]), github());
        let output = run_keyless(&shell, &keyless_github_script(), &url, &tokens);
        assert_eq!(output.status.code(), Some(0), "{shell:?} {output:?}");
        let sent: Vec<_> = seen.lock().unwrap().iter().map(|(head, _)| header(head, "authorization")).collect();
        assert_eq!(sent, ["Bearer github.id.1", "Bearer github.id.2"], "each call has a token of its own");
        for head in asked.lock().unwrap().iter() {
            assert!(head.starts_with(&format!("GET /token?api-version=2.0&audience={AUDIENCE} ")), "{head}");
            assert_eq!(header(head, "authorization"), "Bearer of-the-run");
        }
    }
}

#[test]
fn a_keyless_job_without_a_token_is_red_before_any_call() {
    let (url, seen) = server(&[200]);
    for script in [keyless_gitlab_script(), keyless_github_script()] {
        let unset = "unset ROLLHOOK_ID_TOKEN ACTIONS_ID_TOKEN_REQUEST_URL";
        assert_ne!(run(&["sh"], &format!("{unset}\n{script}"), &url, "3").status.code(), Some(0));
    }
    let ((refused, _), script) = (server(&[403]), keyless_github_script());
    let output = run_keyless(&["sh"], &script, &url, &refused);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(seen.lock().unwrap().is_empty());
}

#[test]
fn an_audience_cannot_smuggle_a_command_into_a_snippet() {
    for audience in ["", "a b", "\"; rm -rf /", "$(id)", "`id`", "a\nb", "a&b=c", "a'b"] {
        assert!(KeylessSnippets::new(&posted(), audience).is_none(), "{audience}");
    }
}
