//! The flags of an app's policy.

use clap::Args;
use rollhook_api::PolicyPatch;
use rollhook_core::app::{CommitRule, Resolve};

use crate::args::{
    signers::{attestation_or_off, signer_or_off, with_key},
    value::{CommandLine, app_url, command_line, duration, duration_or_off, follow_or_off, on_or_off, release_group},
};

/// An app's policy, each flag by the policy's name.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyFlags {
    /// After a failed rollout: roll out the current image again, or leave everything as it is
    #[arg(long, value_parser = ["restore", "leave"])]
    on_failure: Option<String>,
    /// Which deploys of an image that was rolled back from are refused: automatic ones, or all, CI's included
    #[arg(long, value_parser = ["automatic", "all"])]
    hold: Option<String>,
    /// How long new pods or containers must stay ready before a deploy counts as succeeded, such as 10s
    #[arg(long, value_name = "TIME", value_parser = duration)]
    settle: Option<String>,
    /// How long a failure may last that may heal, such as a program that ends and is started again, such as 1m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    patience: Option<String>,
    /// How long the app may be down until a new version is ready, such as 1m, where the old one has to stop first
    #[arg(long, value_name = "TIME", value_parser = duration)]
    ready_within: Option<String>,
    /// How long a rollout may take, such as 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    rollout_deadline: Option<String>,
    /// How long a build may take, such as 30m, at most 4h
    #[arg(long, value_name = "TIME", value_parser = duration)]
    build_deadline: Option<String>,
    /// A command that each new image runs once before it is rolled out, such as "bin/rails db:migrate"; quotes are read as
    /// by a shell, and nothing else is; empty for none
    #[arg(long, value_name = "COMMAND", value_parser = command_line)]
    release_command: Option<CommandLine>,
    /// How long the release command may take, such as 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    release_deadline: Option<String>,
    /// A group of apps of the environment, such as those of one database, that run their release commands one at a time;
    /// empty for none
    #[arg(long, value_name = "NAME", value_parser = release_group)]
    release_group: Option<String>,
    /// How long a deploy is verified by the app's checks once its instances have settled, such as 2m; 0s: until each check has
    /// come to a verdict
    #[arg(long, value_name = "TIME", value_parser = duration)]
    verify_for: Option<String>,
    /// How long the checks go on to measure a version once its deploy has succeeded, such as 30m, at most 24h; one that fails
    /// has the version before restored. 0s: not at all
    #[arg(long = "watch", alias = "watch-for", value_name = "TIME", value_parser = duration)]
    watch_for: Option<String>,
    /// Whether a change of the configuration runs the release command first
    #[arg(long, value_name = "on|off", value_parser = on_or_off)]
    release_on_config: Option<bool>,
    /// The address at which people reach the app, such as https://shop.example.com, which the console and GitHub link to;
    /// empty for none
    #[arg(long, value_name = "URL", value_parser = app_url)]
    url: Option<String>,
    /// Whether the tag of an image becomes a digest before its rollout: auto, as far as its registry answers; require, or the
    /// deploy fails; off, the registry is not asked
    #[arg(long, value_name = "auto|require|off")]
    resolve: Option<Resolve>,
    /// What becomes of a commit that is posted with an image whose label names another one: any, both are shown;
    /// must-match, the deploy fails
    #[arg(long, value_name = "any|must-match")]
    commit: Option<CommitRule>,
    /// A repository that the webhook may deploy from, or PATH/* for all below a path; repeatable, or comma-separated;
    /// empty for any
    #[arg(long = "repository", alias = "repositories", value_name = "REPOSITORY", value_delimiter = ',')]
    repositories: Option<Vec<String>>,
    /// How many of the newest deploys stay in the history; those that a rollback may need stay as well
    #[arg(long, value_name = "N")]
    keep: Option<u32>,
    /// Which image of its repository an app follows: tag:main, one tag; 'semver:^1.4', the highest version that meets a
    /// requirement; 'regex:release-(?<n>\d+)', the highest number that a pattern captures; or off. Setting it deploys nothing:
    /// what comes after is deployed
    #[arg(long, value_name = "RULE|off", value_parser = follow_or_off)]
    follow: Option<String>,
    /// How long what following has found must stay the newest before it is deployed, such as 30s, at most 10m
    #[arg(long, value_name = "TIME", value_parser = duration)]
    follow_settle: Option<String>,
    /// Who must have signed an image before it is deployed: key=FILE, a public key; or issuer=URL,subject=PATTERN, an identity of
    /// keyless signing, exact or the beginning of a URL up to / or @ and *. Repeatable: one of them is enough. off ends it
    #[arg(long, value_name = "SIGNER|off", value_parser = signer_or_off)]
    require_signature: Option<Vec<String>>,
    /// The attestation that an image must have before it is deployed: slsa-provenance,builder=PATTERN, with the words of its signer
    /// if that is none of the image's; or off
    #[arg(long, value_name = "ATTESTATION|off", value_parser = attestation_or_off)]
    require_attestation: Option<String>,
    /// How often the source is read, a git app's branch or a followed repository, such as 5m, or off
    #[arg(long, alias = "follow-every", value_name = "TIME|off", value_parser = duration_or_off)]
    poll: Option<String>,
}

impl PolicyFlags {
    /// Returns the change that the flags ask for, with the keys that the named files have.
    ///
    /// # Errors
    /// Why a key's file cannot be read.
    pub(crate) fn patch_with_keys(&self) -> Result<PolicyPatch, String> {
        let patch = self.patch();
        let signers =
            patch.require_signature.as_ref().map(|signers| signers.iter().map(|text| with_key(text)).collect());
        let attestation = patch.require_attestation.as_deref().map(with_key);
        Ok(PolicyPatch {
            require_signature: signers.transpose()?,
            require_attestation: attestation.transpose()?,
            ..patch
        })
    }

    /// Returns the change that the flags ask for.
    pub(crate) fn patch(&self) -> PolicyPatch {
        let given = |entries: &Vec<String>| entries.iter().filter(|entry| !entry.is_empty()).cloned().collect();
        PolicyPatch {
            on_failure: self.on_failure.clone(),
            hold: self.hold.clone(),
            settle: self.settle.clone(),
            patience: self.patience.clone(),
            ready_within: self.ready_within.clone(),
            rollout_deadline: self.rollout_deadline.clone(),
            build_deadline: self.build_deadline.clone(),
            release_command: self.release_command.as_ref().map(|command| command.0.clone()),
            release_deadline: self.release_deadline.clone(),
            release_group: self.release_group.clone(),
            verify_for: self.verify_for.clone(),
            watch_for: self.watch_for.clone(),
            release_on_config: self.release_on_config,
            url: self.url.clone(),
            resolve: self.resolve,
            commit: self.commit,
            // One empty entry is how a command line says "none".
            repositories: self.repositories.as_ref().map(given),
            keep: self.keep,
            follow: self.follow.clone(),
            follow_settle: self.follow_settle.clone(),
            // One empty entry is `off`.
            require_signature: self.require_signature.as_ref().map(given),
            require_attestation: self.require_attestation.clone(),
            poll: self.poll.clone(),
        }
    }
}
