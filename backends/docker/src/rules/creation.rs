//! The container that is made for an app that has none, and the check of the settings that say how.

use std::ops::RangeInclusive;

use rollhook_core::{app::Settings, ports::InvalidTarget};
use serde_json::{Map, Value, json};

use super::{
    container::leads_to_one, made_with::Laid, recreation::stamp_labels, silence::silence_new, variables,
    variables::SetVariables,
};
use crate::settings::{Rollout, Template};

/// A published port: address and port of this machine, and the container's port.
struct Published {
    address: String,
    /// Of several, each container takes one that is free.
    ports: RangeInclusive<u16>,
    inner: String,
}

impl Published {
    fn is_fixed(&self) -> bool {
        self.ports.start() == self.ports.end()
    }

    /// The ports as the engine reads them.
    fn ports(&self) -> String {
        let (first, last) = (self.ports.start(), self.ports.end());
        if self.is_fixed() { first.to_string() } else { format!("{first}-{last}") }
    }
}

/// The document that makes the container, of this image.
pub(crate) fn body(template: &Template, rollout: &Rollout, image: &str) -> Value {
    let mut labels = json!(template.labels);
    stamp_labels(&mut labels, rollout, &rollout.workload.name, &SetVariables::default().next(&[], rollout));
    let env = variables::of_template(template, rollout);
    let (mut exposed, bindings) = published(&template.publish);
    exposed.extend(template.port.map(|port| (format!("{port}/tcp"), json!({}))));
    let mut host = json!({
        "Binds": template.volumes,
        "PortBindings": bindings,
        // Running again after a reboot, and not after a person stopped it.
        "RestartPolicy": { "Name": "unless-stopped" },
    });
    if let Some(network) = &template.network {
        host["NetworkMode"] = network.clone().into();
    }
    if let Some(bytes) = template.memory.as_deref().and_then(memory) {
        host["Memory"] = bytes.into();
    }
    let mut body = json!({ "Image": image, "Env": env, "ExposedPorts": exposed, "Labels": labels, "HostConfig": host });
    if !template.command.is_empty() {
        body["Cmd"] = json!(template.command);
    }
    if template.further {
        // The image's is about what the image runs by itself.
        body["Healthcheck"] = json!({ "Test": ["NONE"] });
    }
    Laid::lay(&mut body, None, rollout);
    body
}

/// Returns the document without what the image says to tools, such as a proxy's routes: only who makes the container says which
/// requests lead to it.
pub(crate) fn silent(mut body: Value, brought: &Value) -> Value {
    if let Some(config) = body.as_object_mut() {
        silence_new(config, brought);
    }
    body
}

/// The ports of published ones as the engine reads them: those of the container that are exposed, and where they lead from.
pub(super) fn published(texts: &[String]) -> (Map<String, Value>, Map<String, Value>) {
    let (mut exposed, mut bindings) = (Map::new(), Map::new());
    for published in texts.iter().filter_map(|text| publish(text)) {
        exposed.insert(published.inner.clone(), json!({}));
        let bound = json!({ "HostIp": published.address, "HostPort": published.ports() });
        if let Some(all) = bindings.entry(published.inner).or_insert_with(|| json!([])).as_array_mut() {
            all.push(bound);
        }
    }
    (exposed, bindings)
}

/// The ports of this machine that are published: address, ports, of which each container takes one, and protocol.
pub(crate) fn published_from(texts: &[String]) -> impl Iterator<Item = (String, RangeInclusive<u16>, String)> {
    texts.iter().filter_map(|text| publish(text)).map(|published| {
        let protocol = published.inner.split_once('/').map_or("tcp", |(_, protocol)| protocol).to_owned();
        (published.address, published.ports, protocol)
    })
}

/// The most words of a command, and the most bytes of all together, as of a release command.
const WORDS_MAX: usize = 64;
const WORDS_BYTES_MAX: usize = 4096;

pub(crate) fn is_command(words: &[String]) -> bool {
    let bytes: usize = words.iter().map(String::len).sum();
    let is_bounded = words.len() <= WORDS_MAX && bytes <= WORDS_BYTES_MAX;
    let is_first_given = words.first().is_none_or(|word| !word.trim().is_empty());
    is_bounded && is_first_given && !words.iter().any(|word| word.contains('\0'))
}

/// The place of a volume, of `SOURCE:PLACE` or `SOURCE:PLACE:ro`.
pub(crate) fn place(volume: &str) -> Option<&str> {
    volume.split(':').nth(1)
}

/// Checks a template.
///
/// # Errors
/// [`InvalidTarget::Setting`].
pub(crate) fn check(template: &Template) -> Result<(), InvalidTarget> {
    if template.publish.iter().any(|text| publish(text).is_none()) {
        let rule = "must be ports such as 8080:80, 127.0.0.1:8080:80 or, for versions to take in turn, \
                    127.0.0.1:8081-8082:80.";
        return Err(InvalidTarget::setting("template.publish", rule));
    }
    let is_volume = |text: &String| {
        let mut parts = text.split(':');
        let (Some(source), Some(place)) = (parts.next(), parts.next()) else { return false };
        let mode = parts.next();
        let source_fits = source.starts_with('/') || (!source.is_empty() && !source.contains('/'));
        source_fits && place.starts_with('/') && matches!(mode, None | Some("ro" | "rw")) && parts.next().is_none()
    };
    if !template.volumes.iter().all(is_volume) {
        let rule = "must be NAME:/PATH or /DIRECTORY:/PATH, both also with :ro.";
        return Err(InvalidTarget::setting("template.volumes", rule));
    }
    if !is_command(&template.command) {
        let rule =
            "must be at most 64 words with 4 KiB in all, of which the first is not empty, without NUL characters.";
        return Err(InvalidTarget::setting("template.command", rule));
    }
    if template.memory.as_deref().is_some_and(|text| memory(text).is_none()) {
        return Err(InvalidTarget::setting(
            "template.memory",
            "must be an amount such as 512m, 2g or 2Gi, at least 6m.",
        ));
    }
    Ok(())
}

/// Whether the readiness of containers with these settings is asked of a path.
pub(crate) fn asks_for_a_path(settings: &Settings) -> bool {
    let is_path = |settings: Option<&Value>| settings.is_some_and(Value::is_string);
    is_path(settings.get("readiness_path"))
        || is_path(settings.get("template").and_then(|template| template.get("readiness_path")))
}

/// The refusal of a readiness path on an engine whose containers this machine does not reach. `info` is what the engine
/// tells of itself.
pub(crate) fn unreachable(info: &Value) -> Option<InvalidTarget> {
    let mut options = info["SecurityOptions"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let is_rootless = options.any(|option| option.split(',').any(|part| part == "name=rootless"));
    let rule = "cannot be asked: containers of rootless Docker have a network namespace of their own, which this machine \
                does not reach. Give the image a health check instead.";
    is_rootless.then(|| InvalidTarget::setting("workload.readiness_path", rule))
}

/// The reason why two containers of the template cannot run at the same time, for people; `None` if they can.
pub(crate) fn sole(template: &Template) -> Option<String> {
    let mut published = template.publish.iter().filter_map(|text| publish(text));
    let fixed = published.find(Published::is_fixed).map(|published| leads_to_one(published.ports()));
    let is_host = template.network.as_deref() == Some("host");
    fixed.or(is_host.then(|| "its network is the machine's, where each port is free once".to_owned()))
}

/// The ports of this machine that versions take in turn.
pub(crate) fn in_turn(template: &Template) -> impl Iterator<Item = String> {
    let published = template.publish.iter().filter_map(|text| publish(text));
    published.filter(|published| !published.is_fixed()).map(|published| published.ports())
}

/// A volume or directory that the container may write to, which two at once may damage.
pub(crate) fn writes_to(template: &Template) -> Option<&str> {
    template.volumes.iter().find(|volume| !volume.ends_with(":ro")).and_then(|volume| place(volume))
}

fn publish(text: &str) -> Option<Published> {
    let (ports, protocol) = text.split_once('/').unwrap_or((text, "tcp"));
    let mut parts = ports.rsplitn(3, ':');
    let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
    let inner = port(parts.next()?)?;
    let (first, last) = parts.next().map(|text| text.split_once('-').unwrap_or((text, text)))?;
    let ports = port(first)?..=port(last)?;
    let given = parts.next().unwrap_or_default();
    // The engine wants the address without the brackets that tell its colons from that of the port.
    let address = given.strip_prefix('[').and_then(|given| given.strip_suffix(']')).unwrap_or(given);
    let is_address = given.is_empty() || address.parse::<std::net::IpAddr>().is_ok();
    let known = matches!(protocol, "tcp" | "udp");
    let inner = format!("{inner}/{protocol}");
    (known && is_address && !ports.is_empty()).then(|| Published { address: address.to_owned(), ports, inner })
}

/// Reads an amount of memory such as `512m`, `2g` or `2Gi`; `None` if it is none, or less than the 6 MiB that engines
/// take.
pub(crate) fn memory(text: &str) -> Option<u64> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match text.get(digits.len()..)?.to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "ki" => 1 << 10,
        "m" | "mi" => 1 << 20,
        "g" | "gi" => 1 << 30,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit).filter(|bytes| *bytes >= 6 << 20)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::rules::samples::rollout;

    #[test]
    fn image_leads_no_requests_to_a_container_that_is_made() {
        let brought = json!({"traefik.enable": "true", "com.docker.compose.project": "other", "maintainer": "ada"});
        let brought = json!({"Labels": brought, "Env": ["VIRTUAL_HOST=pay.example.com", "PATH=/bin"]});
        let made = silent(json!({"Labels": {"traefik.enable": "false"}, "Env": ["MODE=test"]}), &brought);
        assert_eq!(made["Labels"], json!({"traefik.enable": "false", "com.docker.compose.project": ""}));
        assert_eq!(made["Env"], json!(["MODE=test", "VIRTUAL_HOST="]));
    }

    #[test]
    fn container_has_all_settings_of_the_template() {
        let template = Template {
            port: Some(80),
            publish: vec!["127.0.0.1:8080-8081:80".to_owned(), "[::1]:8080:80".to_owned(), "9000:53/udp".to_owned()],
            env: BTreeMap::from([("MODE".to_owned(), "test".to_owned())]),
            readiness_path: Some("/healthz".to_owned()),
            network: Some("shop".to_owned()),
            volumes: vec!["data:/data".to_owned()],
            labels: BTreeMap::from([("caddy".to_owned(), "web.example.com".to_owned())]),
            memory: Some("512m".to_owned()),
            ..Template::default()
        };
        assert_eq!(check(&template), Ok(()));
        let body = body(&template, &rollout(1), "web:v1");
        assert_eq!((body.get("Cmd"), body.get("Healthcheck")), (None, None), "those of the image");
        assert_eq!(body["Env"], json!(["MODE=test"]));
        assert_eq!(body["ExposedPorts"], json!({"80/tcp": {}, "53/udp": {}}));
        assert_eq!(body["Labels"]["caddy"], "web.example.com");
        assert_eq!(
            body["HostConfig"],
            json!({
                "Binds": ["data:/data"], "NetworkMode": "shop", "Memory": 536_870_912,
                "PortBindings": {
                    "80/tcp": [
                        {"HostIp": "127.0.0.1", "HostPort": "8080-8081"},
                        {"HostIp": "::1", "HostPort": "8080"},
                    ],
                    "53/udp": [{"HostIp": "", "HostPort": "9000"}],
                },
                "RestartPolicy": {"Name": "unless-stopped"},
            })
        );
    }

    #[test]
    fn container_runs_its_own_command() {
        let command = || vec!["bin/jobs".to_owned(), "--all".to_owned()];
        let web = Template { command: command(), ..Template::default() };
        let body_of = |template: &Template| body(template, &rollout(1), "web:v1");
        assert_eq!((&body_of(&web)["Cmd"], body_of(&web).get("Healthcheck")), (&json!(["bin/jobs", "--all"]), None));
        let worker = body_of(&Template { further: true, ..web });
        assert_eq!((&worker["Cmd"], &worker["Healthcheck"]["Test"]), (&json!(["bin/jobs", "--all"]), &json!(["NONE"])));
        let wrong = |command: Vec<String>| check(&Template { command, ..Template::default() }).unwrap_err();
        for command in [vec![" ".to_owned()], vec!["a\0".to_owned()], vec!["a".to_owned(); 65], vec!["a".repeat(5000)]]
        {
            assert!(matches!(wrong(command), InvalidTarget::Setting { name, .. } if name == "template.command"));
        }
    }

    #[test]
    fn readiness_path_is_refused_on_rootless_docker() {
        // As engines 20.10 and 28 tell it.
        let rootless = json!({"SecurityOptions": ["name=seccomp,profile=builtin", "name=rootless", "name=cgroupns"]});
        let Some(InvalidTarget::Setting { name, rule }) = unreachable(&rootless) else { panic!() };
        assert!(name == "workload.readiness_path" && rule.contains("health check"), "{rule}");
        for other in [json!({"SecurityOptions": ["name=seccomp,profile=default"]}), json!({"SecurityOptions": null})] {
            assert!(unreachable(&other).is_none());
        }
        let settings = |template: Value| serde_json::from_value(json!({ "template": template })).unwrap();
        assert!(asks_for_a_path(&settings(json!({"port": 80, "readiness_path": "/"}))));
        assert!(asks_for_a_path(&serde_json::from_value(json!({"readiness_path": "/"})).unwrap()));
        assert!(!asks_for_a_path(&settings(json!({"port": 80, "readiness_path": null}))));
        assert!(!asks_for_a_path(&Settings::default()));
    }

    #[test]
    fn invalid_settings_are_named() {
        let publish = |text: &str| Template { publish: vec![text.to_owned()], ..Template::default() };
        let volume = |text: &str| Template { volumes: vec![text.to_owned()], ..Template::default() };
        for (template, name) in [
            (publish("80"), "template.publish"),
            (publish("host:8080:80"), "template.publish"),
            (publish("[]:8080:80"), "template.publish"),
            (publish("8080:80/sctp"), "template.publish"),
            (publish("8082-8081:80"), "template.publish"),
            (publish("8081-8082:80-81"), "template.publish"),
            (volume("data"), "template.volumes"),
            (volume("a/b:/data"), "template.volumes"),
            (volume("data:/data:z:z"), "template.volumes"),
            (Template { memory: Some("1t".to_owned()), ..Template::default() }, "template.memory"),
        ] {
            let Err(InvalidTarget::Setting { name: found, .. }) = check(&template) else { panic!("{template:?}") };
            assert_eq!(found, name);
        }
    }
}
