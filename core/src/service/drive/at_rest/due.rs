//! The times of the next looks at apps, in their order.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use crate::app::AppUid;

/// The apps to be looked at, each at a time. Every step costs the same for one app as for a hundred thousand, nearly.
#[derive(Default)]
pub(super) struct Due {
    times: BTreeMap<AppUid, Duration>,
    order: BTreeSet<(Duration, AppUid)>,
}

impl Due {
    /// Has an app looked at at this time, unless it is to be looked at earlier.
    pub(super) fn put(&mut self, app: AppUid, at: Duration) {
        match self.times.get(&app) {
            Some(known) if *known <= at => return,
            Some(later) => drop(self.order.remove(&(*later, app))),
            None => {}
        }
        self.times.insert(app, at);
        self.order.insert((at, app));
    }

    pub(super) fn remove(&mut self, app: AppUid) {
        if let Some(at) = self.times.remove(&app) {
            self.order.remove(&(at, app));
        }
    }

    /// Returns the time of the next look.
    pub(super) fn first(&self) -> Option<Duration> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the app that is to be looked at first, if its time has come.
    pub(super) fn take(&mut self, now: Duration) -> Option<AppUid> {
        let app = self.order.first().filter(|(at, _)| *at <= now).map(|(_, app)| *app)?;
        self.remove(app);
        Some(app)
    }
}
