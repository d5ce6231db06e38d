//! A look at what a registry has of an image.

use std::{sync::Arc, time::Duration};

use rollhook_core::{
    app::Policy,
    image::{ImageLabels, Platform, Tag},
    ports::{Clock, Resolved},
    request::{Refusal, RefusalKind},
    service::{Authorized, Deployer},
};
use rollhook_memory::{Answering, SimulatedRegistry};

use crate::world::{self, World, digest, image, request};

const REPOSITORY: &str = "registry.example.com/api";

/// A world with a registry, and the process that reads it.
struct Images {
    world: World,
    registry: Arc<SimulatedRegistry>,
    deployer: Deployer,
}

impl Images {
    fn new() -> Self {
        let world = World::new(Duration::ZERO);
        let (registry, deployer) = world.replica_with_registry("two");
        Self { world, registry, deployer }
    }

    fn push(&self, tag: &str, bits: u8) {
        let index = "application/vnd.oci.image.index.v1+json";
        let pushed = Resolved::new(digest(bits), index).with(|resolved| {
            resolved.platforms = Platform::new("linux", "amd64", None).into_iter().collect();
            resolved.labels = ImageLabels::default().with(|labels| labels.revision = Some("abc123f".to_owned()));
        });
        self.registry.push(&image(REPOSITORY), &tag.parse().unwrap(), pushed);
    }

    async fn refused(&self, access: &Authorized, reference: &str) -> Refusal {
        self.deployer.look_up_image(access, &image(reference)).await.unwrap_err()
    }

    async fn nearest(&self, access: &Authorized, reference: &str) -> Vec<String> {
        let refused = self.refused(access, reference).await;
        let Refusal::ImageNotFound { nearest, repository_missing: false, .. } = refused else { panic!("{refused}") };
        nearest.iter().map(Tag::to_string).collect()
    }
}

#[test]
fn image_is_shown_as_its_registry_has_it_and_nothing_is_recorded() {
    let images = Images::new();
    images.world.idle(async {
        let access = images.world.register("api", Policy::default()).await;
        images.push("v2", 2);
        images.push("latest", 3);
        let before = images.world.deployer.state(&access).await.unwrap();
        let found = images.deployer.look_up_image(&access, &image(&format!("{REPOSITORY}:v2"))).await.unwrap();
        assert_eq!(found.image.to_string(), format!("{REPOSITORY}:v2"));
        assert_eq!(found.resolved.digest, digest(2));
        assert_eq!(found.resolved.platforms[0].to_string(), "linux/amd64");
        assert_eq!(found.resolved.labels.revision.as_deref(), Some("abc123f"));
        let latest = images.deployer.look_up_image(&access, &image(REPOSITORY)).await.unwrap();
        assert_eq!((latest.image.tag(), latest.resolved.digest), (Some("latest"), digest(3)));
        assert_eq!(images.world.deployer.state(&access).await.unwrap(), before);
    });
}

#[test]
fn missing_tag_comes_with_the_nearest_of_its_repository() {
    let images = Images::new();
    images.world.idle(async {
        let access = images.world.register("api", Policy::default()).await;
        ["latest", "v1.2.2", "v1.2.4", "w1.2.3"].iter().zip(1..).for_each(|(tag, bits)| images.push(tag, bits));
        let missing = format!("{REPOSITORY}:v1.2.3");
        assert_eq!(images.nearest(&access, &missing).await, ["v1.2.2", "v1.2.4", "w1.2.3", "latest"]);
        let text = images.refused(&access, &missing).await.to_string();
        assert!(text.starts_with("registry.example.com has no ") && text.contains("nearest: v1.2.2, v1.2.4"), "{text}");
        // A digest is spelt like no tag.
        let pinned = format!("{REPOSITORY}:v1.2.2@{}", digest(9));
        assert!(images.nearest(&access, &pinned).await.is_empty());
    });
}

#[test]
fn tags_that_are_compared_are_bounded() {
    let images = Images::new();
    images.world.idle(async {
        let access = images.world.register("api", Policy::default()).await;
        (0..1_000).for_each(|number| images.push(&format!("a{number:04}"), 1));
        assert_eq!(images.nearest(&access, &format!("{REPOSITORY}:a0999-x")).await[0], "a0999");
        // The list is read in the registry's order, which is the alphabet's here.
        images.push("z1", 1);
        assert!(!images.nearest(&access, &format!("{REPOSITORY}:z2")).await.contains(&"z1".to_owned()));
    });
}

#[test]
fn missing_repository_is_said() {
    let images = Images::new();
    images.world.idle(async {
        let access = images.world.register("api", Policy::default()).await;
        let refused = images.refused(&access, "registry.example.com/apo:v1").await;
        assert!(matches!(&refused, Refusal::ImageNotFound { repository_missing: true, .. }), "{refused}");
        assert_eq!(refused.kind(), RefusalKind::NotFound);
        assert!(refused.to_string().contains("no repository of registry.example.com/apo:v1"), "{refused}");
    });
}

#[test]
fn failures_of_a_registry_name_its_host_and_say_whether_to_try_again() {
    let images = Images::new();
    images.world.idle(async {
        let access = images.world.register("api", Policy::default()).await;
        let reference = format!("{REPOSITORY}:v1");
        images.registry.answers(Answering::Denied);
        let denied = images.refused(&access, &reference).await;
        assert_eq!(denied, Refusal::RegistryDenied("registry.example.com".to_owned()));
        assert!(!denied.is_retryable());
        let time = Duration::from_secs(30);
        for (answering, retry_after) in [
            (Answering::Failing, None),
            (Answering::Corrupt, None),
            (Answering::Busy(None), None),
            (Answering::Busy(Some(time)), Some(time)),
        ] {
            images.registry.answers(answering);
            let refused = images.refused(&access, &reference).await;
            assert!(matches!(&refused, Refusal::RegistryUnavailable { .. }), "{refused}");
            assert!(refused.to_string().starts_with("registry.example.com cannot be asked"), "{refused}");
            assert_eq!((refused.retry_after(), refused.is_retryable()), (retry_after, true), "{answering:?}");
        }
    });
}

#[test]
fn silent_registry_is_waited_for_in_bounds() {
    let images = Images::new();
    images.world.idle(async {
        let access = images.world.register("api", Policy::default()).await;
        images.registry.answers(Answering::Silent);
        let begun = images.world.clock.elapsed();
        let refused = images.refused(&access, &format!("{REPOSITORY}:v1")).await;
        assert!(matches!(&refused, Refusal::RegistryUnavailable { .. }), "{refused}");
        assert!(images.world.clock.elapsed() - begun <= Duration::from_secs(25));
    });
}

#[test]
fn process_without_a_reader_of_registries_says_so() {
    let images = Images::new();
    images.world.idle(async {
        let access = images.world.register("api", Policy::default()).await;
        let refused = images.world.deployer.look_up_image(&access, &image(REPOSITORY)).await.unwrap_err();
        assert_eq!((refused.kind(), refused), (RefusalKind::Conflict, Refusal::NoRegistry));
    });
}

#[test]
fn image_of_the_newest_deploy_is_the_one_that_is_looked_up() {
    let images = Images::new();
    images.world.idle(async {
        let access = images.world.register("api", Policy::default()).await;
        images.world.deployer.submit(&access, request("api:v2")).await.unwrap();
        assert_eq!(images.deployer.newest_image(&access).await.unwrap(), request("api:v2").image.unwrap());
        // The first build of a git app has not ended, so that no entry has an image.
        let bare = images.world.registered(world::git("web", Policy::default())).await;
        let refused = images.deployer.newest_image(&bare).await.unwrap_err();
        assert_eq!(refused.kind(), RefusalKind::Invalid, "{refused}");
    });
}
