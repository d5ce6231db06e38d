//! The journal of a run: lines for people, counts, and the first rule that broke.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::clock::Time;

/// How often things happened, by name.
pub(crate) type Tally = BTreeMap<Cow<'static, str>, u64>;

/// A run's notes.
pub(crate) struct Journal {
    time: Arc<Time>,
    /// Whether lines are kept; a run is the same with and without.
    told: bool,
    lines: Mutex<Vec<String>>,
    tally: Mutex<Tally>,
    broken: Mutex<Option<String>>,
    is_broken: AtomicBool,
}

impl Journal {
    pub(crate) fn new(time: Arc<Time>, told: bool) -> Self {
        let is_broken = AtomicBool::new(false);
        Self { time, told, lines: Mutex::default(), tally: Mutex::default(), broken: Mutex::default(), is_broken }
    }

    /// A line of the event log, which is only made if it will be read.
    pub(crate) fn log(&self, who: &str, line: impl FnOnce() -> String) {
        if self.told {
            let line = format!("{:>9.3} s  {who:<8}  {}", self.time.now().as_secs_f64(), line());
            self.lines.lock().unwrap().push(line);
        }
    }

    pub(crate) fn count(&self, what: impl Into<Cow<'static, str>>) {
        *self.tally.lock().unwrap().entry(what.into()).or_default() += 1;
    }

    pub(crate) fn has_counted(&self, what: &str) -> bool {
        self.tally.lock().unwrap().contains_key(what)
    }

    /// Counts what happened where it did.
    pub(crate) fn count_if(&self, happened: bool, what: &'static str) {
        if happened {
            self.count(what);
        }
    }

    /// The run has broken a rule unless this holds; the first counts.
    pub(crate) fn expect(&self, holds: bool, rule: impl FnOnce() -> String) {
        if !holds && !self.is_broken.swap(true, Ordering::Relaxed) {
            let rule = rule();
            self.log("BROKEN", || rule.clone());
            *self.broken.lock().unwrap() = Some(rule);
        }
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::Relaxed)
    }

    /// Returns the outcome: the broken rule, the counts and the lines.
    pub(crate) fn close(&self) -> (Option<String>, Tally, Vec<String>) {
        let take = |lines: &Mutex<Vec<String>>| std::mem::take(&mut *lines.lock().unwrap());
        (self.broken.lock().unwrap().take(), std::mem::take(&mut *self.tally.lock().unwrap()), take(&self.lines))
    }
}
