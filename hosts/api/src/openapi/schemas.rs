//! The types of the API as JSON Schema, derived from the types themselves. The functions describe the core's types and
//! the rollout drivers' settings, for which nothing is derived.

use rollhook_core::{
    app::{CommitRule, Resolve},
    check::{CheckMode, Verdict},
    deploy::{ReleaseMark, SEQUENCE_MAX, Scale},
    image::TAG_MAX,
};
use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use crate::operations::LogStep;

/// The pattern of a DNS-1123 label.
pub(crate) const LABEL: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$";
/// A DNS-1123 label, or nothing.
pub(crate) const LABEL_OR_NONE: &str = "^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$";

/// An address of the web without a user, or nothing.
pub(crate) const APP_URL: &str =
    r"^(https?://([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?([/?#][!#-;=?-\[\]^_a-~]*)?)?$";

/// The pattern of an app's name with its namespace.
pub(crate) const APP: &str = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?/[a-z0-9]([-a-z0-9]*[a-z0-9])?$";

/// The pattern of a commit or label: no spaces around it.
pub(crate) const COMMIT: &str = r"^\S(.*\S)?$";
/// The pattern of a duration.
pub(crate) const DURATION: &str = "^[0-9]+(ms|s|m|h)$";
/// The pattern of an interval, or of none.
pub(crate) const INTERVAL: &str = "^(off|[0-9]+(ms|s|m|h))$";

/// The pattern of a rule of following, or of none.
pub(crate) const FOLLOW: &str = "^(off|(tag|semver|regex):[ -~]+)$";

/// A registry's host and port; one without a dot or port, `localhost`, is spelt as a part of the path is. Of the grammar,
/// patterns leave out the greatest port and the greatest length.
const HOST: &str = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?(?:(?:\.[A-Za-z0-9](?:[-A-Za-z0-9]*[A-Za-z0-9])?)+(?::[0-9]+)?|:[0-9]+)|\[[0-9A-Fa-f:]+\](?::[0-9]+)?)";
/// A part of a repository's path.
const PART: &str = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*";

/// Returns the pattern of an image reference.
pub(crate) fn image() -> String {
    let tag = format!(r"(?::[A-Za-z0-9_][-A-Za-z0-9_.]{{0,{}}})?", TAG_MAX - 1);
    let digest = "(?:@(?:sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?";
    format!("^(?:{HOST}/)?{PART}(?:/{PART})*{tag}{digest}$")
}

/// Returns the pattern of an image repository.
pub(crate) fn repository() -> String {
    format!("^(?:{HOST}/)?{PART}(?:/{PART})*$")
}

/// Returns the schema of an entry of the repositories that a webhook may deploy from.
pub(crate) fn repositories() -> Value {
    json!({ "type": "string", "pattern": format!("^(?:(?:{HOST}/)?{PART}(?:/{PART})*(?:/\\*)?|{HOST}/\\*)$") })
}

fn one_of(words: &[&str]) -> Schema {
    json_schema!({ "type": "string", "enum": words })
}

pub(crate) fn trigger(_: &mut SchemaGenerator) -> Schema {
    one_of(&["webhook", "manual", "promotion", "rollback", "git", "config"])
}

pub(crate) fn status(_: &mut SchemaGenerator) -> Schema {
    one_of(&[
        "queued",
        "building",
        "releasing",
        "rolling_out",
        "verifying",
        "succeeded",
        "failed",
        "superseded",
        "cancelled",
    ])
}

pub(crate) fn scale(_: &mut SchemaGenerator) -> Schema {
    one_of(&[Scale::Stop, Scale::Start].map(Scale::as_str))
}

pub(crate) fn release_mark(_: &mut SchemaGenerator) -> Schema {
    one_of(&[ReleaseMark::MayHaveRun, ReleaseMark::Done].map(ReleaseMark::as_str))
}

pub(crate) fn check_mode(_: &mut SchemaGenerator) -> Schema {
    one_of(&[CheckMode::Enforce, CheckMode::Observe].map(CheckMode::as_str))
}

pub(crate) fn verdict(_: &mut SchemaGenerator) -> Schema {
    one_of(&[Verdict::Pass, Verdict::Fail, Verdict::None].map(Verdict::as_str))
}

pub(crate) fn run_status(_: &mut SchemaGenerator) -> Schema {
    one_of(&["preparing", "running", "succeeded", "failed", "cancelled", "unknown"])
}

pub(crate) fn log_step(_: &mut SchemaGenerator) -> Schema {
    one_of(&[LogStep::Build, LogStep::Release].map(LogStep::as_str))
}

pub(crate) fn role(_: &mut SchemaGenerator) -> Schema {
    one_of(&["viewer", "deployer", "admin"])
}

pub(crate) fn receiver_kind(_: &mut SchemaGenerator) -> Schema {
    one_of(&rollhook_management::notifications::Destination::KINDS)
}

pub(crate) fn events(_: &mut SchemaGenerator) -> Schema {
    let events =
        rollhook_management::notifications::EventKind::ALL.map(rollhook_management::notifications::EventKind::as_str);
    json_schema!({ "type": "array", "items": one_of(&events) })
}

pub(crate) fn lock_scope(_: &mut SchemaGenerator) -> Schema {
    one_of(&["app", "environment"])
}

pub(crate) fn requirement_scope(_: &mut SchemaGenerator) -> Schema {
    one_of(&["project", "environment"])
}

pub(crate) fn on_failure(_: &mut SchemaGenerator) -> Schema {
    one_of(&["restore", "leave"])
}

pub(crate) fn without_verdict(_: &mut SchemaGenerator) -> Schema {
    one_of(&["accept", "wait", "ask"])
}

pub(crate) fn ruling(_: &mut SchemaGenerator) -> Schema {
    one_of(&["pass", "fail"])
}

pub(crate) fn hold_policy(_: &mut SchemaGenerator) -> Schema {
    one_of(&["automatic", "all"])
}

pub(crate) fn resolve(_: &mut SchemaGenerator) -> Schema {
    one_of(&Resolve::ALL.map(Resolve::as_str))
}

pub(crate) fn commit_rule(_: &mut SchemaGenerator) -> Schema {
    one_of(&CommitRule::ALL.map(CommitRule::as_str))
}

pub(crate) fn sealing(_: &mut SchemaGenerator) -> Schema {
    one_of(&["sealed", "cluster", "memory"])
}

/// The place among a webhook's deploys, as it is posted: a number, or its digits; or that there is none.
pub(crate) fn posted_sequence(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": ["integer", "string"], "minimum": 1, "maximum": SEQUENCE_MAX, "pattern": "^([1-9][0-9]{0,14}|none)$"
    })
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn texts() -> Value {
    json!({ "type": "array", "items": text() })
}

fn nullable() -> Value {
    json!({ "type": ["string", "null"] })
}

pub(crate) fn source(_: &mut SchemaGenerator) -> Schema {
    let members = json!({
        "kind": one_of(&["image", "git"]), "url": text(), "branch": text(), "dockerfile": text(), "context": text(),
        "image_repository": text(), "credentials": text()
    });
    json_schema!({ "type": "object", "required": ["kind"], "properties": members })
}

pub(crate) fn workload(_: &mut SchemaGenerator) -> Schema {
    let members = json!({ "kind": text(), "name": text(), "containers": texts(), "replace": text(),
        "replace_chosen": json!({ "type": "boolean", "readOnly": true,
            "description": "Whether a person chose `replace`: settings of the configuration leave it as it is then." }),
        "readiness_path": text(), "readiness_port": json!({ "type": "integer", "minimum": 1 }),
        "also": json!({ "type": "array", "items": { "type": ["string", "object"] } }) });
    json_schema!({ "type": "object", "properties": members })
}

pub(crate) fn made_with(_: &mut SchemaGenerator) -> Schema {
    let (text, texts) =
        (|| json!({ "type": ["string", "null"] }), || json!({ "type": ["array", "null"], "items": text() }));
    let members = json!({
        "memory": text(), "cpu": text(), "publish": texts(), "volumes": texts(), "network": text(),
        "labels": { "type": ["object", "null"], "additionalProperties": { "type": "string" } },
        "commands": { "type": ["object", "null"], "additionalProperties": { "type": "array", "items": { "type": "string" } } },
        "readiness_path": text(), "readiness_port": { "type": ["integer", "null"], "minimum": 1, "maximum": 65_535 }
    });
    json_schema!({ "type": "object", "properties": members })
}

pub(crate) fn also(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "array", "items": { "type": ["string", "object"] } })
}

pub(crate) fn template(_: &mut SchemaGenerator) -> Schema {
    let number = json!({ "type": "integer", "minimum": 0 });
    let pairs = json!({ "type": "object", "additionalProperties": text() });
    let members = json!({
        "command": texts(), "replicas": number, "port": number, "pull_secret": text(), "readiness_path": text(), "env": pairs,
        "env_from_secrets": texts(), "publish": texts(), "volumes": texts(), "network": text(), "labels": pairs,
        "memory": text(), "cpu": text(), "pod_security": text()
    });
    json_schema!({ "type": "object", "properties": members })
}

pub(crate) fn shown_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "object" })
}

pub(crate) fn holds(generator: &mut SchemaGenerator) -> Schema {
    let by = generator.subschema_for::<u64>();
    let members = json!({ "by": by, "image": nullable(), "digest": nullable(), "commit": nullable() });
    json_schema!({ "type": "array", "items": { "type": "object", "required": ["by"], "properties": members } })
}

pub(crate) fn evidence(_: &mut SchemaGenerator) -> Schema {
    let ends = ["failed", "complete", "restored", "unfinished", "not-touched"];
    let workload = json!({ "name": text(), "state": { "type": "string", "enum": ends }, "message": text() });
    let workload = json!({ "type": "object", "required": ["name", "state", "message"], "properties": workload });
    let members = json!({
        "container": nullable(), "pod": nullable(), "state": nullable(), "events": texts(), "log": texts(),
        "workloads": { "type": "array", "items": workload }
    });
    json_schema!({ "type": "object", "properties": members })
}
