//! Without a server: the command is its own host, on SQLite and a simulated cluster.

use std::{
    io::Read,
    process::{Child, Command, Stdio},
};

use rollhook_testing::{Cli, Ended, cli};

#[test]
fn create_deploy_history_and_back() {
    let home = cli!().fast();
    let created = home.run("app create api --image r.example.com/api:one --settle 0s").ok();
    assert!(created.out.contains("Revision 1 succeeded: shop-test/api runs r.example.com/api:one"), "{created:?}");
    assert!(created.err.contains("deploys nowhere"), "{created:?}");
    let deployed = home.run("app deploy api --image r.example.com/api:two --commit two").ok();
    assert_eq!(
        deployed.out,
        "Deploying r.example.com/api:two to shop-test/api: revision 2\n\
         Revision 2 succeeded: shop-test/api runs r.example.com/api:two\n"
    );
    assert!(deployed.err.contains("Revision 2"), "{deployed:?}");
    let back = home.run("app rollback api").ok();
    assert!(
        back.out.starts_with("Rolling back shop-test/api to revision 1 (r.example.com/api:one): new revision 3\n"),
        "{back:?}"
    );
    assert!(back.err.contains("restores the image, not configuration"), "{back:?}");
    let history = home.run("app history api").ok();
    let lines: Vec<_> = history.out.lines().collect();
    assert_eq!(lines[0], "#   IMAGE                  COMMIT    TRIGGER    WHEN");
    assert!(lines[1].starts_with("3   r.example.com/api:one  -         rollback   "), "{history:?}");
    assert!(lines[1].ends_with("(current)"), "{history:?}");
    assert!(lines[2].starts_with("2   r.example.com/api:two  two       manual     "), "{history:?}");
    assert_eq!(lines.len(), 4);
    assert_eq!(history.err, "");
}

#[test]
fn what_runs_is_deployed_once_more() {
    let home = cli!().fast().with_history();
    let same = home.run("app deploy api --same").ok();
    assert!(
        same.out.starts_with("Deploying r.example.com/api:") && same.out.contains(": revision 4, same as 3\n"),
        "{same:?}"
    );
    assert!(same.out.contains("Revision 4 succeeded"), "{same:?}");
    let wide = home.run("app history api -o wide").ok().out;
    assert!(wide.lines().nth(1).unwrap().contains(" same as 3"), "{wide}");
    let one = home.run("app history api --revision 4").ok().out;
    assert!(one.contains("manual, same as 3 by ada"), "{one}");
    for words in ["app deploy api", "app deploy api r.example.com/api:one --same", "app deploy api --same --commit one"]
    {
        assert_eq!(home.run(words).exits(2).out, "", "{words}");
    }
}

#[test]
fn app_is_stopped_and_started() {
    let home = cli!().fast().with_history();
    let stop = home.run("app stop api").ok();
    assert!(stop.out.starts_with("Stopping shop-test/api: revision 4\n"), "{stop:?}");
    assert!(stop.out.contains("Revision 4 succeeded"), "{stop:?}");
    let history = home.run("app history api").ok().out;
    assert!(history.lines().nth(1).unwrap().contains("  stop  "), "{history}");
    assert!(home.run("app history api -o wide").ok().out.contains(" stop of 3"));
    assert!(home.run("app show api").ok().out.contains("Stopped           since revision 4, by ada"));
    assert!(home.run("app status api").ok().out.contains("Stopped since revision 4, by ada"));
    assert!(home.run("app list").ok().out.contains("stopped"));
    let deploy = home.run("app deploy api r.example.com/api:four").ok();
    assert!(deploy.err.contains("note: The app was stopped by revision 4 of ada"), "{deploy:?}");
    let start = home.run("app start api").ok();
    assert!(start.out.starts_with("Starting shop-test/api: revision 6\n"), "{start:?}");
    assert!(!home.run("app show api").ok().out.contains("Stopped"));
}

#[test]
fn documents_are_whole_and_alone_on_standard_output() {
    let home = cli!().fast();
    let created = home.run("app create api --image r.example.com/api:one --settle 0s -o json").ok().json();
    assert_eq!((&created["deploy"]["status"], &created["adopted"]), (&"succeeded".into(), &false.into()));
    let deployed = home.run("app deploy api --image r.example.com/api:two -o json").ok().json();
    assert_eq!((&deployed["revision"], &deployed["status"]), (&2.into(), &"succeeded".into()));
    let back = home.run("app rollback api -o json").ok().json();
    assert_eq!((&back["revision"], &back["to"]["revision"]), (&3.into(), &1.into()));
    let history = home.run("app history api --limit 2 -o json").ok().json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 2);
    assert_eq!(history["deploys"][0]["from"]["revision"], 1);
    assert_eq!(history["next"], 2);
    let yaml = home.run("app history api -o yaml").ok();
    let read: serde_json::Value = serde_saphyr::from_str(&yaml.out).unwrap();
    assert_eq!(read["deploys"][2]["image"], "r.example.com/api:one");
    assert_eq!(home.run("app show api -o json").ok().json()["current"]["revision"], 3);
    assert_eq!(home.run("app list -o json").ok().json()["apps"][0]["app"], "api");
    assert!(home.run("app history api -o wide").ok().out.contains(" ada "));
}

#[test]
fn a_failed_deploy_exits_with_3_and_is_put_right() {
    let home = cli!().fast().with_history();
    home.run("app set api --rollout-deadline 1s").ok();
    let failed = home.run("app deploy api --image r.example.com/api:slow --driver simulated:3s").exits(3);
    assert!(failed.err.contains("Revision 4 failed (rollout-deadline-exceeded)"), "{failed:?}");
    assert!(failed.err.contains("Revision 5 restores"), "{failed:?}");
    assert!(!failed.out.contains("Revision 4 succeeded"), "{failed:?}");
    let entries = home.run("app history api -o json").ok().json();
    assert_eq!(entries["deploys"][0]["actor"], "auto");
    assert_eq!(entries["deploys"][1]["status"], "failed");
    assert!(entries["deploys"].as_array().unwrap().iter().all(|entry| entry["status"] != "queued"));
    let document = home.run("app deploy api --image r.example.com/api:slow --driver simulated:3s -o json").exits(3);
    assert_eq!(document.json()["status"], "failed");
}

#[test]
fn a_revision_that_never_succeeded_needs_a_yes() {
    let home = cli!().fast().with_history();
    home.run("app set api --rollout-deadline 1s --on-failure leave").ok();
    home.run("app deploy api --image r.example.com/api:slow --driver simulated:3s").exits(3);
    let refused = home.run("app rollback api --revision 4").exits(6);
    assert!(refused.err.contains("Revision 4 failed") && refused.err.contains("--yes"), "{refused:?}");
    let entries = home.run("app history api -o json").ok().json();
    assert_eq!(entries["deploys"].as_array().unwrap().len(), 4, "nothing was recorded");
    let history = home.run("app history api").ok();
    assert!(history.out.contains("(failed, on cluster)"), "{history:?}");
    home.run("app set api --rollout-deadline 1m").ok();
    let back = home.run("app rollback api --revision 4 --yes").ok();
    assert!(back.out.contains("to revision 4 (r.example.com/api:slow): new revision 5"), "{back:?}");
}

#[test]
fn rollback_past_a_release_command_needs_a_yes() {
    let home = cli!().fast().with_history();
    home.run("app set api --release-command migrate").ok();
    home.run("app deploy api --image r.example.com/api:three").ok();
    let wide = home.run("app history api -o wide").ok().out;
    assert!(wide.lines().next().unwrap().ends_with("RELEASE") && wide.contains(" done\n"), "{wide}");
    let refused = home.run("app rollback api").exits(6);
    assert!(refused.err.contains("The release command of revision 4 ran, or may have run"), "{refused:?}");
    assert!(refused.err.contains("confirm with --yes"), "{refused:?}");
    let back = home.run("app rollback api --yes").ok();
    assert!(back.out.contains("new revision 5"), "{back:?}");
    let gone = home.run("app build-logs api --release").exits(1);
    assert!(gone.err.contains("no log of a release command of revision 4"), "{gone:?}");
    home.run("app set api --release-command fail").ok();
    let failed = home.run("app deploy api --image r.example.com/api:four").exits(3);
    assert!(
        failed.err.contains("(release-failed)") && failed.err.contains("log of the release command:"),
        "{failed:?}"
    );
    let entry = home.run("app history api --revision 6").ok().out;
    assert!(entry.contains("its release command ran, and failed"), "{entry}");
    let refused = home.run("app rollback api --revision 6").exits(6);
    let why = "its release command failed and will not be run: deploy the image again instead";
    assert!(refused.err.contains(why), "{refused:?}");
    home.run("app rollback api --revision 6 --yes").ok();
    let entry = home.run("app history api --revision 7").ok().out;
    assert!(entry.contains("the release command of revision 6 did not succeed, and was not run"), "{entry}");
}

#[test]
fn rollback_names_what_it_superseded_and_refuses_where_there_is_nothing() {
    let home = cli!().fast();
    home.run("app create api --image r.example.com/api:one --settle 0s").ok();
    let refused = home.run("app rollback api").exits(1);
    assert!(refused.err.starts_with("error: ") || refused.err.contains("\nerror: "), "{refused:?}");
    assert!(refused.err.contains("with another image than that of revision"), "{refused:?}");
    assert_eq!(home.run("app rollback api --revision 9").exits(1).out, "");
}

#[test]
fn the_webhook_is_enabled_shown_and_disabled() {
    let home = cli!().fast().with_history();
    assert_eq!(home.run("app webhook status api").ok().out, "disabled\n");
    let enabled = home.run("app webhook enable api --base-url https://deploys.example.com/").ok();
    let token = enabled.out.lines().find_map(|line| line.strip_prefix("Token  ")).unwrap().to_owned();
    assert!(token.starts_with("rh_") && enabled.out.matches(&token).count() == 1, "{enabled:?}");
    assert!(enabled.out.contains("URL    https://deploys.example.com/api/v1/webhook/shop-test/api\n"), "{enabled:?}");
    assert!(enabled.out.contains("IMAGE: r.example.com/api:$CI_COMMIT_SHORT_SHA"), "{enabled:?}");
    assert!(enabled.err.contains("--repository r.example.com/api") && !enabled.err.contains(&token), "{enabled:?}");
    assert_eq!(home.run("app webhook status api -o json").ok().json()["token"], token.as_str());
    let again = home.run("app webhook enable api -o json").ok().json();
    assert_ne!(again["token"], token.as_str());
    home.run("app set api --repository r.example.com/api").ok();
    assert!(!home.run("app webhook enable api").ok().err.contains("tip"));
    home.run("app webhook disable api").ok();
    assert_eq!(home.run("app webhook status api").ok().out, "disabled\n");
}

#[test]
fn webhook_that_ci_elsewhere_does_not_reach_is_told() {
    let home = cli!().fast().with_history();
    let enabled = home.run("app webhook enable api --base-url http://rollhook.rollhook.svc").ok();
    assert!(enabled.err.contains("the cluster's own") && enabled.err.contains("ingress.enabled"), "{enabled:?}");
    let own = home.run("app webhook status api --base-url http://127.0.0.1:8080").ok();
    assert!(own.err.contains("this machine's own"), "{own:?}");
    assert!(!home.run("app webhook status api --base-url https://deploys.example.com").ok().err.contains("own"));
}

#[test]
fn image_that_the_workload_has_is_printed_alone() {
    let home = cli!().fast().with_history();
    let image = home.run("app image api").ok();
    assert_eq!((image.out.as_str(), image.err.as_str()), ("r.example.com/api:three\n", ""));
    home.run("app rollback api").ok();
    let document = home.run("app image api -o json").ok().json();
    assert_eq!(document["revision"], 4);
    assert!(document["image"].as_str().unwrap().starts_with("r.example.com/api:two"), "{document}");
    home.run("app image worker").exits(1);
}

#[test]
fn policy_holds_promotion_and_removal() {
    let home = cli!().fast().with_history();
    let set = home.run("app set api --on-failure leave --settle 5s --hold all --repository r.example.com/*").ok();
    assert!(set.out.contains("on-failure        leave\n") && set.out.contains("settle            5s\n"), "{set:?}");
    home.run("app set api").exits(2);
    home.run("app set api --settle 0s --repository").exits(2);
    home.run("app rollback api").ok();
    assert!(home.run("app show api").ok().out.contains("r.example.com/api:three, since rollback 4"));
    home.run("app release-hold api").ok();
    assert!(!home.run("app show api").ok().out.contains("since rollback"));
    home.run("app create api --environment prod --image r.example.com/api:zero --settle 0s").ok();
    let promoted = home.run("app promote api --environment prod --from-environment test").ok();
    let expected = "Promoting r.example.com/api:two from shop-test/api to shop-prod/api: revision 2\n";
    assert!(promoted.out.starts_with(expected), "{promoted:?}");
    assert_eq!(home.run("app list --environment prod -o json").ok().json()["apps"].as_array().unwrap().len(), 1);
    assert!(home.run("app history api --environment prod -o wide").ok().out.contains("shop-test/api 4"));
    assert!(home.run("app delete api").exits(6).err.contains("--yes"));
    home.run("app show api").ok();
    home.run("app delete api --yes").ok();
    let gone = home.run("app show api").exits(1);
    assert!(gone.err.contains("no app shop-test/api") && gone.err.contains("--server"), "{gone:?}");
}

#[test]
fn wrong_words_exit_with_2_and_name_the_flag() {
    let home = cli!();
    let nowhere = home.command("app list").env_remove("ROLLHOOK_STORE").output().unwrap();
    let told = String::from_utf8(nowhere.stderr).unwrap();
    assert!(nowhere.status.code() == Some(2) && told.contains("--server") && told.contains("--store"), "{told}");
    assert_eq!(home.path().read_dir().unwrap().count(), 0, "no store is made");
    assert!(home.run("app list --store memory").exits(2).err.contains("--store"));
    let password = home.run("app list --store mysql://u:hunter2@db").exits(2);
    assert!(!password.err.contains("hunter2"), "{password:?}");
    assert!(home.run("app list --driver swarm").exits(2).err.contains("--driver"));
    assert!(home.run("app list --server ftp://x").exits(2).err.contains("--server"));
    assert!(home.run("app list --server http://127.0.0.1:1").exits(2).err.contains("ROLLHOOK_TOKEN"));
    let app =
        "app show api --project this-is-a-very-long-project-name-indeed --environment and-a-long-environment-name-too";
    assert!(home.run(app).exits(2).err.contains("63"));
}

#[test]
fn nothing_is_deployed_where_no_driver_was_named() {
    let home = cli!().fast().with_history();
    for words in [
        "app deploy api --image r.example.com/api:four",
        "app rollback api --yes",
        "app create web --image r.example.com/w:1",
    ] {
        let refused = home.command(words).env_remove("ROLLHOOK_DRIVER").output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{words}");
        assert!(String::from_utf8(refused.stderr).unwrap().contains("--driver"), "{words}");
    }
    let read = home.command("app history api").env_remove("ROLLHOOK_DRIVER").output().unwrap();
    assert_eq!(
        String::from_utf8(read.stdout).unwrap().lines().count(),
        4,
        "reading needs none, and nothing was recorded"
    );
}

#[test]
fn a_store_that_cannot_be_opened_exits_with_5() {
    let home = cli!();
    std::fs::write(home.path().join("not.db"), "this is no database, but a text of some length").unwrap();
    let store = format!("app list --store sqlite:{}", home.path().join("not.db").display());
    let ended = home.run(&store).exits(5);
    assert!(ended.err.contains("error: "), "{ended:?}");
}

/// A command that has got as far as rolling out.
fn rolling_out(home: &Cli, words: &str) -> Child {
    let mut child = home.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let said = child.stderr.as_mut().unwrap();
    let mut so_far = Vec::new();
    while !["rolls out", "new pods"].iter().any(|said| String::from_utf8_lossy(&so_far).contains(said)) {
        let mut byte = [0];
        said.read_exact(&mut byte).unwrap();
        so_far.push(byte[0]);
    }
    child
}

#[test]
fn an_interrupted_command_says_what_goes_on_and_the_next_one_finishes() {
    let home = cli!().fast().with_history();
    let child = rolling_out(&home, "app deploy api --image r.example.com/api:four --driver simulated:60s");
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let ended = Ended::from(child.wait_with_output().unwrap()).exits(130);
    assert!(ended.err.contains("revision 4 has not ended"), "{ended:?}");
    assert!(home.run("app history api").ok().out.contains("(rolling out)"));
    let back = home.run("app rollback api").ok();
    assert!(back.out.contains("to revision 3") && back.out.contains("Superseded: 4"), "{back:?}");
}

#[test]
fn an_unfinished_deploy_is_cancelled_and_put_right() {
    let home = cli!().fast().with_history();
    let mut child = rolling_out(&home, "app deploy api --image r.example.com/api:four --driver simulated:4s");
    let cancelled = home.run("app cancel api --revision 4").ok();
    assert!(cancelled.out.starts_with("Cancelled revision 4 of shop-test/api\n"), "{cancelled:?}");
    assert!(cancelled.err.contains("Revision 5 restores r.example.com/api:three"), "{cancelled:?}");
    assert_eq!(child.wait().unwrap().code(), Some(3), "whoever waited for it is told");
    home.run("app cancel api --revision 4").ok();
    assert!(home.run("app cancel api --revision 3").exits(1).err.contains("ended already"));
    let entries = home.run("app history api -o json").ok().json();
    assert_eq!(
        (&entries["deploys"][1]["status"], &entries["deploys"][0]["current"]),
        (&"cancelled".into(), &true.into())
    );
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let home = cli!().fast().with_history();
    for words in ["app history api", "completions bash", "app webhook enable api"] {
        let mut child = home.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take());
        let ended = Ended::from(child.wait_with_output().unwrap());
        assert!(ended.code == 0 && !ended.err.contains("panic"), "{words}: {ended:?}");
    }
}

#[test]
fn completions_are_scripts() {
    let home = cli!();
    for (shell, part) in
        [("bash", "_clap_complete_rollhook rollhook"), ("zsh", "#compdef rollhook"), ("fish", "--command rollhook")]
    {
        assert!(home.run(&format!("completions {shell}")).ok().out.contains(part), "{shell}");
    }
    let left: Vec<_> = std::fs::read_dir(home.path()).unwrap().collect();
    assert!(left.is_empty(), "nothing is opened for it: {left:?}");
}

#[test]
fn no_colours_off_a_terminal() {
    let home = cli!().fast().with_history();
    for words in ["app history api", "app list", "app show api", "--help"] {
        let ended = home.run(words).ok();
        assert!(!ended.out.contains('\u{1b}') && !ended.err.contains('\u{1b}'), "{words}");
    }
}

#[test]
fn app_of_another_project_that_spells_the_same_namespace_is_not_found() {
    let home = cli!().fast();
    home.run("app create api --project a-b --environment c --image r.example.com/api:one --settle 0s").ok();
    home.run("app create api --project a --environment prod --image r.example.com/api:one --settle 0s").ok();
    for command in [
        "app show api",
        "app history api",
        "app deploy api --image r.example.com/api:two",
        "app rollback api",
        "app cancel api --revision 1",
        "app webhook enable api",
        "app webhook status api",
        "app set api --settle 1s",
        "app delete api --yes",
    ] {
        let refused = home.run(&format!("{command} --project a --environment b-c")).exits(1);
        assert!(refused.err.contains("There is no app api in project a, environment b-c."), "{command}: {refused:?}");
    }
    let promoted = home.run("app promote api --project a --environment prod --from-environment b-c").exits(1);
    assert!(promoted.err.contains("There is no app api in project a, environment b-c."), "{promoted:?}");
    home.run("app show api --project a-b --environment c").ok();
}

#[test]
fn variables_are_a_revision_and_brought_back_without_a_server_too() {
    let home = cli!().fast().with_history();
    let set = home.run("app config set api LEVEL=info --plain").ok();
    assert!(set.out.starts_with("Setting LEVEL of shop-test/api: revision 4\nRevision 4 succeeded"), "{set:?}");
    assert_eq!(home.run("app config list api").ok().out, "NAME   VALUE\nLEVEL  info\n");
    home.run("app config unset api LEVEL").ok();
    let back = home.run("app rollback api --revision 4 --with-config").ok();
    assert!(back.err.contains("(+LEVEL)"), "{back:?}");
    assert_eq!(home.run("app config list api").ok().out, "NAME   VALUE\nLEVEL  info\n");
}
