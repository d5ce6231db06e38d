//! Reports over the histories of all apps that the caller may read.

use rollhook_core::app::{Environment, LABEL_MAX, Project};
use rollhook_management::{
    Refusal,
    report::{ActivityFilter, ActivityPlace, Apps, StatusFilter},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ActivityDeploy, ActivityList, DeliveryReport, Local, Operation,
    endpoint::Endpoint,
    openapi::{PAGE_MAX, schemas},
    query::{self, PageSize},
    report::Days,
};

/// The number of deploys of a page, unless the query has another.
const PAGE: usize = 50;

/// The query of activity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ActivityQuery {
    /// Only deploys of apps of this project.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub project: Option<Project>,
    /// Only deploys of apps in environments of this name.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub environment: Option<Environment>,
    /// Only deploys whose actor has this text in its name, in capitals or not.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub actor: Option<String>,
    /// Only deploys that ended so, or have not ended.
    #[serde(with = "query::worded", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("enum" = StatusFilter::ALL.map(StatusFilter::as_str)))]
    pub status: Option<StatusFilter>,
    /// Only deploys after this place: `next` of the part before.
    #[serde(with = "query::worded", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = ActivityPlace::PATTERN))]
    pub after: Option<ActivityPlace>,
    /// At most this many.
    #[serde(with = "query::page_size", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "usize", range(min = 1, max = PAGE_MAX))]
    pub limit: Option<PageSize>,
}

/// The query of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ReportQuery {
    /// Only apps of this project.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub project: Option<Project>,
    /// Only apps in environments of this name.
    #[serde(with = "query", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String", extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub environment: Option<Environment>,
    /// The length of the period: today and the days before it, in UTC; 30 by default.
    #[serde(with = "query::worded", skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u32", extend("enum" = Days::ALL.map(Days::get)))]
    pub days: Option<Days>,
}

/// Lists the newest deploys of the apps that the caller may read.
pub struct ListActivity;

impl Operation for ListActivity {
    type Subject = ();
    type Input = ActivityQuery;
    type Answer = ActivityList;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/activity", "The newest deploys of all apps");

    async fn perform(caller: &Local, _: &(), query: ActivityQuery) -> Result<ActivityList, Refusal> {
        let ActivityQuery { project, environment, actor, status, after, limit } = query;
        let filter = ActivityFilter { apps: Apps { project, environment }, actor, status };
        let limit = limit.map_or(PAGE, PageSize::get);
        let activity = caller.management.activity(&caller.principal, &filter, after.as_ref(), limit).await?;
        Ok(ActivityList {
            deploys: activity.deploys.iter().map(|(app, deploy)| ActivityDeploy::of(app, deploy)).collect(),
            next: activity.next.as_ref().map(ToString::to_string),
            truncated: activity.truncated,
            unreadable: activity.unreadable.iter().map(ToString::to_string).collect(),
        })
    }
}

/// Reports the delivery measures of the environments of the apps that the caller may read.
pub struct ReportDelivery;

impl Operation for ReportDelivery {
    type Subject = ();
    type Input = ReportQuery;
    type Answer = DeliveryReport;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/report", "Delivery measures by project and environment");

    async fn perform(caller: &Local, _: &(), query: ReportQuery) -> Result<DeliveryReport, Refusal> {
        let ReportQuery { project, environment, days } = query;
        let days = days.unwrap_or_default();
        let apps = Apps { project, environment };
        let report = caller.management.delivery_report(&caller.principal, &apps, days.get()).await?;
        Ok(DeliveryReport::of(&report, days))
    }
}
