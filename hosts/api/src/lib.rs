//! rollhook's wire types, shared by the server and its clients, and the operations that take and return them.
//!
//! A server and its clients share each type, so that the two cannot drift. Requests are kept as
//! they were sent and are parsed into the core's nouns by their `parse` functions, whose failures are refusals like any
//! other; answers are made from the core's nouns. Readers ignore unknown fields of answers.
//!
//! ```text
//!   JSON ⇄ requests  ──parse──▶  rollhook_core::request
//!   JSON ⇄ answers   ◀──of─────  rollhook_core::{app, deploy}
//!   JSON ⇄ Problem   ◀──of─────  rollhook_core::request::Refusal
//! ```
//!
//! Each operation of the management API is a type: an [`Operation`] has its endpoint, what a call sends and gets, and
//! what it does. Routes, clients and the description of the API are made of them. [`Local`] performs them on a
//! management plane in this process: the HTTP host for each call, the command line without a server for itself, and a
//! platform for its own pages.

pub mod access;
pub mod app;
pub mod calls;
pub mod checks;
pub mod configuration;
pub mod deploy;
pub mod duration;
pub mod endpoint;
pub mod following;
pub mod hints;
pub mod image;
pub mod instances;
mod lock;
pub mod openapi;
mod operation;
pub mod operations;
pub mod polling;
pub mod problem;
pub mod promotion;
pub mod push;
pub mod query;
pub mod reach;
pub mod receivers;
pub mod report;
mod requirement;
pub mod runs;
pub mod sessions;
pub mod snippets;
pub mod source;
mod template;
pub mod terminal;
pub mod time;
pub mod trusts;
pub mod words;
pub mod workload;

pub use access::{
    ApiToken, AuditEntry, AuditList, AuditPlace, CreateToken, CreatedToken, GrantedRole, LoggedIn, Login, TokenList,
    Whoami,
};
pub use app::{
    App, AppList, AppPatch, CreateApp, Degraded, Drift, Hold, Policy, PolicyPatch, References, Registered, Released,
    Rotate, Webhook,
};
pub use calls::{WebhookCall, WebhookCallList};
pub use checks::{Check, CheckKind, CheckList, CheckSetting, SetCheck, TestedCheck, check_setting_text};
pub use configuration::{ConfigAnswer, ConfigKept, ConfigPatch, ConfigResult, Configuration, Variable};
pub use deploy::{
    CheckFail, CheckOutcome, Decision, Deploy, DeployAnswer, DeployList, DeployPost, ImageLabels, Measurement,
    PastValue, Progress, Promote, PromoteFrom, Rebuild, Restore, Revoked, Rollback, RollbackAnswer, RolledBackTo,
    ScalePost, Standing, Stopped, TakenFrom, Until, VerdictPost, Watch, ends_within,
};
pub use following::{FollowedTag, Following};
pub use image::Image;
pub use instances::{Instance, InstanceList, InstanceLog, InstanceLogLine};
pub use lock::{Lock, LockList, LockRequest, LockedEnvironment};
pub use operation::{Local, Operation};
pub use polling::Polling;
pub use problem::{Kind, Problem};
pub use push::{HintAnswer, PushAnswer};
pub use receivers::{
    AddReceiver, AddedReceiver, Receiver, ReceiverList, RotateReceiver, RotatedReceiver, TestedReceiver,
};
pub use report::{ActivityDeploy, ActivityList, DayDeployments, DeliveryMeasures, DeliveryReport};
pub use requirement::{Demands, RequirementList, RequirementOnApp, RequirementOnRealm, RequirementRequest};
pub use runs::{Run, RunList, RunPost};
pub use sessions::{EndedSessions, Session, SessionList};
pub use source::{GitChoice, SourcePatch};
pub use trusts::{AddTrust, Pipeline, Trust, TrustList};
pub use workload::{WorkloadPatch, WorkloadState};
