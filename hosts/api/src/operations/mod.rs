//! The operations of the API, by what they are about.

mod access;
mod apps;
mod checks;
mod configuration;
mod deploys;
mod images;
mod instances;
mod locks;
mod receivers;
mod report;
mod requirements;
mod runs;
mod sessions;
mod webhooks;

pub use access::{AuditQuery, CreateApiToken, ListApiTokens, ReadAudit, RevokeApiToken, ShowCaller};
pub use apps::{AppsQuery, ChangeApp, DeleteApp, ListApps, RegisterApp, ReleaseHold, ShowApp};
pub use checks::{ListChecks, PutCheck, RemoveCheck, TestCheck};
pub use configuration::{ChangeConfiguration, ConfigQuery, DiscardConfiguration, ShowConfiguration};
pub use deploys::{
    CancelDeploy, DecideDeploy, DeployApp, DeployQuery, DeploysQuery, ListDeploys, LogQuery, LogStep, LogText,
    PlanRollback, PromoteApp, ReadBuildLog, RebuildApp, RollBack, RollbackQuery, ShowDeploy, StartApp, StopApp,
};
pub use images::{ExplainFollowing, ImageQuery, LookUpImage};
pub use instances::{InstanceLogQuery, InstancesQuery, Lines, ListInstances, ReadInstanceLog};
pub use locks::{ListLocks, LockApp, LockEnvironment, UnlockApp, UnlockEnvironment};
pub use receivers::{ListReceivers, RegisterReceiver, RemoveReceiver, ReplaceSecret, TestReceiver};
pub use report::{ActivityQuery, ListActivity, ReportDelivery, ReportQuery};
pub use requirements::{EndRequirement, ListRequirements, RequirementSubject, SetRequirement};
pub use runs::{CancelRun, ListRuns, ReadRunLog, RunLogQuery, ShowRun, StartRun};
pub use sessions::{ActorQuery, EndSession, EndSessions, ListSessions, SessionsQuery};
pub use webhooks::{
    DisableWebhook, EnableWebhook, EndTrust, ListTrusts, ListWebhookCalls, RotateWebhook, ShowWebhook, TrustPipeline,
    WebhookQuery,
};
