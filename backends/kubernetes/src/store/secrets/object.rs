//! The Secret that holds an app's token: its form and its maker.

use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use rollhook_core::{
    Error, Result,
    app::{AppId, AppUid},
    ports::WebhookSecret,
    time::Timestamp,
};
use rollhook_sealing::KeyRing;

use super::Registered;
use crate::{
    rules::object::{MANAGED_BY, MANAGER},
    store::{
        clock::calendar,
        crd::{UID_LABEL, owned_by, webhook_secret},
    },
};

const CREATED_AT: &str = "rollhook.dev/created-at";
const SEALED: &str = "sealed-token";

/// The maker of a Secret with a name of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// This service, for this registration.
    Rollhook(AppUid),
    /// Another program or a person.
    Other,
}

/// The name of an app's Secret.
pub(crate) fn name(app: &AppId) -> String {
    webhook_secret(app.name.as_str())
}

/// The maker of the Secret.
pub(crate) fn maker(secret: &Secret) -> Maker {
    maker_of(&secret.metadata)
}

/// The maker of the Secret with this metadata.
pub(crate) fn maker_of(metadata: &ObjectMeta) -> Maker {
    let uid = label(metadata, UID_LABEL).and_then(|uid| uid.parse().ok());
    // This service touches no other.
    let is_ours = label(metadata, MANAGED_BY) == Some(MANAGER);
    uid.filter(|_| is_ours).map_or(Maker::Other, Maker::Rollhook)
}

/// An empty Secret of this name that goes with the `RollhookApp`.
pub(crate) fn owned(app: &Registered, name: String) -> Secret {
    let mut object = Secret {
        metadata: ObjectMeta {
            name: Some(name),
            namespace: Some(app.id.namespace.to_string()),
            owner_references: Some(owned_by(app.id.name.as_str(), &app.object)),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        ..Secret::default()
    };
    label_as(&mut object, MANAGED_BY, MANAGER);
    label_as(&mut object, UID_LABEL, &app.uid.to_string());
    object
}

/// The token, sealed for its registration, as an object that goes with the `RollhookApp`.
pub(crate) fn sealed(ring: &KeyRing, app: &Registered, secret: &WebhookSecret) -> Result<Secret> {
    let mut object = owned(app, name(&app.id));
    fill(ring, &mut object, secret)?;
    Ok(object)
}

/// Puts another token in place of the one that is in there; what others wrote beside it stays.
pub(crate) fn fill(ring: &KeyRing, object: &mut Secret, secret: &WebhookSecret) -> Result<()> {
    let sealed = ring.seal(secret.to_text().as_bytes(), &purpose(object, secret.app))?;
    let annotations = object.metadata.annotations.get_or_insert_default();
    annotations.insert(CREATED_AT.to_owned(), calendar(secret.created_at).to_string());
    object.data.get_or_insert_default().insert(SEALED.to_owned(), ByteString(sealed));
    Ok(())
}

/// The token in a Secret. Returns `None` if another program made it.
pub(crate) fn open(ring: &KeyRing, object: &Secret) -> Result<Option<WebhookSecret>> {
    let Maker::Rollhook(app) = maker(object) else { return Ok(None) };
    let text = ring.open(bytes(object)?, &purpose(object, app))?;
    let created_at = object.metadata.annotations.as_ref().and_then(|all| all.get(CREATED_AT));
    let created_at = created_at.and_then(|text| text.parse::<jiff::Timestamp>().ok());
    let created_at =
        created_at.ok_or_else(|| corrupt(object, "its annotation rollhook.dev/created-at is not a time"))?;
    let created_at = Timestamp::from_millis(created_at.as_millisecond());
    let secret = std::str::from_utf8(&text).ok().and_then(|text| WebhookSecret::from_text(app, text, created_at));
    secret.ok_or_else(|| corrupt(object, "the sealed text is not a token")).map(Some)
}

/// The sealed bytes.
pub(crate) fn bytes(object: &Secret) -> Result<&[u8]> {
    let data = object.data.as_ref().and_then(|data| data.get(SEALED));
    data.map(|sealed| sealed.0.as_slice()).ok_or_else(|| corrupt(object, "it has no sealed token"))
}

/// The error of a Secret that another program made under a name of ours.
pub(crate) fn in_the_way(namespace: &str, name: &str) -> Error {
    Error::invalid(format!(
        "the Secret {name} in the namespace {namespace} was not made by rollhook, and is left as it is: check whether it \
         is needed, remove it (kubectl delete secret {name} --namespace {namespace}), then try again"
    ))
}

/// The purpose that a token is sealed for. Moved to another app's object, or copied to another namespace, it does not
/// open.
fn purpose(object: &Secret, app: AppUid) -> Vec<u8> {
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    format!("webhook-token:{namespace}/{app}").into_bytes()
}

fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(name).map(String::as_str)
}

fn label_as(object: &mut Secret, name: &str, value: &str) {
    object.metadata.labels.get_or_insert_default().insert(name.to_owned(), value.to_owned());
}

/// The error of a Secret of ours that is damaged.
pub(crate) fn corrupt(object: &Secret, why: &str) -> Error {
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let namespace = object.metadata.namespace.as_deref().unwrap_or_default();
    Error::Corrupt {
        what: format!("the Secret {name} in the namespace {namespace} cannot be used: {why}"),
        cause: None,
    }
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::samples::token;
    use rollhook_sealing::KEY_BYTES;
    use zeroize::Zeroizing;

    use super::*;

    fn ring() -> KeyRing {
        KeyRing::from_keys([("k0001".parse().unwrap(), Zeroizing::new([7; KEY_BYTES]))]).unwrap()
    }

    fn registered(uid: u128) -> Registered {
        Registered {
            id: "shop-test/api".parse().unwrap(),
            uid: AppUid::from_bits(uid),
            object: format!("object-{uid}"),
            webhook: None,
            configuration_bytes: 0,
            created_at: Timestamp::from_millis(0),
        }
    }

    fn secret(app: &Registered) -> WebhookSecret {
        WebhookSecret::new(app.uid, token(1), Timestamp::from_millis(1_795_250_000_123))
    }

    #[test]
    fn token_is_read_back_with_its_time() {
        let app = registered(1);
        let object = sealed(&ring(), &app, &secret(&app)).unwrap();
        assert_eq!(maker(&object), Maker::Rollhook(app.uid));
        assert_eq!(object.metadata.name.as_deref(), Some("api-webhook"));
        let owner = &object.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!((owner.kind.as_str(), owner.uid.as_str(), owner.controller), ("RollhookApp", "object-1", None));
        let read = open(&ring(), &object).unwrap().unwrap();
        assert_eq!((read.app, read.created_at), (app.uid, secret(&app).created_at));
        assert_eq!(read.token.expose(), token(1).expose());
        assert!(!serde_json::to_string(&object).unwrap().contains(&token(1).expose()[3..]));
    }

    #[test]
    fn token_moved_to_another_app_does_not_open() {
        let (app, other) = (registered(1), registered(2));
        let mut moved = sealed(&ring(), &other, &WebhookSecret { app: other.uid, ..secret(&other) }).unwrap();
        moved.data = sealed(&ring(), &app, &secret(&app)).unwrap().data;
        assert!(matches!(open(&ring(), &moved), Err(Error::Corrupt { .. })));
        let mut relabelled = sealed(&ring(), &app, &secret(&app)).unwrap();
        label_as(&mut relabelled, UID_LABEL, &other.uid.to_string());
        assert!(matches!(open(&ring(), &relabelled), Err(Error::Corrupt { .. })));
        let mut copied = sealed(&ring(), &app, &secret(&app)).unwrap();
        copied.metadata.namespace = Some("shop-copy".to_owned());
        assert!(matches!(open(&ring(), &copied), Err(Error::Corrupt { .. })));
    }

    #[test]
    fn damaged_secret_is_named() {
        let app = registered(1);
        let mut object = sealed(&ring(), &app, &secret(&app)).unwrap();
        object.data = None;
        let told = open(&ring(), &object).unwrap_err().to_string();
        assert!(told.contains("Secret api-webhook in the namespace shop-test"), "{told}");
    }

    #[test]
    fn secret_of_another_maker_holds_no_token() {
        let app = registered(1);
        for missing in [MANAGED_BY, UID_LABEL] {
            let mut object = sealed(&ring(), &app, &secret(&app)).unwrap();
            object.metadata.labels.as_mut().unwrap().remove(missing);
            assert_eq!(maker(&object), Maker::Other);
            assert!(open(&ring(), &object).unwrap().is_none());
        }
    }
}
