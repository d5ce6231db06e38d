//! Commits: those of one kind that come in one call are one statement, see [`crate::statement`].

use std::slice;

use rollhook_core::{
    Error, Result,
    error::Entity,
    ports::{AppChange, AppCommit, Committed, Version},
    time::Timestamp,
};
use rollhook_sql::CommitRows;
use sqlx::postgres::PgRow;

use crate::{
    error::SqlError,
    literal::column,
    statement::{self, Item, Kind},
    store::PostgresStore,
};

/// Stands before the statement of a commit that is written alone after its batch was refused, maybe for a lock. Commits that
/// notify also wait for those of other databases that do, as long as a slow disk takes.
const IMPATIENT: &str = "SET LOCAL lock_timeout = '150ms'; ";
/// The number of commits that are written alone and find the database busy, after which the others are refused untried.
const BUSY: usize = 10;

/// The answers, each with the number of its commit.
type Answers = Vec<(usize, Result<Committed>)>;

impl PostgresStore {
    /// Commits apps, with an answer for each, in their order.
    pub(crate) async fn write(&self, commits: Vec<AppCommit>) -> Vec<Result<Committed>> {
        let apps: Vec<_> = commits.iter().map(|commit| (commit.app(), commit.change().is_none())).collect();
        let mut answers: Vec<_> = commits.iter().map(|_| Err(unanswered())).collect();
        let mut items = Vec::with_capacity(commits.len());
        for (number, commit) in commits.into_iter().enumerate() {
            match CommitRows::encode(commit) {
                Ok(rows) => items.push(Item { kind: Kind::of(&rows), number, rows }),
                Err(error) => answers[number] = Err(error),
            }
        }
        items.sort_by_key(|item| item.kind);
        for group in items.chunk_by(|one, other| one.kind == other.kind) {
            for batch in group.chunks(group[0].kind.at_once()) {
                for (number, mut answer) in self.write_batch(batch).await {
                    if let Ok(Committed { version, .. }) = &mut answer {
                        let (app, is_removed) = apps[number];
                        if is_removed {
                            *version = Version::REMOVED;
                        }
                        self.hints.send(AppChange::App(app, *version));
                    }
                    answers[number] = answer;
                }
            }
        }
        answers
    }

    /// Writes commits of one kind. If the server refuses the statement for the sake of one of them, each is written
    /// alone.
    async fn write_batch(&self, batch: &[Item]) -> Answers {
        match self.attempt(batch, "").await {
            Ok(answers) => answers,
            Err(failure) if failure.is_refusal() && batch.len() > 1 => self.write_apart(batch).await,
            Err(failure) => refused(batch, &failure).collect(),
        }
    }

    async fn write_apart(&self, batch: &[Item]) -> Answers {
        let (mut answers, mut busy) = (Answers::new(), 0);
        for (index, item) in batch.iter().enumerate() {
            match self.attempt(slice::from_ref(item), IMPATIENT).await {
                Ok(answer) => answers.extend(answer),
                Err(failure) => {
                    busy += usize::from(failure.is_busy());
                    let gives_up = failure.is_away() || busy == BUSY;
                    answers.extend(refused(if gives_up { &batch[index..] } else { &batch[index..=index] }, &failure));
                    if gives_up {
                        break;
                    }
                }
            }
        }
        answers
    }

    async fn attempt(&self, batch: &[Item], setting: &str) -> Result<Answers, SqlError> {
        let rows = self.writes.write([setting, &statement::of(batch, &self.sender)?].concat()).await?;
        rows.iter().map(answer).collect()
    }
}

fn answer(row: &PgRow) -> Result<(usize, Result<Committed>), SqlError> {
    let now = Timestamp::from_millis(column(row, 3)?);
    let answer = match column::<Option<i64>>(row, 1)? {
        Some(version) => Ok(Committed { version: Version(version.unsigned_abs()), now }),
        None => Err(refusal(column(row, 2)?)),
    };
    Ok((usize::try_from(column::<i32>(row, 0)?).unwrap_or_default(), answer))
}

fn refused(batch: &[Item], failure: &SqlError) -> impl Iterator<Item = (usize, Result<Committed>)> {
    batch.iter().map(|item| (item.number, Err(failure.to_error())))
}

/// Returns the error that a word of the statement stands for.
fn refusal(word: Option<&str>) -> Error {
    match word {
        Some("absent") => Error::NotFound(Entity::App),
        Some("taken") => Error::Conflict(Entity::App),
        Some("namespace") => Error::Conflict(Entity::Namespace),
        Some("version") => Error::Conflict(Entity::Version),
        Some("key") => Error::Conflict(Entity::IdempotencyKey),
        Some(_) | None => unanswered(),
    }
}

fn unanswered() -> Error {
    Error::Corrupt { what: "the database's answer leaves out a commit".to_owned(), cause: None }
}
