//! Against the real server: both sides of the wire as they are.
//!
//! The server's binary is the one that lies beside ours; where there is none, it is built.

use std::{
    io::Write,
    process::{Command, Stdio},
};

use rollhook_testing::{Cli, Ended, Server, Start, cli, fixtures::Receiver, process::beside, until};

/// A running server with a store in memory, and the command line that is told of it.
struct Bench {
    _server: Server,
    cli: Cli,
}

impl Bench {
    fn start() -> Self {
        let program = beside(env!("CARGO_BIN_EXE_rollhook"), "rollhook-server", "rollhook-server");
        let start = Start::new(program).store("memory").driver("simulated:300ms");
        let server = start.arguments(["--allow-local-receivers"]).run();
        let cli = cli!().with("ROLLHOOK_SERVER", &format!("http://{}", server.address));
        let cli = cli.with("ROLLHOOK_TOKEN_FILE", server.file("admin-token").to_str().unwrap());
        Self { _server: server, cli }
    }

    fn run(&self, words: &str) -> Ended {
        self.cli.run(words)
    }

    /// Runs a snippet that `enable` printed, as a CI job would.
    fn job(&self, enabled: &serde_json::Value, snippet: &str, image: &str) -> Ended {
        let directory = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command
            .current_dir(directory.path())
            .args(["-c", enabled["snippets"][snippet].as_str().unwrap()])
            .env_clear()
            .env("PATH", std::env::var("PATH").unwrap())
            .env("SERVICE_WEBHOOK_URL", enabled["url"].as_str().unwrap())
            .env("SERVICE_WEBHOOK_TOKEN", enabled["token"].as_str().unwrap())
            .env("IMAGE", image)
            .env("COMMIT", "0123456789abcdef0123456789abcdef01234567");
        command.output().unwrap().into()
    }
}

#[test]
fn the_first_operations() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    let enabled = bench.run("app webhook enable api -o json").ok().json();
    let deployed = bench.job(&enabled, "shell", "r.example.com/api:two").ok();
    assert!(deployed.out.contains("Revision 2 succeeded"), "{deployed:?}");
    let history = bench.run("app history api").ok();
    let first = history.out.lines().nth(1).unwrap();
    assert!(first.starts_with("2   r.example.com/api:two  0123456   webhook    "), "{history:?}");
    let back = bench.run("app rollback api --wait").ok();
    assert!(back.out.contains("to revision 1 (r.example.com/api:one): new revision 3\n"), "{back:?}");
    assert!(back.out.ends_with("Revision 3 succeeded: shop-test/api runs r.example.com/api:one\n"), "{back:?}");
    bench.run("app webhook disable api").ok();
    let refused = bench.job(&enabled, "shell", "r.example.com/api:two").exits(4);
    assert!(refused.err.starts_with("error: "), "{refused:?}");
}

#[test]
fn receivers_are_added_tested_listed_and_removed() {
    let (bench, receiver) = (Bench::start(), Receiver::start());
    let add = format!("receiver add ops --webhook {} --event succeeded,failed", receiver.url);
    let added = bench.run(&add).ok();
    let secret = added.out.trim();
    assert!(secret.starts_with("whsec_") && added.err.contains("succeeded, failed"), "{added:?}");
    let again = bench.run(&add).exits(1);
    assert!(again.err.contains("There is a receiver ops already"), "{again:?}");
    bench.run("receiver add far --webhook https://169.254.1.1/ --event deployed").exits(2);
    let tested = bench.run("receiver test ops").ok();
    assert_eq!(tested.out, "ops has taken the test: 204 No Content.\n");
    assert!(receiver.sent()[0].is_signed(secret));
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    bench.run("app deploy api --image r.example.com/api:two --wait").ok();
    let told = ("rollhook.deploy.succeeded".to_owned(), "deploys/2".to_owned());
    until("the deploy is told", || receiver.taken().last() == Some(&told));
    until("the list shows it", || bench.run("receiver list").ok().out.contains("well"));
    receiver.answer(Some("500 Internal Server Error"));
    let failed = bench.run("receiver test ops").exits(1);
    assert!(failed.err.contains("127.0.0.1 answered 500"), "{failed:?}");
    bench.run("receiver rm ops").ok();
    assert!(!bench.run("receiver ls").ok().out.contains("ops"));
    bench.run("receiver rm ops").exits(1);
}

#[test]
fn a_failed_deploy_fails_the_job_and_the_command() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    bench.run("app set api --rollout-deadline 100ms --on-failure leave").ok();
    let enabled = bench.run("app webhook enable api -o json").ok().json();
    let failed = bench.job(&enabled, "shell", "r.example.com/api:two").exits(3);
    assert!(failed.err.contains("Revision 2 failed (rollout-deadline-exceeded)"), "{failed:?}");
    let failed = bench.run("app deploy api --image r.example.com/api:three --wait").exits(3);
    assert!(failed.err.contains("Revision 3 failed (rollout-deadline-exceeded)"), "{failed:?}");
    assert!(bench.run("app rollback api --revision 3").exits(6).err.contains("--yes"));
}

#[test]
fn wait_shows_the_pods_and_the_restore_of_what_failed() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    bench.run("app set api --rollout-deadline 2s").ok();
    let failed = bench.run("app deploy api r.example.com/api:hang --wait").exits(3);
    for said in [
        "Revision 2: 0 of 1 new pods are available\n",
        "Revision 2 failed (rollout-deadline-exceeded)",
        "Revision 3 restores r.example.com/api:one\n",
    ] {
        assert!(failed.err.contains(said), "{said}: {failed:?}");
    }
    assert_eq!(failed.err.matches("Revision 2: 0 of 1").count(), 1, "a line for each change: {failed:?}");
    assert!(failed.out.ends_with("Revision 3 succeeded: shop-test/api runs r.example.com/api:one\n"), "{failed:?}");
    bench.run("app set api --on-failure leave").ok();
    let left = bench.run("app deploy api r.example.com/api:hang --wait").exits(3);
    assert!(!left.err.contains("restores"), "{left:?}");
}

#[test]
fn server_understands_every_other_command() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --port 80 --env A=b --wait").ok();
    bench.run("app create api --environment prod --image r.example.com/api:zero --settle 0s --wait").ok();
    assert!(bench.run("app create api --image r.example.com/api:one").exits(1).err.contains("registered already"));
    assert_eq!(bench.run("app list --project shop -o json").ok().json()["apps"].as_array().unwrap().len(), 2);
    assert_eq!(bench.run("app list --environment test -o json").ok().json()["apps"].as_array().unwrap().len(), 1);
    bench.run("app set api --repository r.example.com/api --hold all --settle 1s").ok();
    assert_eq!(bench.run("app show api -o json").ok().json()["policy"]["hold"], "all");
    bench.run("app set api --settle 0s").ok();
    let promoted = bench.run("app promote api --environment prod --from-environment test --wait").ok();
    assert!(promoted.out.contains("Promoting r.example.com/api:one from shop-test/api"), "{promoted:?}");
    bench.run("app deploy api --image r.example.com/api:two").ok();
    let deployed = bench.run("app deploy api --image r.example.com/api:three --wait").ok();
    assert!(deployed.out.contains("Revision 3 succeeded"), "{deployed:?}");
    bench.run("app rollback api --wait").ok();
    assert!(bench.run("app show api").ok().out.contains("since rollback 4"));
    bench.run("app release-hold api").ok();
    bench.run("app set api --settle 1m").ok();
    bench.run("app deploy api --image r.example.com/api:five").ok();
    assert!(bench.run("app cancel api --revision 5").ok().out.contains("Cancelled revision 5"));
    let page = bench.run("app history api --limit 2 -o json").ok().json();
    assert_eq!((page["deploys"].as_array().unwrap().len(), &page["next"]), (2, &page["deploys"][1]["revision"]));
    bench.run("app history api --limit 2 --revision 1").exits(2);
    assert_eq!(bench.run("app webhook status api").ok().out, "disabled\n");
    bench.run("app delete api --yes").ok();
    let gone = bench.run("app history api").exits(1);
    assert!(gone.err.contains("no app shop-test/api") && gone.err.contains("request "), "{gone:?}");
}

#[test]
fn locks_refuse_deploys_until_they_are_ended() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    let locked = bench.run("app lock api --reason fair --expires 2h").ok();
    assert!(locked.out.contains("Locked shop-test/api until"), "{locked:?}");
    let refused = bench.run("app deploy api r.example.com/api:two").exits(1);
    assert!(refused.err.contains("\"fair\"") && refused.err.contains("--break-glass"), "{refused:?}");
    for command in ["app status api", "app show api", "app list"] {
        assert!(bench.run(command).ok().out.to_lowercase().contains("locked"), "{command}");
    }
    bench.run("app deploy api r.example.com/api:two --break-glass outage --wait").ok();
    assert!(bench.run("audit").ok().out.contains("app shop-test/api: outage"));
    let typo = bench.run("environment lock -e tset --reason freeze").ok();
    assert!(typo.err.contains("Environment tset of project shop has no app"), "{typo:?}");
    bench.run("environment unlock -e tset").ok();
    assert!(!bench.run("environment lock --reason freeze").ok().err.contains("no app"));
    let unlocked = bench.run("app unlock api").ok();
    assert!(unlocked.out.contains("but its environment is locked"), "{unlocked:?}");
    assert!(bench.run("environment locks").ok().out.contains("freeze"));
    bench.run("app deploy api r.example.com/api:three").exits(1);
    bench.run("environment unlock").ok();
    bench.run("app deploy api r.example.com/api:three --wait").ok();
}

#[test]
fn requirement_is_refused_where_no_signature_is_verified_and_names_what_is_wrong() {
    let bench = Bench::start();
    let identity = "--require-signature issuer=https://id.example.com,subject=ada@example.com";
    let refused = bench.run(&format!("requirement set {identity}")).exits(1);
    assert!(refused.err.contains("is fetched from no registry, as on the simulated cluster"), "{refused:?}");
    bench.run("requirement set").exits(2);
    let missing = bench.run("requirement set --require-signature key=missing.pub").exits(2);
    assert!(missing.err.contains("missing.pub"), "{missing:?}");
    assert!(bench.run("requirement list").ok().out.contains("IMAGES MUST BE"));
    // The environment is that of the variable, unless the whole project is meant.
    let none = bench.run("requirement remove").exits(1);
    assert_eq!(none.err, "error: No requirement is set on project shop, environment test.\n");
    let none = bench.run("requirement remove --whole-project").exits(1);
    assert_eq!(none.err, "error: No requirement is set on project shop.\n");
}

#[test]
fn webhook_is_rotated_without_an_outage() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    bench.run("app webhook rotate api").exits(1);
    bench.run("app webhook enable api").ok();
    let rotated = bench.run("app webhook rotate api --overlap 30m").ok();
    assert!(rotated.out.contains("Token  rh_") && rotated.err.contains("is let in until"), "{rotated:?}");
    assert!(bench.run("app webhook status api").ok().out.contains("Old    the token before is let in until"));
}

#[test]
fn all_apps_of_an_environment_are_promoted_with_an_answer_for_each() {
    let bench = Bench::start();
    for app in ["api", "web", "new"] {
        bench.run(&format!("app create {app} --image r.example.com/{app}:two --settle 0s --wait")).ok();
    }
    for (app, tag) in [("api", "one"), ("web", "two")] {
        bench.run(&format!("app create {app} -e prod --image r.example.com/{app}:{tag} --settle 0s --wait")).ok();
    }
    let all = "app promote --all --from-environment test --to-environment prod";
    let planned = bench.run(&format!("{all} --dry-run")).ok().out;
    assert!(planned.contains("would be promoted") && planned.contains("the same image runs already"), "{planned}");
    assert!(planned.contains("there is no such app to promote to"), "{planned}");
    assert!(bench.run("app show api -e prod").ok().out.contains("api:one"), "a dry run changes nothing");
    let promoted = bench.run(&format!("{all} --wait -o json")).ok().json();
    let outcomes: Vec<_> = promoted["apps"].as_array().unwrap().iter().map(|app| app["outcome"].clone()).collect();
    assert_eq!(outcomes, ["accepted", "skipped", "skipped"]);
    assert_eq!(promoted["apps"][0]["status"], "succeeded");
    bench.run("app promote --all --from-environment test -e test").exits(2);
    bench.run("app lock web -e prod --reason fair").ok();
    bench.run("app deploy web r.example.com/web:three --wait").ok();
    let refused = bench.run(all).exits(1);
    assert!(refused.out.contains("locked") && refused.err.contains("1 of 3 apps were not promoted"), "{refused:?}");
}

#[test]
fn tokens_are_made_listed_and_revoked_and_the_audit_tells_of_it() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    let made = bench.run("token create a-ci --role viewer --project shop --expires 90d").ok();
    let token = made.out.trim().to_owned();
    assert!(token.starts_with("rh_") && made.err.contains("a-ci is viewer of shop, until 2"), "{made:?}");
    let viewer = bench.cli.clone().with("ROLLHOOK_TOKEN", &token);
    assert_eq!(viewer.run("whoami").ok().out, "a-ci\n  viewer of shop\n");
    viewer.run("app history api").ok();
    let refused = viewer.run("app rollback api").exits(4);
    assert!(
        refused.err.contains("error: You may not roll back here: that takes the role deployer, and yours is viewer."),
        "{refused:?}"
    );
    viewer.run("token list").exits(4);
    let listed = bench.run("token list").ok();
    assert!(listed.out.contains("a-ci   viewer  shop"), "{listed:?}");
    bench.run("token create a-ci --role viewer").exits(1);
    bench.run("token create other --role viewer --environment test").exits(2);
    bench.run("token create other --role owner").exits(2);
    bench.run("token revoke a-ci").exits(6);
    bench.run("token revoke a-ci --yes").ok();
    viewer.run("app history api").exits(4);
    let audit = bench.run("audit --limit 3 -o json").ok().json();
    let said: Vec<_> =
        audit["entries"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(said, ["manage API tokens", "manage API tokens", "manage API tokens"]);
    assert!(bench.run("audit").ok().out.contains("roll back"), "a refused act is in the audit");
}

#[test]
fn a_deploy_is_followed_from_anywhere_and_a_failed_one_shows_its_evidence() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    assert!(bench.run("app status api").ok().out.starts_with("shop-test/api runs r.example.com/api:one (revision 1, "));
    bench.run("app deploy api r.example.com/api:two").ok();
    // Under way, or over by now.
    let status = bench.run("app status api").ok().out;
    assert!(status.contains("\nRevision 2 ") || status.contains("(revision 2, "), "{status}");
    let waited = bench.run("app wait api").ok();
    assert_eq!(waited.out, "Revision 2 succeeded: shop-test/api runs r.example.com/api:two\n");
    bench.run("app wait api 1").ok();
    bench.run("app wait api 9").exits(1);
    let entry = bench.run("app history api --revision 2").ok();
    for said in ["Revision 2 succeeded", "Image     r.example.com/api:two", "Made      manual by "] {
        assert!(entry.out.contains(said), "{entry:?}");
    }
    bench.run("app deploy api r.example.com/api:two --image r.example.com/api:three").exits(2);
    bench.run("app deploy api").exits(2);
    assert_eq!(bench.run("app ls").ok().out, bench.run("app list").ok().out);
    bench.run("app rm api --yes").ok();
}

#[test]
fn pipeline_is_trusted_listed_and_trusted_no_longer() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    let add = "app webhook trust add api --github 74 --claim ref=refs/heads/main --audience deploys";
    let added = bench.run(&format!("{add} -o json")).ok().json();
    assert_eq!(added["issuer"], "https://token.actions.githubusercontent.com");
    let claims = serde_json::json!({ "event_name": "push", "ref": "refs/heads/main", "repository_id": "74" });
    assert_eq!(added["claims"], claims);
    assert!(added["url"].as_str().unwrap().ends_with("/api/v1/webhook/shop-test/api"));
    let job = added["snippets"]["github_actions"].as_str().unwrap();
    assert!(
        job.contains("id-token: write")
            && job.contains("ROLLHOOK_AUDIENCE: \"deploys\"")
            && !job.contains("SERVICE_WEBHOOK_TOKEN")
    );
    let every_branch = bench.run("app webhook trust add api --gitlab 7").ok();
    assert!(every_branch.err.contains("every branch") && every_branch.out.contains("project_id=7"), "{every_branch:?}");
    let list = bench.run("app webhook trust list api").ok();
    let id = added["id"].as_str().unwrap();
    assert!(list.out.contains(id) && list.out.contains("event_name=push ref=refs/heads/main"), "{list:?}");
    assert!(list.out.contains("too wide") && list.err.contains("every branch"), "{list:?}");
    bench.run(&format!("app webhook trust remove api --id {id}")).ok();
    bench.run(&format!("app webhook trust remove api --id {id}")).exits(1);
    assert!(!bench.run("app webhook trust list api").ok().out.contains(id));
    let refused =
        bench.run("app webhook trust add api --issuer https://gitlab.com --claim project_path=shop/api").exits(1);
    assert!(refused.err.contains("project_id"), "{refused:?}");
    let gitlab = bench.run("app webhook trust add api --gitlab 7 --claim ref=main").ok();
    assert!(gitlab.out.contains("project_id=7 ref=main ref_protected=true ref_type=branch"), "{gitlab:?}");
    assert!(gitlab.err.contains("ref_protected and ref_type of Claims were added"), "{gitlab:?}");
    let unbound =
        bench.run("app webhook trust add api --gitlab 7 --claim ref=main --claim ref_protected=false").exits(1);
    assert!(unbound.err.contains("add ref_type=branch and ref_protected=true"), "{unbound:?}");
    bench.run("app webhook trust add api --github 74 --claim repository_id=75").exits(2);
    bench.run("app webhook trust add api").exits(2);
}

#[test]
fn command_by_hand_is_followed_detached_and_ended() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    let failed = bench.run("app run api -- bin/fail-7").exits(7);
    assert!(failed.out.ends_with("it failed\n"), "{failed:?}");
    let detached = bench.run("app run api --detach -- hang").ok();
    assert_eq!(detached.out, "Running it as run 2 of shop-test/api\n");
    let second = bench.run("app run api -- bin/fix").exits(125);
    assert!(second.err.contains("Run 2 of this app has not ended"), "{second:?}");
    assert!(second.err.contains("app runs --follow") && second.err.contains("app runs --cancel"), "{second:?}");
    bench.run("app runs api --cancel 2").ok();
    let ended = bench.run("app runs api --follow 2").exits(125);
    assert!(ended.err.contains("Run 2 cancelled: ") && ended.err.contains("cancelled the run"), "{ended:?}");
    bench.run("app runs api --cancel 2").exits(1);
    bench.run("app run api --deadline 5m -- bin/fix").ok();
}

#[test]
fn variables_are_set_listed_compared_staged_and_brought_back() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    let set = bench.run("app config set api LEVEL=info --plain --wait").ok();
    assert!(set.out.starts_with("Setting LEVEL of shop-test/api: revision 2\n"), "{set:?}");
    assert!(set.out.contains("Revision 2 succeeded"), "{set:?}");
    let input = |words: &str, text: &str| -> Ended {
        let mut command = bench.cli.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait_with_output().unwrap().into()
    };
    input("app config set api PASSWORD=- --wait", "hunter2\n").ok();
    let file = |name: &str, content: &[u8]| {
        let file = bench.cli.path().join(name);
        std::fs::write(&file, content).unwrap();
        file.display().to_string()
    };
    let dotenv = file(".env", b"# of the app\nexport URL='postgres://u:p@db/shop'\nTWO=\"a\\nb\" # lines\n");
    let binary = file("key.der", &[0xff, 0x00, 0x01]);
    let set = bench.run(&format!("app config set api KEY=@{binary} --file {dotenv} --wait")).ok();
    assert!(set.out.contains("Setting KEY, TWO, URL of") && set.err.contains("content as base64"), "{set:?}");
    let listed = bench.run("app config list api").ok().out;
    let row = |name: &str| listed.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("LEVEL").ends_with("info") && row("PASSWORD").ends_with("(secret)"), "{listed}");
    let json = bench.run("app config list api -o json").ok().json();
    let length = |name: &str| {
        let variables = json["variables"].as_array().unwrap();
        variables.iter().find(|variable| variable["name"] == name).unwrap()["length"].as_u64().unwrap()
    };
    assert_eq!((length("PASSWORD"), length("TWO"), length("KEY"), length("URL")), (7, 3, 4, 22));
    assert!(bench.run("app config list api -o wide").ok().out.contains("FINGERPRINT"));

    let diff = bench.run("app config diff api 2 4").ok().out;
    let names: Vec<_> = diff.lines().skip(1).map(|line| line.split_whitespace().next().unwrap()).collect();
    assert_eq!(names, ["+KEY", "+PASSWORD", "+TWO", "+URL"], "{diff}");
    let staged = bench.run("app config unset api TWO --staged").ok();
    assert_eq!(staged.out, "Removing TWO of shop-test/api. The change waits for the next deploy.\n");
    assert!(bench.run("app config list api").ok().out.ends_with("Waiting for the next deploy: -TWO\n"));
    let discarded = bench.run("app config discard api").ok();
    assert_eq!(discarded.out, "shop-test/api: What waited for the next deploy was withdrawn.\n");
    bench.run("app config unset api TWO --staged").ok();
    bench.run("app deploy api r.example.com/api:two --wait").ok();
    let back = bench.run("app rollback api --revision 2 --wait").ok();
    assert!(back.err.contains("the configuration differs (-KEY, -PASSWORD, -URL): the image alone"), "{back:?}");
    let back = bench.run("app rollback api --revision 2 --with-config --wait").ok();
    assert!(back.err.contains("the configuration comes back as well"), "{back:?}");
    assert_eq!(bench.run("app config list api").ok().out, "NAME   VALUE\nLEVEL  info\n");
    let wide = bench.run("app history api -o wide").ok().out;
    assert!(wide.contains(" image of 1 ") && wide.contains("2 with its configuration"), "{wide}");
    assert!(wide.lines().next().unwrap().ends_with("CONFIG") && wide.contains(" (changed)\n"), "{wide}");
    assert!(bench.run("app show api").ok().out.contains("Configuration     "));

    bench.run("app config unset api LEVEL --revoked --wait").ok();
    let refused = bench.run("app rollback api --revision 2 --with-config --wait").exits(6);
    assert!(refused.err.contains("values that were revoked, of LEVEL"), "{refused:?}");
    bench.run("app rollback api --revision 2 --with-config --yes --wait").ok();

    let shows_no_value = |ended: Ended| assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
    shows_no_value(bench.run("app config set api PASSWORD-hunter2").exits(2));
    shows_no_value(bench.run("app config set api PASS-hunter2=x").exits(2));
    shows_no_value(bench.run("app config unset api PASSWORD=hunter2").exits(2));
    shows_no_value(bench.run("app config set api PASSWORD=@hunter2").exits(1));
    let broken = file("broken.env", b"A=1\nhunter2\n");
    shows_no_value(bench.run(&format!("app config set api --file {broken}")).exits(2));
    bench.run("app config set api A=1 A=2").exits(2);
    bench.run("app config set api A=- B=-").exits(2);
}

#[test]
fn promotion_asks_before_it_goes_to_an_app_that_lacks_variables() {
    let bench = Bench::start();
    for environment in ["test", "prod"] {
        let create =
            format!("app create api --environment {environment} --image r.example.com/api:one --settle 0s --wait");
        bench.run(&create).ok();
    }
    bench.run("app config set api URL=x --wait").ok();
    bench.run("app deploy api r.example.com/api:two --wait").ok();
    let named = "shop-prod/api has no variable URL, which shop-test/api has";
    let one = "app promote api --environment prod --from-environment test --wait";
    for promote in [one, "app promote --all --environment prod --from-environment test --wait"] {
        let planned = bench.run(&format!("{promote} --dry-run -o json")).ok();
        assert!(planned.err.contains(&format!("note: {named}")), "{planned:?}");
        assert_eq!(planned.json()["apps"][0]["missing_variables"], serde_json::json!(["URL"]));
        let asked = bench.run(promote).exits(6);
        assert!(asked.err.contains(named) && asked.err.contains("Promote all the same?"), "{asked:?}");
        assert!(asked.err.contains("confirm with --yes"), "{asked:?}");
        assert!(bench.run("app show api -e prod").ok().out.contains("api:one"), "nothing is promoted");
    }
    let promoted = bench.run(&format!("{one} --yes")).ok();
    assert!(promoted.err.contains(&format!("note: {named}")), "{promoted:?}");
    bench.run("app deploy api r.example.com/api:three --wait").ok();
    bench.run("app promote --all --environment prod --from-environment test --wait --yes").ok();
    assert!(bench.run("app show api -e prod").ok().out.contains("api:three"));
    bench.run("app config set api -e prod URL=y --wait").ok();
    bench.run("app deploy api r.example.com/api:four --wait").ok();
    let promoted = bench.run(one).ok();
    assert!(!promoted.err.contains("has no variable"), "{promoted:?}");
}

#[test]
fn rollback_prints_the_difference_of_variables_before_it_begins() {
    let bench = Bench::start();
    bench.run("app create api --image r.example.com/api:one --settle 0s --wait").ok();
    bench.run("app config set api URL=x --wait").ok();
    bench.run("app deploy api r.example.com/api:two --wait").ok();
    bench.run("app config unset api URL --wait").ok();
    bench.run("app config set api LATER=y --wait").ok();
    // The last good version by its image alone is what was deployed before the image changed.
    let back = bench.run("app rollback api --wait").ok();
    let (note, begun) =
        ("the configuration differs (-LATER, +URL): the image alone comes back", "A rollback restores the image");
    assert!(back.err.contains(note), "{back:?}");
    assert_eq!(back.err.matches("the configuration differs").count(), 1, "{back:?}");
    assert!(back.err.find(note) < back.err.find(begun), "{back:?}");
    assert!(bench.run("app config list api").ok().out.contains("LATER"));

    bench.run("app lock api --reason fair").ok();
    bench.run("app config set api A=1 --wait").exits(1);
    bench.run("app config set api A=1 --staged --break-glass outage").exits(2);
    bench.run("app config set api A=1 --wait --break-glass outage").ok();
    bench.run("app config unset api A --wait --break-glass outage").ok();
    assert!(bench.run("audit").ok().out.contains("outage"));
}
