use rollhook_core::app::AppUid;
use serde_json::{Value, json};

use super::*;
use crate::rules::{
    object::STAMP,
    samples::{self, merged},
};

const V1: &str = "registry.example.com/api:v1";

/// A registration of the app `api` with these settings, without an image.
fn request(settings: Value) -> TargetRequest {
    TargetRequest {
        app: "shop-test/api".parse().unwrap(),
        settings: serde_json::from_value(settings).unwrap(),
        image: None,
        built: false,
        take_over: false,
        registered: None,
        others: Vec::new(),
    }
}

fn with_image(settings: Value) -> TargetRequest {
    TargetRequest { image: V1.parse().ok(), ..request(settings) }
}

fn spec(containers: &[(&str, &str)]) -> Value {
    let containers = containers.iter().map(|(name, image)| json!({"name": name, "image": image}));
    json!({"template": {"spec": {"containers": containers.collect::<Vec<_>>()}}})
}

/// A Deployment with these containers and their images.
fn deployment(containers: &[(&str, &str)]) -> Object {
    samples::deployment(json!({"spec": spec(containers)}))
}

fn validate(request: &TargetRequest, workload: Option<&Object>) -> Validated {
    Registration::parse(request).map_or_else(Validated::Invalid, |registration| registration.validate(workload))
}

fn unusable(validated: Validated) -> String {
    match validated {
        Validated::Invalid(InvalidTarget::Unusable(why)) => why,
        other @ (Validated::Adopt { .. } | Validated::Create { .. } | Validated::Invalid(_)) => panic!("{other:?}"),
    }
}

#[track_caller]
fn assert_invalid(validated: Validated, name: &str, rule: &str) {
    let invalid = InvalidTarget::Setting { name: name.to_owned(), rule: rule.to_owned() };
    assert_eq!(validated, Validated::Invalid(invalid));
}

#[test]
fn existing_workload_is_adopted_with_the_image_that_it_runs() {
    let adopted = |settings: Value, image: &str| Validated::Adopt {
        settings: serde_json::from_value(settings).unwrap(),
        image: image.parse().unwrap(),
        take_over: None,
        unused: Vec::new(),
        notes: Vec::new(),
    };
    let one = deployment(&[("web", V1)]);
    let expected = adopted(json!({"kind": "Deployment", "name": "api", "containers": ["web"]}), V1);
    assert_eq!(validate(&request(json!({})), Some(&one)), expected, "its only container");
    let creating = validate(&with_image(json!({"template": {"port": 80}})), Some(&one));
    let Validated::Adopt { unused, .. } = &creating else { panic!("{creating:?}") };
    assert_eq!(*unused, ["template.port"], "nothing is created");
    let asked = request(json!({"readiness_path": "/healthz"}));
    let refused = validate(&asked, Some(&one));
    assert!(
        matches!(&refused, Validated::Invalid(InvalidTarget::Setting { rule, .. }) if rule.contains("for Docker")),
        "{refused:?}"
    );
    let two = deployment(&[("proxy", "envoy"), ("api", "nginx")]);
    let expected = adopted(json!({"kind": "Deployment", "name": "api", "containers": ["api"]}), "nginx");
    assert_eq!(validate(&request(json!({})), Some(&two)), expected, "the one named like the app");
    let given = json!({"kind": "daemonset", "name": "edge", "containers": ["proxy"]});
    let two = samples::daemon_set(json!({"spec": spec(&[("proxy", "envoy"), ("api", "nginx")])}));
    let expected = adopted(json!({"kind": "DaemonSet", "name": "edge", "containers": ["proxy"]}), "envoy");
    assert_eq!(validate(&request(given), Some(&two)), expected);
}

#[test]
fn workload_that_ends_its_old_pods_first_says_so() {
    let notes = |workload: &Object| validate(&request(json!({})), Some(workload)).notes().to_vec();
    assert!(notes(&deployment(&[("web", V1)])).is_empty());
    let recreated = samples::deployment(json!({"spec": {"strategy": {"type": "Recreate"}}}));
    assert!(notes(&recreated)[0].starts_with("Deployment api ends its old pods before a new one is ready"));
}

#[test]
fn init_container_is_deployed_with_a_container_and_not_by_itself() {
    let migrate = json!([{"name": "migrate", "image": V1}]);
    let both = samples::deployment(merged(
        json!({"spec": spec(&[("api", V1)])}),
        json!({"spec": {"template": {"spec": {"initContainers": migrate}}}}),
    ));
    let Validated::Adopt { settings, .. } = validate(&request(json!({})), Some(&both)) else { panic!("not adopted") };
    assert_eq!(settings["containers"], json!(["api"]), "it is left alone unless it is named");
    let named = validate(&request(json!({"containers": ["api", "migrate"]})), Some(&both));
    let Validated::Adopt { settings, .. } = named else { panic!("{named:?}") };
    assert_eq!(settings["containers"], json!(["api", "migrate"]));
    let refused = |containers: Value| unusable(validate(&request(json!({"containers": containers})), Some(&both)));
    assert!(refused(json!(["migrate"])).contains("name one of api too"));
    assert_eq!(refused(json!(["db"])), "Deployment api has no container db; it has: api, migrate.");
}

#[test]
fn image_that_has_to_be_root_is_deployed_under_the_profile_baseline() {
    let given = json!({"template": {"pod_security": "baseline"}});
    let created = validate(&with_image(given), None);
    assert!(created.notes().is_empty(), "{created:?}");
    let Validated::Create { settings, .. } = created else { panic!("not created") };
    assert_eq!(settings["template"]["pod_security"], "baseline");
}

#[test]
fn unusable_workload_is_refused_with_a_reason() {
    let refused = |settings: Value, workload: &Object| unusable(validate(&request(settings), Some(workload)));
    let two = deployment(&[("web", V1), ("worker", "registry.example.com/api:v2")]);
    assert_eq!(
        refused(json!({}), &two),
        "Deployment api has several containers: say which one to deploy: web, worker."
    );
    assert_eq!(
        refused(json!({"containers": ["db"]}), &two),
        "Deployment api has no container db; it has: web, worker, migrate."
    );
    assert_eq!(
        refused(json!({"containers": ["web", "worker"]}), &two),
        "Deployment api: container worker runs registry.example.com/api:v2, another one registry.example.com/api:v1; \
         an app's containers share one image."
    );
    assert!(
        refused(json!({}), &deployment(&[("api", "")])).starts_with("Deployment api runs an image that cannot be read")
    );
    let on_delete = samples::daemon_set(json!({"spec": {"updateStrategy": {"type": "OnDelete"}}}));
    let why = refused(json!({"kind": "DaemonSet"}), &on_delete);
    assert!(why.starts_with("DaemonSet api cannot be rolled out: ") && why.contains("OnDelete"), "{why}");
    let unreadable = samples::deployment(json!({"metadata": {"annotations": {STAMP: "seven"}}}));
    assert!(refused(json!({}), &unreadable).contains("rollhook.dev/revision=\"seven\""));
}

#[test]
fn workload_of_another_registration_is_taken_over_only_on_request() {
    let other = AppUid::from_bits(7);
    let stamp = format!("{other}/3");
    let stamped = samples::deployment(json!({"metadata": {"annotations": {STAMP: stamp}}}));
    let refused = validate(&request(json!({})), Some(&stamped));
    let Validated::Invalid(InvalidTarget::Taken(why)) = refused else { panic!("{refused:?}") };
    assert_eq!(
        why,
        format!(
            "Deployment api carries the stamp of another registration ({stamp}). If that one is gone, register with \
             --take-over."
        )
    );
    let take_over = TargetRequest { take_over: true, ..request(json!({})) };
    let taken = validate(&take_over, Some(&stamped));
    assert!(matches!(taken, Validated::Adopt { take_over: Some(uid), .. } if uid == other), "{taken:?}");
    let unstamped = validate(&take_over, Some(&deployment(&[("api", V1)])));
    assert!(matches!(unstamped, Validated::Adopt { take_over: None, .. }), "{unstamped:?}");
}

#[test]
fn workload_of_another_app_is_known_by_what_names_it_alone() {
    let others = |settings: Value| vec![("shop-test/web".parse().unwrap(), settings.as_object().unwrap().clone())];
    let asked = |settings| TargetRequest { others: others(settings), ..request(json!({"name": "web"})) };
    let is_taken = |settings| matches!(validate(&asked(settings), None), Validated::Invalid(InvalidTarget::Taken(_)));
    assert!(is_taken(json!({"template": {"of": "a later version"}})), "named as its app is");
    assert!(is_taken(json!({"kind": "Deployment", "name": "web"})));
    assert!(!is_taken(json!({"kind": "CronJob", "name": "web"})) && !is_taken(json!({"name": "api"})));
}

#[test]
fn missing_workload_is_created_with_all_defaults() {
    let template = json!({
        "replicas": 1, "port": null, "env": {}, "env_from_secrets": [], "pull_secret": null, "readiness_path": null,
        "cpu": null, "memory": null, "pod_security": "restricted",
    });
    let created = |name: &str, container: &str, template: &Value| Validated::Create {
        settings: serde_json::from_value(
            json!({"kind": "Deployment", "name": name, "containers": [container], "template": template}),
        )
        .unwrap(),
        take_over: None,
        notes: vec![RESTRICTED.to_owned()],
    };
    assert_eq!(validate(&with_image(json!({})), None), created("api", "api", &template));
    let built = TargetRequest { built: true, ..request(json!({})) };
    assert_eq!(validate(&built, None), created("api", "api", &template), "its image is yet to be built");
    let given = json!({"name": "edge", "containers": ["web"], "template": {"replicas": 3, "port": 80}});
    let mut three = template;
    (three["replicas"], three["port"]) = (json!(3), json!(80));
    assert_eq!(validate(&with_image(given), None), created("edge", "web", &three));
}

#[test]
fn workload_that_cannot_be_created_is_refused_with_a_reason() {
    assert_eq!(
        unusable(validate(&request(json!({})), None)),
        "Deployment api does not exist; give an image to have a Deployment made."
    );
    assert_eq!(
        unusable(validate(&with_image(json!({"kind": "StatefulSet"})), None)),
        "StatefulSet api does not exist, and only a Deployment can be made."
    );
    let probe = json!({"template": {"readiness_path": "/"}});
    assert_invalid(validate(&with_image(probe), None), "readiness_path", "needs a port.");
    let secret = json!({"template": {"env_from_secrets": ["api-env", "API_ENV"]}});
    let rule = "must be a name that Kubernetes takes: lower-case letters, digits, hyphens and dots.";
    assert_invalid(validate(&with_image(secret), None), "template.env_from_secrets", rule);
    for (name, value, rule) in [
        ("cpu", "2Gi", "must be a number of processors, such as 500m, 0.5 or 2."),
        ("memory", "512m", "must be an amount such as 512Mi or 2Gi."),
        ("pod_security", "privileged", "must be restricted or baseline."),
        (
            "command",
            "bin/jobs",
            "is for Docker; make the workloads that run other commands than their image's yourself.",
        ),
    ] {
        let given = json!({"template": {name: value}});
        assert_invalid(validate(&with_image(given), None), &format!("template.{name}"), rule);
    }
    let several = json!({"containers": ["a", "b"]});
    assert_invalid(validate(&with_image(several), None), "containers", "a Deployment is made with one container.");
}

#[test]
fn workload_name_is_a_dns_subdomain() {
    for name in ["", "../x", "a/scale", "API", "a..b", "-a", "a?b=c", &"a".repeat(254)] {
        let rule = "must be a name that Kubernetes takes: lower-case letters, digits, hyphens and dots.";
        assert_invalid(validate(&with_image(json!({"name": name})), None), "workload.name", rule);
    }
    for name in ["a", "a.b-c.1", &"a".repeat(253)] {
        let created = validate(&with_image(json!({"name": name})), None);
        assert!(matches!(created, Validated::Create { .. }), "{name}: {created:?}");
    }
}

#[test]
fn workload_that_another_app_names_is_refused_by_that_apps_name() {
    let of = |settings: Value| {
        let others = vec![("shop-test/web".parse().unwrap(), serde_json::from_value(settings).unwrap())];
        let request = TargetRequest { built: true, others, ..request(json!({})) };
        Registration::parse(&request).unwrap().validate(None)
    };
    let template = json!({"replicas": 1});
    let same = json!({"kind": "Deployment", "name": "api", "containers": ["web"], "template": template});
    let Validated::Invalid(InvalidTarget::Taken(why)) = of(same) else { panic!("it is another app's") };
    assert!(why.starts_with("Deployment api is the workload of the app shop-test/web."), "{why}");
    let others =
        [json!({"kind": "StatefulSet", "name": "api", "containers": ["web"]}), json!({"name": "web"}), json!({})];
    for other in others {
        assert!(matches!(of(other), Validated::Create { .. }));
    }
}
