//! Installs the custom resources, or says who must.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use rollhook_core::{Error, Result};

use super::{
    crd::{AppObject, DeployObject, FORM, RecordObject, THIS_FORM, definitions},
    error::{NO_RESOURCES, classify},
};
use crate::rules::object::MANAGER;

/// The time between two looks whether the cluster serves the resources, and the number of looks.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: usize = 150;

/// Installs the custom resources where they are missing. Returns whether they were.
///
/// # Errors
/// `Invalid` if those of another version are installed, whose fields this one does not know. `Denied` if they are
/// missing and this process may not install them: with the command to run. `Unavailable` if the cluster is away, or
/// does not serve them in time.
pub async fn ensure_crds(client: &Client) -> Result<bool> {
    let missing = !is_served(client).await?;
    let advised = |error: Error| {
        let Error::Denied { what, cause } = error else { return error };
        Error::Denied { what: if missing { NO_RESOURCES.to_owned() } else { what }, cause }
    };
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let parameters = PatchParams::apply(MANAGER).force();
    for definition in definitions() {
        let name = definition.name_any();
        match api.get_opt(&name).await.map_err(|error| advised(classify(error)))? {
            Some(installed) => check_form(&installed)?,
            None => {
                let made = api.patch(&name, &parameters, &Patch::Apply(&definition)).await;
                made.map_err(|error| advised(classify(error)))?;
            }
        }
    }
    for _ in 0..LOOKS {
        if is_served(client).await? {
            return Ok(missing);
        }
        tokio::time::sleep(LOOK).await;
    }
    Err(Error::Unavailable {
        what: "the cluster does not serve rollhook's custom resources yet".to_owned(),
        cause: None,
    })
}

fn check_form(installed: &CustomResourceDefinition) -> Result<()> {
    let form = installed.annotations().get(FORM).map_or("unknown", String::as_str);
    if form == THIS_FORM.to_string() {
        return Ok(());
    }
    let name = installed.name_any();
    Err(Error::invalid(format!(
        "the cluster's custom resource {name} is of form {form}, and this version of rollhook knows form {THIS_FORM} alone: \
         start the version that installed it; or, if what it holds is not needed, remove it with all apps and their \
         history (kubectl delete crd {name}), and start again"
    )))
}

/// Whether all can be listed, records in the namespace of the connection. A missing permission to list is reported
/// later, by name.
async fn is_served(client: &Client) -> Result<bool> {
    let one = ListParams::default().limit(1);
    let apps = Api::<AppObject>::all(client.clone()).list_metadata(&one).await.map(drop);
    let deploys = Api::<DeployObject>::all(client.clone()).list_metadata(&one).await.map(drop);
    let records = Api::<RecordObject>::default_namespaced(client.clone()).list_metadata(&one).await.map(drop);
    for outcome in [apps, deploys, records] {
        match outcome.map_err(classify) {
            Ok(()) | Err(Error::Denied { .. }) => {}
            Err(Error::Invalid { .. } | Error::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
