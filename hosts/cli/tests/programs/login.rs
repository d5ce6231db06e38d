//! Signing in at a real server, whose pages the test calls as a browser does.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Command, Stdio},
};

use rollhook_testing::{Call, Cli, Ended, Server, Start, cli, process::beside};

struct Bench {
    server: Server,
    cli: Cli,
}

impl Bench {
    fn start() -> Self {
        let program = beside(env!("CARGO_BIN_EXE_rollhook"), "rollhook-server", "rollhook-server");
        let server = Start::new(program).store("memory").variable("RUST_LOG", "trace").run();
        server.app("api");
        Self { server, cli: cli!() }
    }

    fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// A command of a person whose environment names neither a server nor a store.
    fn command(&self, words: &str) -> Command {
        let mut command = self.cli.command(words);
        command.env_remove("ROLLHOOK_STORE");
        command
    }

    fn run(&self, words: &str) -> Ended {
        self.command(words).output().unwrap().into()
    }

    /// The call of a form on one of the console's pages.
    fn submit(&self, path: &str, body: &str) -> Call {
        let call = self.server.call("POST", path).header("sec-fetch-site", "same-origin");
        call.header("content-type", "application/x-www-form-urlencoded").body(body.as_bytes())
    }

    /// The cookie of a person who has signed in to the console.
    fn cookie(&self) -> String {
        let reply = self.submit("/sign-in", &format!("token={}&name=ada", self.server.admin)).expect(303);
        reply.header("set-cookie").unwrap().split(';').next().unwrap().to_owned()
    }
}

#[test]
fn person_signs_in_with_a_browser_and_needs_to_name_no_server() {
    let bench = Bench::start();
    let mut login = bench.command(&format!("login {}", bench.url()));
    let mut login = login.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut told = BufReader::new(login.stderr.take().unwrap()).lines().map_while(Result::ok);
    let link = told.find(|line| line.starts_with(&bench.url())).expect("the link");
    let path = link.strip_prefix(&bench.url()).unwrap();
    let said = told.next().expect("the code to compare");
    let code = said.split_whitespace().find(|word| word.len() == 9 && word.as_bytes()[4] == b'-').expect("a code");
    let led = bench.server.call("GET", path).header("accept", "text/html").expect(303);
    assert!(led.header("location").unwrap().starts_with("/sign-in?next=%2Fcommand-line%3Fport%3D"));
    let cookie = bench.cookie();
    let asked = bench.server.call("GET", path).header("cookie", &cookie).expect(200).text();
    assert!(asked.contains("Sign a command line in?") && !asked.contains("127.0.0.1"));
    assert!(asked.contains(&format!(">{code}<")), "the terminal's code, {code}, is on the page: {asked}");
    let (before, challenge) = path.split_at(path.len() - 64);
    let anothers = format!("{before}{}", challenge.chars().rev().collect::<String>());
    let anothers = bench.server.call("GET", &anothers).header("cookie", &cookie).expect(200).text();
    assert!(anothers.contains("id=\"code\"") && !anothers.contains(code), "another command line has another code");
    bench.server.call("POST", path).header("cookie", &cookie).header("sec-fetch-site", "cross-site").expect(403);
    let allowed = bench.submit(path, "").header("cookie", &cookie).expect(200).text();
    let forward = allowed.split("id=\"forward\" href=\"http://127.0.0.1:").nth(1).unwrap().split('"').next().unwrap();
    let (port, query) = forward.split_once('/').unwrap();
    let (query, address) = (query.replace("&#38;", "&").replace("&amp;", "&"), format!("127.0.0.1:{port}"));
    let bring = |query: &str| Call::to(address.parse().unwrap(), "GET", &format!("/{query}"));
    bring("?code=x&state=y").expect(400);
    assert!(bring(&query).expect(200).text().contains("You are signed in"));
    assert!(login.wait().unwrap().success());

    let file = bench.cli.path().join(".config/rollhook/contexts.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let contexts: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let token = contexts["contexts"][bench.url().trim_start_matches("http://")]["token"].as_str().unwrap().to_owned();
    assert!(token.starts_with("rhl_"));
    assert!(bench.run("whoami").ok().out.starts_with("ada (admin)\n"));
    assert!(bench.run("app list").ok().out.contains("api"));
    assert!(bench.run("context list").ok().out.contains("ada (admin)"));
    let sessions = bench.run("session list").ok();
    assert!(sessions.out.contains("command line") && sessions.out.contains("this session"), "{sessions:?}");
    let list = bench.run("session list -o json").ok().json();
    let ids: Vec<_> =
        list["sessions"].as_array().unwrap().iter().map(|one| one["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids.len(), 2);
    bench.run(&format!("session end {}", ids[0])).exits(6);
    bench.run("session end").exits(2);
    bench.run("session end 0123456789abcdef --yes").exits(1);
    assert!(bench.run("session end --actor nobody --yes").ok().out.contains("nobody has no session"));
    let code = query.split("code=").nth(1).unwrap().split('&').next().unwrap();
    let log = bench.server.log();
    assert!(!log.contains(&token[4..]) && !log.contains(code), "a secret is in the log");
    // Once more, as a stranger who has seen the link and the code.
    let again = serde_json::json!({ "code": code, "verifier": "guess" });
    bench.server.call("POST", "/api/v1/login").json(&again).expect(401);

    bench.run("session end --yes --actor").exits(2);
    let mut end = bench.command("session end --yes --actor");
    let all: Ended = end.arg("ada (admin)").output().unwrap().into();
    assert_eq!(all.ok().out, "Ended 2 sessions of ada (admin).\n");
    bench.server.call("GET", "/").header("cookie", &cookie).header("accept", "text/html").expect(303);
    let ended = bench.run("whoami").exits(4);
    assert!(ended.err.contains("not valid") && ended.err.contains("rollhook login"), "{ended:?}");
}

#[test]
fn context_of_a_token_file_is_kept_and_chosen() {
    let bench = Bench::start();
    let file = bench.server.file("admin-token");
    bench.run(&format!("login {} --token-file {} --name one", bench.url(), file.display())).ok();
    bench.run(&format!("login {} --token-file {} --name two", bench.url(), file.display())).ok();
    let kept = fs::read_to_string(bench.cli.path().join(".config/rollhook/contexts.json")).unwrap();
    assert!(!kept.contains(&bench.server.admin), "the file is named, and the token is not copied");
    let current = |ended: Ended| {
        let contexts = ended.ok().json();
        let current = contexts.as_array().unwrap().iter().find(|context| context["current"] == true);
        current.unwrap()["name"].as_str().unwrap().to_owned()
    };
    assert_eq!(current(bench.run("context list -o json")), "two");
    bench.run("context use one").ok();
    assert_eq!(current(bench.run("context list -o json")), "one");
    bench.run("context use three").exits(2);
    bench.run("app show api").ok();
    assert!(bench.run(&format!("app show api --server {}", bench.url())).ok().out.contains("api"), "its own token");
    let wrong = bench.cli.path().join("wrong");
    fs::write(&wrong, "rh_wrong").unwrap();
    bench.run(&format!("login {} --token-file {} --name bad", bench.url(), wrong.display())).exits(4);
    assert_eq!(current(bench.run("context list -o json")), "one", "a login that failed changes nothing");
    // A store that is named is meant.
    assert!(!bench.cli.run("app list").ok().out.contains("api"));
}

#[test]
fn context_says_the_project_and_the_environment_of_commands_that_name_none() {
    let bench = Bench::start();
    let file = bench.server.file("admin-token");
    let run = |words: &str| -> Ended {
        let mut command = bench.command(words);
        command.env_remove("ROLLHOOK_PROJECT").env_remove("ROLLHOOK_ENVIRONMENT");
        command.output().unwrap().into()
    };
    run(&format!("login {} --token-file {} --name one -p shop", bench.url(), file.display())).ok();
    assert!(run("app show api").exits(2).err.contains("--environment"), "one of the two is still missing");
    run("app show api -e test").ok();
    let used = run("context use one --environment test").ok();
    assert!(used.out.contains("project shop, environment test"), "{used:?}");
    run("app show api").ok();
    assert!(run("app show api -e prod").exits(1).err.contains("shop-prod/api"), "a flag comes first");
    assert!(run("app list").ok().out.contains("api"), "lists show everything all the same");
    run(&format!("app show api --server {}", bench.url())).exits(2);
    run(&format!("login {} --token-file {} --name one", bench.url(), file.display())).ok();
    run("app show api").ok();
}

#[test]
fn names_are_completed_by_what_the_server_lists() {
    let bench = Bench::start();
    for (project, environment, app) in [("shop", "prod", "admin"), ("blog", "prod", "web")] {
        let app = serde_json::json!({
            "project": project, "environment": environment, "app": app, "image": "r.example.com/a:v1"
        });
        bench.server.manage("POST", "/api/v1/apps").json(&app).expect(201);
    }
    let file = bench.server.file("admin-token");
    let complete = |line: &str| -> Vec<String> {
        let words: Vec<&str> = line.split(' ').collect();
        let mut command = bench.command("");
        command.args(["--", "rollhook"]).args(&words).env("ROLLHOOK_COMPLETE", "bash").env("_CLAP_IFS", "\n");
        command.env("_CLAP_COMPLETE_INDEX", words.len().to_string()).env("ROLLHOOK_TOKEN_FILE", &file);
        command.env_remove("ROLLHOOK_PROJECT").env_remove("ROLLHOOK_ENVIRONMENT");
        let ended = Ended::from(command.output().unwrap()).ok();
        assert_eq!(ended.err, "", "{line}");
        ended.out.lines().map(|name| name.trim().to_owned()).filter(|name| !name.starts_with('-')).collect()
    };
    let server = format!("--server {}", bench.url());
    assert_eq!(complete(&format!("{server} app history a")), ["admin", "api"]);
    assert_eq!(complete(&format!("{server} app history -p shop -e prod ")), ["admin"]);
    assert_eq!(complete(&format!("{server} app show -p ")), ["blog", "shop"]);
    assert_eq!(complete(&format!("{server} app show web -p shop -e ")), ["prod", "test"]);
    assert!(complete("app history a").is_empty(), "no server is named");
    assert!(complete("--server http://127.0.0.1:1 app history a").is_empty(), "it is away");
    bench.run(&format!("login {} --token-file {}", bench.url(), file.display())).ok();
    assert_eq!(complete("app rollback a"), ["admin", "api"], "the server that the person is signed in to");
    assert_eq!(complete("app webhook en"), ["enable"]);
    bench.run(&format!("context use {} -p shop -e prod", bench.url().trim_start_matches("http://"))).ok();
    assert_eq!(complete("app rollback a"), ["admin"], "of the context's project and environment");
    assert_eq!(complete("app rollback -p "), ["blog", "shop"], "another project may be meant");
}
