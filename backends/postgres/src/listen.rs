//! Hears what other processes wrote. It is an extra: where nothing can be heard, others' changes are found by polling.
//!
//! Through a pooler in transaction mode a `LISTEN` does harm: the session goes on listening when it is somebody else's, and
//! what it hears breaks into their answers. So whether a connection has a session of its own is found out before.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use rollhook_core::ports::Wake;
use sqlx::{
    Row,
    postgres::{PgListener, PgPoolOptions},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout},
};

use crate::{
    error::Failure,
    lane::Shared,
    link::{Link, in_time},
};

/// How long one's own word may take to come back.
const ECHO: Duration = Duration::from_secs(3);
/// How long until the next attempt after the connection broke.
const RECONNECT: Duration = Duration::from_secs(2);
/// How long until the next attempt where nothing could be heard.
const DEAF: Duration = Duration::from_secs(600);

/// Why listening ended.
enum End {
    Broken(Failure),
    Deaf,
}

/// Passes on what is heard until the store is closed.
pub(crate) async fn run(shared: Shared, mut closing: watch::Receiver<()>) {
    loop {
        let pause = tokio::select! {
            _ = closing.changed() => return,
            end = listen(&shared) => match end {
                End::Broken(failure) => {
                    tracing::debug!(error = failure.to_error().chain(), "not listening to the database");
                    RECONNECT
                }
                End::Deaf => {
                    tracing::info!("no notifications of the database arrive here, as through a pooler: polling instead");
                    DEAF
                }
            },
        };
        tokio::select! {
            _ = closing.changed() => return,
            () = sleep(pause) => {}
        }
    }
}

async fn listen(shared: &Shared) -> End {
    match try_listen(shared).await {
        Ok(end) => end,
        Err(failure) => End::Broken(failure),
    }
}

async fn try_listen(shared: &Shared) -> Result<End, Failure> {
    if !has_own_session(shared).await? {
        return Ok(End::Deaf);
    }
    let pool =
        PgPoolOptions::new().max_connections(1).acquire_timeout(ECHO).connect_lazy_with((*shared.options).clone());
    let mut listener = in_time(ECHO, PgListener::connect_with(&pool)).await?;
    listener.eager_reconnect(false);
    in_time(ECHO, listener.listen("rollhook")).await?;
    // Only what comes back shows that we hear.
    let mut link = Link::new(Arc::clone(&shared.options));
    link.fetch(format!("SELECT pg_notify('rollhook', '{}:echo')", shared.sender), true).await?;
    link.close().await;
    match timeout(ECHO, echo(&mut listener, shared)).await {
        Ok(heard) => heard?,
        Err(_) => {
            let _ = in_time(ECHO, listener.unlisten_all()).await;
            return Ok(End::Deaf);
        }
    }
    // What was written while nobody listened.
    let _ = shared.wakes.send(Wake::Any);
    loop {
        match listener.try_recv().await? {
            Some(notification) => hear(shared, notification.payload()),
            None => return Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionReset.into()).into()),
        }
    }
}

/// Whether each connection keeps its session: two connections never share one, and neither changes it. A pooler gives a
/// statement the session that was used last, which makes two connections share it; or the one that was not used for the
/// longest time, which makes one connection change it.
async fn has_own_session(shared: &Shared) -> Result<bool, Failure> {
    let mut links = [(); 2].map(|()| Link::new(Arc::clone(&shared.options)));
    let mut seen = [const { BTreeSet::<i64>::new() }; 2];
    for _ in 0..5 {
        for (link, seen) in links.iter_mut().zip(&mut seen) {
            for _ in 0..2 {
                let rows = link.fetch("SELECT pg_backend_pid()::bigint".to_owned(), true).await?;
                seen.insert(rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0)?);
            }
        }
    }
    for link in &mut links {
        link.close().await;
    }
    let [one, two] = seen;
    Ok(one.len() == 1 && two.len() == 1 && one != two)
}

async fn echo(listener: &mut PgListener, shared: &Shared) -> Result<(), Failure> {
    loop {
        let notification = listener.recv().await?;
        if notification.payload().strip_suffix(":echo") == Some(&shared.sender) {
            return Ok(());
        }
    }
}

/// `SENDER:UID,UID,…`; without any uid it means: some app.
fn hear(shared: &Shared, payload: &str) {
    let Some((sender, uids)) = payload.split_once(':') else { return };
    if sender == &*shared.sender || uids == "echo" {
        return;
    }
    for uid in uids.split(',') {
        // Nobody may be listening.
        let _ = shared.wakes.send(uid.parse().map_or(Wake::Any, Wake::App));
    }
}
