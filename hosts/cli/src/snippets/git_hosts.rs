//! What a person enters at a git host, so that a push deploys without a job in CI.

/// Where a git host's settings want what, for an app that is built from this branch. It names the token and the key, and
/// shows neither.
pub(crate) fn settings(branch: &str) -> String {
    format!(
        "\
--- Or without CI: the git host itself tells of each push to {branch} ---
Enter the URL as it is above, and have only pushes told:
  GitHub           Settings, Webhooks, Add webhook: Payload URL; Content type
                   application/json; Secret: the token; Just the push event
  GitLab           Settings, Webhooks, Add new webhook: URL; Signing token: the key,
                   or in versions without it Secret token: the token; Push events
  Gitea, Forgejo   Settings, Webhooks, Add webhook: Target URL; POST
                   application/json; Secret: the token; Push events
  Bitbucket        Repository settings, Webhooks, Add webhook: URL; Secret: the
                   token; Repository push
What they tell of is not deployed where the head commit's message says [skip deploy].
"
    )
}
