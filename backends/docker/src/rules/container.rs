//! A container as the engine tells it, and the target that it belongs to.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rollhook_core::{app::AppUid, image::ImageRef, ports::DeployId};
use serde::Deserialize;
use serde_json::Value;

use crate::error::shortened;

/// The label of the target that a container or a claim belongs to.
pub(crate) const TARGET: &str = "dev.rollhook.target";
/// The label of the deploy id.
pub(crate) const DEPLOY: &str = "dev.rollhook.deploy";
/// The label of the image as it was deployed.
pub(crate) const IMAGE: &str = "dev.rollhook.image";
/// The label of the registration that was taken over, if one was.
pub(crate) const TOOK_OVER: &str = "dev.rollhook.took-over";
/// The label of what a deploy that leaves no container running has made.
pub(crate) const RESTS: &str = "dev.rollhook.rests";
/// The label of the name that the container has once it is ready.
pub(crate) const NAME: &str = "dev.rollhook.name";
/// The label of a claim that names the container which its deploy keeps.
pub(crate) const KEEPS: &str = "dev.rollhook.keeps";
/// The label of a claim whose deploy may end the containers from before it.
pub(crate) const REPLACES: &str = "dev.rollhook.replaces";
/// The label of the given settings that equal the image's own.
pub(crate) const GIVEN: &str = "dev.rollhook.given";
/// The label of the volumes that images asked for.
pub(crate) const VOLUMES: &str = "dev.rollhook.volumes";
/// The label of the variables that deploys have set.
pub(crate) const VARIABLES: &str = "dev.rollhook.variables";
/// The label of what a deploy's settings made of the container, and of what they replaced.
pub(crate) const SETTINGS: &str = "dev.rollhook.settings";
/// The prefix of all of these labels.
pub(crate) const OURS: &str = "dev.rollhook.";

/// The labels by which Compose knows its containers.
pub(crate) const COMPOSE_PROJECT: &str = "com.docker.compose.project";
pub(crate) const COMPOSE_SERVICE: &str = "com.docker.compose.service";
pub(crate) const COMPOSE_ONEOFF: &str = "com.docker.compose.oneoff";

/// The deploy id that a container or a claim carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    pub(crate) id: DeployId,
    /// The registration whose stamps this one replaces.
    pub(crate) took_over: Option<AppUid>,
    pub(crate) image: Option<ImageRef>,
    /// Whether the deploy leaves no container running: its own is never started.
    pub(crate) rests: bool,
}

impl Stamp {
    /// Reads a stamp from labels; `None` if there is none.
    pub(crate) fn of(labels: &Value) -> Option<Self> {
        let label = |name: &str| labels[name].as_str();
        let id = label(DEPLOY)?.parse().ok()?;
        let took_over = label(TOOK_OVER).and_then(|uid| uid.parse().ok());
        let image = label(IMAGE).and_then(|image| image.parse().ok());
        Some(Self { id, took_over, image, rests: label(RESTS) == Some("true") })
    }

    /// The labels, with that of the target. One that says nothing is empty: a container would get its image's for one that
    /// is not there.
    pub(crate) fn labels(&self, target: &str) -> BTreeMap<&'static str, String> {
        let took_over = self.took_over.map(|uid| uid.to_string()).unwrap_or_default();
        let image = self.image.as_ref().map(ToString::to_string).unwrap_or_default();
        BTreeMap::from([
            (TARGET, target.to_owned()),
            (DEPLOY, self.id.to_string()),
            (TOOK_OVER, took_over),
            (IMAGE, image),
            (RESTS, if self.rests { "true" } else { "" }.to_owned()),
        ])
    }
}

/// A deploy's claim of the target: a volume that is never mounted. It carries the stamp from the moment at which the
/// deploy was applied until its container, which needs the image first, does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) name: String,
    pub(crate) stamp: Stamp,
    /// The id of the container from before that the deploy keeps as its own. Labels of a container cannot be changed, so
    /// that this claim stays for as long as the container does.
    pub(crate) keeps: Option<String>,
    /// Whether the deploy, whose container is ready, may end the containers from before it. Such a second claim of a deploy
    /// goes before the first change of another container: a restore that finds none knows that none was touched.
    pub(crate) replaces: bool,
    /// The time of the claim, by the engine's clock.
    pub(crate) created_at: String,
}

/// The host that every step of a build has, and by which it is known: its labels are what a Dockerfile says.
pub(crate) const STEP_HOST: &str = "step.rollhook.invalid";

/// The hosts that a container is given, of what inspecting it tells.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub(crate) struct Hosts {
    host_config: ExtraHosts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct ExtraHosts {
    extra_hosts: Option<Vec<String>>,
}

impl Hosts {
    /// Whether the container is a step of a build.
    pub(crate) fn are_of_build_step(&self) -> bool {
        self.host_config.extra_hosts.iter().flatten().any(|host| host.starts_with(STEP_HOST))
    }
}

/// The state of a container's process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Process {
    /// Made, and never started.
    Created,
    Running,
    /// Ended, and to be started again by the engine.
    Restarting,
    /// Ended, and not started again by the engine.
    Ended,
}

/// A container, as inspecting it tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Container {
    pub(crate) object: Value,
    /// Whether the container has labels of ours of which nobody can tell whether they came with its image, as that was
    /// removed by force.
    pub(crate) is_doubtful: bool,
}

impl Container {
    /// Returns a container that was inspected, without labels of ours that its image brought along. `inherited` are the
    /// image's labels, which the engine adds to those that a container is made with; `None` if the image is gone.
    ///
    /// Each container of ours has all of these labels, and a deploy id that no image has. An image has them that was made of
    /// such a container, or that wants to be taken for one. Of an image that is gone this is unknown: such labels give the
    /// container no rights, and the target stays the one that they name, so that deploys to it can be refused.
    pub(crate) fn inspected(mut object: Value, inherited: Option<&Value>) -> Self {
        let mut is_doubtful = false;
        if let Some(labels) = object.pointer_mut("/Config/Labels").and_then(Value::as_object_mut) {
            let id = labels.get(DEPLOY);
            let is_ours = id.is_some_and(|id| inherited.is_some_and(|inherited| *id != inherited[DEPLOY]));
            is_doubtful = id.is_some() && inherited.is_none();
            // Containers that were made before there were settings have their image's label.
            let is_images = |name: &str, value: &Value| {
                name == SETTINGS && inherited.is_some_and(|inherited| inherited[SETTINGS] == *value)
            };
            labels.retain(|name, value| {
                (is_ours && !is_images(name, value)) || (is_doubtful && name == TARGET) || !name.starts_with(OURS)
            });
        }
        Self { object, is_doubtful }
    }

    fn text<'a>(&'a self, pointer: &str) -> &'a str {
        self.object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(crate) fn id(&self) -> &str {
        self.text("/Id")
    }

    /// The id as people see it.
    pub(crate) fn short_id(&self) -> &str {
        self.id().get(..12).unwrap_or_default()
    }

    pub(crate) fn name(&self) -> &str {
        self.text("/Name").trim_start_matches('/')
    }

    /// The name that the container gets when a new one takes its own.
    pub(crate) fn name_aside(&self, name: &str) -> String {
        format!("{name}.old-{}", self.short_id())
    }

    /// The name that the container had before a new one took it; `None` if it still has its own.
    fn name_before(&self) -> Option<&str> {
        self.name().strip_suffix(self.short_id())?.strip_suffix(".old-")
    }

    /// Whether a new container has taken the name.
    pub(crate) fn is_set_aside(&self) -> bool {
        self.name_before().is_some()
    }

    /// Whether the container has this name, or had it before a new one took it.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name() == name || self.name() == self.name_aside(name)
    }

    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        self.object["Config"]["Labels"][name].as_str()
    }

    /// Whether the container is a step of a build. It is of no target, whichever its labels name.
    pub(crate) fn is_build_step(&self) -> bool {
        let mut hosts = self.object["HostConfig"]["ExtraHosts"].as_array().into_iter().flatten();
        hosts.any(|host| host.as_str().is_some_and(|host| host.starts_with(STEP_HOST)))
    }

    pub(crate) fn stamp(&self) -> Option<Stamp> {
        Stamp::of(&self.object["Config"]["Labels"])
    }

    pub(crate) fn deploy(&self) -> Option<DeployId> {
        self.stamp().map(|stamp| stamp.id)
    }

    /// The name that the container has, or will have once it is ready.
    pub(crate) fn final_name(&self) -> &str {
        self.label(NAME).or_else(|| self.name_before()).unwrap_or_else(|| self.name())
    }

    /// The image by its name, if the engine tells one.
    pub(crate) fn image(&self) -> Option<ImageRef> {
        let stamped = self.stamp().and_then(|stamp| stamp.image);
        stamped.or_else(|| self.text("/Config/Image").parse::<ImageRef>().ok().map(ImageRef::or_latest))
    }

    /// Why nothing is made of this container, and nothing is put in its place, once its image is gone.
    pub(crate) fn without_image(&self) -> String {
        format!(
            "the image of the container {} ({}, {}) was removed from this machine, so that its own settings cannot be told \
             from those that the image brought along: pull or load that image again, or make the container anew, then \
             deploy again",
            self.name(),
            self.text("/Config/Image"),
            self.image_id(),
        )
    }

    /// The id of the image.
    pub(crate) fn image_id(&self) -> &str {
        self.text("/Image")
    }

    pub(crate) fn process(&self) -> Process {
        match self.text("/State/Status") {
            "created" | "configured" | "initialized" => Process::Created,
            "running" | "paused" => Process::Running,
            "restarting" => Process::Restarting,
            _ => Process::Ended,
        }
    }

    /// Whether the container runs, or will by itself.
    pub(crate) fn is_up(&self) -> bool {
        matches!(self.process(), Process::Running | Process::Restarting)
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.text("/State/Status") == "paused"
    }

    /// Whether the container serves under its own name, as far as the engine tells.
    pub(crate) fn serves(&self) -> bool {
        self.process() == Process::Running
            && !self.is_paused()
            && self.health() != Some("unhealthy")
            && self.name() == self.final_name()
    }

    pub(crate) fn started_at(&self) -> &str {
        self.text("/State/StartedAt")
    }

    pub(crate) fn created_at(&self) -> &str {
        self.text("/Created")
    }

    /// The time at which the container was made.
    pub(crate) fn made_at(&self) -> Option<Timestamp> {
        self.created_at().parse().ok()
    }

    /// The time at which the container ended last; `None` if it never has.
    pub(crate) fn ended_at(&self) -> Option<Timestamp> {
        self.text("/State/FinishedAt").parse().ok().filter(|ended: &Timestamp| Some(*ended) >= self.made_at())
    }

    pub(crate) fn exit_code(&self) -> i64 {
        self.object["State"]["ExitCode"].as_i64().unwrap_or_default()
    }

    pub(crate) fn is_out_of_memory(&self) -> bool {
        self.object["State"]["OOMKilled"] == true
    }

    /// The engine's error of the last start, shortened.
    pub(crate) fn start_error(&self) -> Option<String> {
        Some(self.text("/State/Error")).filter(|error| !error.is_empty()).map(shortened)
    }

    pub(crate) fn restarts(&self) -> u32 {
        self.object["RestartCount"].as_u64().and_then(|count| count.try_into().ok()).unwrap_or_default()
    }

    /// The state of the health check, if the container has one: `starting`, `healthy` or `unhealthy`.
    pub(crate) fn health(&self) -> Option<&str> {
        Some(self.text("/State/Health/Status")).filter(|health| !health.is_empty() && *health != "none")
    }

    /// The last outputs of the health check, oldest first.
    pub(crate) fn health_log(&self) -> impl Iterator<Item = (i64, &str)> {
        let log = self.object["State"]["Health"]["Log"].as_array();
        log.into_iter()
            .flatten()
            .map(|entry| (entry["ExitCode"].as_i64().unwrap_or_default(), entry["Output"].as_str().unwrap_or_default()))
    }

    pub(crate) fn networks(&self) -> impl Iterator<Item = (&String, &Value)> {
        self.object["NetworkSettings"]["Networks"].as_object().into_iter().flatten()
    }

    /// An address at which this machine reaches the container.
    pub(crate) fn address(&self) -> Option<&str> {
        if self.text("/HostConfig/NetworkMode") == "host" {
            return Some("127.0.0.1");
        }
        self.networks().filter_map(|(_, network)| network["IPAddress"].as_str()).find(|address| !address.is_empty())
    }

    /// Whether the container's network is that of this machine, or of another container.
    pub(crate) fn shares_network(&self) -> bool {
        let mode = self.text("/HostConfig/NetworkMode");
        mode == "host" || mode.starts_with("container:")
    }

    /// The reason why a second container like this one cannot run beside it, for people; `None` if it can.
    pub(crate) fn sole(&self) -> Option<String> {
        let host = &self.object["HostConfig"];
        let is_fixed = |port: &&str| !port.is_empty() && *port != "0" && !is_range(port);
        if let Some(port) = self.published().find(is_fixed) {
            return Some(leads_to_one(port));
        }
        if self.shares_network() {
            let mode = host["NetworkMode"].as_str().unwrap_or_default();
            return Some(format!("its network is that of another ({mode}), where each port is free once"));
        }
        let addressed = |(_, network): (&String, &Value)| {
            ["IPv4Address", "IPv6Address"]
                .iter()
                .any(|kind| network["IPAMConfig"][*kind].as_str().is_some_and(|address| !address.is_empty()))
        };
        if self.networks().any(addressed) {
            return Some("it has an address of its own".to_owned());
        }
        None
    }

    /// The ports of this machine that lead to the container, as they were given: `8080`, or `8081-8082`, of which it takes
    /// one that is free.
    fn published(&self) -> impl Iterator<Item = &str> {
        let bindings = self.object["HostConfig"]["PortBindings"].as_object();
        let bound = bindings.into_iter().flatten().filter_map(|(_, bound)| bound.as_array()).flatten();
        bound.filter_map(|bound| bound["HostPort"].as_str())
    }

    /// The ports of this machine that containers of the target take in turn.
    pub(crate) fn ports_in_turn(&self) -> impl Iterator<Item = &str> {
        self.published().filter(|port| is_range(port))
    }

    /// The only TCP port that the container exposes.
    pub(crate) fn exposed_port(&self) -> Option<u16> {
        let exposed = self.object["Config"]["ExposedPorts"].as_object().into_iter().flatten();
        let mut ports = exposed.filter_map(|(port, _)| port.strip_suffix("/tcp")?.parse().ok());
        ports.next().filter(|_| ports.next().is_none())
    }

    /// A volume or directory that the container may write to, which two at once may damage.
    pub(crate) fn writes_to(&self) -> Option<&str> {
        let mounts = self.object["Mounts"].as_array().into_iter().flatten();
        let mut written = mounts.filter(|mount| mount["RW"] == true && mount["Type"] != "tmpfs");
        written.find_map(|mount| mount["Destination"].as_str())
    }
}

/// Whether a published port is several of which each container takes one.
fn is_range(port: &str) -> bool {
    let bounds = port.split_once('-').and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
    bounds.is_some_and(|(first, last): (u16, u16)| first < last)
}

/// Why two containers with this published port cannot run at the same time.
pub(crate) fn leads_to_one(port: impl std::fmt::Display) -> String {
    format!("port {port} of this machine leads to one container at a time")
}

/// The container, of these, that says how the next one is made: what others started last, else what we made last, else
/// what others made last.
pub(crate) fn model<'a>(containers: impl Iterator<Item = &'a Container>) -> Option<&'a Container> {
    containers.max_by_key(|container| {
        let is_ours = container.deploy().is_some();
        let is_theirs = !is_ours && !container.is_set_aside();
        (is_theirs && container.is_up(), is_ours, container.created_at().to_owned())
    })
}

/// The claims and containers of a target.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Seen {
    pub(crate) claims: Vec<Claim>,
    pub(crate) containers: Vec<Container>,
}

impl Seen {
    pub(crate) fn stamps(&self) -> impl Iterator<Item = Stamp> {
        let containers = self.containers.iter().filter_map(Container::stamp);
        self.live_claims().map(|claim| claim.stamp.clone()).chain(containers)
    }

    /// The claims that count. One that keeps a container is of the past once a person has removed that.
    pub(crate) fn live_claims(&self) -> impl Iterator<Item = &Claim> {
        let is_there = |id: &String| self.containers.iter().any(|container| container.id() == id);
        self.claims.iter().filter(move |claim| claim.keeps.as_ref().is_none_or(is_there))
    }

    /// The container of a deploy: its own, or the one that it keeps, for as long as that one serves and no other deploy may
    /// end it; without one, the deploy makes its own. Of several of its own, which two processes made at once, it
    /// is the one that has been started.
    pub(crate) fn of(&self, id: DeployId) -> Option<&Container> {
        let order = |container: &&Container| (container.process() != Process::Created, container.id().to_owned());
        let own = self.containers.iter().filter(|container| container.deploy() == Some(id)).max_by_key(order);
        own.or_else(|| self.kept(id).filter(|kept| kept.serves() && !self.may_be_ended(id)))
    }

    /// The container from before that a deploy claims as its own, in whatever state it is.
    pub(crate) fn kept(&self, id: DeployId) -> Option<&Container> {
        self.containers.iter().find(|container| self.keeps(id, container))
    }

    /// Whether a deploy other than this one may end the containers from before it.
    pub(crate) fn may_be_ended(&self, id: DeployId) -> bool {
        self.claims.iter().any(|claim| claim.replaces && claim.stamp.id != id)
    }

    /// Whether the deploy has claimed that it may end the containers from before it.
    pub(crate) fn replaces(&self, id: DeployId) -> bool {
        self.claims.iter().any(|claim| claim.replaces && claim.stamp.id == id)
    }

    /// Whether a deploy claims this container, which is from before, as its own.
    pub(crate) fn keeps(&self, id: DeployId, container: &Container) -> bool {
        let keeps = |claim: &Claim| claim.stamp.id == id && claim.keeps.as_deref() == Some(container.id());
        self.claims.iter().any(keeps)
    }

    /// Whether none but containers of deploys that never took the name are there, as of a first version that failed.
    pub(crate) fn is_remains(&self) -> bool {
        let never_served =
            |container: &Container| container.deploy().is_some() && container.name() != container.final_name();
        self.containers.iter().all(|container| never_served(container) && !container.is_set_aside())
    }

    /// The container that says how the next one is made.
    pub(crate) fn model(&self) -> Option<&Container> {
        model(self.containers.iter())
    }

    /// The number of containers that run under names of their own. The next one, until it is ready, and the one that it
    /// replaces have other names.
    pub(crate) fn instances(&self) -> usize {
        let is_instance = |container: &&Container| container.is_up() && container.name() == container.final_name();
        self.containers.iter().filter(is_instance).count()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{OURS as APP, container, stamped, with};

    #[test]
    fn labels_that_the_image_brought_along_are_not_ours() {
        let made = stamped(APP, 2, "running");
        let labels = made.object["Config"]["Labels"].clone();
        let of =
            |container: &Container, inherited: &Value| Container::inspected(container.object.clone(), Some(inherited));
        assert_eq!(of(&made, &Value::Null), made);
        assert_eq!(of(&made, &json!({TARGET: "container/web", DEPLOY: "other/1", GIVEN: "[]"})), made);
        // Run by a person, from an image that was made of a deploy's container.
        let theirs = of(&made, &labels);
        assert_eq!((theirs.deploy(), theirs.label(TARGET), theirs.final_name()), (None, None, "web.2"));
        let named = json!({GIVEN: r#"["Entrypoint"]"#, NAME: "api", "com.example.team": "shop"});
        let theirs = of(&with(container("web", "running"), "/Config/Labels", named.clone()), &named);
        assert_eq!(theirs.object["Config"]["Labels"], json!({"com.example.team": "shop"}));
    }

    #[test]
    fn labels_of_a_container_whose_image_is_gone_are_of_no_effect() {
        let given = json!({GIVEN: r#"["Env LD_PRELOAD"]"#, NAME: "api", "com.example.team": "shop"});
        let without_id = Container::inspected(with(container("web", "running"), "/Config/Labels", given).object, None);
        assert_eq!(without_id.object["Config"]["Labels"], json!({"com.example.team": "shop"}));
        assert!(!without_id.is_doubtful);
        let found = Container::inspected(stamped(APP, 2, "exited").object, None);
        assert_eq!(found.object["Config"]["Labels"], json!({TARGET: "container/web"}));
        assert!(found.is_doubtful && found.deploy().is_none());
    }

    #[test]
    fn stamp_leaves_no_label_to_the_image() {
        let stamp =
            Stamp { id: stamped(APP, 2, "running").deploy().unwrap(), took_over: None, image: None, rests: false };
        let labels = stamp.labels("container/web");
        assert_eq!([TOOK_OVER, IMAGE, RESTS].map(|label| labels[label].as_str()), [""; 3]);
        assert_eq!(Stamp::of(&json!(labels)), Some(stamp));
    }
}
