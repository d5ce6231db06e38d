//! The variables that deploys set in the environment of containers, beside those that others set.
//!
//! A label of each container of ours has their names, so that the next container is made without them and with those of
//! its own deploy. Values stay out of labels, which are listed to more callers than the environment is.

use std::collections::BTreeSet;

use rollhook_core::{
    app::AppUid,
    configuration::{ConfigurationId, VariableName, remark_on_others},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    container::{Container, VARIABLES},
    given,
};
use crate::settings::{Rollout, Template};

/// The variables of a container that deploys have set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SetVariables {
    /// The configuration that the container was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) configuration: Option<ConfigurationId>,
    /// The names of its variables, without those that others set too.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    names: BTreeSet<String>,
    /// The names of its variables that others set too, whose values were left.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    others: BTreeSet<String>,
    /// The names of variables that an earlier registration has set. Its configurations went with it, so that the values stay
    /// until this registration sets them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    earlier: BTreeSet<String>,
}

impl SetVariables {
    /// Reads what a container carries, as a registration's deploy finds it.
    pub(crate) fn of(container: &Container, app: AppUid) -> Self {
        let read: Option<Self> = container.label(VARIABLES).and_then(|label| serde_json::from_str(label).ok());
        let read = read.unwrap_or_default();
        if container.deploy().is_some_and(|id| id.app == app) {
            return read;
        }
        Self { earlier: read.names.into_iter().chain(read.earlier).collect(), ..Self::default() }
    }

    /// Returns what a deploy's container carries, which is made of this one. `given` as for [`Self::environment`].
    pub(crate) fn next(&self, given: &[Value], rollout: &Rollout) -> Self {
        let configuration = rollout.configuration.as_ref().map(|configuration| configuration.id);
        let others: BTreeSet<String> = self.contested(given, rollout).map(ToString::to_string).collect();
        let names = variables(rollout).map(|(name, _)| name.to_string());
        let names: BTreeSet<String> = names.filter(|name| !others.contains(name)).collect();
        Self { configuration, earlier: self.earlier.difference(&names).cloned().collect(), names, others }
    }

    /// Whether the container has the variable from its deploy's configuration.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// A remark on the variables that others set too. Returns `None` without any.
    pub(crate) fn remark(&self) -> Option<String> {
        remark_on_others(self.others.iter().map(String::as_str))
    }

    /// The text of the label.
    pub(crate) fn label(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Returns the environment of a deploy's container. `given` are the variables that the one before was given, as opposed
    /// to those of its image.
    ///
    /// A variable that is set no longer has the value of the app's template again, if that has one. The value of another party
    /// stays.
    pub(crate) fn environment(&self, given: &[Value], rollout: &Rollout) -> Vec<String> {
        let others: BTreeSet<&str> = self.contested(given, rollout).map(VariableName::as_str).collect();
        let is_kept = |name: &str| others.contains(name) || !self.names.contains(name) && !sets(rollout, name);
        let given = given.iter().filter(|entry| is_kept(given::variable(entry)));
        let given = given.filter_map(|entry| entry.as_str().map(str::to_owned));
        let unset = template(rollout).filter(|(name, _)| self.names.contains(*name) && !sets(rollout, name));
        let unset = unset.map(|(name, value)| entry(name, value));
        let set = variables(rollout).filter(|(name, _)| !others.contains(name.as_str()));
        given.chain(unset).chain(set.map(|(name, value)| entry(name.as_str(), value))).collect()
    }

    /// Returns the variables of the rollout that another party has given to the container as well. A value of the app's template
    /// is the registration's own.
    pub(crate) fn contested<'a>(
        &self,
        given: &[Value],
        rollout: &'a Rollout,
    ) -> impl Iterator<Item = &'a VariableName> + use<'a> {
        let is_ours = |found: &Value| {
            let name = given::variable(found);
            self.names.contains(name)
                || self.earlier.contains(name)
                || template(rollout).any(|(known, value)| known == name && *found == *entry(known, value))
        };
        let theirs = given.iter().filter(|entry| !is_ours(entry)).map(given::variable);
        let theirs: BTreeSet<String> = theirs.map(str::to_owned).collect();
        variables(rollout).map(|(name, _)| name).filter(move |name| theirs.contains(name.as_str()))
    }
}

/// Returns the environment of a container that is made by the app's template.
pub(crate) fn of_template(template: &Template, rollout: &Rollout) -> Vec<String> {
    let own = template.env.iter().filter(|(name, _)| !sets(rollout, name)).map(|(name, value)| entry(name, value));
    own.chain(variables(rollout).map(|(name, value)| entry(name.as_str(), value))).collect()
}

/// Returns why a variable is not set, for people.
pub(crate) fn conflict(name: &VariableName, container: &Container) -> String {
    format!(
        "the container {} has a variable {name} of its own (of docker run -e, a Compose file, or what else made it), so that \
         rollhook does not set another value: make the container anew without it, then set it here",
        container.name()
    )
}

fn variables(rollout: &Rollout) -> impl Iterator<Item = (&VariableName, &str)> {
    let entries = rollout.configuration.iter().flat_map(|configuration| &configuration.variables.entries);
    entries.map(|(name, variable)| (name, variable.expose()))
}

fn sets(rollout: &Rollout, name: &str) -> bool {
    let mut variables = rollout.configuration.iter().flat_map(|configuration| configuration.variables.entries.keys());
    variables.any(|variable| variable.as_str() == name)
}

fn template(rollout: &Rollout) -> impl Iterator<Item = (&str, &str)> {
    let env = rollout.workload.template.iter().flat_map(|template| &template.env);
    env.map(|(name, value)| (name.as_str(), value.as_str()))
}

fn entry(name: &str, value: &str) -> String {
    format!("{name}={value}")
}

#[cfg(test)]
mod tests {
    use rollhook_core::configuration::{SALT_BYTES, Variables};
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{OURS, THEIRS, configured, container, rollout, stamped, with};

    fn entries(env: &Value) -> &[Value] {
        env.as_array().unwrap()
    }

    fn made(by: AppUid, set: &SetVariables) -> Container {
        with(stamped(by, 1, "running"), "/Config/Labels/dev.rollhook.variables", set.label().into())
    }

    #[test]
    fn label_has_names_and_no_values() {
        let set = SetVariables::default().next(&[], &configured(2, 7, &[("KEY", "hunter2")]));
        let debug = format!("{:?}", configured(2, 7, &[("KEY", "hunter2")]));
        assert!(debug.contains("KEY") && !debug.contains("hunter2"), "{debug}");
        let label = set.label();
        assert!(label.contains("KEY") && !label.contains("hunter2"), "{label}");
        assert_eq!(SetVariables::of(&made(OURS, &set), OURS), set);
        assert_eq!(SetVariables::default().next(&[], &rollout(2)).label(), "{}");
        for other in ["", "[1]"] {
            let other = with(stamped(OURS, 1, "running"), "/Config/Labels/dev.rollhook.variables", json!(other));
            assert_eq!(SetVariables::of(&other, OURS), SetVariables::default());
        }
    }

    #[test]
    fn variables_replace_those_of_the_deploy_before_and_leave_those_of_others() {
        let before = SetVariables::default().next(&[], &configured(1, 1, &[("A", "one"), ("B", "")]));
        let given = json!(["THEIRS=a=b", "A=one", "B="]);
        let next = configured(2, 2, &[("A", "line one\n$two"), ("EMPTY", "")]);
        assert_eq!(before.environment(entries(&given), &next), ["THEIRS=a=b", "A=line one\n$two", "EMPTY="]);
        assert_eq!(before.contested(entries(&given), &next).count(), 0);
        assert_eq!(before.environment(entries(&given), &rollout(2)), ["THEIRS=a=b"]);
    }

    #[test]
    fn variable_of_another_is_contested() {
        let before = SetVariables::default().next(&[], &configured(1, 1, &[("A", "one")]));
        let next = configured(2, 2, &[("A", "two"), ("THEIRS", "ours")]);
        for theirs in ["THEIRS=stays", "THEIRS=ours", "THEIRS"] {
            let given = json!(["A=one", theirs]);
            let name = before.contested(entries(&given), &next).next().unwrap();
            let message = conflict(name, &container("web", "running"));
            assert!(message.contains("web") && message.contains("THEIRS") && !message.contains("ours"), "{message}");
        }
        assert_eq!(before.contested(entries(&json!(["A=one", "THEIR=s"])), &next).count(), 0);
    }

    #[test]
    fn value_of_another_stays_where_the_configuration_is_not_new() {
        let before = SetVariables::default().next(&[], &configured(1, 1, &[("A", "one"), ("B", "two")]));
        let given = json!(["A=theirs", "B=two"]);
        // The container was made anew without our label.
        let (found, next) = (SetVariables::default(), configured(2, 1, &[("A", "one"), ("B", "two")]));
        let given_a = json!(["A=theirs"]);
        assert_eq!(found.environment(entries(&given_a), &next), ["A=theirs", "B=two"]);
        let set = found.next(entries(&given_a), &next);
        let remark = set.remark().unwrap();
        assert!(remark.contains('A') && !remark.contains('B') && !remark.contains("theirs"), "{remark}");
        // Also by the deploy after it.
        assert_eq!(set.environment(entries(&given), &next), ["A=theirs", "B=two"]);
        assert_eq!(set.next(entries(&given), &next), set);
        assert_eq!(before.remark(), None);
    }

    #[test]
    fn template_is_what_a_variable_falls_back_to() {
        let with_template = |mut rollout: Rollout| {
            let env = [("MODE".to_owned(), "test".to_owned()), ("B".to_owned(), "2".to_owned())].into();
            rollout.workload.template = Some(Template { env, ..Template::default() });
            rollout
        };
        let next = with_template(configured(2, 2, &[("MODE", "other")]));
        assert_eq!(of_template(next.workload.template.as_ref().unwrap(), &next), ["B=2", "MODE=other"]);
        let given = json!(["B=2", "MODE=test"]);
        let before = SetVariables::default();
        assert_eq!(before.contested(entries(&given), &next).count(), 0);
        assert_eq!(before.environment(entries(&given), &next), ["B=2", "MODE=other"]);
        let theirs = json!(["B=2", "MODE=given"]);
        assert!(before.contested(entries(&theirs), &next).count() == 1, "the container was made anew");
        let unset =
            before.next(&[], &next).environment(entries(&json!(["B=2", "MODE=other"])), &with_template(rollout(3)));
        assert_eq!(unset, ["B=2", "MODE=test"]);
    }

    #[test]
    fn variables_of_an_earlier_registration_stay_until_they_are_set() {
        let theirs = SetVariables::default().next(&[], &configured(5, 5, &[("A", "theirs"), ("B", "theirs")]));
        let found = SetVariables::of(&made(THEIRS, &theirs), OURS);
        assert_eq!(found.configuration, None);
        let given = json!(["A=theirs", "B=theirs"]);
        assert_eq!(found.environment(entries(&given), &rollout(1)), ["A=theirs", "B=theirs"]);
        // Also two deploys later.
        let carried = SetVariables::of(&made(OURS, &found.next(&[], &rollout(1))), OURS);
        let next = configured(2, 1, &[("A", "ours")]);
        assert_eq!(carried.contested(entries(&given), &next).count(), 0);
        assert_eq!(carried.environment(entries(&given), &next), ["B=theirs", "A=ours"]);
        let unset = carried.next(&[], &next).environment(entries(&json!(["B=theirs", "A=ours"])), &rollout(3));
        assert_eq!(unset, ["B=theirs"]);
    }

    #[test]
    fn configuration_without_variables_is_one() {
        let none = Variables::empty([7; SALT_BYTES]);
        let mut rollout = configured(2, 7, &[]);
        assert_eq!(rollout.configuration.as_ref().unwrap().variables, none);
        assert_eq!(SetVariables::default().next(&[], &rollout).configuration, Some(ConfigurationId(7)));
        rollout.configuration = None;
        assert_eq!(SetVariables::default().next(&[], &rollout).configuration, None);
    }
}
