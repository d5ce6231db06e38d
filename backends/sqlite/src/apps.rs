//! The registrations.

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{App, AppId, AppUid},
    ports::{AppPage, Apps},
    time::Timestamp,
};
use sqlx::{Row, SqliteConnection};

use crate::{
    job::{Job, call},
    reader::Read,
    rows::{from_json, signed, to_json},
    store::SqliteStore,
    writer::Write,
};

#[async_trait]
impl Apps for SqliteStore {
    async fn create(&self, app: App) -> Result<App> {
        self.write(Create(app)).await
    }

    async fn find(&self, id: &AppId) -> Result<Option<App>> {
        call(&self.lookups, id.clone(), Read::App).await
    }

    async fn list(&self, page: AppPage) -> Result<Vec<App>> {
        call(&self.pages, page, Read::List).await
    }

    async fn update(&self, app: App) -> Result<App> {
        self.write(Update(app)).await
    }

    async fn remove(&self, uid: AppUid) -> Result<()> {
        self.write(Remove(uid)).await
    }
}

struct Create(App);

#[async_trait]
impl Write for Create {
    type Output = App;

    async fn write(&self, connection: &mut SqliteConnection, now: Timestamp) -> sqlx::Result<Result<App>> {
        let app = App { guard: 0, created_at: now, ..self.0.clone() };
        let AppId { namespace, name } = &app.id;
        let (other_pair, same_app): (bool, bool) = sqlx::query_as(
            "SELECT EXISTS (SELECT 1 FROM apps WHERE namespace = ?1 AND (project <> ?2 OR environment <> ?3)), \
             EXISTS (SELECT 1 FROM apps WHERE namespace = ?1 AND name = ?4 OR uid = ?5)",
        )
        .bind(namespace.as_str())
        .bind(app.project.as_str())
        .bind(app.environment.as_str())
        .bind(name.as_str())
        .bind(app.uid.to_string())
        .fetch_one(&mut *connection)
        .await?;
        if other_pair {
            return Ok(Err(Error::Conflict("namespace")));
        }
        if same_app {
            return Ok(Err(Error::Conflict("app")));
        }
        let row: i64 = sqlx::query_scalar(
            "INSERT INTO apps (uid, namespace, name, project, environment, guard, body) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) RETURNING id",
        )
        .bind(app.uid.to_string())
        .bind(namespace.as_str())
        .bind(name.as_str())
        .bind(app.project.as_str())
        .bind(app.environment.as_str())
        .bind(signed(app.guard))
        .bind(to_json(&app)?)
        .fetch_one(&mut *connection)
        .await?;
        sqlx::query("INSERT INTO heads (app) VALUES (?1)").bind(row).execute(&mut *connection).await?;
        queue_if_polled(connection, row, &app).await?;
        Ok(Ok(app))
    }
}

struct Update(App);

#[async_trait]
impl Write for Update {
    type Output = App;

    async fn write(&self, connection: &mut SqliteConnection, _: Timestamp) -> sqlx::Result<Result<App>> {
        let wanted = &self.0;
        let stored = sqlx::query("SELECT id, body FROM apps WHERE uid = ?1")
            .bind(wanted.uid.to_string())
            .fetch_optional(&mut *connection)
            .await?;
        let Some(stored) = stored else { return Ok(Err(Error::NotFound("app"))) };
        let row: i64 = stored.try_get(0)?;
        let stored = match parse(&stored.try_get_unchecked::<Vec<u8>, _>(1)?) {
            Ok(stored) => stored,
            Err(error) => return Ok(Err(error)),
        };
        if stored.guard != wanted.guard {
            return Ok(Err(Error::Conflict("app")));
        }
        let App { source, policy, holds, .. } = wanted.clone();
        let app = App { source, policy, holds, guard: wanted.guard + 1, ..stored };
        sqlx::query("UPDATE apps SET guard = ?2, body = ?3 WHERE id = ?1")
            .bind(row)
            .bind(signed(app.guard))
            .bind(to_json(&app)?)
            .execute(&mut *connection)
            .await?;
        queue_if_polled(connection, row, &app).await?;
        Ok(Ok(app))
    }
}

/// An app that is polled has work whatever happens; one that has some keeps its place.
async fn queue_if_polled(connection: &mut SqliteConnection, row: i64, app: &App) -> sqlx::Result<()> {
    if !app.is_polled() {
        return Ok(());
    }
    let queue = "UPDATE heads SET place = (SELECT coalesce(max(place) + 1, 0) FROM heads WHERE place IS NOT NULL) \
                 WHERE app = ?1 AND place IS NULL";
    sqlx::query(queue).bind(row).execute(connection).await.map(drop)
}

struct Remove(AppUid);

#[async_trait]
impl Write for Remove {
    type Output = ();

    /// The app and its token go at once. Entries and keys, which can be many, belong to a number that is never used
    /// again: they cannot be reached any more, and are deleted bit by bit.
    async fn write(&self, connection: &mut SqliteConnection, _: Timestamp) -> sqlx::Result<Result<()>> {
        let row: Option<i64> = sqlx::query_scalar("DELETE FROM apps WHERE uid = ?1 RETURNING id")
            .bind(self.0.to_string())
            .fetch_optional(&mut *connection)
            .await?;
        if let Some(row) = row {
            for statement in [
                "DELETE FROM heads WHERE app = ?1",
                "DELETE FROM tokens WHERE app = ?1",
                "INSERT INTO leftovers (app) VALUES (?1)",
            ] {
                sqlx::query(statement).bind(row).execute(&mut *connection).await?;
            }
        }
        Ok(Ok(()))
    }

    fn wakes(&self) -> Option<AppUid> {
        Some(self.0)
    }
}

/// Looks apps up by their names.
pub(crate) async fn find(connection: &mut SqliteConnection, jobs: &mut [Job<AppId, Option<App>>]) -> sqlx::Result<()> {
    let names: Vec<_> = jobs.iter().map(|job| (&job.ask.namespace, &job.ask.name)).collect();
    let rows = sqlx::query(
        "SELECT j.key, a.body FROM json_each(?1) j \
         CROSS JOIN apps a ON a.namespace = j.value ->> 0 AND a.name = j.value ->> 1",
    )
    .bind(to_json(&names)?)
    .fetch_all(connection)
    .await?;
    for job in &mut *jobs {
        job.decide(Ok(None));
    }
    for row in rows {
        let body: Vec<u8> = row.try_get_unchecked(1)?;
        if let Some(job) = jobs.get_mut(row.try_get::<u32, _>(0)? as usize) {
            job.decide(parse(&body).map(Some));
        }
    }
    Ok(())
}

/// Reads parts of the list of apps.
pub(crate) async fn list(connection: &mut SqliteConnection, jobs: &mut [Job<AppPage, Vec<App>>]) -> sqlx::Result<()> {
    for job in jobs {
        let AppPage { namespace, after, limit } = &job.ask;
        let (after_namespace, after_name) =
            after.as_ref().map_or(("", ""), |after| (after.namespace.as_str(), after.name.as_str()));
        let rows = match namespace {
            Some(namespace) => sqlx::query(
                "SELECT body FROM apps WHERE namespace = ?4 AND (namespace, name) > (?1, ?2) \
                 ORDER BY namespace, name LIMIT ?3",
            )
            .bind(after_namespace)
            .bind(after_name)
            .bind(i64::try_from(*limit).unwrap_or(i64::MAX))
            .bind(namespace.as_str()),
            None => sqlx::query(
                "SELECT body FROM apps WHERE (namespace, name) > (?1, ?2) ORDER BY namespace, name LIMIT ?3",
            )
            .bind(after_namespace)
            .bind(after_name)
            .bind(i64::try_from(*limit).unwrap_or(i64::MAX)),
        };
        let rows = rows.fetch_all(&mut *connection).await?;
        let bodies: Vec<Vec<u8>> = rows.iter().map(|row| row.try_get_unchecked(0)).collect::<sqlx::Result<_>>()?;
        job.decide(bodies.iter().map(|body| parse(body)).collect());
    }
    Ok(())
}

/// A stored registration.
pub(crate) fn parse(body: &[u8]) -> Result<App> {
    from_json(body, || "an app's registration cannot be read".to_owned())
}
