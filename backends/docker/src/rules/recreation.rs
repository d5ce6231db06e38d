//! The container of the next deploy, made of the one before: all that it was made with, another image, our labels.
//!
//! Inspecting a container tells what it was made with mixed with what its image brought along. The image's part is
//! taken out, or the next image would run with the commands and variables of the one before.

use rollhook_core::ports::DeployId;
use serde_json::{Map, Value, json};

use super::{
    container::{Container, GIVEN, NAME, OURS, SETTINGS, Stamp, VARIABLES, VOLUMES},
    given::{self, Given, KEYED, WHOLE},
    made_with::{self, Laid},
    silence::{self, silence},
    variables::{self, SetVariables},
    volumes::{ImageVolumes, clean},
};
use crate::settings::Rollout;

/// The name of a deploy's container until it is ready. Another process that makes it at the same time finds it taken.
pub(crate) fn name(last: &str, id: DeployId) -> String {
    let uid = id.app.to_string();
    format!("{last}.{}-{}", id.revision, uid.get(..6).unwrap_or(&uid))
}

/// The name of a deploy's claim.
pub(crate) fn claim_name(rollout: &Rollout) -> String {
    format!("rollhook.{}", name(&rollout.workload.name.replace('/', "."), rollout.id))
}

/// The name of the claim that a deploy may end the containers from before it.
pub(crate) fn replacing_claim_name(rollout: &Rollout) -> String {
    format!("{}.replaces", claim_name(rollout))
}

/// The stamp of a deploy.
pub(crate) fn stamp(rollout: &Rollout) -> Stamp {
    Stamp { id: rollout.id, took_over: rollout.take_over, image: Some(rollout.image.clone()), rests: rollout.rests }
}

/// The document that makes the container anew, of this image.
///
/// `defaults` is the configuration of the image that the container before was made of, `brought` that of the image.
pub(crate) fn body(model: &Container, defaults: &Value, rollout: &Rollout, image: &str, brought: &Value) -> Value {
    let model = &*Laid::without(model, rollout.id.app);
    let mut config = without_defaults(model, defaults);
    let mode = model.object["HostConfig"]["NetworkMode"].as_str().unwrap_or_default();
    let named_by_engine = config.get("Hostname").and_then(Value::as_str) == Some(model.short_id());
    if named_by_engine || mode == "host" || mode.starts_with("container:") {
        config.remove("Hostname");
    }
    let set = SetVariables::of(model, rollout.id.app);
    let given = given_environment(&config);
    let (environment, next) = (set.environment(given, rollout), set.next(given, rollout));
    config.insert("Env".to_owned(), environment.into());
    let mut labels = config.remove("Labels").unwrap_or_else(|| json!({}));
    stamp_labels(&mut labels, rollout, model.final_name(), &next);
    let volumes = ImageVolumes::of(model, defaults);
    labels[VOLUMES] = volumes.label().into();
    config.insert("Labels".to_owned(), labels);
    silence(&mut config, model, &set, brought);
    config.insert("Image".to_owned(), image.into());
    let mut host = host_config(model);
    volumes.bind(model, &mut host, brought);
    let primary = model.networks().find(|(network, settings)| is_primary(mode, network, settings));
    if let Some((network, settings)) = primary {
        let endpoints = json!({ network: endpoint(model, settings) });
        if rollout.rests {
            // The engine tells the networks of a container that was never started by their names alone.
            host["NetworkMode"] = network.clone().into();
        }
        config.insert("NetworkingConfig".to_owned(), json!({ "EndpointsConfig": endpoints }));
    }
    config.insert("HostConfig".to_owned(), host);
    let mut body = Value::Object(config);
    Laid::lay(&mut body, Some(model), rollout);
    body
}

/// Replaces our labels. Each is there, also where it says nothing: the container would get its image's for one that is
/// missing.
pub(crate) fn stamp_labels(labels: &mut Value, rollout: &Rollout, last_name: &str, set: &SetVariables) {
    if !labels.is_object() {
        *labels = json!({});
    }
    let Some(labels) = labels.as_object_mut() else { return };
    labels.retain(|name, _| !name.starts_with(OURS));
    for (name, value) in stamp(rollout).labels(&rollout.workload.key()) {
        labels.insert(name.to_owned(), value.into());
    }
    labels.insert(NAME.to_owned(), last_name.into());
    labels.insert(GIVEN.to_owned(), "[]".into());
    labels.insert(VOLUMES.to_owned(), "{}".into());
    labels.insert(VARIABLES.to_owned(), set.label().into());
    labels.insert(SETTINGS.to_owned(), "{}".into());
}

/// Returns why the deploy's container cannot be made of this one: both set a variable of a new configuration. `None` if it
/// can be.
pub(crate) fn conflict(model: &Container, defaults: &Value, rollout: &Rollout) -> Option<String> {
    let configuration = rollout.configuration.as_ref()?;
    let config = without_defaults(model, defaults);
    let set = SetVariables::of(model, rollout.id.app);
    let mut contested = set.contested(given_environment(&config), rollout);
    contested.find(|name| configuration.brings(name.as_str())).map(|name| variables::conflict(name, model))
}

fn given_environment(config: &Map<String, Value>) -> &[Value] {
    config.get("Env").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The networks of the model that a container made of it has yet to join, with how it joins.
pub(crate) fn missing_networks(model: &Container, rollout: &Rollout, made: &Container) -> Vec<(String, Value)> {
    let model = &*Laid::without(model, rollout.id.app);
    let joined: Vec<&String> = made.networks().map(|(network, _)| network).collect();
    let missing = made_with::networks(model, rollout).filter(|(network, _)| !joined.contains(network));
    missing.map(|(network, settings)| (network.clone(), endpoint(model, settings))).collect()
}

fn is_primary(mode: &str, network: &str, settings: &Value) -> bool {
    // The engine's own bridge takes no settings.
    let own = matches!(network, "bridge" | "host" | "none");
    !own && (network == mode || settings["NetworkID"].as_str().is_some_and(|id| !id.is_empty() && id == mode))
}

/// The settings that were asked for of a network, without the addresses that came of them.
pub(super) fn endpoint(model: &Container, settings: &Value) -> Value {
    let mut kept = Map::new();
    for name in ["IPAMConfig", "Links", "DriverOpts", "GwPriority"] {
        if let Some(value) = settings.get(name).filter(|value| !value.is_null()) {
            kept.insert(name.to_owned(), value.clone());
        }
    }
    let aliases = settings["Aliases"].as_array().into_iter().flatten();
    let given: Vec<&Value> = aliases.filter(|alias| alias.as_str() != Some(model.short_id())).collect();
    if !given.is_empty() {
        kept.insert("Aliases".to_owned(), json!(given));
    }
    Value::Object(kept)
}

fn without_defaults(model: &Container, defaults: &Value) -> Map<String, Value> {
    let mut config = model.object["Config"].as_object().cloned().unwrap_or_default();
    let chosen = Given::of(model);
    let is_default = |config: &Map<String, Value>, name: &str| {
        given::set(config.get(name)) == given::set(defaults.get(name)) && !chosen.has(name)
    };
    // Of an entrypoint that was given, the command is too.
    if is_default(&config, "Entrypoint") {
        config.remove("Entrypoint");
        if is_default(&config, "Cmd") {
            config.remove("Cmd");
        }
    } else if given::set(config.get("Entrypoint")).is_none() {
        // `--entrypoint ""`: none, also where the image has one.
        config.insert("Entrypoint".to_owned(), json!([""]));
    }
    for name in WHOLE.into_iter().filter(|name| !matches!(*name, "Entrypoint" | "Cmd")) {
        if is_default(&config, name) {
            config.remove(name);
        }
    }
    if let (Some(Value::Array(given)), Some(brought)) = (config.get_mut("Env"), defaults["Env"].as_array()) {
        given.retain(|entry| !brought.contains(entry) || chosen.has_key("Env", given::variable(entry)));
        given.retain(|entry| !silence::was_variable(entry, defaults));
    }
    for name in KEYED {
        if let (Some(Value::Object(given)), Some(brought)) = (config.get_mut(name), defaults[name].as_object()) {
            given.retain(|key, value| brought.get(key) != Some(value) || chosen.has_key(name, key));
        }
    }
    if let Some(Value::Object(labels)) = config.get_mut("Labels") {
        labels.retain(|name, value| !silence::was_label(name, value, defaults));
    }
    config
}

fn host_config(model: &Container) -> Value {
    let mut host = model.object["HostConfig"].clone();
    // `/db:/web/database` is how the engine tells what was given as `/db:database`.
    for link in host["Links"].as_array_mut().into_iter().flatten() {
        let given = link.as_str().and_then(|link| link.split_once(':'));
        let given = given.map(|(other, alias)| format!("{other}:{}", alias.rsplit('/').next().unwrap_or(alias)));
        *link = given.map_or(Value::Null, Value::from);
    }
    // The engine would remove the container, and with it all settings of the app, as soon as it stops.
    if let Some(removed) = host.get_mut("AutoRemove") {
        *removed = false.into();
    }
    for mount in host["Mounts"].as_array_mut().into_iter().flatten() {
        name_volume(model, mount);
    }
    host
}

/// Names the volume of a mount that was given without a name: the data goes over to the next container.
fn name_volume(model: &Container, mount: &mut Value) {
    let has_name = mount["Source"].as_str().is_some_and(|source| !source.is_empty());
    if has_name || mount["Type"] != "volume" {
        return;
    }
    let is_same = |volume: &&Value| {
        let (place, target) = (volume["Destination"].as_str(), mount["Target"].as_str());
        volume["Type"] == "volume" && place.map(clean) == target.map(clean)
    };
    if let Some(volume) = model.object["Mounts"].as_array().into_iter().flatten().find(is_same) {
        mount["Source"] = volume["Name"].clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{
        container::{DEPLOY, RESTS, TOOK_OVER},
        samples::{OURS as APP, configured, container, id, rollout, stamped, with},
    };

    fn given() -> (Container, Value) {
        let defaults = json!({
            "Env": ["PATH=/bin", "VERSION=1"], "Cmd": ["serve"], "Entrypoint": ["/app"], "WorkingDir": "/srv",
            "Labels": {"org.opencontainers.image.version": "1"}, "ExposedPorts": {"80/tcp": {}},
            "Healthcheck": {"Test": ["CMD", "/check"]},
        });
        let config = json!({
            "Hostname": container("web", "running").short_id(), "Image": "web:v1", "User": "app",
            "Env": ["MODE=test", "PATH=/bin", "VERSION=1"], "Cmd": ["serve"], "Entrypoint": ["/app"],
            "WorkingDir": "/srv", "ExposedPorts": {"80/tcp": {}, "81/tcp": {}},
            "Healthcheck": {"Test": ["CMD", "/check"]}, "FutureSetting": {"A": [1, 2.5]},
            "Labels": {"org.opencontainers.image.version": "1", "com.docker.compose.project": "shop", DEPLOY: "old/1"},
        });
        (with(container("web", "running"), "/Config", config), defaults)
    }

    #[test]
    fn what_the_image_brought_along_is_left_to_the_next_image() {
        let (model, defaults) = given();
        let body = body(&model, &defaults, &rollout(2), "web:v2", &Value::Null);
        assert_eq!(body["Env"], json!(["MODE=test"]));
        assert_eq!(body["ExposedPorts"], json!({"81/tcp": {}}));
        for name in ["Cmd", "Entrypoint", "WorkingDir", "Healthcheck", "Hostname"] {
            assert_eq!(body.get(name), None, "{name}");
        }
        assert_eq!((&body["Image"], &body["User"]), (&json!("web:v2"), &json!("app")));
        assert_eq!(body["FutureSetting"], json!({"A": [1, 2.5]}), "settings of newer engines are kept");
    }

    #[test]
    fn given_setting_that_equals_the_images_own_is_kept_where_the_container_says_so() {
        let (model, defaults) = given();
        let model = with(model, "/Config/Labels", json!({GIVEN: r#"["Env VERSION","WorkingDir","Cmd"]"#}));
        let body = body(&model, &defaults, &rollout(2), "web:v2", &Value::Null);
        assert_eq!(body["Env"], json!(["MODE=test", "VERSION=1"]));
        assert_eq!((&body["WorkingDir"], &body["Cmd"]), (&json!("/srv"), &json!(["serve"])));
        assert_eq!(body.get("Entrypoint"), None);
    }

    #[test]
    fn variables_of_the_image_give_way_to_those_of_a_deploy() {
        let (model, defaults) = given();
        let next = configured(2, 7, &[("VERSION", "ours"), ("KEY", "hunter2")]);
        assert_eq!(conflict(&model, &defaults, &next), None);
        let made = body(&model, &defaults, &next, "web:v2", &defaults);
        assert_eq!(made["Env"], json!(["MODE=test", "KEY=hunter2", "VERSION=ours"]));
        assert!(!made["Labels"].to_string().contains("hunter2"), "{}", made["Labels"]);
        // As the engine has it then. Where our value is the image's own, it is ours all the same.
        for version in ["ours", "1"] {
            let config = json!({
                "Env": ["MODE=test", "KEY=hunter2", format!("VERSION={version}"), "PATH=/bin"],
                "Labels": {DEPLOY: id(APP, 2).to_string(), GIVEN: r#"["Env VERSION"]"#, VARIABLES: made["Labels"][VARIABLES]},
            });
            let model = with(container("web", "running"), "/Config", config);
            assert_eq!(body(&model, &defaults, &rollout(3), "web:v3", &defaults)["Env"], json!(["MODE=test"]));
        }
        let taken = configured(3, 8, &[("MODE", "ours")]);
        assert!(conflict(&model, &defaults, &taken).unwrap().contains("MODE"));
        let given = with(model, "/Config/Labels", json!({GIVEN: r#"["Env VERSION"]"#}));
        assert!(conflict(&given, &defaults, &next).unwrap().contains("VERSION"), "a person gave it");
    }

    #[test]
    fn labels_are_kept_but_ours() {
        let (model, defaults) = given();
        let body = body(&model, &defaults, &rollout(2), "web:v2", &Value::Null);
        assert_eq!(body["Labels"]["com.docker.compose.project"], "shop");
        assert_eq!(body["Labels"].get("org.opencontainers.image.version"), None);
        assert_eq!(body["Labels"][DEPLOY], id(APP, 2).to_string());
        assert_eq!(body["Labels"][NAME], "web");
        for (label, nothing) in [(TOOK_OVER, ""), (GIVEN, "[]"), (VOLUMES, "{}")] {
            assert_eq!(body["Labels"][label], nothing, "it would be the image's");
        }
    }

    #[test]
    fn container_that_is_not_started_names_its_network() {
        let networks = json!({"shop": {"NetworkID": "0f1e", "Aliases": ["web"]}});
        let model = with(container("web", "running"), "/NetworkSettings/Networks", networks);
        let model = with(model, "/HostConfig/NetworkMode", json!("0f1e"));
        let made = |rests| body(&model, &Value::Null, &Rollout { rests, ..rollout(2) }, "web:v2", &Value::Null);
        for (rests, mode) in [(true, "shop"), (false, "0f1e")] {
            let made = made(rests);
            assert_eq!(made["HostConfig"]["NetworkMode"], mode);
            assert_eq!(made["NetworkingConfig"]["EndpointsConfig"], json!({"shop": {"Aliases": ["web"]}}));
        }
        assert_eq!([true, false].map(|rests| made(rests)["Labels"][RESTS].clone()), [json!("true"), json!("")]);
    }

    #[test]
    fn command_that_was_given_is_kept() {
        let (model, defaults) = given();
        let model = with(model, "/Config/Cmd", json!(["migrate"]));
        let made = body(&model, &defaults, &rollout(2), "web:v2", &Value::Null);
        assert_eq!((made.get("Entrypoint"), &made["Cmd"]), (None, &json!(["migrate"])));
        // Of an entrypoint that was given, the image's command is none.
        let model = with(model, "/Config/Entrypoint", json!(["/other"]));
        let model = with(model, "/Config/Cmd", json!(["serve"]));
        let made = body(&model, &defaults, &rollout(2), "web:v2", &Value::Null);
        assert_eq!((&made["Entrypoint"], &made["Cmd"]), (&json!(["/other"]), &json!(["serve"])));
    }

    #[test]
    fn command_of_an_image_without_entrypoint_is_left_to_the_next_image() {
        let (model, _) = given();
        // As an engine of API 1.56 tells them: of the image, only what it sets.
        let defaults = json!({"Cmd": ["serve"], "Env": ["PATH=/bin", "VERSION=1"]});
        for unset in [json!(null), json!([])] {
            let model = with(model.clone(), "/Config/Entrypoint", unset);
            let made = body(&model, &defaults, &rollout(2), "web:v2", &Value::Null);
            assert_eq!((made.get("Entrypoint"), made.get("Cmd")), (None, None));
        }
        // `--entrypoint ""` of an image that has one.
        let defaults = json!({"Cmd": ["serve"], "Entrypoint": ["/app"]});
        let model = with(model, "/Config/Entrypoint", json!(null));
        let made = body(&model, &defaults, &rollout(2), "web:v2", &Value::Null);
        assert_eq!((&made["Entrypoint"], &made["Cmd"]), (&json!([""]), &json!(["serve"])));
    }

    #[test]
    fn unnamed_volumes_and_links_go_over() {
        let host = json!({
            "NetworkMode": "shop", "Binds": ["conf:/etc/app/:ro"], "Links": ["/db:/web/database"],
            "Mounts": [
                {"Target": "/cache/", "Type": "volume"}, {"Target": "/files", "Type": "volume", "Source": "files"},
                {"Target": "/run", "Type": "tmpfs"},
            ],
            "RestartPolicy": {"Name": "always"}, "AutoRemove": true,
        });
        let volume =
            |name: &str, place: &str| json!({"Type": "volume", "Name": name, "Destination": place, "RW": true});
        let mounts = json!([
            volume("conf", "/etc/app"),
            volume("c3d4", "/cache"),
            volume("files", "/files"),
            volume("a1b2", "/data"),
        ]);
        let model = with(with(container("web", "running"), "/HostConfig", host), "/Mounts", mounts);
        let body = body(&model, &Value::Null, &rollout(2), "web:v2", &Value::Null);
        assert_eq!(body["HostConfig"]["Binds"], json!(["conf:/etc/app/:ro", "a1b2:/data"]));
        let mounted = body["HostConfig"]["Mounts"].as_array().unwrap().iter().map(|mount| &mount["Source"]);
        assert_eq!(mounted.collect::<Vec<_>>(), [&json!("c3d4"), &json!("files"), &Value::Null]);
        assert_eq!(body["HostConfig"]["AutoRemove"], false);
        assert_eq!(body["HostConfig"]["Links"], json!(["/db:database"]));
        assert_eq!(body["HostConfig"]["RestartPolicy"]["Name"], "always");
    }

    #[test]
    fn networks_are_joined_as_they_were() {
        let short = container("web", "running").short_id().to_owned();
        let networks = json!({
            "shop": {"IPAddress": "10.0.0.2", "Aliases": ["web", short], "IPAMConfig": null, "EndpointID": "e"},
            "proxy": {"IPAddress": "10.0.1.2", "Aliases": null, "DriverOpts": {"a": "b"}},
        });
        let model = with(container("web", "running"), "/NetworkSettings/Networks", networks);
        let made = body(&model, &Value::Null, &rollout(2), "web:v2", &Value::Null);
        assert_eq!(made["NetworkingConfig"]["EndpointsConfig"], json!({"shop": {"Aliases": ["web"]}}));
        let joined = stamped(APP, 2, "created");
        assert_eq!(
            missing_networks(&model, &rollout(2), &joined),
            [("proxy".to_owned(), json!({"DriverOpts": {"a": "b"}}))]
        );
    }
}
