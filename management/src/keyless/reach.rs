//! How far a trust reaches: the jobs that its claims let in beside those that they seem to name.
//!
//! A pipeline's `ref` says less than it seems to. GitLab's is a bare name, which a tag may share with a branch, and which
//! every developer may push; GitHub's names the default branch also in runs that a stranger's pull request or comment
//! started.

use std::{collections::BTreeMap, fmt};

/// The events of GitHub that only people who may write to the repository start.
const EVENTS: [&str; 7] =
    ["push", "workflow_dispatch", "repository_dispatch", "release", "schedule", "merge_group", "deployment"];

/// The jobs that a trust lets in beside those that its claims seem to name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TooWide {
    /// GitLab: a tag, or an unprotected branch, of the name that `ref` has.
    NameOfRef,
    /// GitLab: a job of any branch that names the environment.
    UnprotectedEnvironment,
    /// GitHub: runs on the same branch that a stranger started.
    AnyEvent,
    /// Jobs of every branch and tag.
    AnyRef,
}

impl TooWide {
    /// Returns the first fault of these claims, which identify a repository of GitHub or a project of GitLab.
    pub fn of(claims: &BTreeMap<String, String>) -> Option<Self> {
        let claims = Named(claims);
        let of_gitlab = claims.has("project_id").then(|| gitlab(claims)).flatten();
        of_gitlab.or_else(|| claims.has("repository_id").then(|| github(claims)).flatten())
    }

    /// Returns whether the claims bind less than they say, so that the trust is refused. A trust of the whole repository
    /// is what it says.
    pub const fn is_refused(self) -> bool {
        !matches!(self, Self::AnyRef)
    }
}

impl fmt::Display for TooWide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NameOfRef => {
                "ref lets in a tag and an unprotected branch of the same name too, which every developer may push: add \
                 ref_type=branch and ref_protected=true, or name ref_path, such as refs/heads/main"
            }
            Self::UnprotectedEnvironment => {
                "environment lets in every branch whose job names it: add ref_protected=true, or \
                 environment_protected=true"
            }
            Self::AnyEvent => {
                "ref lets in runs that others start on that branch too (pull_request_target, issue_comment, \
                 workflow_run): add event_name=push, environment, or job_workflow_ref"
            }
            Self::AnyRef => "every branch and tag of the repository may deploy: add ref or environment",
        })
    }
}

/// Returns the claims to add to those of a trust in a system's pipelines, so that `ref` and `environment` let in the jobs that
/// they seem to name. A claim that is named already stays as it is.
pub fn binding_claims(claims: &BTreeMap<String, String>) -> Vec<(&'static str, &'static str)> {
    let named = Named(claims);
    let wanted: &[_] = match TooWide::of(claims) {
        Some(TooWide::NameOfRef) => &[("ref_type", "branch"), ("ref_protected", "true")],
        Some(TooWide::UnprotectedEnvironment) => &[("ref_protected", "true")],
        Some(TooWide::AnyEvent) => &[("event_name", "push")],
        Some(TooWide::AnyRef) | None => &[],
    };
    wanted.iter().filter(|(name, _)| !named.has(name)).copied().collect()
}

#[derive(Clone, Copy)]
struct Named<'a>(&'a BTreeMap<String, String>);

impl Named<'_> {
    fn has(self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Returns whether a claim is named, or is a part of `sub`, where both systems write it between colons.
    fn has_also_in_sub(self, name: &str) -> bool {
        self.has(name) || self.0.get("sub").is_some_and(|sub| sub.contains(&format!(":{name}:")))
    }

    fn is(self, name: &str, text: &str) -> bool {
        self.0.get(name).is_some_and(|named| named == text)
    }
}

fn gitlab(claims: Named<'_>) -> Option<TooWide> {
    let is_protected = claims.is("ref_protected", "true");
    if claims.has("ref_path") {
        None
    } else if claims.has_also_in_sub("ref") {
        let has_type = claims.is("ref_type", "branch") || claims.is("ref_type", "tag");
        let is_in_sub = !claims.has("ref") && claims.has_also_in_sub("ref_type");
        let is_bound = is_protected && (has_type || is_in_sub);
        (!is_bound).then_some(TooWide::NameOfRef)
    } else if is_protected {
        None
    } else if claims.has("environment") {
        (!claims.is("environment_protected", "true")).then_some(TooWide::UnprotectedEnvironment)
    } else {
        Some(TooWide::AnyRef)
    }
}

fn github(claims: Named<'_>) -> Option<TooWide> {
    if claims.has_also_in_sub("environment") || claims.has("job_workflow_ref") {
        return None;
    }
    if !claims.has_also_in_sub("ref") && !claims.is("ref_protected", "true") {
        return Some(TooWide::AnyRef);
    }
    let is_bound = EVENTS.iter().any(|event| claims.is("event_name", event));
    (!is_bound).then_some(TooWide::AnyEvent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(named: &[(&str, &str)]) -> BTreeMap<String, String> {
        named.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
    }

    fn of(named: &[(&str, &str)]) -> Option<TooWide> {
        TooWide::of(&claims(named))
    }

    #[test]
    fn gitlabs_ref_is_bound_by_its_type_and_protection_or_by_its_path() {
        let gitlab = |named: &[_]| of(&[&[("project_id", "7")], named].concat());
        for unbound in [
            &[("ref", "main")][..],
            &[("ref", "main"), ("ref_type", "branch")],
            &[("ref", "main"), ("ref_protected", "true")],
            &[("ref", "main"), ("ref_type", "branch"), ("ref_protected", "false")],
            &[("ref", "main"), ("ref_type", "any"), ("ref_protected", "true")],
            &[("ref", "main"), ("environment", "prod"), ("environment_protected", "true")],
            &[("ref", "refs/heads/main"), ("event_name", "push")],
        ] {
            assert_eq!(gitlab(unbound), Some(TooWide::NameOfRef), "{unbound:?}");
        }
        for bound in [
            &[("ref", "main"), ("ref_type", "branch"), ("ref_protected", "true")][..],
            &[("ref", "v1"), ("ref_type", "tag"), ("ref_protected", "true")],
            &[("ref_path", "refs/heads/main")],
            &[("ref", "main"), ("ref_path", "refs/heads/main")],
            &[("ref_protected", "true")],
            &[("environment", "prod"), ("ref_protected", "true")],
            &[("environment", "prod"), ("environment_protected", "true")],
        ] {
            assert_eq!(gitlab(bound), None, "{bound:?}");
        }
        assert_eq!(gitlab(&[("environment", "prod")]), Some(TooWide::UnprotectedEnvironment));
        assert_eq!(gitlab(&[("ref_type", "branch")]), Some(TooWide::AnyRef));
        assert_eq!(gitlab(&[]), Some(TooWide::AnyRef));
    }

    #[test]
    fn githubs_ref_is_bound_by_an_event_an_environment_or_a_workflow() {
        let main = ("ref", "refs/heads/main");
        let github = |named: &[_]| of(&[&[("repository_id", "74")], named].concat());
        for unbound in [
            &[main][..],
            &[main, ("event_name", "pull_request_target")],
            &[main, ("event_name", "issue_comment")],
            &[main, ("event_name", "workflow_run")],
            &[main, ("event_name", "an event of next year")],
            &[main, ("ref_type", "branch"), ("ref_protected", "true")],
            &[("ref_protected", "true")],
        ] {
            assert_eq!(github(unbound), Some(TooWide::AnyEvent), "{unbound:?}");
        }
        for bound in [
            &[main, ("event_name", "push")][..],
            &[main, ("event_name", "workflow_dispatch")],
            &[main, ("environment", "prod")],
            &[("environment", "prod")],
            &[("job_workflow_ref", "shop/api/.github/workflows/deploy.yml@refs/heads/main")],
        ] {
            assert_eq!(github(bound), None, "{bound:?}");
        }
        assert_eq!(github(&[]), Some(TooWide::AnyRef));
        assert_eq!(github(&[("event_name", "push")]), Some(TooWide::AnyRef));
    }

    #[test]
    fn added_claims_bind_what_was_named_and_replace_nothing() {
        for (named, added) in [
            (&[("project_id", "7"), ("ref", "main")][..], &[("ref_type", "branch"), ("ref_protected", "true")][..]),
            (&[("project_id", "7"), ("ref", "v1"), ("ref_type", "tag")], &[("ref_protected", "true")]),
            (&[("project_id", "7"), ("environment", "prod")], &[("ref_protected", "true")]),
            (&[("project_id", "7"), ("ref_path", "refs/heads/main")], &[]),
            (&[("repository_id", "74"), ("ref", "refs/heads/main")], &[("event_name", "push")]),
            (&[("repository_id", "74"), ("environment", "prod")], &[]),
            (&[("repository_id", "74")], &[]),
        ] {
            assert_eq!(binding_claims(&claims(named)), added, "{named:?}");
            let reach = of(&[named, added].concat());
            assert!(reach.is_none_or(|reach| !reach.is_refused()), "{named:?}: {reach:?}");
        }
        let explicit = [("repository_id", "74"), ("ref", "refs/heads/main"), ("event_name", "workflow_run")];
        assert_eq!(binding_claims(&claims(&explicit)), [], "it is refused instead");
    }

    #[test]
    fn gitlabs_protection_of_an_environment_that_is_not_named_binds_nothing() {
        assert_eq!(of(&[("project_id", "7"), ("environment_protected", "true")]), Some(TooWide::AnyRef));
    }

    #[test]
    fn ref_within_the_subject_is_bound_as_ref_is() {
        let on_github = ("sub", "repo:shop/api:ref:refs/heads/main");
        assert_eq!(of(&[("repository_id", "7"), on_github]), Some(TooWide::AnyEvent));
        assert_eq!(of(&[("repository_id", "7"), on_github, ("event_name", "push")]), None);
        assert_eq!(of(&[("repository_id", "7"), ("sub", "repo:shop/api:environment:prod")]), None);
        let on_gitlab = ("sub", "project_path:shop/api:ref_type:branch:ref:main");
        assert_eq!(of(&[("project_id", "7"), on_gitlab]), Some(TooWide::NameOfRef));
        assert_eq!(of(&[("project_id", "7"), on_gitlab, ("ref_protected", "true")]), None);
    }
}
