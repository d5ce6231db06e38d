//! `rollhook app webhook trust …`.

use clap::{ArgGroup, Args, Subcommand};
use rollhook_api::{AddTrust, Pipeline};
use rollhook_management::keyless::TrustId;

use super::Target;
use crate::exit::CliError;

#[derive(Debug, Subcommand)]
pub(crate) enum TrustCommand {
    /// Trust the id_tokens of a pipeline, and print CI snippets without a secret
    ///
    /// For example: --github 74 --claim ref=refs/heads/main --claim environment=prod, or --gitlab 7 --claim ref=main. The
    /// number is the repository's or project's: gh api repos/OWNER/REPO --jq .id prints GitHub's; GitLab shows it on the
    /// project's page.
    ///
    /// A branch's name alone lets in more than the branch. So these claims are added unless others of their kind are
    /// named: with GitLab's ref, ref_type=branch and ref_protected=true (or name ref_path=refs/heads/main instead of all
    /// three): a tag may have a branch's name. With GitHub's ref, event_name=push (or name environment or
    /// job_workflow_ref): a stranger's pull request or comment starts runs on the default branch, too.
    Add(Box<AddTrustArgs>),
    /// List the trusted pipelines
    #[command(visible_alias = "ls")]
    List(Target),
    /// End the trust in a pipeline: its id_tokens are refused from then on
    #[command(visible_alias = "rm")]
    Remove(RemoveTrust),
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("pipeline").required(true).multiple(true))]
pub(crate) struct AddTrustArgs {
    #[command(flatten)]
    pub(crate) target: Target,
    /// Trust GitHub Actions in the repository of this number
    #[arg(long, value_name = "REPOSITORY-ID", group = "pipeline", conflicts_with = "gitlab")]
    github: Option<u64>,
    /// Trust GitLab's pipelines in the project of this number
    #[arg(long, value_name = "PROJECT-ID", group = "pipeline")]
    gitlab: Option<u64>,
    /// The issuer of the tokens, exactly as they have it [default: that of github.com or gitlab.com]
    #[arg(long, value_name = "URL", group = "pipeline")]
    issuer: Option<String>,
    /// The audience of the tokens [default: the server's base URL]
    #[arg(long)]
    audience: Option<String>,
    /// A claim that the tokens must have, and its exact text, such as ref=refs/heads/main (GitHub) or ref=main (GitLab);
    /// may be repeated. What binds a ref is added: --help says what
    #[arg(long = "claim", value_name = "NAME=TEXT", value_parser = claim)]
    claims: Vec<(String, String)>,
}

fn claim(text: &str) -> Result<(String, String), &'static str> {
    let (name, text) = text.split_once('=').ok_or("must be NAME=TEXT")?;
    Ok((name.to_owned(), text.to_owned()))
}

impl AddTrustArgs {
    /// Returns whether the command names a claim, by itself or as the repository's number.
    pub(crate) fn names(&self, claim: &str) -> bool {
        let number = self.github.map(|_| Pipeline::Github).or_else(|| self.gitlab.map(|_| Pipeline::Gitlab));
        number.is_some_and(|system| system.identifying_claim() == claim)
            || self.claims.iter().any(|(name, _)| name == claim)
    }

    /// Returns the request.
    ///
    /// # Errors
    /// [`CliError::Usage`] for a claim that is given twice, or a missing issuer.
    pub(crate) fn request(&self) -> Result<AddTrust, CliError> {
        let pipeline = match (self.github, self.gitlab) {
            (Some(id), _) => Some((Pipeline::Github, id)),
            (None, Some(id)) => Some((Pipeline::Gitlab, id)),
            (None, None) if self.issuer.is_some() => None,
            (None, None) => return Err(CliError::Usage("--issuer: name the issuer of the tokens.".to_owned())),
        };
        AddTrust::new(pipeline, self.issuer.clone(), self.audience.clone(), self.claims.iter().cloned())
            .map_err(|name| CliError::Usage(format!("--claim: {name} is given twice.")))
    }
}

#[derive(Debug, Args)]
pub(crate) struct RemoveTrust {
    /// The trust's id, as the list shows it
    #[arg(long, value_name = "ID")]
    pub(crate) id: TrustId,
    #[command(flatten)]
    pub(crate) target: Target,
}
