//! What the app's configuration says that containers are made with: memory, ports, volumes, network, labels and command.
//!
//! A container is made of the one before it, so that a setting would stay for ever once it was laid over what others gave. A
//! label keeps what each setting has replaced: the next container is made of the one before without its settings, and with
//! those of its own deploy. What the settings do not name stays as others made it.

use std::borrow::Cow;

use rollhook_core::app::AppUid;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{
    container::{Container, SETTINGS},
    creation,
    recreation::endpoint,
    volumes::{bound, clean},
};
use crate::settings::{MadeWith, Rollout};

/// The settings that a container was made with, and what they replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Laid {
    /// The settings.
    pub(crate) set: MadeWith,
    #[serde(skip_serializing_if = "is_default")]
    replaced: Replaced,
}

/// What settings replaced; null stands for nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Replaced {
    /// Members of the container's configuration.
    #[serde(skip_serializing_if = "Map::is_empty")]
    config: Map<String, Value>,
    /// Members of the host's configuration.
    #[serde(skip_serializing_if = "Map::is_empty")]
    host: Map<String, Value>,
    /// Ports that are exposed as they are published.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    exposed: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    binds: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    mounts: Vec<Value>,
    /// Networks that are not joined, or in another way.
    #[serde(skip_serializing_if = "Map::is_empty")]
    networks: Map<String, Value>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    labels: Map<String, Value>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Laid {
    /// Reads what a container carries, as a registration's deploy finds it. The settings of an earlier registration went with
    /// it: what they made of the container is as given.
    pub(crate) fn of(container: &Container, app: AppUid) -> Self {
        let is_ours = container.deploy().is_some_and(|id| id.app == app);
        let label = container.label(SETTINGS).filter(|_| is_ours);
        label.and_then(|label| serde_json::from_str(label).ok()).unwrap_or_default()
    }

    /// Returns the container as it would be without the settings.
    pub(crate) fn without(model: &Container, app: AppUid) -> Cow<'_, Container> {
        let laid = Self::of(model, app);
        if laid == Self::default() {
            return Cow::Borrowed(model);
        }
        let mut model = model.clone();
        laid.take_off(&mut model.object);
        Cow::Owned(model)
    }

    fn take_off(self, object: &mut Value) {
        let Self { set, replaced } = self;
        let places: Vec<String> = set.places().map(clean).collect();
        let is_set = |place: Option<&str>| place.is_some_and(|place| places.contains(&clean(place)));
        if !places.is_empty() {
            let host = &mut object["HostConfig"];
            retain(&mut host["Binds"], |bind| !is_set(bound(bind).map(|(_, place)| place)));
            retain(&mut host["Mounts"], |mount| !is_set(mount["Target"].as_str()));
            append(&mut host["Binds"], replaced.binds);
            append(&mut host["Mounts"], replaced.mounts);
            retain(&mut object["Mounts"], |mount| !is_set(mount["Destination"].as_str()));
        }
        for (name, value) in replaced.config {
            put(&mut object["Config"], name, value);
        }
        for (name, value) in replaced.host {
            put(&mut object["HostConfig"], name, value);
        }
        for port in replaced.exposed {
            put(&mut object["Config"]["ExposedPorts"], port, Value::Null);
        }
        for (name, value) in replaced.labels {
            put(&mut object["Config"]["Labels"], name, value);
        }
        if let Some(network) = set.network() {
            put(&mut object["NetworkSettings"]["Networks"], network.to_owned(), Value::Null);
            for (name, value) in replaced.networks {
                put(&mut object["NetworkSettings"]["Networks"], name, value);
            }
        }
    }

    /// Lays a deploy's settings over the document that makes its container. `model` is the container that it is made of,
    /// without its own settings.
    pub(crate) fn lay(body: &mut Value, model: Option<&Container>, rollout: &Rollout) {
        let set = rollout.made_with.clone();
        if set == MadeWith::default() {
            return;
        }
        let mut replaced = Replaced::default();
        replaced.resources(body, &set);
        if let Some(publish) = &set.publish {
            replaced.ports(body, publish);
        }
        if let Some(volumes) = &set.volumes {
            replaced.volumes(body, volumes);
        }
        if let Some(network) = set.network() {
            replaced.network(body, model, network);
        }
        if let Some(words) = set.command() {
            replaced.config.insert("Cmd".to_owned(), body["Cmd"].clone());
            body["Cmd"] = json!(words);
        }
        for (name, value) in set.labels.iter().flatten() {
            replaced.labels.insert(name.clone(), body["Labels"][name].clone());
            body["Labels"][name] = value.clone().into();
        }
        let laid = Self { set, replaced };
        body["Labels"][SETTINGS] = serde_json::to_string(&laid).unwrap_or_default().into();
    }
}

impl Replaced {
    fn host(&mut self, body: &mut Value, name: &str, value: Value) {
        self.host.insert(name.to_owned(), body["HostConfig"][name].clone());
        body["HostConfig"][name] = value;
    }

    fn resources(&mut self, body: &mut Value, set: &MadeWith) {
        if let Some(memory) = &set.memory {
            // The engine tells a limit of swap that nobody gave as twice that of memory.
            let is_unlimited = body["HostConfig"]["MemorySwap"] == -1;
            self.host(body, "Memory", creation::memory(memory).unwrap_or_default().into());
            self.host(body, "MemorySwap", if is_unlimited { -1 } else { 0 }.into());
        }
        if let Some(cpu) = &set.cpu {
            self.host(body, "NanoCpus", nano_cpus(cpu).unwrap_or_default().into());
            self.host(body, "CpuPeriod", 0.into());
            self.host(body, "CpuQuota", 0.into());
        }
    }

    fn ports(&mut self, body: &mut Value, publish: &[String]) {
        let (exposed, bindings) = creation::published(publish);
        self.host(body, "PortBindings", bindings.into());
        self.host(body, "PublishAllPorts", false.into());
        for (port, _) in exposed {
            if body["ExposedPorts"].get(&port).is_none() {
                body["ExposedPorts"][&port] = json!({});
                self.exposed.push(port);
            }
        }
    }

    /// Mounts volumes in place of what is mounted at the same places.
    fn volumes(&mut self, body: &mut Value, volumes: &[String]) {
        let places: Vec<String> = volumes.iter().filter_map(|text| creation::place(text)).map(clean).collect();
        let is_set = |place: Option<&str>| place.is_some_and(|place| places.contains(&clean(place)));
        let host = &mut body["HostConfig"];
        self.binds = retain(&mut host["Binds"], |bind| !is_set(bound(bind).map(|(_, place)| place)));
        self.mounts = retain(&mut host["Mounts"], |mount| !is_set(mount["Target"].as_str()));
        let mounted = volumes.iter().filter(|text| !text.starts_with(':'));
        append(&mut host["Binds"], mounted.map(|text| text.clone().into()).collect());
    }

    /// Joins a network in place of the one that the container would be made on.
    fn network(&mut self, body: &mut Value, model: Option<&Container>, network: &str) {
        let mut joins = json!({});
        let first = model.into_iter().flat_map(|model| {
            first_networks(model, network).map(|(name, settings)| (name, settings, endpoint(model, settings)))
        });
        for (name, settings, mut joined) in first {
            // Addresses are of their own network, and names are for the next one as well.
            if name == network {
                joins = joined.clone();
            } else if joins.get("Aliases").is_none() && !joined["Aliases"].is_null() {
                joins["Aliases"] = joined["Aliases"].clone();
            }
            joined["NetworkID"] = settings["NetworkID"].clone();
            self.networks.insert(name.clone(), joined);
        }
        self.host(body, "NetworkMode", network.into());
        if let Some(body) = body.as_object_mut() {
            body.remove("NetworkingConfig");
            if !is_engines(network) {
                body.insert("NetworkingConfig".to_owned(), json!({ "EndpointsConfig": { network: joins } }));
            }
        }
    }
}

/// The networks of a container whose place another one takes: the one that it was made on, and that one itself.
fn first_networks<'a>(model: &'a Container, network: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    let mode = model.object["HostConfig"]["NetworkMode"].as_str().unwrap_or_default();
    model.networks().filter(move |(name, settings)| {
        let is_default = matches!(mode, "" | "default") && *name == "bridge";
        let is_by_id = settings["NetworkID"].as_str().is_some_and(|id| !id.is_empty() && id == mode);
        is_default || is_by_id || *name == mode || *name == network
    })
}

/// The networks of a container, without its settings, that one made of it joins by a deploy's settings beside its first one.
pub(crate) fn networks<'a>(
    model: &'a Container,
    rollout: &'a Rollout,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    let network = rollout.made_with.network();
    let first: Vec<&String> =
        network.map(|network| first_networks(model, network).map(|(name, _)| name).collect()).unwrap_or_default();
    // A container of one of these joins no other one.
    let is_alone = network.is_some_and(|network| matches!(network, "host" | "none"));
    model.networks().filter(move |(name, _)| !is_alone && !first.contains(name))
}

/// Whether a network is one of the engine's own, which take no settings.
fn is_engines(network: &str) -> bool {
    matches!(network, "bridge" | "host" | "none")
}

/// Reads processor time such as `1.5` or `500m`; `None` if it is none, or less than engines take.
pub(crate) fn nano_cpus(text: &str) -> Option<u64> {
    const CPU: u64 = 1_000_000_000;
    let (digits, unit) = match text.strip_suffix('m') {
        Some(digits) => (digits, CPU / 1000),
        None => (text, CPU),
    };
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let is_number = |text: &str| !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(part) {
        return None;
    }
    let scale = 10_u64.checked_pow(part.len().try_into().ok()?)?;
    let nano = whole.parse::<u64>().ok()?.checked_mul(unit)? + part.parse::<u64>().ok()? * unit / scale;
    (nano >= CPU / 100).then_some(nano)
}

/// Whether ports at two addresses of this machine cannot be bound both; no address is every one.
pub(crate) fn addresses_meet(one: &str, other: &str) -> bool {
    let is_any = |address: &str| matches!(address, "" | "0.0.0.0" | "::");
    one == other || is_any(one) || is_any(other)
}

/// Sets a member of an object, which is made if it is missing; null removes it.
fn put(object: &mut Value, name: String, value: Value) {
    if value.is_null() {
        if let Some(members) = object.as_object_mut() {
            members.remove(&name);
        }
    } else {
        if !object.is_object() {
            *object = json!({});
        }
        object[name] = value;
    }
}

/// Keeps these values of a list, and returns the others.
fn retain(list: &mut Value, is_kept: impl Fn(&Value) -> bool) -> Vec<Value> {
    let Some(values) = list.as_array_mut() else { return Vec::new() };
    let (kept, others) = std::mem::take(values).into_iter().partition(is_kept);
    *values = kept;
    others
}

fn append(list: &mut Value, values: Vec<Value>) {
    if values.is_empty() {
        return;
    }
    if !list.is_array() {
        *list = json!([]);
    }
    if let Some(list) = list.as_array_mut() {
        list.extend(values);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{
        recreation,
        samples::{OURS, THEIRS, container, rollout, stamped, with},
    };

    fn made_with(settings: Value) -> MadeWith {
        MadeWith::parse(settings.as_object().unwrap()).unwrap()
    }

    /// What the container of a deploy with these settings is made with.
    fn body(model: &Container, settings: Value) -> Value {
        let rollout = Rollout { made_with: made_with(settings), ..rollout(2) };
        recreation::body(model, &Value::Null, &rollout, "web:v2", &Value::Null)
    }

    /// The container that was made by a document.
    fn made(revision: u64, body: &Value) -> Container {
        let mut made = stamped(OURS, revision, "running");
        for (name, value) in body["Labels"].as_object().unwrap() {
            if name != crate::rules::container::DEPLOY {
                made.object["Config"]["Labels"][name] = value.clone();
            }
        }
        made.object["Config"]["ExposedPorts"] = body["ExposedPorts"].clone();
        made.object["HostConfig"] = body["HostConfig"].clone();
        let binds = body["HostConfig"]["Binds"].as_array().into_iter().flatten().filter_map(bound);
        made.object["Mounts"] = binds
            .map(|(name, place)| json!({"Type": "volume", "Name": name, "Destination": place, "RW": true}))
            .collect();
        let networks = body["NetworkingConfig"]["EndpointsConfig"].clone();
        made.object["NetworkSettings"]["Networks"] = networks;
        made
    }

    fn given() -> Container {
        let host = json!({
            "NetworkMode": "shop", "Memory": 536_870_912, "MemorySwap": 1_073_741_824, "CpuQuota": 50_000,
            "PortBindings": {"80/tcp": [{"HostIp": "", "HostPort": "8080"}]},
            "Binds": ["conf:/etc/app:ro", "data:/data/"], "Mounts": [{"Type": "volume", "Target": "/srv", "Source": "srv"}],
        });
        let given = with(container("web", "running"), "/HostConfig", host);
        let given = with(given, "/Config/ExposedPorts", json!({"80/tcp": {}}));
        let given = with(given, "/Config/Labels", json!({"team": "shop", "proxy": "old"}));
        let networks =
            json!({"shop": {"NetworkID": "0f1e", "Aliases": ["web"]}, "metrics": {"DriverOpts": {"a": "b"}}});
        with(given, "/NetworkSettings/Networks", networks)
    }

    #[test]
    fn settings_take_the_place_of_what_others_gave_and_give_it_back() {
        let plain = body(&given(), json!({}));
        let all = json!({
            "memory": "1g", "cpu": "1.5", "publish": ["127.0.0.1:8081-8082:81"], "network": "backend",
            "volumes": ["fast:/data", ":/srv", "new:/cache"], "labels": {"proxy": "new", "more": ""},
        });
        let first = body(&given(), all.clone());
        let host = &first["HostConfig"];
        assert_eq!((&host["Memory"], &host["MemorySwap"]), (&json!(1_u64 << 30), &json!(0)));
        assert_eq!((&host["NanoCpus"], &host["CpuQuota"]), (&json!(1_500_000_000), &json!(0)));
        assert_eq!(host["PortBindings"], json!({"81/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8081-8082"}]}));
        assert_eq!(first["ExposedPorts"], json!({"80/tcp": {}, "81/tcp": {}}));
        assert_eq!(host["Binds"], json!(["conf:/etc/app:ro", "fast:/data", "new:/cache"]));
        assert_eq!((&host["Mounts"], &host["NetworkMode"]), (&json!([]), &json!("backend")));
        assert_eq!(first["NetworkingConfig"]["EndpointsConfig"], json!({"backend": {"Aliases": ["web"]}}));
        let labels = ["team", "proxy", "more"].map(|name| first["Labels"][name].as_str().unwrap());
        assert_eq!(labels, ["shop", "new", ""]);
        // The same settings again, others, and then none.
        let same = body(&made(1, &first), all);
        assert_eq!((&same["HostConfig"], &same["Labels"][SETTINGS]), (host, &first["Labels"][SETTINGS]));
        let other = body(&made(1, &same), json!({"memory": "", "volumes": []}));
        assert_eq!((&other["HostConfig"]["Memory"], &other["HostConfig"]["CpuQuota"]), (&json!(0), &json!(50_000)));
        let none = body(&made(1, &other), json!({}));
        assert_eq!(none["Labels"], plain["Labels"]);
        assert_eq!(
            (&none["HostConfig"]["Memory"], &none["HostConfig"]["MemorySwap"]),
            (&json!(536_870_912), &json!(1_073_741_824))
        );
        for name in ["PortBindings", "NetworkMode", "Mounts"] {
            assert_eq!(none["HostConfig"][name], plain["HostConfig"][name], "{name}");
        }
        assert_eq!(none["HostConfig"]["Binds"], json!(["conf:/etc/app:ro", "data:/data/"]));
        assert_eq!(none["ExposedPorts"], plain["ExposedPorts"]);
        assert_eq!(none["NetworkingConfig"], plain["NetworkingConfig"]);
    }

    #[test]
    fn command_takes_the_place_of_the_one_before_and_gives_it_back() {
        let defaults = json!({"Cmd": ["/app"]});
        let of = |model: &Container, settings: Value| {
            let rollout = Rollout { made_with: made_with(settings), ..rollout(2) };
            recreation::body(model, &defaults, &rollout, "web:v2", &Value::Null)
        };
        let ran = |body: &Value| with(made(1, body), "/Config/Cmd", body["Cmd"].clone());
        let set = |words: &str| json!({"commands": {"web": [words]}});
        for given in [json!(["bin/jobs"]), json!(["/app"])] {
            let before = with(container("web", "running"), "/Config/Cmd", given.clone());
            let first = of(&before, set("bin/work"));
            let second = of(&ran(&first), set("bin/other"));
            assert_eq!([&first["Cmd"], &second["Cmd"]], [&json!(["bin/work"]), &json!(["bin/other"])]);
            let none = of(&ran(&second), json!({}));
            assert_eq!(none.get("Cmd"), Some(&given).filter(|given| **given != defaults["Cmd"]), "{given}");
        }
    }

    #[test]
    fn network_takes_the_place_of_the_first_one_alone() {
        let with_network =
            |network: &str| Rollout { made_with: made_with(json!({ "network": network })), ..rollout(2) };
        let joins = |model: &Container, network: &str| {
            let made = with(stamped(OURS, 2, "created"), "/NetworkSettings/Networks", json!({ network: {} }));
            let missing = recreation::missing_networks(model, &with_network(network), &made);
            missing.into_iter().map(|(name, _)| name).collect::<Vec<_>>()
        };
        assert_eq!(joins(&given(), "backend"), ["metrics"]);
        assert!(joins(&given(), "metrics").is_empty(), "it is the first one then");
        assert!(joins(&given(), "host").is_empty(), "no other one can be joined");
        assert_eq!(with_network("").made_with.network(), Some("bridge"));
        let by_id = with(given(), "/HostConfig/NetworkMode", json!("0f1e"));
        assert_eq!(joins(&by_id, "backend"), ["metrics"]);
        let default = with(given(), "/HostConfig/NetworkMode", json!("default"));
        let default = with(default, "/NetworkSettings/Networks", json!({"bridge": {}, "shop": {}}));
        assert_eq!(joins(&default, "backend"), ["shop"]);
        // Without the setting, the container joins again what it was given.
        let laid = made(1, &body(&given(), json!({"network": "metrics"})));
        let before = Laid::without(&laid, OURS);
        let names: Vec<&str> = before.networks().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, &before.object["HostConfig"]["NetworkMode"]), (vec!["metrics", "shop"], &json!("shop")));
    }

    #[test]
    fn settings_of_an_earlier_registration_are_as_given() {
        let laid = made(1, &body(&given(), json!({"memory": "1g"})));
        assert!(matches!(Laid::without(&laid, OURS), Cow::Owned(_)));
        assert!(matches!(Laid::without(&laid, THEIRS), Cow::Borrowed(_)));
        assert!(matches!(Laid::without(&given(), OURS), Cow::Borrowed(_)));
    }

    #[test]
    fn amounts_of_processor_time_are_read() {
        let read = [("1", 1_000_000_000), ("1.5", 1_500_000_000), ("500m", 500_000_000), ("0.01", 10_000_000)];
        assert!(read.iter().all(|(text, nano)| nano_cpus(text) == Some(*nano)));
        for wrong in ["", "m", "1.", ".5", "-1", "0", "9m", "1e3", "99999999999999999999", "1.0000000000000001"] {
            assert_eq!(nano_cpus(wrong), None, "{wrong}");
        }
    }
}
