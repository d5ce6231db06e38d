//! What the description says of each endpoint: made of the operations' own types.

use rollhook_core::app::{Environment, Project};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::{
    Deploy, DeployAnswer, DeployPost, HintAnswer, LoggedIn, Login, Operation, Problem, PushAnswer,
    endpoint::{Endpoint, open},
    operations::{
        CancelDeploy, CancelRun, ChangeApp, ChangeConfiguration, CreateApiToken, DecideDeploy, DeleteApp, DeployApp,
        DisableWebhook, DiscardConfiguration, EnableWebhook, EndRequirement, EndSession, EndSessions, EndTrust,
        ExplainFollowing, ListActivity, ListApiTokens, ListApps, ListChecks, ListDeploys, ListInstances, ListLocks,
        ListReceivers, ListRequirements, ListRuns, ListSessions, ListTrusts, ListWebhookCalls, LockApp,
        LockEnvironment, LookUpImage, PlanRollback, PromoteApp, PutCheck, ReadAudit, ReadBuildLog, ReadInstanceLog,
        ReadRunLog, RebuildApp, RegisterApp, RegisterReceiver, ReleaseHold, RemoveCheck, RemoveReceiver, ReplaceSecret,
        ReportDelivery, RevokeApiToken, RollBack, RotateWebhook, SetRequirement, ShowApp, ShowCaller,
        ShowConfiguration, ShowDeploy, ShowRun, ShowWebhook, StartApp, StartRun, StopApp, TestCheck, TestReceiver,
        TrustPipeline, UnlockApp, UnlockEnvironment,
    },
};

/// An endpoint with the types of what is sent and answered.
pub(super) struct Described {
    pub(super) endpoint: Endpoint,
    /// The parameters of the query.
    pub(super) query: Vec<Value>,
    /// The name of the body's type.
    pub(super) body: Option<String>,
    /// The name of the answer's type.
    pub(super) answer: Option<String>,
    schemas: Map<String, Value>,
}

impl Described {
    fn of<O: Operation>() -> Self {
        Self::with::<O::Input, O::Answer>(O::ENDPOINT)
    }

    fn with<I: JsonSchema, A: JsonSchema>(endpoint: Endpoint) -> Self {
        let settings =
            SchemaSettings::draft2020_12().with(|settings| settings.definitions_path = "/components/schemas".into());
        let (mut sent, mut answered) =
            (settings.clone().for_deserialize().into_generator(), settings.for_serialize().into_generator());
        let (query, body) = match endpoint.has_query() {
            true => (parameters::<I>(&mut sent), None),
            false => (Vec::new(), named::<I>(&mut sent)),
        };
        let answer = named::<A>(&mut answered);
        let mut schemas = sent.take_definitions(true);
        schemas.extend(answered.take_definitions(true));
        Self { endpoint, query, body, answer, schemas }
    }
}

/// Returns the name of a type, which the generator then knows; `None` for nothing.
fn named<T: JsonSchema>(generator: &mut SchemaGenerator) -> Option<String> {
    let schema = generator.subschema_for::<T>().to_value();
    schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()).map(str::to_owned)
}

/// Returns the members of a query as parameters.
fn parameters<T: JsonSchema>(generator: &mut SchemaGenerator) -> Vec<Value> {
    let schema = T::json_schema(generator).to_value();
    let members = schema["properties"].as_object().cloned().unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let parameter = |(name, mut schema): (String, Value)| {
        let known = schema.as_object_mut();
        let description = known.and_then(|schema| schema.remove("description"));
        let description = description.as_ref().and_then(Value::as_str).unwrap_or_default().replace('\n', " ");
        json!({ "in": "query", "name": name, "required": required.contains(&json!(name)), "schema": schema, "description": description })
    };
    members.into_iter().map(parameter).collect()
}

/// Returns all endpoints.
pub(super) fn endpoints() -> Vec<Described> {
    vec![
        Described::with::<(), ()>(open::HEALTH),
        Described::with::<(), ()>(open::READY),
        Described::with::<(), ()>(open::METRICS),
        Described::with::<(), ()>(open::DESCRIPTION),
        Described::with::<(), ()>(open::SCRIPT),
        Described::with::<DeployPost, DeployAnswer>(open::WEBHOOK),
        Described::with::<Login, LoggedIn>(open::LOGIN),
        Described::with::<(), Deploy>(open::EVENTS),
        Described::of::<RegisterApp>(),
        Described::of::<ListApps>(),
        Described::of::<ShowApp>(),
        Described::of::<ChangeApp>(),
        Described::of::<DeleteApp>(),
        Described::of::<ListChecks>(),
        Described::of::<PutCheck>(),
        Described::of::<RemoveCheck>(),
        Described::of::<TestCheck>(),
        Described::of::<LookUpImage>(),
        Described::of::<ExplainFollowing>(),
        Described::of::<ReleaseHold>(),
        Described::of::<EnableWebhook>(),
        Described::of::<RotateWebhook>(),
        Described::of::<ShowWebhook>(),
        Described::of::<DisableWebhook>(),
        Described::of::<ListWebhookCalls>(),
        Described::of::<ListTrusts>(),
        Described::of::<TrustPipeline>(),
        Described::of::<EndTrust>(),
        Described::of::<ListActivity>(),
        Described::of::<ReportDelivery>(),
        Described::of::<ListDeploys>(),
        Described::of::<ShowDeploy>(),
        Described::of::<DeployApp>(),
        Described::of::<ShowConfiguration>(),
        Described::of::<ChangeConfiguration>(),
        Described::of::<DiscardConfiguration>(),
        Described::of::<StopApp>(),
        Described::of::<StartApp>(),
        Described::of::<RebuildApp>(),
        Described::of::<ReadBuildLog>(),
        Described::of::<ListInstances>(),
        Described::of::<ReadInstanceLog>(),
        Described::of::<CancelDeploy>(),
        Described::of::<DecideDeploy>(),
        Described::of::<PlanRollback>(),
        Described::of::<RollBack>(),
        Described::of::<PromoteApp>(),
        Described::of::<StartRun>(),
        Described::of::<ListRuns>(),
        Described::of::<ShowRun>(),
        Described::of::<ReadRunLog>(),
        Described::of::<CancelRun>(),
        Described::of::<LockApp>(),
        Described::of::<UnlockApp>(),
        Described::of::<LockEnvironment>(),
        Described::of::<UnlockEnvironment>(),
        Described::of::<ListLocks>(),
        Described::of::<SetRequirement<Project>>(),
        Described::of::<EndRequirement<Project>>(),
        Described::of::<SetRequirement<(Project, Environment)>>(),
        Described::of::<EndRequirement<(Project, Environment)>>(),
        Described::of::<ListRequirements>(),
        Described::of::<CreateApiToken>(),
        Described::of::<ListApiTokens>(),
        Described::of::<RevokeApiToken>(),
        Described::of::<ReadAudit>(),
        Described::of::<ShowCaller>(),
        Described::of::<RegisterReceiver>(),
        Described::of::<ListSessions>(),
        Described::of::<EndSession>(),
        Described::of::<EndSessions>(),
        Described::of::<ListReceivers>(),
        Described::of::<RemoveReceiver>(),
        Described::of::<ReplaceSecret>(),
        Described::of::<TestReceiver>(),
    ]
}

/// Returns every type by its name.
pub(super) fn schemas() -> Value {
    let beside = [
        Described::with::<(), PushAnswer>(open::WEBHOOK),
        Described::with::<(), HintAnswer>(open::WEBHOOK),
        Described::with::<(), Problem>(open::WEBHOOK),
    ];
    endpoints().into_iter().chain(beside).flat_map(|described| described.schemas).collect::<Map<_, _>>().into()
}
