//! The pipelines that an app trusts.

use rollhook_api::{
    Trust, TrustList,
    operations::{EndTrust, ListTrusts, ShowApp, TrustPipeline},
    snippets::{Job, KeylessSnippets},
};
use rollhook_core::text::escaped;
use serde::Serialize;

use super::Session;
use crate::{
    args::{AddTrustArgs, RemoveTrust, Target},
    exit::CliError,
    output::message,
    table::{self, Cell, Column, Fit},
};

/// The document that adding prints for programs.
#[derive(Serialize)]
struct Added<'a> {
    #[serde(flatten)]
    trust: &'a Trust,
    url: &'a str,
    snippets: Option<&'a KeylessSnippets>,
}

pub(crate) async fn add(session: &Session<'_>, args: &AddTrustArgs) -> Result<(), CliError> {
    let request = args.request()?;
    let id = session.find(&args.target).await?;
    let app = session.api.call(ShowApp, &id, ()).await?;
    let trust = session.api.call(TrustPipeline, &id, request).await?;
    let url = session.api.call(ListTrusts, &id, ()).await?.url;
    let snippets = KeylessSnippets::new(&Job::of(&app), &trust.audience);
    let document = Added { trust: &trust, url: &url, snippets: snippets.as_ref() };
    session.output.data(&document, || added(&trust, &url, snippets.as_ref()))?;
    let added: Vec<_> = trust.claims.keys().filter(|name| !args.names(name)).map(String::as_str).collect();
    if !added.is_empty() {
        let added = added.join(" and ");
        message(&format!(
            "{added} of Claims were added, so that nothing else than the named branch or environment deploys"
        ));
    }
    show_too_wide(&trust);
    Ok(())
}

/// Shows what a trust lets in beside what its claims seem to name.
fn show_too_wide(trust: &Trust) {
    if let Some(too_wide) = &trust.too_wide {
        message(&format!("warning: trust {} is too wide: {}", trust.id, escaped(too_wide)));
    }
}

fn added(trust: &Trust, url: &str, snippets: Option<&KeylessSnippets>) -> String {
    let known = format!(
        "Trust    {}\nURL      {}\nIssuer   {}\nAudience {}\nClaims   {}\n",
        trust.id,
        escaped(url),
        escaped(&trust.issuer),
        escaped(&trust.audience),
        escaped(&trust.claims_line()),
    );
    let Some(snippets) = snippets else { return known };
    format!(
        "{known}
Keep the URL in CI as SERVICE_WEBHOOK_URL; there is no secret to keep. Each of these
deploys from a job, which fails unless the deploy has succeeded within the app's own
deadlines (or DEPLOY_TIMEOUT, in seconds).

--- GitLab CI: .gitlab-ci.yml ---
{}
--- GitHub Actions: .github/workflows/deploy.yml ---
{}",
        snippets.gitlab_ci, snippets.github_actions
    )
}

pub(crate) async fn list(session: &Session<'_>, target: &Target) -> Result<(), CliError> {
    let id = session.find(target).await?;
    let list = session.api.call(ListTrusts, &id, ()).await?;
    session.output.data(&list, || {
        let columns = [
            Column("ID", 0, Fit::Keep),
            Column("ISSUER", 0, Fit::Cut),
            Column("AUDIENCE", 0, Fit::Drop(1)),
            Column("REACH", 0, Fit::Keep),
            Column("CLAIMS", 0, Fit::Cut),
        ];
        table::render(&columns, &rows(&list), session.output.style)
    })?;
    list.trusts.iter().for_each(show_too_wide);
    Ok(())
}

fn rows(list: &TrustList) -> Vec<Vec<Cell>> {
    let row = |trust: &Trust| {
        let claims = Cell::new(trust.claims_line());
        let reach = Cell::new(if trust.too_wide.is_some() { "too wide" } else { "bound" });
        vec![Cell::new(trust.id.as_str()), Cell::new(&trust.issuer), Cell::new(&trust.audience), reach, claims]
    };
    list.trusts.iter().map(row).collect()
}

pub(crate) async fn remove(session: &Session<'_>, args: &RemoveTrust) -> Result<(), CliError> {
    let id = session.find(&args.target).await?;
    session.api.call(EndTrust, &(id.clone(), args.id.clone()), ()).await?;
    session.output.line(&format!("Ended the trust {} of {id}: its pipeline is refused from now on.", args.id))?;
    session.document(&serde_json::json!({ "removed": args.id }))
}
