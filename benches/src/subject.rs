//! The server under load, with the store that it writes to.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};

use crate::{
    Failure,
    ledger::Ledger,
    load::{self, Calls, Sent},
    process::Process,
};

const DRAIN_MAX: Duration = Duration::from_secs(300);

/// A server that accepts deploys, and drives each to its end.
pub(crate) struct Subject {
    /// None while it rests.
    server: Option<Process>,
    ledger: Ledger,
    /// Entries that the store should have.
    recorded: u64,
    total: Loaded,
}

/// What phases of load have come to.
#[derive(Default)]
pub(crate) struct Loaded {
    pub(crate) sent: Sent,
    /// The most that was accepted and had not ended when a load did.
    backlog: u64,
    /// How long it took until it had.
    drained: Duration,
}

impl Subject {
    pub(crate) fn new(server: Process, ledger: Ledger) -> Self {
        Self { server: Some(server), ledger, recorded: 0, total: Loaded::default() }
    }

    /// Stops the server, where it would be in the way of what is measured next.
    pub(crate) async fn stop(&mut self) -> Result<(), Failure> {
        match self.server.take() {
            Some(server) => server.stop().await,
            None => Ok(()),
        }
    }

    /// Goes on with another server on the same store.
    pub(crate) fn resume(&mut self, server: Process) {
        self.server = Some(server);
    }

    fn server(&self) -> Result<&Process, Failure> {
        self.server.as_ref().ok_or_else(|| "no server runs".into())
    }

    /// One phase before those that count: the first deploys of an app are not like its later ones, and a bench is not
    /// about a process's first second.
    pub(crate) async fn warm_up(&mut self, calls: &Arc<Calls>, time: Duration) -> Result<(), Failure> {
        self.phase(calls, time).await.map(drop)
    }

    /// A phase that counts; what came of it is told on stderr.
    pub(crate) async fn load(&mut self, calls: &Arc<Calls>, time: Duration, name: &str) -> Result<(), Failure> {
        let cpu = self.server()?.cpu()?;
        let Loaded { sent, backlog, drained } = self.phase(calls, time).await?;
        let cpu = self.server()?.cpu()?.saturating_sub(cpu);
        eprintln!(
            "{name}: rollhook {:.0}/s, {} refused, backlog {backlog}, drained in {:.2} s; processor time: server {:.1} s, \
             load {:.1} s",
            sent.per_second(),
            sent.refused,
            drained.as_secs_f64(),
            cpu.as_secs_f64(),
            sent.cpu.as_secs_f64(),
        );
        self.total.sent.add(sent);
        self.total.backlog = self.total.backlog.max(backlog);
        self.total.drained += drained;
        Ok(())
    }

    /// Loads the server, and waits until all that it accepted has ended.
    async fn phase(&mut self, calls: &Arc<Calls>, time: Duration) -> Result<Loaded, Failure> {
        let address = self.server()?.address;
        let sent = load::send(address, calls, time).await?;
        let end = Instant::now();
        let backlog = self.ledger.unfinished(address).await?;
        let mut left = backlog;
        while left > 0 {
            if end.elapsed() > DRAIN_MAX {
                return Err(format!("{left} deploys do not end").into());
            }
            sleep(Duration::from_millis(20)).await;
            left = self.ledger.unfinished(address).await?;
        }
        let drained = end.elapsed();
        self.recorded += sent.accepted;
        self.check().await?;
        Ok(Loaded { sent, backlog, drained })
    }

    /// Every 202 is one entry, and every entry has ended.
    async fn check(&mut self) -> Result<(), Failure> {
        let address = self.server()?.address;
        let (entries, open) = self.ledger.entries(address).await?;
        if (entries, open) == (self.recorded, 0) {
            return Ok(());
        }
        Err(format!("{} deploys were accepted, {entries} are stored, {open} of them unfinished", self.recorded).into())
    }

    /// What all phases that count have come to since this was asked last.
    pub(crate) fn total(&mut self) -> Loaded {
        std::mem::take(&mut self.total)
    }
}

impl Loaded {
    /// All of it, in words.
    pub(crate) fn told(&mut self) -> String {
        let sustained = self.sent.accepted as f64 / (self.sent.time + self.drained).as_secs_f64();
        format!(
            "{}, {} refused; backlog {}, {sustained:.0}/s with the time to drain; load's processor time {:.0} %",
            self.sent.told(),
            self.sent.refused,
            self.backlog,
            self.sent.cpu_share(),
        )
    }
}
