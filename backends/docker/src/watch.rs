//! Events of the engine: hints that something is to be looked at again.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Method;
use http_body_util::BodyExt;
use rollhook_core::app::AppUid;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::{
    engine::{Engine, filters},
    lock,
    rules::at_rest,
    settings::Workload,
};

/// The events that can change an observation.
const EVENTS: [&str; 8] = ["create", "start", "die", "destroy", "rename", "pause", "unpause", "health_status"];
/// The pause before the engine is asked for events again.
const AGAIN: Duration = Duration::from_secs(2);

type Known = Arc<Mutex<HashMap<(AppUid, String), Workload>>>;

/// The engine's events, read by one task as long as this exists.
pub(crate) struct Watch {
    known: Known,
    changed: watch::Sender<()>,
    hints: Mutex<Option<mpsc::UnboundedReceiver<AppUid>>>,
    sender: mpsc::UnboundedSender<AppUid>,
    task: Mutex<Option<tokio::task::AbortHandle>>,
}

impl Default for Watch {
    fn default() -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        Self {
            known: Known::default(),
            changed: watch::Sender::new(()),
            hints: Mutex::new(Some(receiver)),
            sender,
            task: Mutex::default(),
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = lock(&self.task).take() {
            task.abort();
        }
    }
}

impl Watch {
    /// Remembers the target of an app, so that its changes are hinted at.
    pub(crate) fn know(&self, app: AppUid, workload: &Workload) {
        lock(&self.known).insert((app, workload.key()), workload.clone());
    }

    pub(crate) fn forget(&self, app: AppUid) {
        lock(&self.known).retain(|(of, _), _| *of != app);
    }

    /// Returns the hints, to the first caller.
    pub(crate) fn take_hints(&self, engine: &Engine) -> Option<mpsc::UnboundedReceiver<AppUid>> {
        self.begin(engine);
        lock(&self.hints).take()
    }

    /// Returns when a container has changed.
    pub(crate) async fn changed(&self, engine: &Engine) {
        self.begin(engine);
        // The sender lives as long as this, so that an error cannot be.
        drop(self.changed.subscribe().changed().await);
    }

    fn begin(&self, engine: &Engine) {
        let mut task = lock(&self.task);
        if task.is_none() {
            let (engine, known) = (engine.clone(), self.known.clone());
            let (changed, sender) = (self.changed.clone(), self.sender.clone());
            *task = Some(tokio::spawn(follow(engine, known, changed, sender)).abort_handle());
        }
    }
}

/// The longest line of an event that is kept: labels of containers are in it. A longer one is dropped, and polls find what
/// has changed.
const LINE_MAX: usize = 1024 * 1024;

/// The lines of a stream, as they arrive.
#[derive(Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
    is_too_long: bool,
}

impl Lines {
    /// Adds a byte. Returns the line that it ends, unless that is too long.
    pub(crate) fn push(&mut self, byte: u8) -> Option<Vec<u8>> {
        if byte == b'\n' {
            let line = std::mem::take(&mut self.line);
            return (!std::mem::take(&mut self.is_too_long)).then_some(line);
        }
        if self.line.len() < LINE_MAX && !self.is_too_long {
            self.line.push(byte);
        } else {
            (self.line, self.is_too_long) = (Vec::new(), true);
        }
        None
    }
}

async fn follow(engine: Engine, known: Known, changed: watch::Sender<()>, sender: mpsc::UnboundedSender<AppUid>) {
    let events = EVENTS.map(str::to_owned);
    let path = format!("/events?{}", filters(&[("type", &["container".to_owned()]), ("event", &events)]));
    loop {
        if let Ok(answer) = engine.open(Method::GET, &path, None, None).await {
            // The engine tells no earlier events: each app is looked at.
            let apps: BTreeSet<AppUid> = lock(&known).keys().map(|(app, _)| *app).collect();
            hint(&sender, apps);
            let (mut body, mut lines) = (answer.into_body(), Lines::default());
            while let Some(Ok(frame)) = body.frame().await {
                for byte in frame.data_ref().into_iter().flatten() {
                    let Some(line) = lines.push(*byte) else { continue };
                    if let Ok(event) = serde_json::from_slice::<Value>(&line) {
                        changed.send_replace(());
                        hint(&sender, concerned(&known, &event["Actor"]["Attributes"]));
                    }
                }
            }
            engine.broke_off();
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Sends hints; a listener that is gone needs none.
fn hint(sender: &mpsc::UnboundedSender<AppUid>, apps: BTreeSet<AppUid>) {
    for app in apps {
        let _gone = sender.send(app);
    }
}

fn concerned(known: &Known, attributes: &Value) -> BTreeSet<AppUid> {
    let known = lock(known);
    known.iter().filter(|(_, workload)| at_rest::concerns(workload, attributes)).map(|((app, _), _)| *app).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_that_is_too_long_is_dropped_and_the_next_one_is_read() {
        let (mut lines, mut read) = (Lines::default(), Vec::new());
        let mut take = |bytes: &[u8]| {
            for byte in bytes {
                read.extend(lines.push(*byte));
                assert!(lines.line.len() <= LINE_MAX);
            }
        };
        take(b"one\n");
        take(&vec![b'x'; LINE_MAX]);
        take(b"\n");
        take(&vec![b'y'; 3 * LINE_MAX]);
        take(b"\ntwo\n");
        let lengths: Vec<usize> = read.iter().map(Vec::len).collect();
        assert_eq!(lengths, [3, LINE_MAX, 3]);
    }
}
