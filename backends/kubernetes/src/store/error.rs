//! The classification of failures of the API server for the store.

use std::sync::Arc;

use kube::Error as KubeError;
use rollhook_core::{
    Error,
    error::{self, Entity},
};

use crate::error::classify as of_cluster;

/// The advice where the cluster does not know the custom resources.
pub(crate) const NO_RESOURCES: &str = "the cluster does not know rollhook's custom resources (rollhookapps.rollhook.dev, \
    appdeploys.rollhook.dev, serverrecords.rollhook.dev); let a cluster administrator run: rollhook-server manifests \
    --app-namespace NAMESPACE | kubectl apply -f - (for each namespace that apps are in)";

/// The failure as an error of the ports: `NotFound` if one object is missing; if its kind or its namespace is, a
/// sentence says what to do.
pub(crate) fn classify(error: KubeError) -> Error {
    let KubeError::Api(status) = &error else { return of_cluster(error) };
    match status.code {
        404 if !names_an_object(status) => Error::Invalid { what: NO_RESOURCES.to_owned(), cause: Some(error.into()) },
        404 => missing(status).map_or(Error::NotFound(Entity::Object), Error::invalid),
        _ => advised(of_cluster(error)),
    }
}

/// Adds to a denied permission how to get it.
fn advised(error: Error) -> Error {
    let Error::Denied { what, cause } = error else { return error };
    let what = format!("{what}; rollhook-server manifests prints the permissions that the store needs");
    Error::Denied { what, cause }
}

/// Whether the answer names an object; an unknown path is a 404 too, but names none.
fn names_an_object(status: &kube::core::Status) -> bool {
    status.details.as_ref().is_some_and(|details| !details.name.is_empty())
}

/// The advice where the namespace is missing.
fn missing(status: &kube::core::Status) -> Option<String> {
    let details = status.details.as_ref().filter(|details| details.kind == "namespaces")?;
    Some(format!("the cluster has no namespace {0}; make it first: kubectl create namespace {0}", details.name))
}

/// The same failure for another caller. Errors cannot be cloned; the text has the chain of causes.
pub(crate) fn again(failure: &Arc<Error>) -> Error {
    let source = std::error::Error::source(failure.as_ref());
    let cause = source.map(|source| error::Cause::from(error::chain(source)));
    match failure.as_ref() {
        Error::NotFound(entity) => Error::NotFound(*entity),
        Error::Conflict(entity) => Error::Conflict(*entity),
        Error::Denied { what, .. } => Error::Denied { what: what.clone(), cause },
        Error::Invalid { what, .. } => Error::Invalid { what: what.clone(), cause },
        Error::Unavailable { what, .. } => Error::Unavailable { what: what.clone(), cause },
        Error::Corrupt { what, .. } => Error::Corrupt { what: what.clone(), cause },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_is_the_same_for_each_caller() {
        let failure = Arc::new(Error::unavailable("the store is away", "connection refused"));
        assert_eq!(again(&failure).chain(), failure.chain());
        assert!(again(&failure).is_unavailable());
    }
}
