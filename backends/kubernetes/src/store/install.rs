//! Installs the custom resources, or says who must.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use rollhook_core::{Error, Result};
use tokio::time::Instant;

use super::{
    crd::{AppObject, DeployObject, FORM, RecordObject, THIS_FORM, definitions},
    error::{NO_RESOURCES, classify},
};
use crate::rules::object::MANAGER;

/// The time between two looks whether the cluster serves the resources, and the number of looks.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: usize = 150;
/// The pause before an API server that does not answer is asked again.
pub(crate) const RETRY: Duration = Duration::from_secs(1);

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
    for definition in definitions() {
        let name = definition.name_any();
        match api.get_opt(&name).await.map_err(|error| advised(classify(error)))? {
            Some(installed) => {
                check_form(&installed)?;
                if rules(&installed) != rules(&definition) {
                    renew(&api, &definition).await?;
                }
            }
            None => {
                apply(&api, &definition).await.map_err(advised)?;
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

/// Repeats a call while it fails as the API server does not answer, for as long as `patience`, with this pause between.
pub(crate) async fn until_answered<T, F: Future<Output = Result<T>>>(
    patience: Duration,
    pause: Duration,
    call: impl Fn() -> F,
) -> Result<T> {
    let (begun, mut is_said) = (Instant::now(), false);
    loop {
        let error = match call().await {
            Err(error) if error.is_unavailable() && begun.elapsed() < patience => error.chain(),
            answered => return answered,
        };
        if !std::mem::replace(&mut is_said, true) {
            tracing::warn!(error, "waiting for the cluster's API server, for {} s at most", patience.as_secs());
        }
        tokio::time::sleep(pause).await;
    }
}

/// Installs a definition in place of one of the same form that lacks a rule of this version, if this process may.
async fn renew(api: &Api<CustomResourceDefinition>, definition: &CustomResourceDefinition) -> Result<()> {
    match apply(api, definition).await {
        Err(Error::Denied { .. }) => {
            tracing::warn!(
                resource = definition.name_any(),
                "the cluster's custom resource lacks a rule of this version, and this server may not install it: apply what \
                 rollhook-server manifests prints, or the chart's definitions"
            );
            Ok(())
        }
        applied => applied,
    }
}

async fn apply(api: &Api<CustomResourceDefinition>, definition: &CustomResourceDefinition) -> Result<()> {
    let parameters = PatchParams::apply(MANAGER).force();
    api.patch(&definition.name_any(), &parameters, &Patch::Apply(definition)).await.map(drop).map_err(classify)
}

/// The rules by which the API server judges changes of an object's spec.
fn rules(definition: &CustomResourceDefinition) -> Vec<&str> {
    let schemas =
        definition.spec.versions.iter().filter_map(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    let specs = schemas.filter_map(|schema| schema.properties.as_ref()?.get("spec"));
    let rules = specs.flat_map(|spec| spec.x_kubernetes_validations.as_deref().unwrap_or_default());
    rules.map(|rule| rule.rule.as_str()).collect()
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn silent_api_server_is_waited_for_and_a_refusal_is_not() {
        let calls = AtomicU64::new(0);
        let answers_at = |call| {
            let number = calls.fetch_add(1, Ordering::SeqCst);
            async move { if number < call { Err(Error::unavailable("away", "timed out")) } else { Ok(number) } }
        };
        let (hour, none) = (Duration::from_secs(3600), Duration::ZERO);
        assert_eq!(until_answered(hour, none, || answers_at(3)).await.unwrap(), 3);
        assert_eq!(calls.swap(0, Ordering::SeqCst), 4);
        assert!(until_answered(none, none, || answers_at(3)).await.unwrap_err().is_unavailable(), "nobody waits");
        let refused = until_answered(hour, none, || async { Err::<(), _>(Error::invalid("no configuration")) }).await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "waiting does not mend it");
    }

    #[test]
    fn definition_without_the_rule_of_this_version_is_another() {
        let [app, deploy, record] = definitions();
        assert_eq!(rules(&app).len(), 1, "the uid is fixed");
        assert!(rules(&deploy).is_empty() && rules(&record).is_empty());
        let mut before = serde_json::to_value(&app).unwrap();
        let spec = &mut before["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec.as_object_mut().unwrap().remove("x-kubernetes-validations").unwrap();
        let before: CustomResourceDefinition = serde_json::from_value(before).unwrap();
        assert!(check_form(&before).is_ok() && rules(&before) != rules(&app));
    }
}
