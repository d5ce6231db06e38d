//! The registrations.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppUid},
    ports::{AppPage, Apps},
    time::Timestamp,
};
use sqlx::{Row, postgres::PgRow};

use crate::{
    ask::{Ask, ask},
    job::call,
    literal,
    lookup::Lookup,
    rows::{APP_COLUMNS, app, signed, to_json},
    store::PostgresStore,
};

#[async_trait]
impl Apps for PostgresStore {
    async fn create(&self, app: App) -> Result<App> {
        ask(&self.rare, Create(app)).await
    }

    async fn find(&self, id: &AppId) -> Result<Option<App>> {
        call(&self.lookups, id.clone(), Lookup::App).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<App>> {
        ask(&self.pages, page).await
    }

    async fn update(&self, app: App) -> Result<App> {
        ask(&self.rare, Update(app)).await
    }

    async fn remove(&self, uid: AppUid) -> Result<()> {
        ask(&self.rare, Remove(uid)).await
    }
}

struct Create(App);

impl Ask for Create {
    type Answer = App;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        let app = &self.0;
        let texts = (&app.uid, &app.id.namespace, &app.id.name, &app.project, &app.environment);
        let stored = (to_json(app)?, to_json(&app.policy)?, &app.holds);
        Ok(format!(
            "SELECT c.outcome, c.created_at FROM (SELECT {}::json AS t, {}::json AS s) j, rollhook.create_app( \
             j.t ->> 0, j.t ->> 1, j.t ->> 2, j.t ->> 3, j.t ->> 4, j.s ->> 0, j.s ->> 1, (j.s -> 2)::jsonb) c",
            literal::json(&texts)?,
            literal::json(&stored)?
        ))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<App>> {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok(match row.try_get(0)? {
            "namespace" => Err(Error::Conflict("namespace")),
            "app" => Err(Error::Conflict("app")),
            _ => {
                let created_at = Timestamp::from_millis(row.try_get(1)?);
                Ok(App { guard: 0, created_at, ..self.0.clone() })
            }
        })
    }
}

struct Update(App);

impl Ask for Update {
    type Answer = App;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        let app = &self.0;
        let values = (&app.uid, &app.source, to_json(&app.policy)?, &app.holds);
        Ok(format!(
            "SELECT u.outcome, u.created_at, u.body, u.policy, u.holds, u.guard FROM (SELECT {}::json AS t) j, \
             rollhook.update_app(j.t ->> 0, {}, (j.t -> 1)::jsonb, j.t ->> 2, (j.t -> 3)::jsonb) u",
            literal::json(&values)?,
            signed(app.guard)
        ))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<App>> {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        match row.try_get(0)? {
            "gone" => Ok(Err(Error::NotFound("app"))),
            "app" => Ok(Err(Error::Conflict("app"))),
            _ => app(row, 1),
        }
    }
}

struct Remove(AppUid);

impl Ask for Remove {
    type Answer = ();

    fn statement(&self, sender: &str) -> sqlx::Result<String> {
        Ok(format!("SELECT rollhook.remove_app('{sender}', '{}')", self.0))
    }

    fn answer(&self, _: &[PgRow]) -> sqlx::Result<Result<()>> {
        Ok(Ok(()))
    }

    fn wakes(&self) -> Option<AppUid> {
        Some(self.0)
    }
}

impl Ask for AppPage {
    type Answer = Vec<App>;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        let after = self.after.as_ref().map_or(("", ""), |after| (after.namespace.as_str(), after.name.as_str()));
        // Names are checked where they are made: there is nothing to escape in them.
        let within = self.namespace.as_ref().map(|namespace| format!("a.namespace = '{namespace}' AND "));
        Ok(format!(
            "SELECT {APP_COLUMNS} FROM rollhook.apps a JOIN rollhook.heads h ON h.app = a.id \
             WHERE {}(a.namespace, a.name) > ('{}', '{}') ORDER BY a.namespace, a.name LIMIT {}",
            within.unwrap_or_default(),
            after.0,
            after.1,
            i64::try_from(self.limit).unwrap_or(i64::MAX)
        ))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<Vec<App>>> {
        rows.iter().map(|row| app(row, 0)).collect()
    }

    fn reads(&self) -> bool {
        true
    }
}
