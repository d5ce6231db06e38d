//! Deleting what nobody needs, a little at a time, by every replica that has nothing better to do.

use std::time::Duration;

use rollhook_core::Result;
use sqlx::{Row, postgres::PgRow};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

use crate::ask::{Ask, Asked, ask};

/// How often is looked for something to delete.
const PAUSE: Duration = Duration::from_secs(30);
/// How long others have their turn while there is something.
const BREATH: Duration = Duration::from_millis(50);
/// The most rows that are deleted at once, so that nobody waits long for it.
const MOST: u32 = 1000;

/// Sweeps until the store is closed. It holds the channel only while it asks, so that it keeps nothing open.
pub(crate) async fn run(channel: mpsc::WeakSender<Asked>, mut closing: watch::Receiver<()>) {
    let mut pause = BREATH;
    loop {
        tokio::select! {
            _ = closing.changed() => return,
            () = sleep(pause) => {}
        }
        let Some(channel) = channel.upgrade() else { return };
        // A failure is in the log already, and the next time may be better.
        let more = ask(&channel, Sweep).await.unwrap_or(false);
        pause = if more { BREATH } else { PAUSE };
    }
}

/// Deletes some; says whether there may be more.
struct Sweep;

impl Ask for Sweep {
    type Answer = bool;

    fn statement(&self, _: &str) -> sqlx::Result<String> {
        Ok(format!("SELECT rollhook.sweep({MOST})"))
    }

    fn answer(&self, rows: &[PgRow]) -> sqlx::Result<Result<bool>> {
        rows.first().ok_or(sqlx::Error::RowNotFound)?.try_get(0).map(Ok)
    }
}
