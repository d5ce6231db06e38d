//! A registry that is away makes no verdict that is not true, and keeps no rollback waiting. The node pulls the same images
//! from the bed's registry.

use rollhook_testing::{App, beds::Bed, server, test_name, until};
use serde_json::json;

use crate::{
    away::{AwayRegistry, Image, accepted, assert_rolled_back, silent},
    containers::{answers, push, push_with},
    twins::Registry,
};

/// Pushes an image that no other test has, and no other run.
fn pushed(bed: &Bed, tag: &str, version: &'static str) -> Image {
    let apart = format!("AWAY={tag}-{}", bed.kubectl.namespace);
    let (name, digest) = push_with(bed, &format!("away:{tag}"), &format!("app-{version}"), &["--env", &apart]);
    Image { name, digest, version }
}

/// Deploys an image by its name at a registry that is away, from which the node can pull it.
fn deploy_by_tag(bed: &Bed, app: &App, registry: &AwayRegistry, image: &Image) {
    let name = registry.image(&image.name);
    let revision = accepted(&bed.post(app, &name));
    registry.assert_left_to_its_tag(&bed.ended(app, revision), &image.digest);
    assert_eq!(bed.kubectl.image("deployment/api"), name);
    assert_eq!(answers(bed, "api"), [format!("version={}", image.version)], "{}", registry.way);
}

#[test]
fn deploys_go_by_their_tags_or_touch_nothing_and_a_rollback_succeeds() {
    let insecure = ["--insecure-registry", "127.0.0.1"].map(str::to_owned).to_vec();
    let Some(bed) = Bed::node(server!(), &test_name!(), |_| insecure) else { return };
    let (v1, _) = push(&bed, "app:v1", "app-v1");
    for name in ["api", "strict"] {
        bed.kubectl.make("Deployment", name, &v1, json!({}));
    }
    let app = bed.adopt("Deployment", "api", json!({ "settle": "1s" }));
    let strict = bed.adopt("Deployment", "strict", json!({ "settle": "1s", "resolve": "require" }));
    let generation = bed.kubectl.generation("deployment/strict");
    let upstream = bed.kubectl.setting("REGISTRY");
    let registries = AwayRegistry::all(upstream.parse().unwrap());
    let others = AwayRegistry::all(upstream.parse().unwrap());
    let images = registries.iter().zip(["v2", "v3"].into_iter().cycle());
    let images: Vec<Image> = images.map(|(registry, version)| pushed(&bed, registry.way, version)).collect();
    let named = |registry: &AwayRegistry| Registry::named(&bed, &registry.address.to_string(), &upstream);
    let _named: Vec<Registry> = registries.iter().map(named).collect();

    let posted =
        others.iter().zip(&images).map(|(other, image)| accepted(&bed.post(&strict, &other.image(&image.name))));
    let posted: Vec<u64> = posted.collect();
    for (registry, image) in registries.iter().zip(&images) {
        deploy_by_tag(&bed, &app, registry, image);
    }
    for (other, revision) in others.iter().zip(posted) {
        other.assert_required(&bed.ended(&strict, revision));
    }
    assert_eq!(bed.kubectl.generation("deployment/strict"), generation);
    assert_eq!(answers(&bed, "strict"), ["version=v1"]);

    let (silent, image) = silent(&registries, &images);
    let asked = silent.asked();
    let looked_up = accepted(&bed.post(&app, &silent.image(&image.name)));
    until("the registry is asked", || silent.asked() > asked);
    let rollback = bed.roll_back(&app);
    assert_rolled_back(&bed.entry(&app, looked_up), &rollback);
    let [.., previous, _] = &images[..] else { panic!("there are several") };
    assert_eq!(answers(&bed, "api"), [format!("version={}", previous.version)]);
}
