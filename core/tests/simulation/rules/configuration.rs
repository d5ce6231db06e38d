//! Configuration: what runs has the values of its own deploy, which nobody else's change has lost.

use std::collections::BTreeSet;

use rollhook_core::{
    app::{AppUid, Settings, Target},
    configuration::{Configuration, ConfigurationId},
    deploy::{Deploy, Revision, State, Status, Trigger},
    ports::RolloutSpec,
};
use rollhook_memory::Pod;

use super::{Known, Rules, model};
use crate::journal::Journal;

/// Returns the entries as they were, with the configurations that were passed on to them. One that a deploy was to bring is
/// passed on to the deploy that supersedes it.
pub(super) fn passed_on(before: &[Deploy], history: &[Deploy], journal: &Journal) -> Vec<Deploy> {
    let superseded = |old: &Deploy, new: &Deploy| {
        let State::Superseded { by, rollback: false, .. } = new.state else { return None };
        (!old.is_terminal() && old.configures).then_some((by, old.configuration))
    };
    let passed: Vec<_> = before.iter().zip(history).filter_map(|(old, new)| superseded(old, new)).collect();
    for (by, _) in &passed {
        journal.count("config: one that was superseded was passed on");
        let at = by.get() as usize - 1;
        let had_ended = before.get(at).is_some_and(Deploy::is_terminal);
        let has_one = history.get(at).is_some_and(|by| by.configures);
        journal.expect(has_one || had_ended, || format!("a configuration was lost: revision {by} superseded it"));
    }
    let was = |(old, new): (&Deploy, &Deploy)| {
        let may_change = !old.configures && new.configures && passed.contains(&(old.revision, new.configuration));
        let (configuration, configures) =
            if may_change { (new.configuration, true) } else { (old.configuration, old.configures) };
        Deploy { configuration, configures, ..old.clone() }
    };
    before.iter().zip(history).map(was).collect()
}

impl Known {
    /// Judges the configuration of a deploy that begins. Returns the entry as it was, with that configuration.
    pub(super) fn begun(&self, before: &[Deploy], old: &Deploy, new: &Deploy, journal: &Journal) -> Deploy {
        let has_begun =
            |entry: &Deploy| matches!(entry.status(), Status::Releasing | Status::RollingOut | Status::Verifying);
        let waits = matches!(old.status(), Status::Queued | Status::Building);
        if !waits || !has_begun(new) || old.configures {
            return old.clone();
        }
        let revoked: Vec<Revision> = self.view.revocations().collect();
        let current = if new.is_restore() { model::good(before, &revoked) } else { model::current(before) };
        let of_current = current.or(model::ended_first(before)).and_then(|configured| configured.configuration);
        let is_return = new.trigger == Trigger::Rollback && current.is_some();
        let is_staged = self.staged.iter().any(|staged| staged.is_some() && *staged == new.configuration);
        let right = new.configuration == of_current || (is_staged && !is_return);
        journal.count_if(is_return && of_current.is_some(), "config: a return kept what is current");
        journal.count_if(is_staged && new.configuration != of_current, "config: a staged one was deployed");
        journal.expect(right, || {
            format!("revision {} runs with {:?}; current is {of_current:?}", new.revision, new.configuration)
        });
        Deploy { configuration: new.configuration, ..old.clone() }
    }
}

impl Rules {
    /// Judges a deploy that is complete: its pods have its values, which are those of its own app.
    pub(crate) fn configured(&self, order: &RolloutSpec, running: &[Pod], journal: &Journal) {
        let Some(entry) =
            self.known.get(&order.id.app).and_then(|known| known.history.get(order.id.revision.get() as usize - 1))
        else {
            return;
        };
        let name = |target: &Target| target.settings.get("name").cloned();
        let is_first =
            self.known.get(&order.id.app).is_some_and(|known| name(&known.view.app.target) == name(&order.target));
        journal.count_if(entry.configuration.is_some(), "config: it ran");
        journal.count_if(entry.is_restore() && entry.configuration.is_some(), "config: a restore brought it back");
        for pod in running {
            let id = pod.configuration.as_ref().map(|configuration| configuration.id);
            journal.expect(id == entry.configuration, || {
                format!("revision {} is complete, and pod {} runs with {id:?}", entry.revision, pod.id)
            });
            let is_own = |configuration: &Configuration| {
                let mut values = configuration.variables.entries.values();
                values.all(|variable| variable.expose().starts_with(&format!("{} ", order.app)))
                    && !configuration.variables.entries.is_empty()
            };
            journal.expect(pod.configuration.as_ref().is_none_or(is_own), || {
                format!("pod {} of {} has the values of another app", pod.id, order.app)
            });
            // Each variable is set with a setting of its name, and they are of the first of several workloads.
            let as_set = |configuration: &Configuration| {
                let entries = configuration.variables.entries.iter();
                let settings: Settings =
                    entries.map(|(name, variable)| (name.to_string(), variable.expose().into())).collect();
                configuration.variables.settings == if is_first { settings } else { Settings::default() }
            };
            journal.expect(pod.configuration.as_ref().is_none_or(as_set), || {
                format!("pod {} of {} is not made with the settings of its configuration", pod.id, order.app)
            });
        }
    }

    /// Judges that the values are stored which the app runs or is to run with.
    pub(crate) fn stores(&self, app: AppUid, stored: &BTreeSet<ConfigurationId>, journal: &Journal) {
        let Some(known) = self.known.get(&app) else { return };
        for needed in known.view.configurations() {
            journal.expect(stored.contains(&needed), || format!("the values of {needed} are gone, and needed"));
        }
    }
}
