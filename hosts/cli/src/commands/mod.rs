//! The commands: each performs an operation and prints the outcome.

pub(crate) mod access;
pub(crate) mod apps;
pub(crate) mod builds;
pub(crate) mod check;
pub(crate) mod config;
pub(crate) mod deploys;
pub(crate) mod image;
pub(crate) mod lock;
pub(crate) mod login;
pub(crate) mod logs;
pub(crate) mod look_up;
mod outcome;
pub(crate) mod promotion;
pub(crate) mod receiver;
pub(crate) mod report;
pub(crate) mod requirement;
pub(crate) mod runs;
pub(crate) mod scale;
pub(crate) mod session;
pub(crate) mod trust;
pub(crate) mod webhook;

use rollhook_api::{
    App, AppList,
    openapi::PAGE_MAX,
    operations::{AppsQuery, ListApps, ShowApp},
    query::PageSize,
};
use rollhook_core::{
    app::{AppId, FullName, Namespace},
    request::Refusal,
};
use serde::Serialize;

use crate::{api::Api, args::Target, direct::Direct, exit::CliError, output::Output};

/// The surroundings of a command.
pub(crate) struct Session<'a> {
    pub(crate) api: &'a Api,
    /// The deployer in this process, which drives deploys to their end; `None` if a server does.
    pub(crate) direct: Option<&'a Direct>,
    pub(crate) output: Output,
}

impl Session<'_> {
    /// Returns the id of the named app. Another pair of project and environment may spell the same namespace, and its
    /// apps are not meant.
    async fn find(&self, target: &Target) -> Result<AppId, CliError> {
        self.app(target).await?;
        Ok(target.id()?)
    }

    /// Returns the named app: see [`Session::find`].
    async fn app(&self, target: &Target) -> Result<App, CliError> {
        self.named(&target.full_name()).await
    }

    /// Returns the app of this full name: see [`Session::find`].
    async fn named(&self, name: &FullName) -> Result<App, CliError> {
        let app = self.api.call(ShowApp, &name.id()?, ()).await?;
        if (app.project.as_str(), app.environment.as_str()) == (name.project.as_str(), name.environment.as_str()) {
            return Ok(app);
        }
        Err(Refusal::AppNotFoundIn(name.clone()).into())
    }

    /// Returns all apps that the caller may read, or those of one namespace. Another pair of project and environment may
    /// spell the same namespace.
    pub(crate) async fn apps(&self, namespace: Option<Namespace>) -> Result<AppList, CliError> {
        let mut list = AppList::default();
        loop {
            let after = list.next.as_deref().map(str::parse).transpose()?;
            let page = AppsQuery { namespace: namespace.clone(), after, limit: Some(PageSize::new(PAGE_MAX)) };
            let page = self.api.call(ListApps, &(), page).await?;
            list.apps.extend(page.apps);
            list.unreadable.extend(page.unreadable);
            list.next = page.next;
            if list.next.is_none() {
                return Ok(list);
            }
        }
    }

    /// Starts the engine of this process, if it has one; to be called before an operation that makes or ends a deploy.
    fn drive(&self) -> Result<(), CliError> {
        self.direct.map_or(Ok(()), Direct::start)
    }

    /// Prints the document if a program reads; for people, lines were printed before.
    fn document<T: Serialize>(&self, document: &T) -> Result<(), CliError> {
        self.output.data(document, String::new)
    }
}
