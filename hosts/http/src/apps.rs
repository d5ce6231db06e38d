//! Registering and changing apps.

use http::{HeaderValue, header::LOCATION};
use rollhook_api::{
    AppPatch, Kind, Local, Policy,
    operations::{ChangeApp, RegisterApp},
};
use serde_json::Value;

use crate::{answer, body, call::Call, error_reply::ErrorReply, reply::Reply};

/// Answers `POST /apps`.
pub(crate) async fn register(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let registered = caller.with_key(call.key()?).call(RegisterApp, &(), call.input()?).await?;
    let mut reply = answer::of::<RegisterApp>(&registered);
    reply.headers_mut().extend(HeaderValue::from_str(&registered.app.path()).map(|path| (LOCATION, path)));
    Ok(reply)
}

/// Answers `PATCH /apps/{namespace}/{app}`.
pub(crate) async fn change(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    let (id, patch) = (call.app()?, patch(call.json()?)?);
    Ok(answer::of::<ChangeApp>(&caller.call(ChangeApp, &id, patch).await?))
}

/// Reads a merge patch, in which a null removes a member: a policy's member returns to its default.
fn patch(mut patch: Value) -> Result<AppPatch, ErrorReply> {
    if !["policy", "source", "workload", "take_over"].iter().any(|member| patch.get(member).is_some()) {
        let rule = "The body must have a policy, a source or a workload to change.";
        return Err(ErrorReply::new(Kind::Malformed, rule));
    }
    let defaults = serde_json::to_value(Policy::of(&rollhook_core::app::Policy::default())).unwrap_or_default();
    if let Some(policy) = patch.get_mut("policy").and_then(Value::as_object_mut) {
        for (name, value) in policy.iter_mut().filter(|(_, value)| value.is_null()) {
            *value = defaults.get(name).cloned().unwrap_or_default();
        }
    }
    let credentials = patch.get_mut("source").and_then(|source| source.get_mut("credentials"));
    if let Some(removed) = credentials.filter(|value| value.is_null()) {
        *removed = Value::String(String::new());
    }
    body::object(patch.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use rollhook_core::request::{Field, Refusal};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_null_is_the_default() {
        let read = patch(json!({"policy": {"settle": null, "hold": "all"}})).unwrap().policy;
        assert_eq!(read.settle.as_deref(), Some("10s"));
        assert_eq!(read.hold.as_deref(), Some("all"));
        assert_eq!(read.on_failure, None);
        let read = patch(json!({"policy": {"poll": null}})).unwrap().policy;
        assert_eq!(read.poll.as_deref(), Some("off"));
        let read = patch(json!({"source": {"credentials": null}})).unwrap().source.parse().unwrap();
        assert_eq!(read.credentials, Some(None), "taken away");
        assert_eq!(patch(json!({})).unwrap_err().kind(), Kind::Malformed);
        assert_eq!(patch(json!({"policy": 7})).unwrap_err().kind(), Kind::Malformed);
        let wrong = patch(json!({"policy": {"settle": "soon"}})).unwrap().policy.parse().unwrap_err();
        assert!(matches!(wrong, Refusal::InvalidField(Field::PolicySettle, _)));
    }
}
