use http::{HeaderName, HeaderValue};
use rollhook_core::delivery::Push;
use serde_json::{Value, json};

use super::*;

const COMMIT: &str = "da1560886d4f094c3e6c9ef40349f7d38b5d27d7";
const ZEROS: &str = "0000000000000000000000000000000000000000";

fn headers(lines: &[(&str, &str)]) -> HeaderMap {
    let line =
        |(name, value): &(&str, &str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_str(value).unwrap());
    let json = [(CONTENT_TYPE, HeaderValue::from_static("application/json"))];
    json.into_iter().chain(lines.iter().map(line)).collect()
}

fn pushed(lines: &[(&str, &str)], body: &Value) -> (GitHost, Push) {
    let told = delivery(&headers(lines), body.to_string().as_bytes()).unwrap().unwrap();
    let Event::Push(push) = told.event else { panic!("no push: {told:?}") };
    (told.host, push)
}

fn to_main(skip: bool) -> RefUpdate {
    let head = Head { commit: COMMIT.parse().unwrap(), skip, committed_at: None };
    RefUpdate { reference: Reference::Branch("main".to_owned()), before: Before::Absent, head: Some(head) }
}

fn main_deleted() -> RefUpdate {
    RefUpdate { reference: Reference::Branch("main".to_owned()), before: Before::Absent, head: None }
}

fn error(lines: &[(&str, &str)], body: &str) -> Error {
    delivery(&headers(lines), body.as_bytes()).unwrap_err()
}

#[test]
fn github_pushes() {
    let event = [("x-github-event", "push")];
    let push = |reference: &str, after: &str, message: Option<&str>| {
        let head = message.map(|message| json!({ "id": after, "message": message, "author": { "name": "Mona" } }));
        pushed(
            &event,
            &json!({
                "ref": reference, "before": ZEROS, "after": after, "created": true, "deleted": message.is_none(),
                "forced": false, "base_ref": null, "commits": [], "head_commit": head,
                "pusher": { "name": "octocat", "email": "octocat@example.com" }, "sender": { "login": "octocat" }
            }),
        )
    };
    let (host, found) = push("refs/heads/main", COMMIT, Some("Mend it"));
    assert_eq!((host, found.pusher.as_deref()), (Host::Github.into(), Some("octocat")));
    assert_eq!(found.updates, [to_main(false)]);
    assert_eq!(push("refs/heads/main", &COMMIT.to_uppercase(), Some("x [skip deploy]")).1.updates, [to_main(true)]);
    assert_eq!(push("refs/heads/main", ZEROS, None).1.updates, [main_deleted()]);
    assert_eq!(push("refs/tags/v1", COMMIT, Some("x")).1.updates[0].reference, Reference::Tag("v1".to_owned()));
}

#[test]
fn gitlab_pushes() {
    let sent = |kind: &str, reference: &str, after: &str| {
        json!({
            "object_kind": kind, "event_name": kind, "before": ZEROS, "after": after, "ref": reference,
            "ref_protected": true, "checkout_sha": if after == ZEROS { Value::Null } else { json!(after) },
            "message": null, "user_id": 4, "user_name": "John Smith", "user_username": "jsmith",
            "project_id": 15, "total_commits_count": 2, "push_options": {},
            "commits": [
                { "id": "b6568db1bc1dcd7f8b4d5a946b0b91f9dacd7327", "message": "Older [skip deploy]", "title": "Older" },
                { "id": COMMIT, "message": "Newest\n", "title": "Newest", "added": ["CHANGELOG"] }
            ]
        })
    };
    let event = [("x-gitlab-event", "Push Hook"), ("x-gitlab-event-uuid", "13792a34-cac6-4fda-95a8-c58e00a3954e")];
    let (host, push) = pushed(&event, &sent("push", "refs/heads/main", COMMIT));
    assert_eq!((host, push.pusher.as_deref()), (Host::Gitlab.into(), Some("jsmith")));
    assert_eq!(push.updates, [to_main(false)], "only the head's message counts");
    assert_eq!(pushed(&event, &sent("push", "refs/heads/main", ZEROS)).1.updates, [main_deleted()]);
    let tag = pushed(&[("x-gitlab-event", "Tag Push Hook")], &sent("tag_push", "refs/tags/v1", COMMIT)).1;
    assert_eq!(tag.updates[0].reference, Reference::Tag("v1".to_owned()));
}

#[test]
fn gitea_and_forgejo_pushes_though_they_say_github_too() {
    let body = json!({
        "ref": "refs/heads/main", "before": ZEROS, "after": COMMIT, "compare_url": "", "total_commits": 1,
        "commits": [{ "id": COMMIT, "message": "Mend it\n", "added": [], "removed": [], "modified": ["a"] }],
        "head_commit": { "id": COMMIT, "message": "Mend it\n" },
        "pusher": { "id": 1, "login": "gitea", "full_name": "Gitea", "username": "gitea" },
        "sender": { "id": 1, "login": "gitea" }
    });
    let theirs = [("x-github-event", "push"), ("x-gogs-event", "push"), ("x-gitea-event", "push")];
    let (host, push) = pushed(&theirs, &body);
    assert_eq!((host, push.pusher.as_deref()), (Host::Gitea.into(), Some("gitea")));
    assert_eq!(push.updates, [to_main(false)]);
    let theirs = [&theirs[..], &[("x-forgejo-event", "push")]].concat();
    assert_eq!(pushed(&theirs, &body).0, Host::Forgejo.into());
    let mut old = body.clone();
    old["head_commit"] = Value::Null;
    old["commits"][0]["message"] = "[skip deploy]".into();
    assert_eq!(pushed(&theirs, &old).1.updates, [to_main(true)]);
}

#[test]
fn bitbucket_pushes_of_several_branches() {
    let named = |kind: &str, name: &str, message: &str| json!({ "type": kind, "name": name, "target": { "type": "commit", "hash": COMMIT, "message": message } });
    let (host, push) = pushed(
        &[("x-event-key", "repo:push"), ("x-attempt-number", "1")],
        &json!({
            "actor": { "type": "user", "display_name": "Emma", "nickname": "emmap1" },
            "repository": { "name": "webhook_test" },
            "push": { "changes": [
                { "new": named("tag", "v1", ""), "old": null, "created": true },
                { "new": null, "old": named("branch", "gone", ""), "closed": true },
                { "new": null, "old": null },
                { "new": named("branch", "main", "Mend\n[skip deploy]"), "old": named("branch", "main", ""), "forced": false }
            ] }
        }),
    );
    assert_eq!((host, push.pusher.as_deref()), (Host::Bitbucket.into(), Some("emmap1")));
    let [tag, gone, main] = push.updates.as_slice() else { panic!("{push:?}") };
    assert_eq!((&tag.reference, &gone.reference), (&Reference::Tag("v1".into()), &Reference::Branch("gone".into())));
    assert!(tag.head.is_some() && gone.head.is_none());
    assert_eq!(*main, RefUpdate { before: Before::At(COMMIT.parse().unwrap()), ..to_main(true) });
    assert_eq!((&tag.before, &gone.before), (&Before::Absent, &main.before));

    let (host, push) = pushed(
        &[("x-event-key", "repo:refs_changed")],
        &json!({
            "eventKey": "repo:refs_changed", "actor": { "name": "admin", "displayName": "Administrator" },
            "changes": [
                { "ref": { "id": "refs/heads/main", "displayId": "main", "type": "BRANCH" },
                  "fromHash": ZEROS, "toHash": COMMIT, "type": "UPDATE" },
                { "ref": { "id": "refs/heads/main" }, "fromHash": COMMIT, "toHash": ZEROS, "type": "DELETE" }
            ],
            "toCommit": { "id": COMMIT, "message": "[skip deploy]" }
        }),
    );
    assert_eq!((host, push.pusher.as_deref()), (Host::Bitbucket.into(), Some("admin")));
    let gone = RefUpdate { before: Before::At(COMMIT.parse().unwrap()), ..main_deleted() };
    assert_eq!(push.updates, [to_main(true), gone]);
}

#[test]
fn push_of_very_many_changes_is_refused_and_of_very_many_commits_is_read_in_part() {
    let cloud = [("x-event-key", "repo:push")];
    let of_cloud = |count: usize| {
        let change = json!({ "old": null, "new": { "type": "branch", "name": "main", "target": { "hash": COMMIT } } });
        json!({ "push": { "changes": vec![change; count] } })
    };
    let data_center = [("x-event-key", "repo:refs_changed")];
    let of_data_center = |count: usize| {
        let change = json!({ "ref": { "id": "refs/heads/main" }, "fromHash": ZEROS, "toHash": COMMIT });
        json!({ "changes": vec![change; count] })
    };
    for (event, body) in [(&cloud, of_cloud as fn(usize) -> Value), (&data_center, of_data_center)] {
        assert_eq!(pushed(event, &body(CHANGES_MAX)).1.updates.len(), CHANGES_MAX);
        let refused = error(event, &body(CHANGES_MAX + 1).to_string());
        assert!(matches!(refused, Error::TooManyChanges), "{refused}");
        assert!(refused.to_string().starts_with("a push must change at most 1000 branches and tags"), "{refused}");
    }

    let other = json!({ "id": "b6568db1bc1dcd7f8b4d5a946b0b91f9dacd7327", "message": "Other [skip deploy]" });
    let skips = |event: &[(&str, &str)], body: &Value| pushed(event, body).1.updates[0].head.as_ref().unwrap().skip;
    let head = json!({ "id": COMMIT, "message": "[skip deploy]" });
    for (before, is_kept) in [(bounded::COMMITS_MAX - 1, true), (bounded::COMMITS_MAX, false)] {
        let mut commits = vec![other.clone(); before];
        commits.push(head.clone());
        let body = json!({ "ref": "refs/heads/main", "after": COMMIT, "commits": commits });
        assert_eq!(skips(&[("x-gitlab-event", "Push Hook")], &body), is_kept);
        let mut body = of_data_center(1);
        body["commits"] = commits.into();
        assert_eq!(skips(&data_center, &body), is_kept);
        body["toCommit"] = head.clone();
        assert!(skips(&data_center, &body), "the head stands beside the list");
    }
}

#[test]
fn where_a_branch_was_is_told_and_nothing_is_made_up() {
    let github = [("x-github-event", "push")];
    let before = |before: Value| {
        let body = json!({ "ref": "refs/heads/main", "before": before, "after": COMMIT });
        let all = [&github[..], &[("x-gitlab-event", "Push Hook")], &[("x-gitea-event", "push")]];
        let mut told = all.map(|event| pushed(event, &body).1.updates.remove(0).before);
        assert!(told[0] == told[1] && told[0] == told[2]);
        std::mem::take(&mut told[0])
    };
    assert_eq!(before(json!(ZEROS)), Before::Absent);
    assert_eq!(before(json!("AB".repeat(20))), Before::At("ab".repeat(20).parse().unwrap()));
    for unsaid in [Value::Null, json!(""), json!("main"), json!("ab")] {
        assert_eq!(before(unsaid), Before::Unreported);
    }
}

#[test]
fn a_form_holds_the_same() {
    let mut form = headers(&[("x-github-event", "push")]);
    form.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-www-form-urlencoded; charset=utf-8"));
    let body = format!("payload=%7B%22ref%22%3A+%22refs%2Fheads%2Fmain%22%2C%22after%22%3A%22{COMMIT}%22%7D");
    let told = delivery(&form, body.as_bytes()).unwrap().unwrap();
    let to_unsaid = RefUpdate { before: Before::Unreported, ..to_main(false) };
    assert_eq!(told.event, Event::Push(Push { pusher: None, updates: vec![to_unsaid] }));
    for body in ["", "payload", "payload={}&payload={}", "a=b"] {
        assert!(matches!(delivery(&form, body.as_bytes()).unwrap_err(), Error::Form), "{body}");
    }
    for body in ["payload=%zz", "payload=%ff"] {
        assert!(matches!(delivery(&form, body.as_bytes()).unwrap_err(), Error::NotAnObject), "{body}");
    }
    assert!(matches!(delivery(&form, b"payload=%7B%22ref%22:%22%FF%22%7D").unwrap_err(), Error::Json(_)));
    assert!(matches!(delivery(&form, b"payload=%FF\xff").unwrap_err(), Error::Form));
}

#[test]
fn field_of_a_form_is_decoded_into_one_buffer() {
    for (field, expected) in [
        ("", ""),
        ("a", "a"),
        ("+", " "),
        ("a+b++c+", "a b  c "),
        ("%2B+%2b%20", "+ + "),
        ("%C3%A4", "ä"),
        ("%+41%4+1%zz%", "% 41%4 1%zz%"),
        ("%252B", "%2B"),
    ] {
        let bytes = decoded(field);
        assert_eq!(String::from_utf8(bytes).unwrap(), expected, "{field}");
    }
    for piece in ["+", "%20", "a", "%7B+a"] {
        let field = piece.repeat(10_000);
        assert_eq!(decoded(&field).capacity(), field.len(), "{piece}: it did not grow");
    }
}

#[test]
fn other_events_are_named_and_their_bodies_not_looked_at() {
    let other = |name: &str, event: &str| delivery(&headers(&[(name, event)]), b"\xff").unwrap().unwrap();
    for (name, event, host) in [
        ("x-github-event", "issues", Host::Github.into()),
        ("x-gitlab-event", "Pipeline Hook", Host::Gitlab.into()),
        ("x-gitlab-event", "System Hook", Host::Gitlab.into()),
        ("x-gitea-event", "pull_request", Host::Gitea.into()),
        ("x-forgejo-event", "delete", Host::Forgejo.into()),
        ("x-event-key", "pullrequest:created", Host::Bitbucket.into()),
    ] {
        assert_eq!(other(name, event), Delivery { host, event: Event::Other(event.to_owned()) });
    }
    assert_eq!(other("x-github-event", "ping").event, Event::Ping);
    assert_eq!(other("x-event-key", "diagnostics:ping").event, Event::Ping);
    assert_eq!(delivery(&headers(&[("x-hook-uuid", "a")]), b"{}").unwrap(), None, "CI's own call");
}

#[test]
fn what_makes_no_sense_is_its_senders_mistake() {
    for (name, event) in [
        ("x-github-event", "push"),
        ("x-gitlab-event", "Push Hook"),
        ("x-gitea-event", "push"),
        ("x-event-key", "repo:push"),
        ("x-event-key", "repo:refs_changed"),
    ] {
        for body in ["", "{", "{}", "[]", "null", "\"push\"", r#"{"ref":7}"#, r#"{"push":[]}"#, r#"{"changes":{}}"#] {
            let error = error(&[(name, event)], body);
            assert!(matches!(error, Error::Json(_) | Error::NotAnObject), "{event}: {body}: {error}");
        }
    }
    for commit in ["", "main", "da15608", "g".repeat(40).as_str(), "0".repeat(39).as_str(), "é".repeat(20).as_str()] {
        let body = json!({ "ref": "refs/heads/main", "after": commit }).to_string();
        assert!(matches!(error(&[("x-github-event", "push")], &body), Error::Commit), "{commit}");
    }
    let sha256 = json!({ "ref": "refs/heads/main", "after": "ab".repeat(32) });
    assert!(pushed(&[("x-gitea-event", "push")], &sha256).1.updates[0].head.is_some());
    let long = "x".repeat(101);
    for lines in [&[("x-github-event", "push"); 2][..], &[("x-github-event", "")], &[("x-github-event", &long)]] {
        assert!(matches!(error(lines, "{}"), Error::Event("x-github-event")));
    }
    let mut text = headers(&[("x-github-event", "push")]);
    text.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    assert!(matches!(delivery(&text, b"{}").unwrap_err(), Error::ContentType));
}

#[test]
fn byte_order_mark_before_the_json_is_skipped() {
    let body = format!("\u{feff}{{\"ref\": \"refs/heads/main\", \"after\": \"{}\"}}", "a".repeat(40));
    let read = delivery(&headers(&[("x-github-event", "push")]), body.as_bytes()).unwrap().unwrap();
    assert!(matches!(read.event, Event::Push(push) if push.updates.len() == 1));
}
