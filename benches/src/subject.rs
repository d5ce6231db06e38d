//! The server under load, with the store that it writes to.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    fixture::Store,
    load::{self, Calls, Sent},
    process::Process,
    stored::{Stored, Totals},
};

const DRAIN_MAX: Duration = Duration::from_secs(300);

/// A server that accepts deploys and drives each to its end.
pub(crate) struct Subject {
    /// The process of the server.
    pub(crate) server: Process,
    /// The store, read by a handle of the bench's own.
    pub(crate) stored: Stored,
    total: Loaded,
}

/// The outcome of some phases of load.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) sent: Sent,
    /// The number of deploys that the store has recorded and that have ended.
    pub(crate) deploys: u64,
    /// The time from the first call of a phase to the end of its last deploy, summed up.
    time: Duration,
    /// The largest number of unfinished deploys at the end of a load.
    backlog: u64,
    /// The longest time from the end of a load to the end of the last deploy.
    pub(crate) drained: Duration,
}

impl Subject {
    pub(crate) fn new(server: Process, store: Box<dyn Store>) -> Self {
        Self { server, stored: Stored(store), total: Loaded::default() }
    }

    /// Runs a phase that does not count: an app's first deploys and a process's first second are unlike the later ones.
    pub(crate) async fn warm_up(&mut self, calls: &Arc<Calls>, time: Duration) -> Result<(), Failure> {
        self.phase(calls, time).await.map(drop)
    }

    /// Runs a phase that counts, and reports it on stderr.
    pub(crate) async fn load(&mut self, calls: &Arc<Calls>, time: Duration, name: &str) -> Result<(), Failure> {
        let cpu = self.server.cpu()?;
        let phase = self.phase(calls, time).await?;
        let cpu = self.server.cpu()?.saturating_sub(cpu);
        eprintln!(
            "{name}: rollhook {:.0}/s, {} refused, backlog {}, drained in {:.2} s; processor time: server {:.1} s, load \
             {:.1} s",
            phase.per_second(),
            phase.sent.refused,
            phase.backlog,
            phase.drained.as_secs_f64(),
            cpu.as_secs_f64(),
            phase.sent.cpu.as_secs_f64(),
        );
        self.total.add(phase);
        Ok(())
    }

    /// Loads the server, and waits until every recorded deploy has ended.
    async fn phase(&mut self, calls: &Arc<Calls>, time: Duration) -> Result<Loaded, Failure> {
        let before = self.stored.totals().await?.deploys;
        let start = Instant::now();
        let sent = load::send(self.server.address, calls, time).await?;
        let end = Instant::now();
        let Totals { unfinished: backlog, .. } = self.stored.totals().await?;
        loop {
            let has_work = self.stored.has_work().await?;
            let totals = self.stored.totals().await?;
            let deploys = totals.deploys.saturating_sub(before);
            // A refused call may have been recorded all the same: its answer says so.
            if !has_work && totals.unfinished == 0 && deploys >= sent.accepted {
                if deploys > sent.accepted + sent.refused {
                    return Err(format!("{} calls made {deploys} deploys", sent.accepted + sent.refused).into());
                }
                return Ok(Loaded { sent, deploys, time: start.elapsed(), backlog, drained: end.elapsed() });
            }
            if end.elapsed() > DRAIN_MAX {
                let (accepted, unfinished) = (sent.accepted, totals.unfinished);
                return Err(
                    format!("of {accepted} accepted deploys {deploys} are stored, {unfinished} unfinished").into()
                );
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the sum of all counted phases since the last call. The archive must hold every deploy by then.
    pub(crate) async fn total(&mut self) -> Result<Loaded, Failure> {
        let deploys = self.stored.totals().await?.deploys;
        match self.stored.archived().await? {
            Some(archived) if archived != deploys => {
                Err(format!("{deploys} deploys were recorded, {archived} are in the archive").into())
            }
            Some(_) | None => Ok(std::mem::take(&mut self.total)),
        }
    }
}

impl Loaded {
    /// The deploys per second, counted to the end of the last one.
    pub(crate) fn per_second(&self) -> f64 {
        self.deploys as f64 / self.time.as_secs_f64()
    }

    fn add(&mut self, other: Self) {
        self.sent.add(other.sent);
        self.deploys += other.deploys;
        self.time += other.time;
        self.backlog = self.backlog.max(other.backlog);
        self.drained = self.drained.max(other.drained);
    }

    /// The numbers in words.
    pub(crate) fn summary(&mut self) -> String {
        format!(
            "{:.0}/s to the end of the last deploy; {}, {} refused; backlog {}, gone in {:.1} s; load's processor time {:.0} %",
            self.per_second(),
            self.sent.summary(),
            self.sent.refused,
            self.backlog,
            self.drained.as_secs_f64(),
            self.sent.cpu_share(),
        )
    }
}
