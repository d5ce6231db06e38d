//! Metrics by app, for a bounded number of apps; the others share one label value.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    metrics::{counter::Counter, family::Family, histogram::Histogram},
    registry::{Registry, Unit},
};
use rollhook_core::{
    app::{AppId, AppUid},
    deploy::Deploy,
};

use super::ENDS;

/// The label value of apps beyond the bound; no app can have this name.
const OTHER: &str = "_other";

type AppLabels = [(&'static str, String); 2];
type StatusLabels = [(&'static str, String); 3];

/// The metrics by app.
pub(super) struct Apps {
    most: usize,
    /// The apps with a label value of their own.
    named: Mutex<HashMap<AppUid, AppId>>,
    ended: Family<StatusLabels, Counter>,
    durations: Family<AppLabels, Histogram>,
}

impl Apps {
    /// Registers the metrics, if there may be any.
    pub(super) fn new(registry: &mut Registry, most: usize) -> Self {
        let ended = Family::<StatusLabels, Counter>::default();
        let durations = Family::<AppLabels, Histogram>::new_with_constructor(super::register::buckets_of_deploys);
        if most > 0 {
            let help = "Deploys of each app whose end this replica recorded";
            registry.register("app_deploys_ended", help, ended.clone());
            let help = "Time from the accept to the end of each app's deploys";
            registry.register_with_unit("app_deploy_duration", help, Unit::Seconds, durations.clone());
        }
        Self { most, named: Mutex::default(), ended, durations }
    }

    /// Begins an app's series at zero: an increase from nothing to 1 is none to Prometheus.
    pub(super) fn accepted(&self, app: &AppId, uid: AppUid) {
        let Some(labels) = self.labels(app, uid) else { return };
        for status in ENDS {
            drop(self.ended.get_or_create(&with_status(&labels, status.as_str())));
        }
    }

    pub(super) fn ended(&self, app: &AppId, uid: AppUid, deploy: &Deploy) {
        let Some(labels) = self.labels(app, uid) else { return };
        self.ended.get_or_create(&with_status(&labels, deploy.status().as_str())).inc();
        let took = deploy.updated_at.since(deploy.created_at);
        self.durations.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// Forgets an app, which makes room for another one.
    pub(super) fn removed(&self, uid: AppUid) {
        let Some(app) = self.lock().remove(&uid) else { return };
        let labels = labels(&app.namespace.to_string(), &app.name.to_string());
        for status in ENDS {
            self.ended.remove(&with_status(&labels, status.as_str()));
        }
        self.durations.remove(&labels);
    }

    /// Returns the labels of an app; `None` if there are no metrics by app.
    fn labels(&self, app: &AppId, uid: AppUid) -> Option<AppLabels> {
        if self.most == 0 {
            return None;
        }
        let mut named = self.lock();
        let has_room = named.len() < self.most;
        let is_named = named.contains_key(&uid) || (has_room && named.insert(uid, app.clone()).is_none());
        Some(match is_named {
            true => labels(&app.namespace.to_string(), &app.name.to_string()),
            false => labels(OTHER, OTHER),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<AppUid, AppId>> {
        self.named.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn labels(namespace: &str, app: &str) -> AppLabels {
    // Where Prometheus finds servers in a cluster, `namespace` and `app` are often labels of the server itself.
    [("app_namespace", namespace.to_owned()), ("app_name", app.to_owned())]
}

fn with_status(labels: &AppLabels, status: &str) -> StatusLabels {
    let [namespace, app] = labels.clone();
    [namespace, app, ("status", status.to_owned())]
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use rollhook_conformance::samples;
    use rollhook_core::ledger::{AppState, Change};

    use super::*;

    fn series(registry: &Registry) -> Vec<String> {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text.lines().filter(|line| line.ends_with(" 1")).map(str::to_owned).collect()
    }

    fn end(apps: &Apps, name: &str) -> AppUid {
        let app = samples::app("shop", "test", name);
        let mut change = Change::on(AppState::new(app.clone()));
        let accepted = samples::admit(&mut change, samples::admission(samples::deploy("v1")), app.created_at);
        apps.accepted(&app.id, app.uid);
        apps.ended(&app.id, app.uid, &accepted.moved(samples::succeeded()));
        app.uid
    }

    #[test]
    fn apps_beyond_the_bound_share_a_label_value_until_there_is_room() {
        let mut registry = Registry::default();
        let apps = Apps::new(&mut registry, 1);
        let first = end(&apps, "a");
        end(&apps, "b");
        let ended = |name: &str| {
            let label = format!("app_name=\"{name}\"");
            series(&registry).iter().any(|line| line.starts_with("app_deploys_ended_total") && line.contains(&label))
        };
        assert!(ended("a") && ended(OTHER) && !ended("b"), "{:?}", series(&registry));
        apps.removed(first);
        end(&apps, "c");
        assert!(!ended("a") && ended("c"), "{:?}", series(&registry));
    }

    #[test]
    fn no_app_has_a_series_unless_it_is_asked_for() {
        let mut registry = Registry::default();
        end(&Apps::new(&mut registry, 0), "a");
        assert_eq!(series(&registry), Vec::<String>::new());
    }
}
