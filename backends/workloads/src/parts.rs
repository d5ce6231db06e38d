//! The workloads of a target: its first one, and those that its setting `also` lists.

use rollhook_core::{
    Error, Result,
    app::{App, Settings, Target},
    ports::RolloutSpec,
};
use serde_json::{Value, json};

/// The setting that lists the further workloads of a target.
pub(crate) const ALSO: &str = "also";
/// The member of a listed workload that says that it goes together with the one before it.
pub(crate) const TOGETHER: &str = "together";
/// The member of a listed workload by which it is made where it does not exist, beside a first one that is made: the words
/// that it runs.
pub(crate) const COMMAND: &str = "command";
/// The setting of a configuration that has the commands of workloads by their names.
pub(crate) const COMMANDS: &str = "commands";
/// The setting that says how a missing workload is made.
pub(crate) const TEMPLATE: &str = "template";
/// The member of a template that says that no request leads to what it makes: a further workload.
pub(crate) const FURTHER: &str = "further";
/// The most workloads of an app.
pub(crate) const PARTS_MAX: usize = 16;

/// A workload of a target that has several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The workload's name for people, such as `Deployment/worker`.
    pub(crate) name: String,
    /// Whether it is the app's own, which comes first.
    pub(crate) is_first: bool,
    /// The number of the stage that it is rolled out in, from 0 on.
    pub(crate) stage: usize,
    /// The settings by which the driver below finds it.
    pub(crate) settings: Settings,
}

impl Part {
    /// Returns whether a deploy makes it where it does not exist.
    pub(crate) fn is_made(&self) -> bool {
        self.settings.contains_key(TEMPLATE)
    }

    /// Returns the app with this workload alone.
    pub(crate) fn app(&self, app: &App) -> App {
        let target = Target { settings: self.settings.clone(), ..app.target.clone() };
        App { target, ..app.clone() }
    }

    /// Returns the specification of this workload's share of a rollout.
    pub(crate) fn spec(&self, spec: &RolloutSpec) -> RolloutSpec {
        spec.clone().with(|spec| {
            spec.target.settings = self.settings.clone();
            if let Some(configuration) = spec.configuration.as_mut() {
                configuration.variables.settings = self.made_with(&configuration.variables.settings);
            }
        })
    }

    /// Returns what this workload is made with, of the settings of a configuration: they are those of the app's own workload, but
    /// for the command that is for this one. One that no deploy makes has its own.
    pub(crate) fn made_with(&self, settings: &Settings) -> Settings {
        let mut own = if self.is_first { settings.clone() } else { Settings::new() };
        own.remove(COMMANDS);
        let commands = settings.get(COMMANDS).and_then(Value::as_object);
        if let Some(name) = self.own_name().filter(|_| self.is_made())
            && let Some(command) = commands.and_then(|commands| commands.get(name))
        {
            own.insert(COMMANDS.to_owned(), json!({ name: command }));
        }
        own
    }

    /// Returns the name by which a command is for this workload; `None` where the driver below has settings of another form.
    pub(crate) fn own_name(&self) -> Option<&str> {
        self.settings.get("name").and_then(Value::as_str)
    }
}

/// The workloads of a target, in their order: two or more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parts(Vec<Part>);

impl Parts {
    /// Returns the workloads of a registered target; `None` if it has one.
    ///
    /// # Errors
    /// `Corrupt` if the stored settings are none that a registration stores.
    pub(crate) fn of(target: &Target) -> Result<Option<Self>> {
        let (first, also) = split(&target.settings);
        if also.is_empty() {
            return Ok(None);
        }
        let mut stage = 0;
        let mut parts = vec![Part { name: name(&first, 0), is_first: true, stage, settings: first }];
        for (index, value) in also.into_iter().enumerate() {
            let Value::Object(mut settings) = value else {
                let what = format!("the workload's setting {ALSO} lists something else than workloads");
                return Err(Error::Corrupt { what, cause: None });
            };
            let is_together = settings.remove(TOGETHER) == Some(Value::Bool(true));
            stage += usize::from(!is_together);
            let made = settings.remove(COMMAND).and_then(|command| template(&parts[0].settings, command));
            settings.extend(made.map(|template| (TEMPLATE.to_owned(), template)));
            parts.push(Part { name: name(&settings, index + 1), is_first: false, stage, settings });
        }
        Ok(Some(Self(parts)))
    }

    /// Returns the workload at this place. There is one at each place of an observation.
    pub(crate) fn get(&self, index: usize) -> &Part {
        &self.0[index]
    }

    /// Returns the specification of each workload's share of a rollout.
    pub(crate) fn specs(&self, spec: &RolloutSpec) -> Vec<RolloutSpec> {
        self.iter().map(|part| part.spec(spec)).collect()
    }

    /// Returns the workloads in their order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Part> + ExactSizeIterator {
        self.0.iter()
    }
}

/// Returns the settings of the first workload, and the list of the others.
pub(crate) fn split(settings: &Settings) -> (Settings, Vec<Value>) {
    let mut first = settings.clone();
    let also = match first.remove(ALSO) {
        Some(Value::Array(also)) => also,
        Some(Value::Null) | None => Vec::new(),
        Some(other) => vec![other],
    };
    (first, also)
}

/// Returns how a further workload with a command of its own is made: as the first one. `None` if that one is not made.
pub(crate) fn template(first: &Settings, command: Value) -> Option<Value> {
    let mut template = first.get(TEMPLATE)?.as_object()?.clone();
    template.insert(COMMAND.to_owned(), command);
    template.insert(FURTHER.to_owned(), true.into());
    Some(template.into())
}

/// Returns the name of a workload for people, by the settings that every driver of this repository has, or its place.
pub(crate) fn name(settings: &Settings, index: usize) -> String {
    let text = |name: &str| settings.get(name).and_then(Value::as_str);
    match (text("kind"), text("name")) {
        (Some(kind), Some(name)) => format!("{kind}/{name}"),
        (None, Some(name)) => name.to_owned(),
        (Some(_) | None, None) => format!("workload {}", index + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rollhook_core::{
        app::AppUid,
        configuration::{Configuration, ConfigurationId},
        deploy::Revision,
        ports::DeployId,
    };

    fn target(settings: Value) -> Target {
        Target { settings: settings.as_object().unwrap().clone(), requested: None, take_over: None }
    }

    #[test]
    fn stages_follow_the_order_given() {
        let also = json!([
            { "kind": "Deployment", "name": "worker", "together": true },
            { "kind": "CronJob", "name": "nightly" },
            { "kind": "CronJob", "name": "hourly", "together": true },
        ]);
        let parts = Parts::of(&target(json!({ "kind": "Deployment", "name": "web", "also": also }))).unwrap().unwrap();
        let stages: Vec<(&str, usize)> = parts.iter().map(|part| (part.name.as_str(), part.stage)).collect();
        assert_eq!(
            stages,
            [("Deployment/web", 0), ("Deployment/worker", 0), ("CronJob/nightly", 1), ("CronJob/hourly", 1)]
        );
        assert!(parts.iter().all(|part| part.settings.len() == 2), "what the driver below knows, and no more");
    }

    #[test]
    fn settings_of_the_configuration_are_of_the_first_workload() {
        let also = json!([{ "kind": "container", "name": "worker" }]);
        let target = target(json!({ "kind": "container", "name": "web", "also": also }));
        let parts = Parts::of(&target).unwrap().unwrap();
        let id = DeployId { app: AppUid::from_bits(1), revision: Revision::FIRST };
        let mut configuration = Configuration::of(ConfigurationId(7));
        configuration.variables.settings.insert("memory".to_owned(), "1g".into());
        let spec = RolloutSpec::new("shop-test/web".parse().unwrap(), id, target, "web:v1".parse().unwrap())
            .with(|spec| spec.configuration = Some(configuration));
        let settings = parts.specs(&spec).into_iter().map(|spec| spec.configuration.unwrap().variables.settings.len());
        assert_eq!(settings.collect::<Vec<_>>(), [1, 0]);
    }

    #[test]
    fn command_of_the_configuration_is_for_the_workload_of_its_name() {
        let also = json!([
            { "kind": "container", "name": "worker", "command": ["bin/jobs"] },
            { "kind": "container", "name": "found" },
        ]);
        let first = json!({ "kind": "container", "name": "web", "template": {}, "also": also });
        let parts = Parts::of(&target(first)).unwrap().unwrap();
        let commands = json!({ "web": ["serve"], "worker": ["bin/work"], "found": ["other"], "gone": ["nothing"] });
        let settings = json!({ "memory": "1g", "commands": commands }).as_object().unwrap().clone();
        let made_with = |index| Value::Object(parts.get(index).made_with(&settings));
        assert_eq!(made_with(0), json!({ "memory": "1g", "commands": { "web": ["serve"] } }));
        assert_eq!(made_with(1), json!({ "commands": { "worker": ["bin/work"] } }));
        assert_eq!(made_with(2), json!({}), "it existed before the app");
    }

    #[test]
    fn further_workload_with_a_command_is_made_as_the_first_one_is() {
        let also = json!([
            { "kind": "container", "name": "worker", "command": ["bin/jobs"] },
            { "kind": "container", "name": "found" },
        ]);
        let env = json!({ "MODE": "live" });
        let first = json!({ "kind": "container", "name": "web", "template": { "env": env, "command": ["serve"] }, "also": also });
        let parts = Parts::of(&target(first.clone())).unwrap().unwrap();
        let made = json!({ "env": env, "command": ["bin/jobs"], "further": true });
        assert_eq!(
            Value::Object(parts.get(1).settings.clone()),
            json!({ "kind": "container", "name": "worker", "template": made })
        );
        assert_eq!([0, 1, 2].map(|index| parts.get(index).is_made()), [true, true, false]);
        let mut adopted = first;
        adopted.as_object_mut().unwrap().remove("template");
        assert!(!Parts::of(&target(adopted)).unwrap().unwrap().get(1).is_made(), "nothing says how");
    }

    #[test]
    fn one_workload_is_no_list() {
        assert_eq!(Parts::of(&target(json!({ "kind": "Deployment", "name": "web" }))).unwrap(), None);
        assert_eq!(Parts::of(&target(json!({ "name": "web", "also": [] }))).unwrap(), None);
        assert!(Parts::of(&target(json!({ "name": "web", "also": ["Deployment/worker"] }))).is_err());
    }
}
