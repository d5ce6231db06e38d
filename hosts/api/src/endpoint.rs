//! Endpoints of the API: method, path, and who may call them.
//!
//! Each stands once, at its [`Operation`](crate::Operation). The server's routes, the clients' calls and the description
//! are made of it.

use rollhook_core::{
    app::{AppId, Environment, Project},
    check::CheckName,
    deploy::Revision,
    instance::InstanceName,
    run::RunNumber,
};
use rollhook_management::{
    access::{SessionId, TokenName},
    keyless::TrustId,
    notifications::ReceiverName,
};

use crate::Kind;

/// The most parameters of a path.
pub const PARAMETERS: usize = 3;

/// An endpoint of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The HTTP method. `GET` stands for `HEAD` as well.
    pub method: &'static str,
    /// The path, with parameters in braces.
    pub path: &'static str,
    /// What a call does.
    pub summary: &'static str,
    /// The credentials that a call needs.
    pub credentials: Credentials,
    /// The status of success.
    pub status: u16,
    /// The operation's name in idempotency keys, if a call may have one.
    pub key: Option<&'static str>,
    /// Whether a caller may prefer to wait for what the call begins.
    pub waits: bool,
    /// Whether the body may be left out.
    pub has_optional_body: bool,
    /// Whether a call must not be repeated whose answer was lost.
    pub is_once: bool,
}

/// The credentials that a call needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Credentials {
    /// None; the endpoint is for supervisors and Prometheus.
    Probe,
    /// None.
    None,
    /// Those of an app's webhook.
    Webhook,
    /// The code of a login, in the body.
    LoginCode,
    /// An API token, or what stands for one.
    ApiToken,
    /// An API token, or the token of the app's webhook.
    ApiTokenOrServiceToken,
}

impl Endpoint {
    /// Returns an endpoint that needs an API token.
    pub const fn new(method: &'static str, path: &'static str, status: u16, summary: &'static str) -> Self {
        Self {
            method,
            path,
            summary,
            credentials: Credentials::ApiToken,
            status,
            key: None,
            waits: false,
            has_optional_body: false,
            is_once: false,
        }
    }

    /// Returns an endpoint that reads.
    pub const fn get(path: &'static str, summary: &'static str) -> Self {
        Self::new("GET", path, 200, summary)
    }

    /// Returns an endpoint that removes something, and answers nothing.
    pub const fn delete(path: &'static str, summary: &'static str) -> Self {
        Self::new("DELETE", path, 204, summary)
    }

    /// Returns the endpoint for these credentials.
    #[must_use]
    pub const fn with(self, credentials: Credentials) -> Self {
        Self { credentials, ..self }
    }

    /// Returns the endpoint, repeatable under a key of this operation.
    #[must_use]
    pub const fn keyed(self, operation: &'static str) -> Self {
        Self { key: Some(operation), ..self }
    }

    /// Returns the endpoint of a call that may wait.
    #[must_use]
    pub const fn waiting(self) -> Self {
        Self { waits: true, ..self }
    }

    /// Returns the endpoint of a call whose body may be left out.
    #[must_use]
    pub const fn with_optional_body(self) -> Self {
        Self { has_optional_body: true, ..self }
    }

    /// Returns the endpoint of a call that makes a secret, or calls another server: its effect must not be repeated if its
    /// answer is lost.
    #[must_use]
    pub const fn once(self) -> Self {
        Self { is_once: true, ..self }
    }

    /// Returns whether a call only reads.
    pub fn reads(&self) -> bool {
        self.method == "GET"
    }

    /// Returns whether a call sends its input as the query: many programs drop the body of a `DELETE`.
    pub fn has_query(&self) -> bool {
        self.reads() || self.method == "DELETE"
    }

    /// Returns the parameters of a path, or `None` if it is not this endpoint's.
    pub fn parameters<'a>(&self, path: &'a str) -> Option<[&'a str; PARAMETERS]> {
        let mut parts = path.split('/');
        let mut parameters = [""; PARAMETERS];
        let mut free = parameters.iter_mut();
        for wanted in self.path.split('/') {
            let part = parts.next()?;
            if wanted.starts_with('{') {
                *free.next()? = part;
            } else if wanted != part {
                return None;
            }
        }
        parts.next().is_none().then_some(parameters)
    }

    /// Returns the path with these parameters.
    pub fn path_of(&self, subject: &impl Subject) -> String {
        let mut values = subject.parameters().into_iter();
        let part = |part: &str| match part.starts_with('{') {
            true => values.next().unwrap_or_default(),
            false => part.to_owned(),
        };
        self.path.split('/').map(part).collect::<Vec<_>>().join("/")
    }
}

/// The endpoints that no [`Operation`](crate::Operation) stands for: of the server itself, and of webhooks.
pub mod open {
    use super::{Credentials, Endpoint};

    /// Whether the process is to be restarted.
    pub const HEALTH: Endpoint =
        Endpoint::get("/healthz", "The process is alive, and its engine goes on").with(Credentials::Probe);
    /// Whether the server takes calls.
    pub const READY: Endpoint = Endpoint::get("/readyz", "The store answers").with(Credentials::Probe);
    /// Metrics.
    pub const METRICS: Endpoint = Endpoint::get("/metrics", "Numbers for Prometheus").with(Credentials::Probe);
    /// The description of the API.
    pub const DESCRIPTION: Endpoint = Endpoint::get("/api/v1/openapi.json", "This description").with(Credentials::None);
    /// The script of CI.
    pub const SCRIPT: Endpoint =
        Endpoint::get("/api/v1/deploy.sh", "The shell script by which a job of any CI system deploys")
            .with(Credentials::None);
    /// The webhook of an app.
    pub const WEBHOOK: Endpoint =
        Endpoint::new("POST", "/api/v1/webhook/{namespace}/{app}", 202, "Deploy from CI or a git host")
            .with(Credentials::Webhook)
            .keyed("webhook")
            .waiting();
    /// The sign-in of a command line.
    pub const LOGIN: Endpoint = Endpoint::new(
        "POST",
        "/api/v1/login",
        200,
        "Sign a command line in, by a code that the console has handed out",
    )
    .with(Credentials::LoginCode);
    /// The changes of an entry, as they come.
    pub const EVENTS: Endpoint = Endpoint::get(
        "/api/v1/apps/{namespace}/{app}/deploys/{revision}/events",
        "The entry's changes, until it has ended",
    );
}

/// The problem of a path that names nothing.
pub type Missing = (Kind, &'static str);

/// What the parameters of a path name.
pub trait Subject: Sized + Send + Sync {
    /// Reads the parameters.
    ///
    /// # Errors
    /// The problem of parameters that can name nothing.
    fn read(parameters: [&str; PARAMETERS]) -> Result<Self, Missing>;

    /// Returns the parameters.
    fn parameters(&self) -> Vec<String>;
}

impl Subject for () {
    fn read(_: [&str; PARAMETERS]) -> Result<Self, Missing> {
        Ok(())
    }

    fn parameters(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Subject for AppId {
    fn read([namespace, name, _]: [&str; PARAMETERS]) -> Result<Self, Missing> {
        let read = || Some(Self { namespace: namespace.parse().ok()?, name: name.parse().ok()? });
        read().ok_or((Kind::AppNotFound, "There is no app of this name."))
    }

    fn parameters(&self) -> Vec<String> {
        vec![self.namespace.to_string(), self.name.to_string()]
    }
}

impl Subject for (AppId, Revision) {
    fn read(parameters: [&str; PARAMETERS]) -> Result<Self, Missing> {
        let revision = parameters[2].parse();
        let missing = (Kind::RevisionNotFound, "There is no such revision of this app.");
        Ok((AppId::read(parameters)?, revision.map_err(|_| missing)?))
    }

    fn parameters(&self) -> Vec<String> {
        self.0.parameters().into_iter().chain([self.1.to_string()]).collect()
    }
}

impl Subject for (AppId, RunNumber) {
    fn read(parameters: [&str; PARAMETERS]) -> Result<Self, Missing> {
        let number = parameters[2].parse();
        let missing = (Kind::RunNotFound, "There is no such run of this app.");
        Ok((AppId::read(parameters)?, number.map_err(|_| missing)?))
    }

    fn parameters(&self) -> Vec<String> {
        self.0.parameters().into_iter().chain([self.1.to_string()]).collect()
    }
}

impl Subject for (AppId, CheckName) {
    fn read(parameters: [&str; PARAMETERS]) -> Result<Self, Missing> {
        let name = parameters[2].parse();
        let missing = (Kind::CheckNotFound, "An app's check is named by a DNS label, such as front-page.");
        Ok((AppId::read(parameters)?, name.map_err(|_| missing)?))
    }

    fn parameters(&self) -> Vec<String> {
        self.0.parameters().into_iter().chain([self.1.to_string()]).collect()
    }
}

impl Subject for (AppId, InstanceName) {
    fn read(parameters: [&str; PARAMETERS]) -> Result<Self, Missing> {
        let instance = parameters[2].parse();
        let missing = (Kind::NoSuchInstance, "The app has no instance of this name.");
        Ok((AppId::read(parameters)?, instance.map_err(|_| missing)?))
    }

    fn parameters(&self) -> Vec<String> {
        self.0.parameters().into_iter().chain([self.1.to_string()]).collect()
    }
}

impl Subject for (AppId, TrustId) {
    fn read(parameters: [&str; PARAMETERS]) -> Result<Self, Missing> {
        let trust = parameters[2].parse();
        let missing = (Kind::TrustNotFound, "The app has no trust of this id.");
        Ok((AppId::read(parameters)?, trust.map_err(|_| missing)?))
    }

    fn parameters(&self) -> Vec<String> {
        self.0.parameters().into_iter().chain([self.1.to_string()]).collect()
    }
}

impl Subject for (Project, Environment) {
    fn read([project, environment, _]: [&str; PARAMETERS]) -> Result<Self, Missing> {
        let read = || Some((project.parse().ok()?, environment.parse().ok()?));
        read().ok_or((Kind::NotFound, "There is no environment of this name."))
    }

    fn parameters(&self) -> Vec<String> {
        vec![self.0.to_string(), self.1.to_string()]
    }
}

impl Subject for Project {
    fn read([project, ..]: [&str; PARAMETERS]) -> Result<Self, Missing> {
        project.parse().map_err(|_| (Kind::NotFound, "There is no project of this name."))
    }

    fn parameters(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

impl Subject for TokenName {
    fn read([name, ..]: [&str; PARAMETERS]) -> Result<Self, Missing> {
        name.parse().map_err(|_| (Kind::TokenNotFound, "There is no API token of this name."))
    }

    fn parameters(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

impl Subject for SessionId {
    fn read([id, ..]: [&str; PARAMETERS]) -> Result<Self, Missing> {
        id.parse().map_err(|_| (Kind::SessionNotFound, "There is no session of this id."))
    }

    fn parameters(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}

impl Subject for ReceiverName {
    fn read([name, ..]: [&str; PARAMETERS]) -> Result<Self, Missing> {
        name.parse().map_err(|_| (Kind::ReceiverNotFound, "There is no receiver of this name."))
    }

    fn parameters(&self) -> Vec<String> {
        vec![self.to_string()]
    }
}
