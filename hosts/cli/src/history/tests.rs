use std::time::Duration;

use rollhook_core::deploy::{Evidence, Revision, Scale, Status, Trigger, WorkloadEnd, WorkloadEvidence};

use rollhook_api::{ImageLabels, Progress, Restore, WorkloadState};

use super::*;
use crate::table::Colour;

pub(crate) const PLAIN: Style = Style { colour: Colour::Off, width: None };

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_767_323_045_678);
const MINUTE: u64 = 60;
const DAY: u64 = 24 * 3600;

/// An entry that was accepted this long ago.
pub(crate) fn entry(revision: u64, image: &str, status: Status, ago: u64) -> Deploy {
    let accepted = Timestamp::from_millis(NOW.as_millis() - i64::try_from(ago).unwrap() * 1000);
    let revision = Revision::new(revision).unwrap();
    Deploy {
        namespace: "shop-test".to_owned(),
        app: "api".to_owned(),
        revision,
        image: Some(format!("registry.example.com/api:{image}")),
        commit: Some(image.to_owned()),
        committed_at: None,
        sequence: None,
        trigger: Trigger::Webhook,
        actor: "ci".to_owned(),
        status,
        current: false,
        on_cluster: false,
        adopted: false,
        configuration: None,
        configures: false,
        scale: Scale::Keep,
        effective: revision,
        from: None,
        digest: None,
        labels: None,
        reason: None,
        message: None,
        superseded_by: None,
        recovered_at: None,
        progress: None,
        release: None,
        restore: None,
        checks: Vec::new(),
        not_verified: None,
        not_resolved: None,
        signed_by: Vec::new(),
        decision: None,
        watch: None,
        revoked: None,
        evidence: None,
        step: 2,
        created_at: accepted,
        updated_at: accepted.after(Duration::from_secs(15)),
        url: format!("/api/v1/apps/shop-test/api/deploys/{revision}"),
    }
}

fn contract() -> Vec<Deploy> {
    vec![
        Deploy { current: true, ..entry(3, "def456a", Status::Succeeded, 2 * MINUTE) },
        Deploy { reason: Some("ImagePullBackOff".to_owned()), ..entry(2, "badbad1", Status::Failed, 9 * MINUTE) },
        Deploy { trigger: Trigger::Manual, ..entry(1, "abc123f", Status::Succeeded, 3 * DAY) },
    ]
}

/// One of everything, and what a hostile or careless caller may have posted.
fn everything() -> Vec<Deploy> {
    let commit = "0123456789abcdef0123456789abcdef01234567".to_owned();
    let digest = format!("sha256:{}", "ab".repeat(32));
    vec![
        entry(12, "k", Status::Queued, 1),
        Deploy { image: None, trigger: Trigger::Git, ..entry(11, "j", Status::Building, 20) },
        entry(10, "i", Status::RollingOut, 61),
        Deploy { on_cluster: true, ..entry(9, "h", Status::Failed, 3600) },
        Deploy {
            current: true,
            commit: Some(commit),
            digest: Some(digest.clone()),
            image: Some(format!("registry.example.com/api:g@{digest}")),
            trigger: Trigger::Rollback,
            actor: "ada".to_owned(),
            from: Some(TakenFrom { namespace: None, app: None, revision: Revision::FIRST }),
            ..entry(8, "g", Status::Succeeded, 7200)
        },
        Deploy {
            image: Some(format!("registry.example.com/api@{digest}")),
            commit: None,
            trigger: Trigger::Promotion,
            from: Some(TakenFrom {
                namespace: Some("shop-stage".to_owned()),
                app: Some("api".to_owned()),
                revision: Revision::new(41).unwrap(),
            }),
            ..entry(7, "f", Status::Succeeded, DAY)
        },
        Deploy { reason: Some("superseded".to_owned()), ..entry(6, "e", Status::Superseded, 2 * DAY) },
        Deploy { reason: Some("cancelled".to_owned()), ..entry(5, "d", Status::Cancelled, 2 * DAY) },
        Deploy {
            commit: Some("\u{1b}[2J\u{1b}[31mred\u{9b}\r\n\u{202e}".to_owned()),
            actor: "\u{7}bell".to_owned(),
            reason: Some("a\tb".to_owned()),
            ..entry(4, "c", Status::Failed, 2 * DAY)
        },
    ]
}

#[test]
fn the_table_of_the_contract() {
    let expected = "\
#   IMAGE                             COMMIT    TRIGGER    WHEN
3   registry.example.com/api:def456a  def456a   webhook    2 min ago (current)
2   registry.example.com/api:badbad1  badbad1   webhook    9 min ago (failed)
1   registry.example.com/api:abc123f  abc123f   manual     3 days ago
";
    assert_eq!(table(&contract(), NOW, PLAIN), expected);
}

#[test]
fn every_status_and_hostile_text() {
    insta::assert_snapshot!("table", table(&everything(), NOW, PLAIN));
    insta::assert_snapshot!("wide", wide(&everything(), PLAIN));
    let all = format!("{}{}", table(&everything(), NOW, PLAIN), wide(&everything(), PLAIN));
    assert!(all.chars().all(|c| c == '\n' || !c.is_control()), "{all:?}");
}

#[test]
fn a_narrow_terminal_shows_image_and_outcome() {
    let at = |width| table(&contract(), NOW, Style { width: Some(width), ..PLAIN });
    assert_eq!(at(120), table(&contract(), NOW, PLAIN));
    assert_eq!(
        at(76),
        at(120).replace("registry.example.com/", "").replace("IMAGE                             ", "IMAGE        ")
    );
    let expected = "\
#  IMAGE        COMMIT   WHEN
3  api:def456a  def456a  2 min ago (current)
2  api:badbad1  badbad1  9 min ago (failed)
1  api:abc123f  abc123f  3 days ago
";
    assert_eq!(at(48), expected);
    for width in [48, 80, 120] {
        let table = table(&everything(), NOW, Style { width: Some(width), ..PLAIN });
        assert!(table.lines().all(|line| line.chars().count() <= width), "{table}");
    }
}

#[test]
fn colours_only_where_they_are_shown() {
    assert!(
        table(&contract(), NOW, Style { colour: Colour::On, width: None })
            .contains("\u{1b}[32m2 min ago (current)\u{1b}[0m")
    );
    assert!(
        table(&contract(), NOW, Style { colour: Colour::On, width: None })
            .contains("\u{1b}[31m9 min ago (failed)\u{1b}[0m")
    );
}

#[test]
fn an_empty_history_is_its_headings() {
    assert_eq!(table(&[], NOW, PLAIN), "#   IMAGE  COMMIT    TRIGGER    WHEN\n");
}

fn workload(name: &str, state: WorkloadEnd, message: &str) -> WorkloadEvidence {
    WorkloadEvidence { name: name.to_owned(), state, message: message.to_owned() }
}

#[test]
fn a_failure_is_told_with_what_was_seen() {
    let evidence = Evidence {
        container: Some("api".to_owned()),
        pod: Some("api-5d9c7-x2x9z".to_owned()),
        state: Some("terminated: exit code 1".to_owned()),
        events: vec!["BackOff: Back-off restarting failed container".to_owned()],
        log: vec!["starting".to_owned(), "panic: \u{1b}[31mno database\u{1b}[0m".to_owned()],
        workloads: vec![
            workload("Deployment/worker", WorkloadEnd::Failed, "0 of 1 new instances are ready"),
            workload("Deployment/web", WorkloadEnd::Complete, "1 of 1 new instances are ready"),
            workload("CronJob/\u{1b}nightly", WorkloadEnd::NotTouched, "not touched: it waits for those before it"),
        ],
    };
    let failed = Deploy {
        reason: Some("CrashLoopBackOff".to_owned()),
        message: Some("Container api crashed 3 times.".to_owned()),
        evidence: Some(evidence),
        ..entry(2, "badbad1", Status::Failed, 1)
    };
    insta::assert_snapshot!("failure", ending(&failed, None).join("\n"));
}

/// A restore of two workloads and of the configuration.
fn restore() -> Restore {
    Restore {
        revision: Revision::new(4),
        to: Revision::FIRST,
        image: Some("registry.example.com/api:abc123f".to_owned()),
        workloads: vec!["Deployment/worker".to_owned(), "Deployment/\u{1b}web".to_owned()],
        configures: true,
        status: Some(Status::Succeeded),
    }
}

#[test]
fn outcome_of_a_failed_rollout_is_its_restore() {
    let failed = Deploy { restore: Some(restore()), ..entry(2, "badbad1", Status::Failed, 1) };
    let of = |restore: Restore| ending(&Deploy { restore: Some(restore), ..failed.clone() }, None)[1].clone();
    let bare = || Restore { workloads: Vec::new(), configures: false, ..restore() };
    assert_eq!(
        of(bare()),
        "  put right by itself: revision 4 rolled out revision 1 again, registry.example.com/api:abc123f"
    );
    assert_eq!(
        of(Restore { revision: None, status: None, ..bare() }),
        "  revision 1 is to be rolled out again: registry.example.com/api:abc123f"
    );
    let worker = Restore { workloads: vec!["Deployment/worker".to_owned()], ..bare() };
    assert_eq!(
        of(Restore { status: Some(Status::Failed), ..worker }),
        "  revision 4 restores revision 1, registry.example.com/api:abc123f in Deployment/worker: it failed"
    );
}

#[test]
fn image_that_was_not_resolved_says_why_and_a_commit_is_that_of_the_label_where_none_was_posted() {
    let why = Some("registry.example.com denies\u{1b} it".to_owned());
    let unresolved = Deploy { not_resolved: why, ..entry(3, "def456a", Status::Succeeded, 1) };
    assert_eq!(ending(&unresolved, None)[1..], ["  not resolved: registry.example.com denies\\u{1b} it"]);
    let labelled = |posted: Option<&str>, label: &str| {
        let labels = ImageLabels { revision: Some(label.to_owned()), ..ImageLabels::default() };
        let commit = posted.map(str::to_owned);
        Deploy { commit, labels: Some(Box::new(labels)), ..entry(3, "v3", Status::Succeeded, 1) }
    };
    let full = "0123456789abcdef0123456789abcdef01234567";
    let column = |deploy: Deploy| {
        let table = table(&[deploy], NOW, PLAIN);
        table.lines().last().unwrap().split_whitespace().nth(2).unwrap().to_owned()
    };
    assert_eq!(column(labelled(None, full)), "0123456");
    assert_eq!(column(labelled(Some("def456a"), full)), "def456a");
    assert_eq!(column(labelled(None, "\u{1b}[2J")), "-");
    assert_eq!(commit(&labelled(None, "abc123f")).as_deref(), Some("abc123f (as the image says)"));
    assert_eq!(commit(&labelled(Some("0123456"), full)).as_deref(), Some("0123456"));
    let other = commit(&labelled(Some("def456a"), "abc123f"));
    assert_eq!(other.as_deref(), Some("def456a (the image says commit abc123f)"));
}

#[test]
fn entry_under_way_says_since_when_and_how_its_workloads_are() {
    let state = WorkloadState {
        name: "Deployment/web".to_owned(),
        revision: None,
        complete: false,
        message: "0 of 1 new pods are ready".to_owned(),
    };
    let progress = Progress {
        since: NOW,
        ready: None,
        wanted: None,
        message: Some("Deployment/web: 0 of 1 new pods are ready".to_owned()),
        mark: None,
        deadline: Some(NOW.after(Duration::from_secs(600))),
        workloads: vec![state],
    };
    let rolling = Deploy { progress: Some(progress), ..entry(3, "def456a", Status::RollingOut, 1) };
    assert_eq!(
        ending(&rolling, None),
        [
            "Revision 3 rolls out: Deployment/web: 0 of 1 new pods are ready",
            "  since 2026-01-02T03:04:05Z; fails at 2026-01-02T03:14:05Z unless it is over",
            "  workloads:",
            "    Deployment/web: 0 of 1 new pods are ready",
        ]
    );
}

#[test]
fn wide_history_has_a_line_for_each_of_several_workloads() {
    let workloads = vec![
        workload("Deployment/worker", WorkloadEnd::Failed, "0 of 1 new instances are ready"),
        workload("Deployment/\u{1b}web", WorkloadEnd::Complete, "1 of 1 new instances are ready"),
    ];
    let evidence = Some(Evidence { workloads, ..Evidence::default() });
    let state = |name: &str, message: &str| WorkloadState {
        name: name.to_owned(),
        revision: None,
        complete: false,
        message: message.to_owned(),
    };
    let progress = Some(Progress {
        since: NOW,
        ready: None,
        wanted: None,
        message: None,
        mark: None,
        deadline: None,
        workloads: vec![state("Deployment/worker", "the rollout begins"), state("Deployment/web", "not touched")],
    });
    let history = [
        Deploy { progress, ..entry(3, "def456a", Status::RollingOut, 1) },
        Deploy { evidence, restore: Some(restore()), ..entry(2, "badbad1", Status::Failed, 1) },
        entry(1, "abc123f", Status::Succeeded, 1),
    ];
    let wide = wide(&history, PLAIN);
    let lines: Vec<&str> = wide.lines().collect();
    assert_eq!(
        (&lines[2..4], &lines[5..7]),
        (
            &["    Deployment/worker: the rollout begins", "    Deployment/web: not touched"][..],
            &[
                "    Deployment/worker: failed: 0 of 1 new instances are ready",
                "    Deployment/\\u{1b}web: complete: 1 of 1 new instances are ready"
            ][..]
        ),
        "{wide}"
    );
    let restored = "    put right by itself: revision 4 rolled out revision 1 again, registry.example.com/api:abc123f in \
                    Deployment/worker and Deployment/\\u{1b}web, with the configuration of that version";
    assert_eq!(lines[7], restored);
    assert!(lines[8].starts_with('1') && lines.len() == 9, "{wide}");
    assert_eq!(table(&history, NOW, PLAIN).lines().count(), 4, "the narrow one has entries alone");
}

#[test]
fn from_tells_a_rollback_from_an_image_that_was_entered_anew() {
    let own = TakenFrom { namespace: None, app: None, revision: Revision::new(4).unwrap() };
    let of = |trigger, effective| Deploy {
        trigger,
        effective: Revision::new(effective).unwrap(),
        from: Some(own.clone()),
        ..entry(5, "def456a", Status::Succeeded, 1)
    };
    assert_eq!(origin(&of(Trigger::Rollback, 4), &own), "4");
    assert_eq!(origin(&of(Trigger::Webhook, 5), &own), "built as 4");
    assert_eq!(origin(&of(Trigger::Git, 5), &own), "built as 4");
    assert_eq!(
        (cause(&of(Trigger::Manual, 4)).as_str(), cause(&of(Trigger::Manual, 5)).as_str()),
        ("manual, same as 4", "manual, built as 4")
    );
}

#[test]
fn release_commands_are_shown_where_there_are_some() {
    let deploys = vec![
        Deploy { release: Some(ReleaseMark::Done), ..entry(3, "def456a", Status::Succeeded, 2 * MINUTE) },
        Deploy { release: Some(ReleaseMark::MayHaveRun), ..entry(2, "badbad1", Status::Failed, 9 * MINUTE) },
        entry(1, "abc123f", Status::Succeeded, 3 * DAY),
    ];
    let column: Vec<_> =
        wide(&deploys, PLAIN).lines().map(|line| line.rsplit(' ').next().unwrap().to_owned()).collect();
    assert_eq!(column, ["RELEASE", "done", "may-have-run", "-"]);
    assert!(!wide(&contract(), PLAIN).contains("RELEASE"));
    assert_eq!(table(&deploys[2..], NOW, PLAIN), table(&contract()[2..], NOW, PLAIN).replace("manual ", "webhook"));
}

#[test]
fn log_of_a_failed_release_command_is_named() {
    let evidence = Some(Evidence { log: vec!["no such table".to_owned()], ..Evidence::default() });
    let failed = Deploy { evidence, ..entry(2, "badbad1", Status::Failed, 9 * MINUTE) };
    let release = Deploy { release: Some(ReleaseMark::MayHaveRun), ..failed.clone() };
    assert_eq!(ending(&release, None)[1..], ["  log of the release command:", "    no such table"]);
    assert_eq!(release_predicate(&release), Some("may have run"));
    let exited = Deploy { reason: Some("release-failed".to_owned()), ..release.clone() };
    assert_eq!(release_predicate(&exited), Some("ran, and failed"));
    let rollout = Deploy { release: Some(ReleaseMark::Done), ..failed };
    assert_eq!(ending(&rollout, None)[1], "  log:");
}

#[test]
fn watch_and_a_revoked_verification_are_shown_with_the_entry() {
    let until = NOW.after(Duration::from_secs(1_800));
    let fail = rollhook_api::CheckFail {
        at: NOW,
        check: "errors".to_owned(),
        message: "The check errors failed 3 times in a row: 0.5, expected <= 0.01.".to_owned(),
    };
    let watch =
        rollhook_api::Watch { since: NOW, until, ended: false, reason: None, checks: Vec::new(), would_restore: None };
    let watched =
        Deploy { current: true, watch: Some(Box::new(watch.clone())), ..entry(3, "c", Status::Succeeded, 60) };
    assert_eq!(mark(&watched).as_deref(), Some("current"));
    assert_eq!(ending(&watched, None)[1..], ["  watched until 2026-01-02T03:34:05Z".to_owned()]);
    let early =
        rollhook_api::Watch { reason: Some("revision 4 was accepted".to_owned()), ended: true, ..watch.clone() };
    let early = Deploy { watch: Some(Box::new(early)), ..watched.clone() };
    assert_eq!(ending(&early, None)[1..], ["  watched until 2026-01-02T03:34:05Z: revision 4 was accepted".to_owned()]);
    let observed = Deploy {
        watch: Some(Box::new(rollhook_api::Watch { would_restore: Some(fail.clone()), ..watch.clone() })),
        ..watched.clone()
    };
    let would = "  would have been restored at 2026-01-02T03:04:05Z: The check errors failed 3 times in a row: 0.5, expected \
                 <= 0.01.";
    assert_eq!(ending(&observed, None)[2], would);
    let revoked = rollhook_api::Revoked { fail, restore: Some(Revision::new(4).unwrap()), not_restored: None };
    let revoked = Deploy { revoked: Some(revoked), ..watched };
    assert_eq!((mark(&revoked).as_deref(), tint(&revoked)), (Some("current, revoked"), Some(Tint::Bad)));
    let lines = ending(&revoked, None);
    assert!(
        lines[2].starts_with("  verification revoked at 2026-01-02T03:04:05Z: The check errors failed"),
        "{lines:?}"
    );
    assert_eq!(lines[3], "  revision 4 is the restore of the version before");
}
