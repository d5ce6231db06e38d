//! What must be so once everything is over.

use std::{collections::BTreeMap, net::SocketAddr};

use rollhook_testing::{
    App,
    beds::{Fleet, is_over},
    until,
};
use serde_json::Value;

use crate::{
    load::{Outcome, Post},
    stamps::Carried,
};

/// Every app's history, once every deploy has ended, restores that are owed are made, and the cluster runs what is
/// current.
pub fn at_rest(fleet: &Fleet, server: SocketAddr, apps: &[App]) -> Vec<Vec<Value>> {
    let rests = |app: &App| {
        let history = fleet.history(server, app)?;
        let is_current = history.iter().rev().find(|entry| entry["on_cluster"] == true || entry["current"] == true);
        let settled = is_current.is_some_and(|entry| entry["current"] == true);
        (settled && history.iter().all(is_over)).then_some(history)
    };
    apps.iter().map(|app| until(&format!("{} has ended", app.name), || rests(app))).collect()
}

/// Nothing accepted is lost or doubled, nothing went backwards, everything has ended, and the cluster runs what is
/// current.
pub fn check(fleet: &Fleet, apps: &[App], histories: &[Vec<Value>], posts: &[Post], carried: &Carried) {
    for (number, (app, history)) in apps.iter().zip(histories).enumerate() {
        numbered_without_gaps(app, history);
        each_end_is_told(app, history);
        posts_are_there_once(app, history, posts.iter().filter(|post| post.app == number));
        let current = history.iter().rfind(|entry| entry["status"] == "succeeded").unwrap();
        assert_eq!(current["current"], true, "{}: {current}", app.name);
        let stamps = &carried[&app.name];
        assert!(stamps.is_sorted(), "{} went backwards: {stamps:?}", app.name);
        assert_eq!(stamps.last(), current["revision"].as_u64().as_ref(), "{}: {current}", app.name);
        let kubectl = fleet.kubectl();
        assert_eq!(kubectl.image(&format!("deployment/{}", app.name)), current["image"], "{}", app.name);
        assert_eq!(kubectl.running(&app.name), [current["image"].as_str().unwrap()], "{}", app.name);
    }
    let rolled_out: usize = carried.values().map(Vec::len).sum();
    let entries: usize = histories.iter().map(Vec::len).sum();
    println!("{entries} entries, {rolled_out} of them rolled out");
}

fn numbered_without_gaps(app: &App, history: &[Value]) {
    let revisions: Vec<u64> = history.iter().map(|entry| entry["revision"].as_u64().unwrap()).collect();
    let last = u64::try_from(revisions.len()).unwrap();
    assert!(revisions.iter().copied().eq(1..=last), "{}: {revisions:?}", app.name);
}

fn each_end_is_told(app: &App, history: &[Value]) {
    for entry in history {
        let sound = match entry["status"].as_str().unwrap() {
            "succeeded" => true,
            "failed" => entry["reason"].is_string() && entry["message"].is_string(),
            "superseded" => entry["superseded_by"].as_u64() > entry["revision"].as_u64(),
            _ => false,
        };
        assert!(sound, "{}: {entry}", app.name);
    }
}

fn posts_are_there_once<'a>(app: &App, history: &[Value], posts: impl Iterator<Item = &'a Post>) {
    let mut found: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for entry in history.iter().filter(|entry| entry["trigger"] == "webhook") {
        let revision = entry["revision"].as_u64().unwrap();
        found.entry(entry["commit"].as_str().unwrap()).or_default().push(revision);
    }
    for post in posts {
        let revisions = found.remove(post.label.as_str()).unwrap_or_default();
        let sound = match post.outcome {
            Outcome::Accepted(revision) => revisions == [revision],
            Outcome::Refused => revisions.is_empty(),
            Outcome::Unknown => revisions.len() <= 1,
        };
        assert!(sound, "{}: {post:?} is in the history as {revisions:?}", app.name);
        assert!(!post.keyed || matches!(post.outcome, Outcome::Accepted(_)), "{post:?}");
    }
    assert!(found.is_empty(), "{}: nobody posted {found:?}", app.name);
}
