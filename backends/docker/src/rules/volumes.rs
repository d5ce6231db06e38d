//! The volumes that the engine makes because an image asks for one, by `VOLUME` of its Dockerfile.
//!
//! Such a volume is of the image, as its commands are: it goes over to the next container if the next image asks for one at
//! the same place, so that data outlives a deploy, and files over which a version put a volume do not. A container has
//! it bound by name then, as if it had been given; a label sets the two apart. The label keeps a volume that an image in
//! between does not ask for: a rollback to a version that does finds its data.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{
    container::{Container, VOLUMES},
    given::Given,
};

/// The names of such volumes, by the place at which each is mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ImageVolumes(BTreeMap<String, String>);

impl ImageVolumes {
    /// Reads the volumes of a container. `defaults` is the configuration of its image; without one, only those of images
    /// before are known.
    pub(crate) fn of(model: &Container, defaults: &Value) -> Self {
        let known = model.label(VOLUMES).and_then(|label| serde_json::from_str(label).ok());
        let mut volumes: BTreeMap<String, String> = known.unwrap_or_default();
        let chosen = Given::of(model);
        let asked: Vec<&String> = places(defaults).filter(|place| !chosen.has_key("Volumes", place)).collect();
        let is_asked = |place: &str| asked.iter().any(|asked| clean(asked) == clean(place));
        let made = unnamed(model).filter(|(_, place, _)| is_asked(place));
        volumes.extend(made.map(|(name, place, _)| (clean(place), name.to_owned())));
        Self(volumes)
    }

    /// Returns the label that keeps them.
    pub(crate) fn label(&self) -> String {
        json!(self.0).to_string()
    }

    /// Replaces the binds of these volumes by those of the volumes that the next image, with this configuration, asks for.
    /// Volumes that were given without a name are bound too.
    pub(crate) fn bind(&self, model: &Container, host: &mut Value, brought: &Value) {
        let listed = host["Binds"].as_array().cloned().unwrap_or_default();
        let is_of_image = |bind: &Value| {
            bound(bind).is_some_and(|(name, place)| self.0.get(&clean(place)).is_some_and(|known| known == name))
        };
        let mut binds: Vec<Value> = listed.iter().filter(|bind| !is_of_image(bind)).cloned().collect();
        let given = unnamed(model).filter(|(_, place, _)| !self.0.contains_key(&clean(place)));
        binds.extend(given.map(|(name, place, mode)| format!("{name}:{place}{mode}").into()));
        let taken: Vec<String> = binds.iter().filter_map(bound).map(|(_, place)| clean(place)).collect();
        let asked: Vec<String> = places(brought).map(|place| clean(place)).collect();
        let goes_over = |place: &String| asked.contains(place) && !taken.contains(place);
        let volumes = self.0.iter().filter(|(place, _)| goes_over(place));
        binds.extend(volumes.map(|(place, name)| format!("{name}:{place}").into()));
        if binds != listed {
            host["Binds"] = binds.into();
        }
    }
}

/// The volumes of a container that neither a bind nor a mount names: name, place and mode. The engine made them because the
/// image asks for one, or because a person did without a name for it.
fn unnamed(model: &Container) -> impl Iterator<Item = (&str, &str, &'static str)> {
    let host = &model.object["HostConfig"];
    let listed = |list: &str| host[list].as_array().into_iter().flatten();
    let mounted = listed("Mounts").filter_map(|mount| mount["Target"].as_str());
    let named: Vec<String> =
        listed("Binds").filter_map(bound).map(|(_, place)| place).chain(mounted).map(clean).collect();
    let mounts = model.object["Mounts"].as_array().into_iter().flatten();
    mounts.filter(|mount| mount["Type"] == "volume").filter_map(move |mount| {
        let (name, place) = (mount["Name"].as_str()?, mount["Destination"].as_str()?);
        let mode = if mount["RW"] == false { ":ro" } else { "" };
        (!named.contains(&clean(place))).then_some((name, place, mode))
    })
}

/// The source and the place of a bind.
pub(super) fn bound(bind: &Value) -> Option<(&str, &str)> {
    let mut parts = bind.as_str()?.split(':');
    Some((parts.next()?, parts.next()?))
}

/// The places at which an image asks for volumes.
fn places(config: &Value) -> impl Iterator<Item = &String> {
    config["Volumes"].as_object().into_iter().flatten().map(|(place, _)| place)
}

/// A directory of the container, as the engine writes it.
pub(crate) fn clean(directory: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in directory.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::{
        container::GIVEN,
        samples::{OURS, container, stamped, with},
    };

    fn mounted(container: Container, volumes: &[(&str, &str)]) -> Container {
        let volume =
            |(name, place): &(&str, &str)| json!({"Type": "volume", "Name": name, "Destination": place, "RW": true});
        with(container, "/Mounts", volumes.iter().map(volume).collect())
    }

    fn asking(places: &[&str]) -> Value {
        json!({ "Volumes": places.iter().map(|place| ((*place).to_owned(), json!({}))).collect::<serde_json::Map<_, _>>() })
    }

    /// The binds and the label of the next container.
    fn next(model: &Container, defaults: &Value, brought: &Value) -> (Value, String) {
        let volumes = ImageVolumes::of(model, defaults);
        let mut host = model.object["HostConfig"].clone();
        volumes.bind(model, &mut host, brought);
        (host["Binds"].clone(), volumes.label())
    }

    /// The next container, with the volumes that it has.
    fn made(revision: u64, (binds, label): (Value, String), mounts: &[(&str, &str)]) -> Container {
        let made = with(stamped(OURS, revision, "running"), "/HostConfig/Binds", binds);
        mounted(with(made, &format!("/Config/Labels/{VOLUMES}"), label.into()), mounts)
    }

    #[test]
    fn volume_goes_over_to_each_image_that_asks_for_it() {
        let adopted = mounted(container("web", "running"), &[("a1", "/data")]);
        let asks = asking(&["/data"]);
        let second = next(&adopted, &asks, &asks);
        assert_eq!(second, (json!(["a1:/data"]), r#"{"/data":"a1"}"#.to_owned()));
        let second = made(2, second, &[("a1", "/data")]);
        let third = next(&second, &asks, &asks);
        assert_eq!(third.0, json!(["a1:/data"]));
        let without = next(&second, &asks, &asking(&[]));
        assert_eq!(without, (json!([]), r#"{"/data":"a1"}"#.to_owned()));
        let without = made(3, without, &[]);
        assert_eq!(next(&without, &asking(&[]), &asks).0, json!(["a1:/data"]), "a rollback finds its data");
        assert_eq!(next(&without, &asking(&[]), &asking(&[])).0, json!([]));
    }

    #[test]
    fn volume_of_a_bad_version_goes_with_it() {
        let (good, bad) = (asking(&["/data"]), asking(&["/data", "/srv/../etc/app/"]));
        let second = next(&mounted(container("web", "running"), &[("a1", "/data")]), &good, &bad);
        assert_eq!(second.0, json!(["a1:/data"]));
        let second = made(2, second, &[("a1", "/data"), ("b2", "/etc/app")]);
        let third = next(&second, &bad, &good);
        assert_eq!(third, (json!(["a1:/data"]), r#"{"/data":"a1","/etc/app":"b2"}"#.to_owned()));
        // A deploy of the bad version over itself, and then away from it.
        let again = made(3, next(&second, &bad, &bad), &[("a1", "/data"), ("b2", "/etc/app")]);
        assert_eq!(again.object["HostConfig"]["Binds"], json!(["a1:/data", "b2:/etc/app"]));
        assert_eq!(next(&again, &bad, &good).0, json!(["a1:/data"]));
    }

    #[test]
    fn volume_that_a_person_gave_goes_over_to_any_image() {
        let given = with(container("web", "running"), "/HostConfig/Binds", json!(["conf:/etc/app/:ro"]));
        let given = mounted(given, &[("conf", "/etc/app"), ("c3", "/cache"), ("a1", "/data")]);
        let asks = asking(&["/data", "/etc/app"]);
        let (binds, label) = next(&given, &asks, &asking(&[]));
        assert_eq!((binds, label.as_str()), (json!(["conf:/etc/app/:ro", "c3:/cache"]), r#"{"/data":"a1"}"#));
        let (binds, label) = next(&given, &Value::Null, &asking(&[]));
        let all = json!(["conf:/etc/app/:ro", "c3:/cache", "a1:/data"]);
        assert_eq!((binds, label.as_str()), (all, "{}"), "without its image, all look as if they were given");
        // Given to a container of ours, whose image asks for it as well.
        let ours = mounted(stamped(OURS, 2, "running"), &[("c3", "/cache")]);
        let ours = with(ours, &format!("/Config/Labels/{GIVEN}"), json!(r#"["Volumes /cache"]"#));
        assert_eq!(next(&ours, &asking(&["/cache"]), &asking(&[])).0, json!(["c3:/cache"]));
    }

    #[test]
    fn container_without_volumes_stays_as_it_is() {
        let plain = container("web", "running");
        assert_eq!(next(&plain, &asking(&[]), &asking(&["/data"])), (Value::Null, "{}".to_owned()));
        let mount = json!([{"Type": "volume", "Target": "/data/", "Source": "files"}]);
        let mount = mounted(with(plain, "/HostConfig/Mounts", mount), &[("files", "/data")]);
        assert_eq!(next(&mount, &asking(&["/data"]), &asking(&["/data"])).0, Value::Null);
    }
}
