//! `rollhook app …`.

mod git;
mod policy;
mod template;

use clap::{Args, Subcommand};
use rollhook_core::{
    app::{AppId, AppName, Environment, FullName, InvalidName, Project},
    deploy::{Commit, Revision, Ruling},
    image::ImageRef,
    instance::InstanceName,
    lock::LockReason,
};

use crate::exit::Exit;

use self::{git::Git, policy::PolicyFlags, template::Template};
use super::{
    Lock,
    check::CheckCommand,
    config::ConfigCommand,
    made_with::MadeWith,
    runs::{Run, Runs},
    trust::TrustCommand,
    value::{WorkloadName, duration},
};

#[derive(Debug, Subcommand)]
pub(crate) enum AppCommand {
    /// The app's webhook: enable, status, disable
    #[command(subcommand)]
    Webhook(Webhook),
    /// Show what was deployed, newest first
    History(History),
    /// Return to an earlier revision
    Rollback(Rollback),
    /// Register an app
    Create(Box<Create>),
    /// List the apps
    #[command(visible_alias = "ls")]
    List(List),
    /// Show an app
    Show(Target),
    /// Show what an app runs, and what is under way
    Status(Target),
    /// Print the image that the workload has, for those who apply the workload too: --set image=$(rollhook app image APP)
    Image(Target),
    /// Show what the registry has of an image now: its digest, platforms and commit, before it is deployed
    LookUp(LookUp),
    /// The repository that the app follows: explain
    #[command(subcommand)]
    Follow(Follow),
    /// Follow a deploy to its end, whoever made it
    Wait(WaitFor),
    /// Change an app's policy or source, or with Docker what its container is made with
    Set(Box<Set>),
    /// What a version must show in use before its deploy succeeds: add, list, test, remove
    #[command(subcommand)]
    Check(CheckCommand),
    /// The variables that the app's instances run with: set, unset, list, diff
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Deploy an image, or what is current once more
    Deploy(Deploy),
    /// Stop an app: no instance is left, and deploys start none, until it is started
    Stop(Scale),
    /// Start a stopped app, with as many instances as there were
    Start(Scale),
    /// Build and deploy a commit of a git app
    Rebuild(Rebuild),
    /// Show the log of a build, or of a release command
    BuildLogs(BuildLogs),
    /// Show the logs of the app's instances
    Logs(Logs),
    /// Run a command once with the image that the app runs, such as a fix of data; no terminal is attached
    #[command(after_help = Exit::OF_RUN)]
    Run(Run),
    /// List the commands that were run by hand; follow or end one
    Runs(Runs),
    /// End an unfinished deploy
    Cancel(Cancel),
    /// Decide on a deploy that waits for a person, as checks came to no verdict (--without-verdict ask)
    Verdict(Verdict),
    /// Deploy what another environment runs
    Promote(Promote),
    /// Let automation deploy again what was rolled back from: CI's calls, polling, and following
    ReleaseHold(Target),
    /// Refuse new deploys, except rollbacks
    Lock(Lock),
    /// End the app's lock
    Unlock(Target),
    /// Remove an app with its token and history; its workload stays as it is
    #[command(visible_alias = "rm")]
    Delete(Delete),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Follow {
    /// Read the repository now, and show why each tag is the newest by the app's rule or not, and what comes of it
    Explain(Target),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Webhook {
    /// Make a new token, and print it with the URL and CI snippets; the old token is refused from then on, and the sequences of
    /// deploys are counted anew
    Enable(Target),
    /// Make a new token; the old one is let in too for a time, so that no CI job fails meanwhile
    Rotate(Rotate),
    /// Show the URL and the token
    Status(WebhookStatus),
    /// Show the last calls that reached the server's process, and why they were refused
    Calls(Target),
    /// Close the webhook: its token is refused from then on, and no pipeline is trusted any more
    Disable(Target),
    /// Pipelines that call the webhook by their id_tokens, without a secret: add, list, remove
    #[command(subcommand)]
    Trust(TrustCommand),
}

/// The arguments of `app webhook status`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WebhookStatus {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Print the token alone, for a variable of the shell
    #[arg(long)]
    pub(crate) token: bool,
}

/// The app that a command works on.
#[derive(Clone, Debug, Args)]
pub(crate) struct Target {
    /// The app's name
    #[arg(value_name = "APP")]
    pub(crate) app: AppName,
    /// The app's project
    #[arg(short, long, env = "ROLLHOOK_PROJECT", hide_env_values = true)]
    pub(crate) project: Project,
    /// The project's environment
    #[arg(short, long, env = "ROLLHOOK_ENVIRONMENT", hide_env_values = true)]
    pub(crate) environment: Environment,
}

impl Target {
    /// Returns the app's id.
    ///
    /// # Errors
    /// If project and environment together are too long for a namespace.
    pub(crate) fn id(&self) -> Result<AppId, InvalidName> {
        self.full_name().id()
    }

    /// Returns the app's full name.
    pub(crate) fn full_name(&self) -> FullName {
        FullName { project: self.project.clone(), environment: self.environment.clone(), name: self.app.clone() }
    }
}

#[derive(Debug, Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    pub(crate) target: Target,
    /// How long the old token is let in too, such as 1h, at most 168h
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = duration)]
    pub(crate) overlap: String,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    #[command(flatten)]
    pub(crate) target: Target,
    /// At most this many deploys
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
    /// Show this entry alone, with the evidence of its failure
    #[arg(long, value_name = "N", conflicts_with = "limit")]
    pub(crate) revision: Option<Revision>,
}

#[derive(Debug, Args)]
pub(crate) struct LookUp {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The image [default: that of the app's newest deploy which has one]
    #[arg(value_name = "IMAGE")]
    pub(crate) image: Option<ImageRef>,
}

#[derive(Debug, Args)]
pub(crate) struct WaitFor {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The revision [default: the newest that is no restore]
    #[arg(value_name = "REVISION")]
    pub(crate) revision: Option<Revision>,
    /// The longest time to wait, such as 15m
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = duration)]
    pub(crate) timeout: String,
}

#[derive(Debug, Args)]
pub(crate) struct Rollback {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Return to this revision; default: the last good version before what is on the cluster
    #[arg(long, value_name = "N")]
    pub(crate) revision: Option<Revision>,
    /// Do not ask before returning to a revision that never succeeded, lacks its release command or was revoked, or past release commands that ran since
    #[arg(long)]
    pub(crate) yes: bool,
    /// Bring back the revision's configuration as well; default: the configuration stays as it is now
    #[arg(long)]
    pub(crate) with_config: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

/// The choice between waiting for the end of the deploy and returning at once.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct Wait {
    /// Wait until the deploy has ended, and fail unless it succeeded (without a server: always so)
    #[arg(long)]
    pub(crate) wait: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Create {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The workload that deploys change, such as StatefulSet/db, or with Docker container/web or
    /// compose/PROJECT/SERVICE; default: the Deployment, container or service named like the app. Repeatable: deploys change
    /// all, in the order given, those with a + before them together with the one before
    #[arg(long = "workload", value_name = "[+]KIND[/NAME[:CONTAINER]]")]
    pub(crate) workloads: Vec<WorkloadName>,
    /// The container to change; repeatable; default: the one named like the app, or the only one
    #[arg(long = "container", value_name = "NAME")]
    pub(crate) containers: Vec<String>,
    /// With Docker: whether the new container starts beside the old one, or after it stopped; default: beside it, unless a
    /// fixed port, an address or a writable volume belongs to one container at a time
    #[arg(long, value_parser = ["start-first", "stop-first"])]
    pub(crate) replace: Option<String>,
    /// Overwrite the deploy id that another registration left on the workload
    #[arg(long)]
    pub(crate) take_over: bool,
    /// Register a workload that exists as it is, although flags say how a new one is made
    #[arg(long)]
    pub(crate) adopt: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
    #[command(flatten)]
    pub(crate) git: Git,
    /// Leave the first build of a git app to CI, instead of building its branch's head
    #[arg(long, requires = "git", help_heading = "An app that is built from git")]
    pub(crate) no_build: bool,
    #[command(flatten)]
    pub(crate) template: Template,
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

#[derive(Debug, Args)]
pub(crate) struct List {
    // Not by environment variables: a person who has set them must still be able to list all apps.
    /// Only apps of this project
    #[arg(short, long)]
    pub(crate) project: Option<Project>,
    /// Only apps of this environment
    #[arg(short, long)]
    pub(crate) environment: Option<Environment>,
}

#[derive(Debug, Args)]
pub(crate) struct Set {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Let deploys overwrite the deploy id of another registration that the workload carries now
    #[arg(long)]
    pub(crate) take_over: bool,
    /// All workloads that deploys change, in their order, the present first one first; repeatable, as with app create. The
    /// next deploy brings them to one version
    #[arg(long = "workload", value_name = "[+]KIND/NAME[:CONTAINER]")]
    pub(crate) workloads: Vec<WorkloadName>,
    #[command(flatten)]
    pub(crate) git: Git,
    #[command(flatten)]
    pub(crate) made_with: MadeWith,
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The commit, in full or its first 7 digits or more; default: the head of the branch
    #[arg(long, value_name = "SHA")]
    pub(crate) commit: Option<Commit>,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct BuildLogs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The revision; default: the newest that was built, or with --release the newest that came to its release command
    #[arg(long, value_name = "N")]
    pub(crate) revision: Option<Revision>,
    /// The log of the release command in place of the build's
    #[arg(long)]
    pub(crate) release: bool,
    /// Go on until the build or the release command has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Logs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Only this workload of an app that has several, such as Deployment/worker or worker; default: all
    #[arg(long, value_name = "WORKLOAD")]
    pub(crate) workload: Option<String>,
    /// Only this instance, by its name; default: all
    #[arg(long, value_name = "NAME")]
    pub(crate) instance: Option<InstanceName>,
    /// The last lines of each instance, at most 1000
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) tail: u16,
    /// The log of each instance before its last restart
    #[arg(long, conflicts_with = "follow")]
    pub(crate) previous: bool,
    /// Go on, also with new instances after a rollout, until ctrl-C
    #[arg(short, long)]
    pub(crate) follow: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Deploy {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The image, with a tag or a digest
    #[arg(value_name = "IMAGE", required_unless_present_any = ["image", "same"])]
    posted: Option<ImageRef>,
    /// The same, as a flag
    #[arg(long, conflicts_with = "posted")]
    image: Option<ImageRef>,
    /// What is current, once more: to restart it without a gap. Its bits, without a build or its release command
    #[arg(long, conflicts_with_all = ["posted", "image", "commit"])]
    pub(crate) same: bool,
    /// The commit that the image was built from, for the history
    #[arg(long)]
    pub(crate) commit: Option<Commit>,
    /// Deploy in spite of a lock, for this reason, which the audit keeps (takes the role admin)
    #[arg(long, value_name = "REASON")]
    pub(crate) break_glass: Option<LockReason>,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

impl Deploy {
    /// The image to deploy.
    pub(crate) fn image(&self) -> Option<&ImageRef> {
        self.posted.as_ref().or(self.image.as_ref())
    }
}

/// The arguments of `app stop` and `app start`.
#[derive(Debug, Args)]
pub(crate) struct Scale {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Do so in spite of a lock, for this reason, which the audit keeps (takes the role admin)
    #[arg(long, value_name = "REASON")]
    pub(crate) break_glass: Option<LockReason>,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    pub(crate) target: Target,
    /// The revision to end
    #[arg(long, value_name = "N")]
    pub(crate) revision: Revision,
}

#[derive(Debug, Args)]
pub(crate) struct Verdict {
    #[command(flatten)]
    pub(crate) target: Target,
    /// pass: the deploy succeeds; fail: it fails as by a check, and the version before is restored
    #[arg(value_name = "pass|fail")]
    pub(crate) ruling: Ruling,
    /// The revision to decide on
    #[arg(long, value_name = "N")]
    pub(crate) revision: Revision,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct Promote {
    /// The app's name, which is the same in both environments
    #[arg(value_name = "APP", required_unless_present = "all")]
    pub(crate) app: Option<AppName>,
    /// Promote all apps of the environment that are in both
    #[arg(long, conflicts_with = "app")]
    all: bool,
    /// The project
    #[arg(short, long, env = "ROLLHOOK_PROJECT", hide_env_values = true)]
    pub(crate) project: Project,
    /// The environment to promote to
    #[arg(short, long, visible_alias = "to-environment", env = "ROLLHOOK_ENVIRONMENT", hide_env_values = true)]
    pub(crate) environment: Environment,
    /// The project to promote from; default: the same project
    #[arg(long, value_name = "PROJECT")]
    pub(crate) from_project: Option<Project>,
    /// The environment to promote from
    #[arg(long, value_name = "ENVIRONMENT")]
    pub(crate) from_environment: Environment,
    /// Show what would be promoted, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Do not ask before apps are promoted that lack variables which the other environment's have
    #[arg(long)]
    pub(crate) yes: bool,
    #[command(flatten)]
    pub(crate) wait: Wait,
}

#[derive(Debug, Args)]
pub(crate) struct Delete {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) yes: bool,
}
