//! The Secrets of configurations: their names and their form.

use k8s_openapi::{ByteString, api::core::v1::Secret};
use rollhook_core::{Result, app::AppId, configuration::ConfigurationId};

use crate::store::secrets::{
    Registered,
    object::{corrupt, owned},
};

const SEALED: &str = "sealed-configuration";

/// The name of the Secret that holds a configuration.
pub(crate) fn name(app: &AppId, id: ConfigurationId) -> String {
    format!("{}-variables-{id}", app.name)
}

/// The name of the Secret that holds the index of an app's configurations.
pub(crate) fn index_name(app: &AppId) -> String {
    format!("{}-variables", app.name)
}

/// A sealed configuration as an object that goes with the `RollhookApp`.
pub(crate) fn of(app: &Registered, id: ConfigurationId, sealed: Vec<u8>) -> Secret {
    let mut object = owned(app, name(&app.id, id));
    fill(&mut object, sealed);
    object
}

/// Puts another sealed form in place of the one that is in there.
pub(crate) fn fill(object: &mut Secret, sealed: Vec<u8>) {
    object.data.get_or_insert_default().insert(SEALED.to_owned(), ByteString(sealed));
}

/// The sealed form.
pub(crate) fn sealed(object: Secret) -> Result<Vec<u8>> {
    let mut object = object;
    let sealed = object.data.as_mut().and_then(|data| data.remove(SEALED));
    sealed.map(|sealed| sealed.0).ok_or_else(|| corrupt(&object, "it has no sealed configuration"))
}
