//! The classification of failures of the API server.
//!
//! [`refusal`] tells whether the cluster refused the object that was sent (an invalid object, a quota, an admission
//! webhook): then a deploy ends with the cluster's own sentence. [`classify`] turns every other failure into an error
//! of the ports: a conflict, or a failure that may pass.
//!
//! An authorizer's 403 is of the latter kind, and so is a 401: an API server that has just started knows no role yet
//! and denies everything, and a binding or a token that is replaced is away for a moment.

use kube::{Error as KubeError, core::Status};
use rollhook_core::{Error, error::Entity};

/// What to do about a permission that is missing in an app's namespace.
pub(crate) const GRANT: &str = "name the namespace in appNamespaces of the Helm chart, or apply what rollhook-server manifests \
    --app-namespace prints";

/// Adds to a permission that is denied in an app's namespace how to get it.
pub(crate) fn granted(error: Error) -> Error {
    let Error::Denied { what, cause } = error else { return error };
    Error::Denied { what: format!("{what}; {GRANT}"), cause }
}

/// The failure as an error of the ports.
pub(crate) fn classify(error: KubeError) -> Error {
    if let KubeError::Api(status) = error {
        return of_status(status);
    }
    if matches!(error, KubeError::SerdeError(_) | KubeError::FromUtf8(_)) {
        return Error::corrupt("the API server's answer cannot be read", error);
    }
    if matches!(error, KubeError::BuildRequest(_) | KubeError::HttpError(_)) {
        return Error::Invalid { what: "the request cannot be built".to_owned(), cause: Some(error.into()) };
    }
    // All other failures lie between this process and the API server: the network, TLS, a credential helper. A new kind
    // of failure belongs here too, as `Unavailable` loses nothing.
    Error::unavailable("the cluster's API server cannot be reached", error)
}

/// The cluster's own sentence, if it refused the object that was sent and would refuse it again.
pub(crate) fn refusal(error: &KubeError) -> Option<String> {
    let KubeError::Api(status) = error else { return None };
    let by_admission = status.message.contains("denied the request") || status.message.contains("denied request");
    let refused = match status.code {
        400 | 413 | 422 => true,
        403 => matches!(forbidden(status), Forbidden::ByPolicy),
        _ => by_admission && status.code < 500,
    };
    refused.then(|| shortened(&status.message))
}

/// Whether an object of this name exists already.
pub(crate) fn is_already_exists(error: &KubeError) -> bool {
    matches!(error, KubeError::Api(status) if status.is_already_exists())
}

/// Whether the object that was named does not exist.
pub(crate) fn is_not_found(error: &KubeError) -> bool {
    matches!(error, KubeError::Api(status) if status.is_not_found())
}

/// Whether the object has changed since it was read.
pub(crate) fn is_conflict(error: &KubeError) -> bool {
    matches!(error, KubeError::Api(status) if status.code == 409 && !status.is_already_exists())
}

/// The error after too many attempts, each of which met a change by another process.
pub(crate) fn contended() -> Error {
    Error::Unavailable { what: "others keep changing the same object".to_owned(), cause: None }
}

/// The most characters of a text of the cluster in a sentence of ours.
const SENTENCE_MAX: usize = 600;

/// The text, cut to the length that a sentence may have.
pub(crate) fn shortened(text: &str) -> String {
    let mut short: String = text.trim().chars().take(SENTENCE_MAX).collect();
    if short.len() < text.trim().len() {
        short.push('…');
    }
    short
}

fn of_status(status: Box<Status>) -> Error {
    let what = shortened(&status.message);
    let (code, forbidden) = (status.code, forbidden(&status));
    let cause = Some(KubeError::Api(status).into());
    match code {
        401 => Error::Denied { what: "the API server does not accept our credentials".to_owned(), cause },
        403 => match forbidden {
            Forbidden::ToUs => Error::Denied { what, cause },
            Forbidden::ByPolicy => Error::Invalid { what, cause },
            Forbidden::ForNow => Error::Unavailable { what, cause },
        },
        404 => Error::NotFound(Entity::Object),
        409 => Error::Conflict(Entity::Object),
        408 | 410 | 429 | 500.. => Error::Unavailable { what: format!("the API server answered {code}"), cause },
        _ => Error::Invalid { what, cause },
    }
}

/// The origin of a 403.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forbidden {
    /// An authorizer denies the permission to us.
    ToUs,
    /// A policy refuses the object.
    ByPolicy,
    /// A policy cannot be asked yet.
    ForNow,
}

/// The origin of a 403. An authorizer's answer names the resource and the user, and nothing before them; a policy may
/// name both within its own sentence.
fn forbidden(status: &Status) -> Forbidden {
    let (object, reason) = status.message.split_once("forbidden: ").unwrap_or_default();
    // `deployments.apps "api" is `, `deployments.apps is `, or nothing.
    if object.split_whitespace().count() > 3 {
        return Forbidden::ByPolicy;
    }
    if reason.starts_with("User \"") && reason.contains("\" cannot ") {
        Forbidden::ToUs
    } else if reason.starts_with("not yet ready to handle request") || reason.starts_with("status unknown for quota") {
        Forbidden::ForNow
    } else {
        Forbidden::ByPolicy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn api(json: &str) -> KubeError {
        KubeError::Api(Box::new(serde_json::from_str(json).unwrap()))
    }

    /// Answers of a real API server (1.36), their kind of error, and whether they are refusals.
    const RECORDED: &[(&str, &str, bool)] = &[
        (
            "NotFound",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"api\" not found","reason":"NotFound","details":{"name":"api","group":"apps","kind":"deployments"},"code":404}"#,
            false,
        ),
        (
            "Denied",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"api\" is forbidden: User \"system:serviceaccount:rollhook:rollhook\" cannot patch resource \"deployments\" in API group \"apps\" in the namespace \"shop-test\"","reason":"Forbidden","details":{"name":"api","group":"apps","kind":"deployments"},"code":403}"#,
            false,
        ),
        (
            "Denied",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods is forbidden: User \"system:serviceaccount:rollhook:rollhook\" cannot list resource \"pods\" in API group \"\" in the namespace \"shop-test\": RBAC: clusterrole.rbac.authorization.k8s.io \"rollhook-apps\" not found","reason":"Forbidden","details":{"kind":"pods"},"code":403}"#,
            false,
        ),
        (
            "Denied",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#,
            false,
        ),
        (
            "Unavailable",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"api\" is forbidden: not yet ready to handle request","reason":"Forbidden","details":{"name":"api","group":"apps","kind":"deployments"},"code":403}"#,
            false,
        ),
        (
            "Unavailable",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"api\" is forbidden: status unknown for quota: small, resources: count/deployments.apps","reason":"Forbidden","details":{"name":"api","group":"apps","kind":"deployments"},"code":403}"#,
            false,
        ),
        (
            "Invalid",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"admission webhook \"people.example.com\" denied the request: it is forbidden: User \"system:serviceaccount:rollhook:rollhook\" cannot deploy on Fridays","reason":"Forbidden","code":403}"#,
            true,
        ),
        (
            "Invalid",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"pods \"api\" is forbidden: violates PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false","reason":"Forbidden","details":{"name":"api","kind":"pods"},"code":403}"#,
            true,
        ),
        (
            "Invalid",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"api\" is forbidden: exceeded quota: small, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1","reason":"Forbidden","details":{"name":"api","group":"apps","kind":"deployments"},"code":403}"#,
            true,
        ),
        (
            "Invalid",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"admission webhook \"policy.example.com\" denied the request: images must be signed","reason":"Forbidden","code":403}"#,
            true,
        ),
        (
            "Invalid",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"api\" is forbidden: ValidatingAdmissionPolicy 'signed' with binding 'all' denied request: failed expression","reason":"Invalid","code":422}"#,
            true,
        ),
        (
            "Invalid",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Deployment.apps \"api\" is invalid: spec.template.spec.containers[0].image: Required value","reason":"Invalid","details":{"name":"api","group":"apps","kind":"Deployment","causes":[{"reason":"FieldValueRequired","message":"Required value","field":"spec.template.spec.containers[0].image"}]},"code":422}"#,
            true,
        ),
        (
            "Conflict",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Operation cannot be fulfilled on deployments.apps \"api\": the object has been modified; please apply your changes to the latest version and try again","reason":"Conflict","details":{"name":"api","group":"apps","kind":"deployments"},"code":409}"#,
            false,
        ),
        (
            "Conflict",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"deployments.apps \"api\" already exists","reason":"AlreadyExists","details":{"name":"api","group":"apps","kind":"deployments"},"code":409}"#,
            false,
        ),
        (
            "Unavailable",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Too many requests, please try again later.","reason":"TooManyRequests","details":{"retryAfterSeconds":1},"code":429}"#,
            false,
        ),
        (
            "Unavailable",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Internal error occurred: failed calling webhook \"policy.example.com\": Post \"https://policy.svc:443\": connection refused","reason":"InternalError","code":500}"#,
            false,
        ),
        (
            "Unavailable",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"etcdserver: leader changed","code":500}"#,
            false,
        ),
        (
            "Unavailable",
            r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"Timeout: request did not complete within the allotted duration","reason":"Timeout","code":504}"#,
            false,
        ),
    ];

    fn kind(error: &Error) -> &'static str {
        match error {
            Error::NotFound(_) => "NotFound",
            Error::Conflict(_) => "Conflict",
            Error::Denied { .. } => "Denied",
            Error::Invalid { .. } => "Invalid",
            Error::Unavailable { .. } => "Unavailable",
            Error::Corrupt { .. } => "Corrupt",
        }
    }

    #[test]
    fn recorded_answers_are_classified() {
        for (expected, json, refused) in RECORDED {
            let error = api(json);
            assert_eq!(refusal(&error).is_some(), *refused, "{json}");
            assert_eq!(kind(&classify(error)), *expected, "{json}");
        }
    }

    #[test]
    fn already_exists_is_not_a_conflict() {
        let [exists, changed] = ["already exists", "the object has been modified"].map(|text| {
            RECORDED.iter().find(|(_, json, _)| json.contains(text)).map(|(_, json, _)| api(json)).unwrap()
        });
        assert!(is_already_exists(&exists) && !is_conflict(&exists));
        assert!(is_conflict(&changed) && !is_already_exists(&changed));
    }

    #[test]
    fn lost_connection_is_unavailable() {
        let lost = KubeError::Service(Box::new(std::io::Error::from(std::io::ErrorKind::ConnectionRefused)));
        assert!(refusal(&lost).is_none());
        assert!(classify(lost).is_unavailable());
    }

    #[test]
    fn answer_without_json_is_corrupt() {
        let broken = KubeError::SerdeError(serde_json::from_str::<Status>("<html>").unwrap_err());
        assert_eq!(kind(&classify(broken)), "Corrupt");
    }
}
