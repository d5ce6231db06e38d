//! A registry that is away makes no verdict that is not true, and keeps no rollback waiting. The engine pulls by the same
//! names, and finds what rollhook does not.

use std::net::SocketAddr;

use rollhook_testing::{
    App,
    fixtures::{FailingRegistry, RegistryFault},
    server, test_name, until,
};
use serde_json::json;

use crate::{
    away::{AwayRegistry, Image, accepted, assert_rolled_back, silent},
    bench::{Bench, push},
    resolving::{digest_of, image_of},
};

fn pushed(bench: &Bench, name: &str, version: &'static str) -> Image {
    let name = push(&bench.docker, &format!("app:{version}"), name);
    let digest = digest_of(bench, &name);
    Image { name, digest, version }
}

fn upstream(bench: &Bench) -> SocketAddr {
    bench.docker.registry().parse().unwrap()
}

/// Deploys an image by its name at a registry that is away, from which the engine can pull it.
fn deploy_by_tag(bench: &Bench, app: &App, registry: &AwayRegistry, image: &Image) {
    let name = registry.image(&image.name);
    let revision = accepted(&bench.post(app, &name));
    until("the look-up has ended", || {
        let entry = bench.entry(app, revision);
        if entry["not_resolved"].is_string() { Ok(()) } else { Err(entry) }
    });
    // The engine cannot pull from a registry that is stopped either. It tries again, and that registry is back.
    let starts_again = || FailingRegistry::at(registry.address, upstream(bench), RegistryFault::Sound);
    let _back = (registry.way == "stopped").then(starts_again);
    registry.assert_left_to_its_tag(&bench.ended(app, revision), &image.digest);
    let found = (image_of(bench, &app.name), bench.version(&app.name));
    assert_eq!(found, (name, image.version.to_owned()), "{}", registry.way);
}

#[test]
fn deploys_go_by_their_tags_or_touch_nothing_and_a_rollback_succeeds() {
    let Some(bench) = Bench::lent(server!(), &test_name!()) else { return };
    let (name, untouched) = (bench.name("web"), bench.name("strict"));
    for name in [&name, &untouched] {
        bench.start(name, &[], "app:v1");
    }
    let app = bench.register(&name, &json!({ "policy": { "settle": "1s", "patience": "60s" } }));
    let strict = bench.register(&untouched, &json!({ "policy": { "settle": "1s", "resolve": "require" } }));
    let before = bench.inspect(&untouched).unwrap();
    let registries = AwayRegistry::all(upstream(&bench));
    let others = AwayRegistry::all(upstream(&bench));
    let images = registries.iter().zip(["v2", "v1"].into_iter().cycle());
    let images = images.map(|(registry, version)| pushed(&bench, &format!("{name}:{}", registry.way), version));
    let images: Vec<Image> = images.collect();

    let posted =
        others.iter().zip(&images).map(|(other, image)| accepted(&bench.post(&strict, &other.image(&image.name))));
    let posted: Vec<u64> = posted.collect();
    for (registry, image) in registries.iter().zip(&images) {
        deploy_by_tag(&bench, &app, registry, image);
    }
    for (other, revision) in others.iter().zip(posted) {
        other.assert_required(&bench.ended(&strict, revision));
    }
    let after = bench.inspect(&untouched).unwrap();
    assert_eq!((&after["Id"], &after["State"]["StartedAt"]), (&before["Id"], &before["State"]["StartedAt"]));
    assert_eq!(bench.containers(&untouched), [&*untouched]);

    let (silent, image) = silent(&registries, &images);
    let asked = silent.asked();
    let looked_up = accepted(&bench.post(&app, &silent.image(&image.name)));
    until("the registry is asked", || silent.asked() > asked);
    let rollback = bench.roll_back(&app);
    assert_rolled_back(&bench.entry(&app, looked_up), &rollback);
    let [.., previous, _] = &images[..] else { panic!("there are several") };
    assert_eq!(bench.version(&name), previous.version);
}
