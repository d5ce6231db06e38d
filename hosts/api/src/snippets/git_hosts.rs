//! Instructions for git hosts, whose pushes deploy without a job in CI.

/// Returns the settings to enter at each git host, for an app that is built from this branch. The text names token and
/// key, and shows neither.
pub fn settings(branch: &str) -> String {
    format!(
        "\
--- Or without CI: the git host itself reports each push to {branch} ---
Enter the URL as it is above, and select push events only:
  GitHub           Settings, Webhooks, Add webhook: Payload URL; Content type
                   application/json; Secret: the token; Just the push event
  GitLab           Settings, Webhooks, Add new webhook: URL; Signing token: the key,
                   or in versions without it Secret token: the token; Push events
  Gitea, Forgejo   Settings, Webhooks, Add webhook: Target URL; POST
                   application/json; Secret: the token; Push events
  Bitbucket        Repository settings, Webhooks, Add webhook: URL; Secret: the
                   token; Repository push
A push whose head commit's message says [skip deploy] is not deployed.
"
    )
}
