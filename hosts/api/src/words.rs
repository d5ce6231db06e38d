//! The words in which the command line and the console say the same things.

use rollhook_core::{
    app::OnFailure,
    check::{CheckMode, Verdict},
    deploy::{Reason, ReleaseMark, Status, WorkloadEvidence},
    image::{Digest, ImageRef},
};
use serde_json::Value;

use crate::{App, CheckOutcome, Deploy, Restore, Revoked, WorkloadState, time::absolute};

/// Returns the mark of an entry: its status, "current" or "revoked"; `None` for a success that has been replaced.
pub fn mark(deploy: &Deploy) -> Option<String> {
    let word = match deploy.status {
        Status::Succeeded => {
            let marks = [deploy.current.then_some("current"), deploy.revoked.as_ref().map(|_| "revoked")];
            let marks: Vec<&str> = marks.into_iter().flatten().collect();
            return (!marks.is_empty()).then(|| marks.join(", "));
        }
        Status::Queued => return Some("queued".to_owned()),
        Status::Building => return Some("building".to_owned()),
        Status::Releasing => return Some("releasing".to_owned()),
        Status::RollingOut => return Some("rolling out".to_owned()),
        Status::Verifying if deploy.awaited_decision().is_some() => return Some("awaits a decision".to_owned()),
        Status::Verifying => return Some("verifying".to_owned()),
        Status::Failed => "failed",
        Status::Superseded => "superseded",
        Status::Cancelled => "cancelled",
    };
    // The restore that recovered has brought `current` back, which is marked.
    let is_told = deploy.on_cluster && !deploy.has_restored_late();
    let place = if is_told { ", on cluster" } else { "" };
    let recovered = if deploy.recovered_at.is_some() { ", recovered" } else { "" };
    Some(format!("{word}{place}{recovered}"))
}

/// Returns the mark of an entry, with the code of the reason why it ended where that says more.
pub fn mark_with_reason(deploy: &Deploy) -> Option<String> {
    let reason = deploy.reason.as_deref().filter(|reason| *reason != deploy.status.as_str());
    mark(deploy).map(|mark| reason.map_or(mark.clone(), |reason| format!("{mark}: {reason}")))
}

/// Returns the line of a workload in the evidence of a failed deploy: `Deployment/web: complete`.
pub fn workload_evidence(workload: &WorkloadEvidence) -> String {
    let WorkloadEvidence { name, state, message } = workload;
    let more =
        message.strip_prefix(state.as_str()).map_or(message.as_str(), |more| more.trim_start_matches([':', ' ']));
    if more.is_empty() { format!("{name}: {state}") } else { format!("{name}: {state}: {more}") }
}

/// Returns a line for each of the several workloads that an entry is known to have changed: how far it came, or is.
pub fn workloads(deploy: &Deploy) -> Vec<String> {
    let ended = deploy.evidence.iter().flat_map(|evidence| evidence.workloads.iter().map(workload_evidence));
    let under_way = deploy.progress.iter().flat_map(|progress| progress.workloads.iter().map(workload_state));
    ended.chain(under_way).collect()
}

/// Returns what a restore brings back: the image, the workloads that the failed deploy had touched, and the configuration.
pub fn restored(restore: &Restore) -> String {
    let image = restore.image.as_deref().map(short_image).unwrap_or_default();
    let workloads = match restore.workloads.as_slice() {
        [] => String::new(),
        [one] => format!(" in {one}"),
        [first @ .., last] => format!(" in {} and {last}", first.join(", ")),
    };
    let configuration = if restore.configures { ", with the configuration of that version" } else { "" };
    format!("{image}{workloads}{configuration}")
}

/// Returns what became of a rollout that did not succeed, as a clause: its restore, or that it has recovered by itself. With
/// the app, also that it was left as it is, and why.
pub fn outcome(deploy: &Deploy, app: Option<&App>) -> Option<String> {
    if let Some(at) = deploy.recovered_at {
        return Some(format!("recovered: its instances run well since {}", absolute(at)));
    }
    if let Some(restore) = &deploy.restore {
        let (what, to) = (restored(restore), restore.to);
        return Some(match (restore.revision, restore.status) {
            (None, _) => format!("revision {to} is to be rolled out again: {what}"),
            (Some(revision), Some(Status::Succeeded)) => {
                format!("put right by itself: revision {revision} rolled out revision {to} again, {what}")
            }
            (Some(revision), status) => {
                let status = status.map(predicate).unwrap_or_default();
                format!("revision {revision} restores revision {to}, {what}: it {status}")
            }
        });
    }
    let app = app.filter(|_| deploy.on_cluster && matches!(deploy.status, Status::Failed | Status::Cancelled))?;
    match app.policy.on_failure {
        OnFailure::Leave => Some("left as it is: the policy on-failure is leave".to_owned()),
        OnFailure::Restore if app.current.is_none() => Some("there was no earlier version to restore".to_owned()),
        // A restore that failed is not restored again.
        OnFailure::Restore => None,
    }
}

/// Returns the line of a workload while a deploy changes it: `Deployment/web: 1 of 2 new pods are ready`.
pub fn workload_state(workload: &WorkloadState) -> String {
    format!("{}: {}", workload.name, workload.message)
}

/// How far the measurements of a version have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// They go on.
    UnderWay,
    /// The time of the watch is over.
    RanToItsEnd,
    /// They ended before, with the deploy or the watch.
    CutShort,
}

/// Returns what the checks said of a deploy before it ended, a line each: `errors: fail, 0.1 (expected < 0.01): The reading is 0.1.`
pub fn checks(deploy: &Deploy) -> Vec<String> {
    let stage = if deploy.status.is_terminal() { Stage::CutShort } else { Stage::UnderWay };
    deploy.checks.iter().map(|check| check_outcome(check, stage)).collect()
}

/// Returns what the checks said of a version in the watch over it, a line each, as [`checks`] does.
pub fn watch_checks(deploy: &Deploy) -> Vec<String> {
    let Some(watch) = &deploy.watch else { return Vec::new() };
    let stage = match (watch.ended, &watch.reason, &deploy.revoked) {
        (false, _, _) => Stage::UnderWay,
        (true, None, None) => Stage::RanToItsEnd,
        (true, _, _) => Stage::CutShort,
    };
    watch.checks.iter().map(|check| check_outcome(check, stage)).collect()
}

/// Returns the line of a check.
fn check_outcome(check: &CheckOutcome, stage: Stage) -> String {
    let verdict = match (check.verdict, check.measurements.last().map(|last| last.verdict), stage) {
        (Some(Verdict::None), _, _) => "no verdict",
        (Some(Verdict::Pass), _, _) | (None, Some(Verdict::Pass), Stage::RanToItsEnd) => "pass",
        (Some(Verdict::Fail), _, _) => "fail",
        (None, None, _) => "not measured",
        (None, Some(_), Stage::UnderWay) => "open",
        // Measurements that end without a verdict decide nothing.
        (None, Some(_), Stage::RanToItsEnd | Stage::CutShort) => "",
    };
    let observed = (check.mode == CheckMode::Observe).then_some("observed");
    let words = [Some(verdict).filter(|word| !word.is_empty()), observed, check.value.as_deref()];
    let words = words.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let words = Some(words).filter(|words| !words.is_empty()).map(|words| format!(": {words}")).unwrap_or_default();
    let condition = check.condition.as_deref().map(|condition| format!(" (expected {condition})")).unwrap_or_default();
    let message = check.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
    format!("{}{words}{condition}{message}", check.name)
}

/// Returns who decided on a deploy in the place of its checks, and when; or since when a decision is waited for.
pub fn decision(deploy: &Deploy) -> Option<String> {
    let decision = deploy.decision.as_deref()?;
    let (Some(ruling), Some(by), Some(at)) = (decision.verdict, &decision.by, decision.at) else {
        let awaited = deploy.awaited_decision()?;
        let since = absolute(awaited.awaited_since);
        return Some(format!("waits for a person's decision since {since}: no verdict of {}", awaited.reason));
    };
    Some(format!("{} by {by} at {}: no verdict of {}", ruling.participle(), absolute(at), decision.reason))
}

/// Returns what is said of the watch over a version: until when it was or is watched, and what came of it, a line each.
pub fn watch(deploy: &Deploy) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(watch) = &deploy.watch {
        let why = watch.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        lines.push(format!("watched until {}{why}", absolute(watch.until)));
        let would = watch.would_restore.as_ref();
        lines.extend(would.map(|fail| format!("would have been restored at {}: {}", absolute(fail.at), fail.message)));
    }
    if let Some(Revoked { fail, restore, not_restored }) = &deploy.revoked {
        lines.push(format!("verification revoked at {}: {}", absolute(fail.at), fail.message));
        lines.push(match (restore, not_restored) {
            (Some(restore), _) => format!("revision {restore} is the restore of the version before"),
            (None, Some(why)) => format!("nothing was restored: {why}"),
            (None, None) => "the version before is to be rolled out again".to_owned(),
        });
    }
    lines
}

/// Returns what the image's label says of the commit that an entry is shown with, as a clause: that it is the label's, or that the
/// label names another one.
pub fn commit_remark(deploy: &Deploy) -> Option<String> {
    if let Some(other) = deploy.other_commit() {
        return Some(format!("the image says commit {other}"));
    }
    let is_labelled = deploy.commit.is_none() && deploy.shown_commit().is_some();
    is_labelled.then(|| "as the image says".to_owned())
}

/// Returns the cause of an entry in a word: its trigger, or that it stops or starts the app.
pub fn cause(deploy: &Deploy) -> &'static str {
    let stops_or_starts = deploy.is_redeploy() && !deploy.scale.is_keep();
    if stops_or_starts { deploy.scale.as_str() } else { deploy.trigger.as_str() }
}

/// Returns seven digits of a full commit hash, and anything else as it is.
pub fn short_commit(commit: &str) -> String {
    let hash = matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hash { commit[..7].to_owned() } else { commit.to_owned() }
}

/// Returns an image by its tag without the digest, or by the first twelve digits of its digest.
pub fn short_image(image: &str) -> String {
    let Ok(parsed) = image.parse::<ImageRef>() else { return image.to_owned() };
    match (parsed.tag(), parsed.digest().map(Digest::as_str).and_then(|digest| digest.split_once(':'))) {
        (Some(tag), _) => format!("{}:{tag}", parsed.repository()),
        (None, Some((algorithm, hex))) => format!("{}@{algorithm}:{}", parsed.repository(), &hex[..12]),
        (None, None) => image.to_owned(),
    }
}

/// Returns a status as the predicate of a sentence.
pub const fn predicate(status: Status) -> &'static str {
    match status {
        Status::Queued => "is queued",
        Status::Building => "is being built",
        Status::Releasing => "runs its release command",
        Status::RollingOut => "rolls out",
        Status::Verifying => "is being verified",
        Status::Succeeded => "succeeded",
        Status::Failed => "failed",
        Status::Superseded => "was superseded",
        Status::Cancelled => "was cancelled",
    }
}

/// Returns that an entry's verification was revoked, and why, as a clause; `None` if it was not.
pub fn revocation(revoked: Option<&Revoked>) -> Option<String> {
    revoked.map(|revoked| format!("its verification was revoked: the check {} failed", revoked.fail.check))
}

/// Returns why a return to an entry goes without its release command, as a clause; `None` if that is not known of it.
pub fn not_released(deploy: &Deploy) -> Option<&'static str> {
    let failed = deploy.reason.as_deref() == Some(Reason::RELEASE_FAILED);
    if failed {
        return Some("its release command failed and will not be run: deploy the image again instead");
    }
    let is_unknown = deploy.failed_at_release() || deploy.release == Some(ReleaseMark::MayHaveRun);
    is_unknown.then_some(
        "its release command is not known to have succeeded and will not be run: deploy the image again instead",
    )
}

/// Returns the knowledge of an entry's release command as the predicate of a sentence.
pub fn release_predicate(deploy: &Deploy) -> Option<&'static str> {
    Some(match deploy.release? {
        // The driver saw it begin and end by itself.
        ReleaseMark::MayHaveRun if deploy.reason.as_deref() == Some(Reason::RELEASE_FAILED) => "ran, and failed",
        ReleaseMark::MayHaveRun => "may have run",
        ReleaseMark::Done => "ran",
    })
}

/// Returns the program and arguments that a line of a shell would give, with its quotes, and nothing else of a shell: an
/// empty line gives none.
///
/// # Errors
/// If a quote is not closed, or a word joins commands as only a shell reads it; in quotes it is an argument.
pub fn command(line: &str) -> Result<Vec<String>, String> {
    let words = shlex::split(line).ok_or_else(|| "the command has a quote that is not closed.".to_owned())?;
    match for_a_shell(line) {
        Some(joins) => Err(format!(
            "the command has {joins}, which only a shell reads: name one, such as sh -c 'bin/check && bin/migrate'."
        )),
        None => Ok(words),
    }
}

/// Returns the first character outside quotes that only a shell reads.
fn for_a_shell(line: &str) -> Option<char> {
    let mut quote = None;
    let mut characters = line.chars();
    while let Some(character) = characters.next() {
        match (quote, character) {
            (Some(open), close) if open == close => quote = None,
            (None | Some('"'), '\\') => drop(characters.next()),
            (None, '\'' | '"') => quote = Some(character),
            (None, ';' | '&' | '|' | '<' | '>') => return Some(character),
            _ => {}
        }
    }
    None
}

/// Returns a command as the line that [`command`] reads.
pub fn command_line(command: &[String]) -> String {
    let quoted = shlex::try_join(command.iter().map(String::as_str));
    // A NUL, which no policy has.
    quoted.unwrap_or_else(|_| command.join(" "))
}

/// Returns the words of a command that is a setting; `None` of a value that is no list.
pub fn of_command(setting: &Value) -> Option<Vec<String>> {
    Some(setting.as_array()?.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use rollhook_core::time::Timestamp;

    use super::*;
    use crate::Measurement;

    fn measured(verdict: Option<Verdict>, last: Option<Verdict>) -> CheckOutcome {
        let at = Timestamp::from_millis(0);
        let measurement =
            |verdict| Measurement { at, verdict, value: None, samples: None, message: "It answers.".to_owned() };
        CheckOutcome {
            name: "front".to_owned(),
            mode: CheckMode::Observe,
            verdict,
            condition: None,
            value: Some("200".to_owned()),
            message: None,
            measurements: last.map(measurement).into_iter().collect(),
            before: Vec::new(),
        }
    }

    #[test]
    fn check_without_a_verdict_is_open_only_while_it_is_measured() {
        let line = |last, stage| check_outcome(&measured(None, last), stage);
        let passed = Some(Verdict::Pass);
        assert_eq!(line(passed, Stage::UnderWay), "front: open, observed, 200");
        assert_eq!(line(passed, Stage::RanToItsEnd), "front: pass, observed, 200");
        assert_eq!(line(passed, Stage::CutShort), "front: observed, 200", "nothing was decided");
        assert_eq!(line(Some(Verdict::None), Stage::RanToItsEnd), "front: observed, 200");
        assert_eq!(line(None, Stage::RanToItsEnd), "front: not measured, observed, 200");
        let failed = measured(Some(Verdict::Fail), Some(Verdict::Fail));
        assert_eq!(check_outcome(&failed, Stage::CutShort), "front: fail, observed, 200");
        let bare = CheckOutcome { mode: CheckMode::Enforce, value: None, ..measured(None, passed) };
        assert_eq!(check_outcome(&bare, Stage::CutShort), "front");
    }

    #[test]
    fn watch_and_verification_that_are_over_have_no_open_check() {
        let at = Timestamp::from_millis(0);
        let mut deploy: Deploy = serde_json::from_value(serde_json::json!({
            "namespace": "shop-test", "app": "api", "revision": 2, "image": null, "trigger": "webhook", "actor": "ci",
            "status": "succeeded", "current": true, "on_cluster": false, "adopted": false, "effective": 2, "step": 2,
            "created_at": "2026-01-02T03:04:00.000Z", "updated_at": "2026-01-02T03:04:01.000Z", "url": "/"
        }))
        .unwrap();
        let open = || vec![measured(None, Some(Verdict::Pass))];
        deploy.checks = open();
        assert_eq!(checks(&deploy), ["front: observed, 200"]);
        assert_eq!(checks(&Deploy { status: Status::Verifying, ..deploy.clone() }), ["front: open, observed, 200"]);
        for (ended, reason, line) in [
            (false, None, "front: open, observed, 200"),
            (true, None, "front: pass, observed, 200"),
            (true, Some("revision 3 was accepted".to_owned()), "front: observed, 200"),
        ] {
            let watch = crate::Watch { since: at, until: at, ended, reason, checks: open(), would_restore: None };
            deploy.watch = Some(Box::new(watch));
            assert_eq!(watch_checks(&deploy), [line]);
        }
    }

    #[test]
    fn command_is_read_with_its_quotes_and_refused_where_it_is_for_a_shell() {
        let read = |line: &str| command(line).ok();
        assert_eq!(read("bin/rails db:migrate"), Some(vec!["bin/rails".to_owned(), "db:migrate".to_owned()]));
        let shell = "sh -c 'bin/check && bin/migrate'";
        assert_eq!(read(shell).map(|words| words.len()), Some(3));
        let argument = vec!["grep".to_owned(), "|".to_owned(), "a;b".to_owned()];
        assert_eq!(read(&command_line(&argument)), Some(argument));
        assert!(read("grep '|' 'a | b' a\\;b").is_some());
        for line in ["bin/check && bin/migrate", "a&&b", "a | b", "a; b", "a 2>&1", "a 'b' >log", "a > 'b", "a \"b"] {
            assert!(command(line).is_err(), "{line}");
        }
    }
}
