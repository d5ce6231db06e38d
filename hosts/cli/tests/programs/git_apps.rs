//! Git apps on the command line, built by the simulated driver's simulated builder.

use rollhook_testing::cli;

const CREATE: &str = "app create api --git https://git.example.com/shop/api.git --image-repository \
                      registry.example.com/shop/api --branch main --settle 0s --no-build";

#[test]
fn a_git_app_is_registered_built_shown_and_its_log_read() {
    let home = cli!().fast();
    let created = home.run(CREATE).ok();
    assert!(created.out.contains("to be made by the first build that succeeds"), "{created:?}");
    let shown = home.run("app show api").ok().out;
    for line in ["https://git.example.com/shop/api.git", "main", "Dockerfile in .", "registry.example.com/shop/api"] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
    assert_eq!(home.run("app history api -o json").ok().json()["deploys"], serde_json::json!([]));
    let built = home.run("app rebuild api --commit abc1234").ok();
    assert!(built.out.contains("Building abc1234 for shop-test/api: revision 1"), "{built:?}");
    let entry = home.run("app show api -o json").ok().json();
    let commit = entry["current"]["commit"].as_str().unwrap();
    assert!(commit.len() == 40 && commit.starts_with("abc1234"), "{commit}");
    let history = home.run("app history api").ok().out;
    assert!(history.contains("abc1234") && history.contains("(current)"), "{history}");
    // The simulated builder's logs end with its process, as a store in memory does.
    home.run("app build-logs api").exits(1);
    let failed = home.run("app rebuild api --commit 500aaaa").exits(3);
    assert!(
        failed.err.contains("build-failed") && failed.err.contains("broken"),
        "its last lines are told: {failed:?}"
    );
    let list = home.run("app list").ok().out;
    assert!(list.contains("(2 failed: build-failed)"), "told beside what is current: {list}");
    let status = home.run("app status api").ok().out;
    assert!(status.contains("(revision 1, ") && status.contains("Revision 2 failed (build-failed)"), "{status}");
}

#[test]
fn a_new_git_app_whose_branch_cannot_be_read_is_registered_all_the_same() {
    let home = cli!().fast();
    let git = "--git https://git.example.com/shop/api.git --image-repository registry.example.com/shop/api --settle 0s";
    let created = home.run(&format!("app create api {git}")).exits(5);
    assert!(created.out.contains("Registered shop-test/api"), "{created:?}");
    for part in ["builds are simulated", "rollhook app rebuild api --project shop --environment test"] {
        assert!(created.err.contains(part), "{part}: {created:?}");
    }
    home.run("app show api").ok();
    assert!(home.run("app rebuild api").exits(5).err.contains("name the commit"), "and so is its rebuild");
    home.run("app create web --no-build").exits(2);
}

#[test]
fn a_source_is_changed_part_by_part_and_checked() {
    let home = cli!().fast();
    home.run(CREATE).ok();
    let changed = home.run("app set api --branch next --credentials ci").ok().out;
    assert!(changed.contains("next") && changed.contains("ci"), "{changed}");
    let shown = home.run("app set api --credentials= -o json").ok().json();
    assert_eq!(shown["source"]["branch"], "next");
    assert!(shown["source"]["credentials"].is_null(), "{shown}");
    for words in [
        "app set api --branch -x",
        "app set api --dockerfile ../Dockerfile",
        "app create web --git https://git.example.com/a.git",
        "app create web --branch main",
    ] {
        home.run(words).exits(2);
    }
    let refused = home.run("app set api --git https://ada:hunter2@git.example.com/a.git").exits(1);
    assert!(!refused.err.contains("hunter2") && refused.err.contains("must hold no credentials"), "{refused:?}");
    let local = home.run("app set api --git https://127.0.0.1/a.git").exits(1);
    assert!(local.err.contains("--allow-local-sources"), "{local:?}");
    home.run("app create web --image r.example.com/web:v1 --settle 0s").ok();
    home.run("app set web --branch main").exits(1);
    home.run("app rebuild web").exits(1);
}
