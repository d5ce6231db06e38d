use rollhook_core::{
    Error,
    app::{App, Target},
    ports::{InstanceLogs, RolloutDriver},
};

use super::*;
use crate::{
    DockerMachine,
    fake_engine::FakeEngine,
    images, pulls,
    rules::{
        container::STEP_HOST,
        samples::{self, container, with},
    },
    settings::{Kind, Workload},
    target,
};

/// More than any answer may have that is kept.
const LONG: usize = ANSWER_MAX + 1;

fn digest(of: char) -> String {
    format!("sha256:{}", of.to_string().repeat(64))
}

#[tokio::test]
async fn labels_of_one_image_of_any_length_keep_no_other_from_being_removed() {
    let engine = FakeEngine::new(|call| {
        let length = if call == "GET /images/json" { LONG } else { CONTAINER_MAX };
        let labels = json!({ "com.example.long": "a".repeat(length), "many": "b" });
        let tags = [format!("shop/web:{}", "0a".repeat(20))];
        let surplus = json!({ "Id": digest('a'), "RepoTags": tags, "RepoDigests": null, "Labels": labels });
        let used = json!({ "Id": digest('b'), "RepoTags": null });
        let user =
            json!({ "Id": "c", "ImageID": digest('b'), "Names": ["/other"], "State": "running", "Labels": labels });
        match call {
            "GET /images/json" => Some(json!([surplus, used])),
            "GET /containers/json?all=1" => Some(json!([user])),
            call if call.starts_with("GET /containers/json?all=true") => Some(json!([])),
            call if call.starts_with("DELETE /images/") => Some(json!([])),
            call if call.contains(&digest('a')) => Some(surplus),
            call if call.contains(&digest('b')) => Some(used),
            _ => Some(Value::Null),
        }
    });
    let surplus = ["a", "b"].map(|of| format!("shop/web@sha256:{}", of.repeat(64)).parse().unwrap());
    images::discard(&Engine::new(engine.socket.clone()), &samples::app(), &surplus).await.unwrap();
    let removed: Vec<String> =
        engine.calls.borrow().iter().filter(|call| call.starts_with("DELETE")).cloned().collect();
    assert_eq!(removed, [format!("DELETE /images/shop/web:{}", "0a".repeat(20))]);
}

#[tokio::test]
async fn image_whose_configuration_takes_too_much_memory_fails_its_own_deploy_with_a_reason() {
    let many: Vec<String> = (0..OBJECT_VALUES_MAX).map(|number| format!("A{number}=")).collect();
    let large = [json!({ "Labels": { "a": "b".repeat(OBJECT_MAX) } }), json!({ "Env": many })];
    for (number, configuration) in large.into_iter().enumerate() {
        let image = json!({ "Id": digest('a'), "Config": configuration });
        let engine = FakeEngine::new(move |_| Some(image.clone()));
        let engine = Engine::new(engine.socket.clone());
        assert!(matches!(pulls::configuration(&engine, "shop/web:v1").await, Err(Failure::Large)));
        let engine = engine.reading_large();
        let failure = pulls::configuration(&engine, "shop/web:v1").await.unwrap_err();
        assert!(
            failure.to_string().starts_with("the image's configuration is larger than 2 MiB"),
            "{number}: {failure}"
        );
        assert!(matches!(Error::from(failure), Error::Invalid { .. }), "another try changes nothing");
        assert_eq!(
            pulls::find(&engine, "shop/web:v1").await.unwrap().unwrap().id,
            digest('a'),
            "what is skipped is free"
        );
    }
}

#[tokio::test]
async fn container_is_read_up_to_its_bound_and_a_large_step_of_a_build_is_none_of_the_targets() {
    let large = |bytes: usize| with(container("web", "running"), "/Config/Labels", json!({ "a": "b".repeat(bytes) }));
    let step = with(large(CONTAINER_MAX), "/HostConfig", json!({ "ExtraHosts": [format!("{STEP_HOST}:0.0.0.0")] }));
    let own = container("web", "running").object;
    let read = async |other: Value| {
        let own = own.clone();
        let engine = FakeEngine::new(move |call| match call {
            call if call.starts_with("GET /containers/json") => Some(json!([{ "Id": "own" }, { "Id": "other" }])),
            "GET /containers/own/json" => Some(own.clone()),
            "GET /containers/other/json" => Some(other.clone()),
            call if call.starts_with("GET /volumes") => Some(json!({ "Volumes": null })),
            _ => Some(Value::Null),
        });
        let workload = Workload::named(Kind::Container, "web");
        target::read(&Engine::new(engine.socket.clone()).reading_large(), &workload)
            .await
            .map(|seen| seen.containers.len())
    };
    assert_eq!(read(step.object).await.unwrap(), 1);
    assert_eq!(read(large(CONTAINER_MAX / 2).object).await.unwrap(), 2, "the variables of an app fit");
    let failure = read(large(CONTAINER_MAX).object).await.unwrap_err();
    assert!(failure.to_string().starts_with("the container's configuration is larger than 10 MiB"), "{failure}");
}

#[tokio::test]
async fn calls_that_read_large_objects_take_turns_of_the_environments() {
    let engine = FakeEngine::new(|call| {
        let large = with(container("web", "running"), "/Config/Labels", json!({ "a": "b".repeat(USUAL_MAX) }));
        match call {
            call if call.starts_with("GET /containers/json") => Some(json!([{ "Id": "web" }])),
            "GET /containers/web/json" => Some(large.object),
            call if call.starts_with("GET /volumes") => Some(json!({ "Volumes": null })),
            _ => Some(Value::Null),
        }
    });
    let driver = DockerMachine::at(engine.socket.clone());
    let app = App { target: web(), ..samples::app() };
    assert_eq!(driver.instances(&app).await.unwrap().len(), 1, "it is read in a slot");
    let held = [driver.large.acquire(&app.id.namespace).await, driver.large.acquire(&app.id.namespace).await];
    let mut waiting = std::pin::pin!(driver.instances(&app));
    let in_time = tokio::time::timeout(std::time::Duration::from_millis(200), &mut waiting).await;
    assert!(in_time.is_err(), "the environment has its share");
    let other = App { id: "blog-test/web".parse().unwrap(), ..app.clone() };
    assert_eq!(driver.instances(&other).await.unwrap().len(), 1);
    drop(held);
    assert_eq!(waiting.await.unwrap().len(), 1);
}

/// The target of a container.
fn web() -> Target {
    Target { settings: Workload::named(Kind::Container, "web").settings(), requested: None, take_over: None }
}

#[tokio::test]
async fn answer_that_breaks_off_is_no_list() {
    let engine = FakeEngine::new(|_| Some(json!("[]")));
    let engine = Engine::new(engine.socket.clone());
    assert!(matches!(engine.typed::<Vec<u8>>("/images/json").await, Err(Failure::Unreadable(_))));
    let away = DockerMachine::at("/nonexistent/socket".into());
    assert!(matches!(away.identity().await, Err(Error::Unavailable { .. })));
}
