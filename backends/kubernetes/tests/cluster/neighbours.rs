//! Helm, Argo CD and Flux beside rollhook on one workload, as the field managers that they are to the API server: what
//! becomes of a deploy without their settings, and with those of the chapter "With Helm and GitOps".

use kube::api::{DynamicObject, Patch, PatchParams};
use rollhook_core::ports::{RolloutDriver, TargetReader, Validated};
use rollhook_kubernetes::WorkloadKind::Deployment;
use rollhook_testing::{beds::workload, until_async};
use serde_json::{Value, json};

use crate::bed::{self, Bed};

/// The workload as its manager has it, with this image; without one as the manager leaves it alone.
fn manifest(image: Option<&str>, replicas: u32) -> Value {
    let mut object = workload("Deployment", "api", image.unwrap_or_default(), json!({"replicas": replicas}));
    if image.is_none() {
        let container = object["spec"]["template"]["spec"]["containers"][0].as_object_mut().unwrap();
        container.remove("image");
    }
    object
}

/// Server-side apply, as the manager does it.
async fn applies(bed: &Bed, manager: &str, force: bool, object: &Value) -> kube::Result<DynamicObject> {
    let parameters = PatchParams { force, ..PatchParams::apply(manager) };
    bed.objects(Deployment).patch("api", &parameters, &Patch::Apply(object)).await
}

async fn image(bed: &Bed) -> String {
    let object = bed.read(Deployment).await;
    object["spec"]["template"]["spec"]["containers"][0]["image"].as_str().unwrap().to_owned()
}

async fn notes(bed: &Bed) -> Vec<String> {
    match bed.driver.validate(&bed.request(Deployment)).await.unwrap() {
        Validated::Adopt { notes, .. } => notes,
        other @ (Validated::Create { .. } | Validated::Invalid(_)) => panic!("not adopted: {other:?}"),
    }
}

#[test]
fn helm_conflicts_over_the_image_unless_it_applies_the_one_that_runs() {
    bed::test("helm_conflicts_over_the_image_unless_it_applies_the_one_that_runs", async |bed| {
        applies(bed, "helm", false, &manifest(Some("api:v1"), 1)).await.unwrap();
        let [note] = &notes(bed).await[..] else { panic!("no note") };
        assert!(note.contains("\"helm\"") && note.contains("conflicts over it"), "{note}");

        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;
        let refused = applies(bed, "helm", false, &manifest(Some("api:v1"), 2)).await.unwrap_err();
        assert!(refused.to_string().contains("conflict with \"rollhook\""), "{refused}");

        applies(bed, "helm", false, &manifest(Some("api:v2"), 2)).await.expect("the same value is no conflict");
        assert_eq!(bed.driver.at_rest(&order).await.unwrap().drift, None);
        bed.roll_out(&bed.order(Deployment, 2, "api:v3")).await;
        assert_eq!(image(bed).await, "api:v3");
        assert_eq!(bed.read(Deployment).await["spec"]["replicas"], 2, "the rest is Helm's");
    });
}

#[test]
fn helm_before_server_side_apply_is_told_to_come_without_a_word() {
    bed::test("helm_before_server_side_apply_is_told_to_come_without_a_word", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        assert_eq!(notes(bed).await, Vec::<String>::new(), "whoever made it need not come again");
        let again = json!({"spec": {"template": {"spec": {"containers": [{"name": "app", "image": "api:v2"}]}}}});
        bed.patch_as("helm", Deployment, again).await;
        let [note] = &notes(bed).await[..] else { panic!("no note") };
        assert!(note.contains("without a word"), "{note}");
    });
}

#[test]
fn argo_cd_leaves_the_image_that_it_is_told_to_ignore() {
    bed::test("argo_cd_leaves_the_image_that_it_is_told_to_ignore", async |bed| {
        let argo = "argocd-controller";
        applies(bed, argo, true, &manifest(Some("api:v1"), 1)).await.unwrap();
        let [note] = &notes(bed).await[..] else { panic!("no note") };
        assert!(note.contains("next sync"), "{note}");
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;

        // With RespectIgnoreDifferences it applies the live values of the fields that the named managers own.
        applies(bed, argo, true, &manifest(Some("api:v2"), 2)).await.unwrap();
        assert_eq!(bed.driver.at_rest(&order).await.unwrap().drift, None);
        bed.until_complete(&order).await;
        bed.roll_out(&bed.order(Deployment, 2, "api:v3")).await;

        // Without it, its next sync brings its own image back.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        applies(bed, argo, true, &manifest(Some("api:v1"), 2)).await.unwrap();
        let order = bed.order(Deployment, 2, "api:v3");
        let drift = until_async("it took the image", async || bed.driver.at_rest(&order).await.unwrap().drift).await;
        assert!(drift.message.contains(argo) && drift.message.contains("ignoreDifferences"), "{}", drift.message);
    });
}

#[test]
fn flux_leaves_the_image_that_it_does_not_apply() {
    bed::test("flux_leaves_the_image_that_it_does_not_apply", async |bed| {
        let flux = "kustomize-controller";
        applies(bed, flux, true, &manifest(Some("api:v1"), 1)).await.unwrap();
        let [note] = &notes(bed).await[..] else { panic!("no note") };
        assert!(note.contains(flux) && note.contains("next sync"), "{note}");
        let order = bed.order(Deployment, 1, "api:v2");
        bed.roll_out(&order).await;

        // With an ignore rule, or with Merge and no image in git.
        applies(bed, flux, true, &manifest(None, 2)).await.unwrap();
        assert_eq!((image(bed).await.as_str(), bed.driver.at_rest(&order).await.unwrap().drift), ("api:v2", None));
        bed.until(&order, "complete with 2", |seen| seen.message.starts_with("2 of 2")).await;
        bed.roll_out(&bed.order(Deployment, 2, "api:v3")).await;
        applies(bed, flux, true, &manifest(None, 1)).await.unwrap();
        assert_eq!(image(bed).await, "api:v3");
    });
}

#[test]
fn init_container_that_is_named_gets_the_image_too() {
    bed::test("init_container_that_is_named_gets_the_image_too", async |bed| {
        let init = json!([{"name": "migrate", "image": "api:v1"}, {"name": "wait", "image": "busybox:1"}]);
        bed.make(Deployment, "api:v1", json!({"template": {"spec": {"initContainers": init}}})).await;
        let mut request = bed.request(Deployment);
        request.settings.insert("containers".to_owned(), json!(["app", "migrate"]));
        let Validated::Adopt { settings, .. } = bed.driver.validate(&request).await.unwrap() else { panic!("invalid") };
        let mut order = bed.order(Deployment, 1, "api:v2");
        order.target.settings = settings;
        bed.apply(&order).await;
        let spec = bed.read(Deployment).await["spec"]["template"]["spec"].clone();
        let images = |list: &str| -> Vec<Value> {
            spec[list].as_array().unwrap().iter().map(|container| container["image"].clone()).collect()
        };
        assert_eq!(
            (images("containers"), images("initContainers")),
            (vec![json!("api:v2")], vec![json!("api:v2"), json!("busybox:1")])
        );
        assert_eq!(bed.driver.at_rest(&order).await.unwrap().drift, None);
    });
}
