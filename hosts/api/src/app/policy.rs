//! An app's policy as it is on the wire, and its changes.

use rollhook_core::{
    app::{self, AppUrl, CommitRule, HoldPolicy, InvalidName, KEEP, LABEL_MAX, OnFailure, ReleaseGroup, Resolve},
    follow::Follow,
    image::Repositories,
    request::{Field, PolicyChange, Refusal},
    requirement::SIGNERS_MAX,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{field, invalid};
use crate::{Demands, duration, openapi::schemas, requirement};

/// An app's policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Policy {
    /// The reaction to a failed rollout: `restore` or `leave`.
    #[schemars(schema_with = "schemas::on_failure")]
    pub on_failure: OnFailure,
    /// The deploys that a hold refuses: `automatic` ones, or `all`, CI's calls included.
    #[schemars(schema_with = "schemas::hold_policy")]
    pub hold: HoldPolicy,
    /// The time for which new pods must stay ready before a deploy succeeds.
    pub settle: String,
    /// The time for which a failure may last that may heal by itself, before a deploy fails.
    #[serde(default = "patience_by_default")]
    pub patience: String,
    /// The time within which a new version must get ready where the old instance has to stop first.
    #[serde(default = "ready_within_by_default")]
    pub ready_within: String,
    /// The longest time that a rollout may take.
    pub rollout_deadline: String,
    /// The longest time that a build may take.
    pub build_deadline: String,
    /// The program, with its arguments, that each new image runs once before it is rolled out; empty for none.
    #[serde(default)]
    pub release_command: Vec<String>,
    /// The longest time that the release command may take.
    #[serde(default = "release_deadline_by_default")]
    pub release_deadline: String,
    /// The group of apps of the namespace that run their release commands one at a time; empty for none.
    #[serde(default)]
    pub release_group: String,
    /// How long a deploy is verified by the app's checks once its instances have settled; `0s`: until each check has come to a
    /// verdict.
    #[serde(default = "verify_for_by_default")]
    pub verify_for: String,
    /// How long the checks go on to measure a version once its deploy has succeeded; `0s`: not at all.
    #[serde(default = "watch_for_by_default")]
    pub watch_for: String,
    /// Whether a change of the configuration runs the release command as well.
    #[serde(default = "release_on_config_by_default")]
    pub release_on_config: bool,
    /// The address at which people reach the app, which the console and GitHub link to; empty for none.
    #[serde(default)]
    pub url: String,
    /// Whether the tag of an image becomes a digest before its rollout, as its registry says: `auto`, as far as the registry
    /// answers; `require`, or the deploy fails; `off`, the registry is not asked.
    #[serde(default)]
    #[schemars(schema_with = "schemas::resolve")]
    pub resolve: Resolve,
    /// What becomes of a commit that is posted with an image whose label names another one: `any`, both are shown;
    /// `must-match`, the deploy fails.
    #[serde(default)]
    #[schemars(schema_with = "schemas::commit_rule")]
    pub commit: CommitRule,
    /// The image repositories that a webhook may deploy from; empty for any.
    pub repositories: Vec<String>,
    /// The number of the newest deploys that stay in the history.
    #[serde(default = "keep_by_default")]
    pub keep: u32,
    /// The rule by which an image app follows its repository, such as `tag:main` or `semver:^1.4`, or `off`.
    #[serde(default = "off")]
    pub follow: String,
    /// How long what following has found must stay the newest before it is deployed.
    #[serde(default = "follow_settle_by_default")]
    pub follow_settle: String,
    /// The signatures and the attestation that an image must have before it is deployed.
    #[serde(flatten)]
    pub demands: Demands,
    /// The interval at which the source is read, a git app's branch or a followed repository, or `off`.
    #[serde(default = "off")]
    pub poll: String,
}

/// The interval of apps that are not polled.
const OFF: &str = "off";

fn off() -> String {
    OFF.to_owned()
}

fn patience_by_default() -> String {
    duration::format(app::Policy::default().patience)
}

fn ready_within_by_default() -> String {
    duration::format(app::Policy::default().ready_within)
}

fn release_deadline_by_default() -> String {
    duration::format(app::Policy::default().release_deadline)
}

fn verify_for_by_default() -> String {
    duration::format(app::Policy::default().verify_for)
}

fn watch_for_by_default() -> String {
    duration::format(app::Policy::default().watch_for)
}

fn release_on_config_by_default() -> bool {
    app::Policy::default().release_on_config
}

fn follow_settle_by_default() -> String {
    duration::format(app::Policy::default().follow_settle)
}

fn keep_by_default() -> u32 {
    app::Policy::default().keep
}

impl Policy {
    /// Returns a policy as it is on the wire.
    pub fn of(policy: &app::Policy) -> Self {
        Self {
            on_failure: policy.on_failure,
            hold: policy.hold,
            settle: duration::format(policy.settle),
            patience: duration::format(policy.patience),
            ready_within: duration::format(policy.ready_within),
            rollout_deadline: duration::format(policy.rollout_deadline),
            build_deadline: duration::format(policy.build_deadline),
            release_command: policy.release_command.clone(),
            release_deadline: duration::format(policy.release_deadline),
            release_group: policy.release_group.as_ref().map(ToString::to_string).unwrap_or_default(),
            verify_for: duration::format(policy.verify_for),
            watch_for: duration::format(policy.watch_for),
            release_on_config: policy.release_on_config,
            url: policy.url.as_ref().map(ToString::to_string).unwrap_or_default(),
            resolve: policy.resolve,
            commit: policy.commit,
            repositories: policy.repositories.as_slice().to_vec(),
            keep: policy.keep,
            follow: policy.follow.as_ref().map_or_else(off, ToString::to_string),
            follow_settle: duration::format(policy.follow_settle),
            demands: Demands::of(policy.signed.as_ref()),
            poll: policy.poll.map_or_else(off, duration::format),
        }
    }
}

/// A change of an app's policy; absent members stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyPatch {
    /// The reaction to a failed rollout: `restore` or `leave`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::on_failure")]
    pub on_failure: Option<String>,
    /// The deploys that a hold refuses: `automatic` ones, or `all`, CI's calls included.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::hold_policy")]
    pub hold: Option<String>,
    /// The time for which new pods must stay ready before a deploy succeeds, such as `10s`; below the rollout's
    /// deadline.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub settle: Option<String>,
    /// The time for which a failure may last that may heal by itself, such as a program that ends and is started again,
    /// before a deploy fails, such as `1m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub patience: Option<String>,
    /// The time within which a new version must get ready where the old instance has to stop first, such as `1m`: the app
    /// is down meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub ready_within: Option<String>,
    /// The longest time that a rollout may take, such as `10m`; at most `168h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub rollout_deadline: Option<String>,
    /// The longest time that a build may take, such as `30m`; at most `4h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub build_deadline: Option<String>,
    /// The program, with its arguments, that each new image runs once before it is rolled out, such as
    /// `["bin/rails", "db:migrate"]`; an empty list for none. No shell reads it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_command: Option<Vec<String>>,
    /// The longest time that the release command may take, such as `10m`; from `1s` to `4h`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub release_deadline: Option<String>,
    /// The group of apps of the namespace that run their release commands one at a time, such as those of one database: a
    /// DNS label; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::LABEL_OR_NONE, "maxLength" = LABEL_MAX))]
    pub release_group: Option<String>,
    /// How long a deploy is verified by the app's checks once its instances have settled, such as `2m`; at most `24h`. `0s`:
    /// until each check has come to a verdict.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub verify_for: Option<String>,
    /// How long the checks go on to measure a version once its deploy has succeeded, such as `30m`; at most `24h`. A check that
    /// fails has the version before restored. `0s`: not at all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub watch_for: Option<String>,
    /// Whether a change of the configuration runs the release command as well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_on_config: Option<bool>,
    /// The address at which people reach the app, such as `https://shop.example.com`; empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::APP_URL, "maxLength" = AppUrl::MAX))]
    pub url: Option<String>,
    /// Whether the tag of an image becomes a digest before its rollout, as its registry says: `auto`, as far as the registry
    /// answers; `require`, or the deploy fails; `off`, the registry is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::resolve")]
    pub resolve: Option<Resolve>,
    /// What becomes of a commit that is posted with an image whose label names another one: `any`, both are shown;
    /// `must-match`, the deploy fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::commit_rule")]
    pub commit: Option<CommitRule>,
    /// The image repositories that a webhook may deploy from; empty for any.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("items" = schemas::repositories()))]
    pub repositories: Option<Vec<String>>,
    /// The number of the newest deploys that stay in the history, from 10 to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("minimum" = *KEEP.start(), "maximum" = *KEEP.end()))]
    pub keep: Option<u32>,
    /// The rule by which an image app follows its repository, or `off`: `tag:main`, one tag; `semver:^1.4`, the highest version
    /// that meets a requirement; `regex:release-(?<n>[0-9]+)`, the highest number that a pattern captures. Setting it deploys
    /// nothing: what comes after is deployed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::FOLLOW, "maxLength" = 256))]
    pub follow: Option<String>,
    /// How long what following has found must stay the newest before it is deployed, such as `30s`; at most `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::DURATION))]
    pub follow_settle: Option<String>,
    /// The signers of whom one must have signed an image before it is deployed: `key=` and a public key as PEM text, or
    /// `issuer=URL,subject=PATTERN`, an identity of keyless signing; a pattern is exact, or the beginning of a URL up to `/` or `@`
    /// and `*`. An empty list requires no signature. The running version stays; rollbacks to a digest that has succeeded are not verified.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("maxItems" = SIGNERS_MAX))]
    pub require_signature: Option<Vec<String>>,
    /// The attestation that an image must have before it is deployed: `slsa-provenance`, with `builder=PATTERN` if it must name that
    /// builder, and with the words of its signer if that is none of the image's. Empty for none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub require_attestation: Option<String>,
    /// The interval at which the source is read, a git app's branch or a followed repository, such as `5m`, or `off`; at least
    /// what the server allows (`30s` by default), at most `24h`. An app that begins to follow is read every `5m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::INTERVAL))]
    pub poll: Option<String>,
}

impl PolicyPatch {
    /// Returns the change.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self) -> Result<PolicyChange, Refusal> {
        let length = |name, text: Option<String>| {
            text.map(|text| duration::parse(&text).ok_or(duration::RULE))
                .transpose()
                .map_err(|rule| invalid(name, rule))
        };
        let signers = self.require_signature.map(|texts| requirement::signers(Field::PolicyRequireSignature, &texts));
        let attestation =
            self.require_attestation.map(|text| requirement::attestation(Field::PolicyRequireAttestation, &text));
        Ok(PolicyChange {
            on_failure: word(Field::PolicyOnFailure, self.on_failure, "must be restore or leave")?,
            hold: word(Field::PolicyHold, self.hold, "must be automatic or all")?,
            settle: length(Field::PolicySettle, self.settle)?,
            patience: length(Field::PolicyPatience, self.patience)?,
            ready_within: length(Field::PolicyReadyWithin, self.ready_within)?,
            rollout_deadline: length(Field::PolicyRolloutDeadline, self.rollout_deadline)?,
            build_deadline: length(Field::PolicyBuildDeadline, self.build_deadline)?,
            release_command: self.release_command,
            release_deadline: length(Field::PolicyReleaseDeadline, self.release_deadline)?,
            release_group: self.release_group.map(release_group).transpose()?,
            // They are resources of their own.
            checks: None,
            verify_for: length(Field::PolicyVerifyFor, self.verify_for)?,
            watch_for: length(Field::PolicyWatchFor, self.watch_for)?,
            release_on_config: self.release_on_config,
            url: self.url.map(url).transpose()?,
            resolve: self.resolve,
            commit: self.commit,
            repositories: field(Field::PolicyRepositories, self.repositories.map(Repositories::try_from).transpose())?,
            keep: self.keep,
            follow: self.follow.map(follow).transpose()?,
            follow_settle: length(Field::PolicyFollowSettle, self.follow_settle)?,
            signers: signers.transpose()?,
            attestation: attestation.transpose()?,
            poll: match self.poll {
                Some(word) if word == OFF => Some(None),
                text => length(Field::PolicyPoll, text)?.map(Some),
            },
        })
    }
}

/// Returns a group by its name; `None` for an empty one.
fn release_group(name: String) -> Result<Option<ReleaseGroup>, Refusal> {
    if name.is_empty() {
        return Ok(None);
    }
    let group = name.parse().map(Some);
    group.map_err(|error: InvalidName| invalid(Field::PolicyReleaseGroup, error.rule))
}

/// Returns a rule; `None` if it ends following.
fn follow(text: String) -> Result<Option<Follow>, Refusal> {
    if text == OFF {
        return Ok(None);
    }
    let rule = text.parse().map(Some);
    rule.map_err(|error: InvalidName| invalid(Field::PolicyFollow, error.rule))
}

/// Returns an address; `None` for an empty one.
fn url(text: String) -> Result<Option<AppUrl>, Refusal> {
    if text.is_empty() {
        return Ok(None);
    }
    let url = text.parse().map(Some);
    url.map_err(|error: InvalidName| invalid(Field::PolicyUrl, error.rule))
}

/// Reads a word that stands for a variant of `T`.
pub(crate) fn word<T: DeserializeOwned>(name: Field, given: Option<String>, rule: &str) -> Result<Option<T>, Refusal> {
    let read = |word| serde_json::from_value(word).map_err(|_| invalid(name, rule));
    given.map(serde_json::Value::from).map(read).transpose()
}
