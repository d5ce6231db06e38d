//! Images by their ids, which the engine finds in whichever repository they are.

use rollhook_core::ports::{Applied, Purpose, RolloutDriver, RolloutFailure, RolloutSpec};
use rollhook_docker::DockerMachine;

use crate::{
    conformance::run,
    fence::{Deploys, lent, patiently, pause},
};

/// Applies a deploy and waits for its failure.
async fn failure(driver: &DockerMachine, spec: &RolloutSpec) -> RolloutFailure {
    assert_eq!(patiently(async || driver.apply(spec).await).await, Applied::Done);
    for _ in 0..240 {
        if let Some(failure) = patiently(async || driver.observe(spec).await).await.failure {
            return failure;
        }
        pause().await;
    }
    panic!("the deploy does not fail");
}

#[test]
fn image_of_another_repository_is_not_deployed_by_its_id() {
    let case = concat!(env!("CARGO_PKG_NAME"), "/images::image_of_another_repository_is_not_deployed_by_its_id");
    run(async {
        let Some(bed) = lent(case) else { return };
        let driver = DockerMachine::at(bed.socket());
        let deploys = Deploys::of(bed, &driver).await;
        let docker = &deploys.bed.docker;
        let id = docker.run(&["image", "inspect", "--format", "{{.Id}}", "app:v2"]).trim().to_owned();
        // No registry listens there.
        let repository = format!("127.0.0.1:1/{}", deploys.name);
        let (image, tag) = (format!("{repository}@{id}"), format!("{repository}:v2"));
        let found = failure(&driver, &deploys.spec(1, &image)).await;
        assert!(found.message.contains("has no name in"), "{found:?}");
        assert_eq!(deploys.running(), ["app:v1"]);

        docker.run(&["tag", "app:v2", &tag]);
        deploys.complete(&driver, 2, &image).await;
        deploys.complete(&driver, 3, "app:v1").await;
        // The name is gone, as after a newer build with the same tag: a rollback is to what ran.
        docker.run(&["rmi", &tag]);
        let purpose = Purpose::Rollback { to: deploys.spec(2, &image).id.revision };
        deploys.completes(&driver, deploys.spec(4, &image).with(|spec| spec.purpose = purpose)).await;
        assert!(deploys.running().iter().all(|image| image.contains(&id)), "{:?}", deploys.running());
    });
}
