//! The port that keeps registrations.

use async_trait::async_trait;

use crate::{
    app::{App, AppId, AppUid, Namespace},
    error::Result,
};

/// Which part of the list of apps is asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppPage {
    /// Only apps of this namespace.
    pub namespace: Option<Namespace>,
    /// Only apps that come after this one in the order of their ids.
    pub after: Option<AppId>,
    /// At most this many.
    pub limit: usize,
}

/// Keeps the registrations; one store together with [`super::History`], which counts an app's revisions.
///
/// - `create_then_find`: a created app is found by its id, as it was given, `created_at` stamped by the store.
/// - `create_twice_conflicts`: a second app of the same id is a `Conflict("app")`.
/// - `create_namespace_of_another_pair_conflicts`: one namespace belongs to one (project, environment) pair for as long
///   as an app is in it; another pair that spells it is a `Conflict("namespace")`.
/// - `find_unknown_is_none`.
/// - `list_is_sorted_and_paged`: by namespace, then name; `after` and `namespace` narrow it.
/// - `update_is_guarded`: replaces source, policy and holds where uid and guard are as given, and counts the guard up;
///   else `Conflict("app")`, or `NotFound("app")` where the uid is gone.
///   An app that is polled has work from then on, in the same write (`polled_app_has_work` of [`super::History`]).
/// - `remove_takes_everything`: unfinished entries, history, keys, claim and token of the uid are gone with it, and an
///   app created under the same id starts at revision 1. Removing what is gone is no error.
#[async_trait]
pub trait Apps: Send + Sync {
    /// Registers an app; `guard` and `created_at` of the argument are ignored.
    async fn create(&self, app: App) -> Result<App>;

    /// The app of this name.
    async fn find(&self, id: &AppId) -> Result<Option<App>>;

    /// A part of the list.
    async fn list(&self, page: AppPage) -> Result<Vec<App>>;

    /// Changes source, policy and holds, if nobody else did since `app` was read.
    async fn update(&self, app: App) -> Result<App>;

    /// Removes the app and all that belongs to its uid.
    async fn remove(&self, uid: AppUid) -> Result<()>;
}
