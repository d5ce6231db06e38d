//! Makes our custom resources known to the cluster, or says who must.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use rollhook_core::{Error, Result};

use super::{
    crd::{AppObject, DeployObject, FORM, THIS_FORM, definitions},
    error::{NO_RESOURCES, classify},
};
use crate::rules::object::MANAGER;

/// How often, and how many times, is looked whether the cluster serves what it was told of.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: usize = 150;

/// Has the cluster know our custom resources in this version's form; whether they were missing before.
///
/// # Errors
/// `Invalid` where a newer version's are installed, whose fields this one does not know. `Denied` where they are missing
/// or an older version's, whose fields are not all that this one writes, and this process may not change that: with what
/// to run. `Unavailable` where the cluster is away, or does not serve them in time.
pub async fn ensure_crds(client: &Client) -> Result<bool> {
    let missing = !is_served(client).await?;
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    let parameters = PatchParams::apply(MANAGER).force();
    for definition in definitions() {
        let name = definition.name_any();
        let installed = match api.get_opt(&name).await.map_err(classify) {
            Ok(found) => found.map(|found| form(&found)),
            Err(Error::Denied { cause, .. }) if missing => {
                return Err(Error::Denied { what: NO_RESOURCES.to_owned(), cause });
            }
            Err(error) => return Err(error),
        };
        match installed {
            Some(Some(THIS_FORM)) => {}
            Some(Some(newer)) if newer > THIS_FORM => return Err(Error::invalid(is_newer(&name, newer))),
            older => {
                let made = api.patch(&name, &parameters, &Patch::Apply(&definition)).await;
                made.map_err(|error| {
                    let error = classify(error);
                    let Error::Denied { cause, .. } = error else { return error };
                    let what = if older.is_none() { NO_RESOURCES.to_owned() } else { is_older(&name) };
                    Error::Denied { what, cause }
                })?;
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

fn is_newer(name: &str, form: u32) -> String {
    format!(
        "the cluster's custom resource {name} is of form {form}, which a newer version of rollhook has installed; this one \
         knows up to form {THIS_FORM}, and would lose what the newer one writes: start that version"
    )
}

fn is_older(name: &str) -> String {
    format!(
        "the cluster's custom resource {name} was installed by an older version of rollhook, and lacks fields that this \
         one writes; let somebody who may change it run: rollhook-server manifests --app-namespace NAMESPACE | kubectl \
         apply -f - (for each namespace that apps are in)"
    )
}

fn form(definition: &CustomResourceDefinition) -> Option<u32> {
    definition.annotations().get(FORM)?.parse().ok()
}

/// Whether both can be listed; who may not list them learns that later, by name.
async fn is_served(client: &Client) -> Result<bool> {
    let one = ListParams::default().limit(1);
    let apps = Api::<AppObject>::all(client.clone()).list(&one).await.map(drop);
    let deploys = Api::<DeployObject>::all(client.clone()).list(&one).await.map(drop);
    for outcome in [apps, deploys] {
        match outcome.map_err(classify) {
            Ok(()) | Err(Error::Denied { .. }) => {}
            Err(Error::Invalid { .. } | Error::NotFound(_)) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
