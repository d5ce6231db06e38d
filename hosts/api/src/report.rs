//! Reports over the histories of all apps that a caller may read: activity, and delivery measures.

pub mod csv;
pub mod words;

use std::{fmt, str::FromStr};

use rollhook_core::time::Timestamp;
use rollhook_management::report::{self, DayCount, Measures, ReportedApp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Deploy, Standing, openapi::schemas, time};

/// The newest deploys of the apps that the caller may read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActivityList {
    /// The deploys, newest first.
    pub deploys: Vec<ActivityDeploy>,
    /// The place of the next part, for the query's `after`; null if there is none.
    #[serde(default)]
    pub next: Option<String>,
    /// Whether older deploys are left out, as one call reads 10,000 entries at most.
    #[serde(default)]
    pub truncated: bool,
    /// The names of the apps of which some deploys are stored and cannot be read; the server's log says why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
}

/// A deploy of one of several apps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ActivityDeploy {
    /// The app's project.
    pub project: String,
    /// The app's environment.
    pub environment: String,
    /// The entry of the app's history, without evidence.
    #[serde(flatten)]
    pub deploy: Deploy,
}

impl ActivityDeploy {
    pub(crate) fn of(app: &ReportedApp, deploy: &rollhook_core::deploy::Deploy) -> Self {
        let ReportedApp { current, on_cluster, .. } = *app;
        let standing =
            Standing { current, on_cluster, recoveries: app.recoveries.clone(), watches: app.watches.clone() };
        Self {
            project: app.project.to_string(),
            environment: app.environment.to_string(),
            deploy: Deploy::of(&app.id, deploy, &standing).without_evidence(),
        }
    }
}

/// The delivery measures of the environments of the apps that the caller may read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryReport {
    /// The length of the period: today and the days before it, in UTC.
    pub days: u32,
    /// The begin of the period.
    #[serde(with = "time")]
    #[schemars(schema_with = "schemas::time")]
    pub since: Timestamp,
    /// The end of the period: the time of the report.
    #[serde(with = "time")]
    #[schemars(schema_with = "schemas::time")]
    pub until: Timestamp,
    /// Whether the period begins later than it should, with the oldest of the 10,000 entries that one call reads at most.
    #[serde(default)]
    pub truncated: bool,
    /// The names of the apps of which some deploys are stored and cannot be read; the server's log says why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<String>,
    /// The measures by project and environment. Those in which nothing was counted are left out.
    pub environments: Vec<DeliveryMeasures>,
}

/// The delivery measures of an environment. A deployment is a deploy of a change that succeeded, or that failed after it had
/// touched the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeliveryMeasures {
    /// The project.
    pub project: String,
    /// The project's environment.
    pub environment: String,
    /// The number of deployments.
    pub deployments: usize,
    /// The deployments of a day, on average.
    pub deployments_per_day: f64,
    /// The number of deployments that failed, or that a person rolled back from.
    pub failed: usize,
    /// The share of these among the deployments, from 0 to 1; null without deployments.
    pub change_fail_rate: Option<f64>,
    /// The median of the seconds from the end of a failed deployment to the end of the first deploy after it that succeeded;
    /// null without such a one.
    pub recovery_time_seconds: Option<u64>,
    /// The number of failed deployments after which none has succeeded yet.
    pub unrecovered: usize,
    /// The number of rollbacks by people, and of restores by the service.
    pub rollbacks: usize,
    /// The number of rollbacks and restores, and of deployments that were accepted while the one before had failed.
    pub repairs: usize,
    /// The share of the repairs among deployments, rollbacks and restores, from 0 to 1; null without any.
    pub rework_rate: Option<f64>,
    /// The median of the seconds from a commit to the success of its deployment; null where no commit's time is known.
    pub lead_time_seconds: Option<u64>,
    /// The number of deployments that succeeded and whose commit's time is known.
    pub lead_times: usize,
    /// The days on which there were deployments.
    pub daily: Vec<DayDeployments>,
    /// The time since which all entries are kept, if some of the period may be forgotten by the apps' retention.
    #[serde(default, with = "time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub kept_since: Option<Timestamp>,
}

/// The deployments of a day.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DayDeployments {
    /// The day in UTC, such as `2026-01-02`.
    pub day: String,
    /// The number of deployments that were accepted on it.
    pub deployments: usize,
    /// The number of those that failed, or that a person rolled back from.
    pub failed: usize,
}

impl DeliveryReport {
    pub(crate) fn of(report: &report::DeliveryReport, days: Days) -> Self {
        let environment = |((project, environment), measures): (&(_, _), &Measures)| {
            let (project, environment): (&rollhook_core::app::Project, &rollhook_core::app::Environment) =
                (project, environment);
            DeliveryMeasures::of(project.as_str(), environment.as_str(), measures)
        };
        Self {
            days: days.0,
            since: report.since,
            until: report.until,
            truncated: report.truncated,
            unreadable: report.unreadable.iter().map(ToString::to_string).collect(),
            environments: report.environments.iter().map(environment).collect(),
        }
    }
}

impl DeliveryMeasures {
    fn of(project: &str, environment: &str, measures: &Measures) -> Self {
        let seconds = |duration: std::time::Duration| duration.as_secs();
        let day = |(begin, count): (&Timestamp, &DayCount)| DayDeployments {
            day: time::day(*begin),
            deployments: count.deployments,
            failed: count.failed,
        };
        Self {
            project: project.to_owned(),
            environment: environment.to_owned(),
            deployments: measures.deployments,
            deployments_per_day: rounded(measures.per_day),
            failed: measures.failed,
            change_fail_rate: measures.fail_rate.map(rounded),
            recovery_time_seconds: measures.recovery.map(seconds),
            unrecovered: measures.unrecovered,
            rollbacks: measures.returns,
            repairs: measures.repairs,
            rework_rate: measures.rework_rate.map(rounded),
            lead_time_seconds: measures.lead_time.map(seconds),
            lead_times: measures.lead_times,
            daily: measures.days.iter().map(day).collect(),
            kept_since: measures.kept_since,
        }
    }
}

/// Returns a number with four digits after the point.
fn rounded(number: f64) -> f64 {
    (number * 10_000.0).round() / 10_000.0
}

/// The length of a report's period, in days.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days(u32);

impl Days {
    /// The lengths that there are.
    pub const ALL: [Self; 3] = [Self(7), Self(30), Self(90)];

    /// Returns the number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for Days {
    fn default() -> Self {
        Self(30)
    }
}

impl fmt::Display for Days {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A text is not the length of a report's period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidDays;

impl fmt::Display for InvalidDays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("must be 7, 30 or 90")
    }
}

impl std::error::Error for InvalidDays {}

impl FromStr for Days {
    type Err = InvalidDays;

    fn from_str(text: &str) -> Result<Self, InvalidDays> {
        Self::ALL.into_iter().find(|days| days.to_string() == text).ok_or(InvalidDays)
    }
}
