//! The tasks that read: each has a connection, takes all that waits, and reads it together.

use rollhook_core::{
    Result,
    app::{App, AppId, AppUid},
    deploy::Deploy,
    ports::{AppPage, Page, View},
};
use sqlx::SqliteConnection;
use tokio::sync::mpsc;

use crate::{
    apps,
    clock::StoreClock,
    connection::Link,
    error::Failure,
    job::Job,
    tokens::{self, SealedSecret},
    views,
};

/// The most calls that share a statement.
const BATCH: usize = 256;

/// A call that reads.
pub(crate) enum Read {
    App(Job<AppId, Option<App>>),
    Secret(Job<AppId, Option<SealedSecret>>),
    OperatorHash(Job<(), Option<Vec<u8>>>),
    View(Job<AppUid, View>),
    Page(Job<(AppUid, Page), Vec<Deploy>>),
    List(Job<AppPage, Vec<App>>),
}

/// A reading task's state.
pub(crate) struct Reader {
    pub(crate) link: Link,
    pub(crate) calls: mpsc::Receiver<Read>,
    pub(crate) clock: StoreClock,
}

/// Waiting calls by kind.
#[derive(Default)]
struct Waiting {
    apps: Vec<Job<AppId, Option<App>>>,
    secrets: Vec<Job<AppId, Option<SealedSecret>>>,
    operator_hashes: Vec<Job<(), Option<Vec<u8>>>>,
    views: Vec<Job<AppUid, View>>,
    pages: Vec<Job<(AppUid, Page), Vec<Deploy>>>,
    lists: Vec<Job<AppPage, Vec<App>>>,
}

impl Reader {
    /// Serves calls until no handle of the store is left.
    pub(crate) async fn run(mut self) {
        let mut batch = Vec::new();
        while self.calls.recv_many(&mut batch, BATCH).await > 0 {
            let mut waiting = Waiting::default();
            for read in batch.drain(..) {
                waiting.add(read);
            }
            let mut away = None;
            self.serve(waiting, &mut away).await;
            if away.is_some() {
                // They have waited for the same file already, which may take SQLite 10 s to give up.
                let mut waiting = Waiting::default();
                while let Ok(read) = self.calls.try_recv() {
                    waiting.add(read);
                }
                self.serve(waiting, &mut away).await;
            }
        }
        self.link.close().await;
    }

    /// Answers all; once the file is `away`, without trying it again for each kind of call.
    async fn serve(&mut self, waiting: Waiting, away: &mut Option<Failure>) {
        let now = self.clock.now();
        let link = &mut self.link;
        together(link, away, waiting.secrets, tokens::find).await;
        together(link, away, waiting.apps, apps::find).await;
        together(link, away, waiting.operator_hashes, tokens::operator_hash).await;
        together(link, away, waiting.views, async |connection: &mut SqliteConnection, jobs: &mut [_]| {
            views::view(connection, jobs, now).await
        })
        .await;
        together(link, away, waiting.pages, views::page).await;
        together(link, away, waiting.lists, apps::list).await;
    }
}

impl Waiting {
    fn add(&mut self, read: Read) {
        match read {
            Read::App(job) => keep(&mut self.apps, job),
            Read::Secret(job) => keep(&mut self.secrets, job),
            Read::OperatorHash(job) => keep(&mut self.operator_hashes, job),
            Read::View(job) => keep(&mut self.views, job),
            Read::Page(job) => keep(&mut self.pages, job),
            Read::List(job) => keep(&mut self.lists, job),
        }
    }
}

fn keep<Q, A>(jobs: &mut Vec<Job<Q, A>>, job: Job<Q, A>) {
    if !job.abandoned() {
        jobs.push(job);
    }
}

/// Reads for all jobs of one kind, and answers them.
async fn together<Q, A>(
    link: &mut Link,
    away: &mut Option<Failure>,
    mut jobs: Vec<Job<Q, A>>,
    read: impl AsyncFnOnce(&mut SqliteConnection, &mut [Job<Q, A>]) -> sqlx::Result<()>,
) {
    if jobs.is_empty() {
        return;
    }
    let done = match away {
        Some(failure) => Err(failure.clone()),
        None => try_together(link, &mut jobs, read).await,
    };
    if let Err(failure) = &done {
        tracing::warn!(error = failure.to_error().chain(), calls = jobs.len(), "a read failed");
        if !failure.leaves_connection_sound() {
            link.reset();
        }
        if failure.is_away() {
            *away = Some(failure.clone());
        }
    }
    for job in jobs {
        job.finish(&done);
    }
}

async fn try_together<Q, A>(
    link: &mut Link,
    jobs: &mut [Job<Q, A>],
    read: impl AsyncFnOnce(&mut SqliteConnection, &mut [Job<Q, A>]) -> sqlx::Result<()>,
) -> Result<(), Failure> {
    Ok(read(link.get().await?, jobs).await?)
}
