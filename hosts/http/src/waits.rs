//! The calls that wait for deploys, of which each app has a bounded number.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use rollhook_core::app::AppUid;

/// The most calls that wait for deploys of one app; further ones are answered at once.
const WAITS: usize = 100;

/// The waiting calls of each app.
#[derive(Clone, Default)]
pub(crate) struct Waits(Arc<Mutex<HashMap<AppUid, usize>>>);

/// A waiting call, until this is dropped.
pub(crate) struct Waiting {
    waits: Waits,
    app: AppUid,
}

impl Waits {
    /// Returns a place for a call that waits; `None` if the app has no more.
    pub(crate) fn begin(&self, app: AppUid) -> Option<Waiting> {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = waits.entry(app).or_default();
        if *number >= WAITS {
            return None;
        }
        *number += 1;
        Some(Waiting { waits: self.clone(), app })
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        let mut waits = self.waits.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = waits.get_mut(&self.app) {
            *number -= 1;
            if *number == 0 {
                waits.remove(&self.app);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_bounded_per_app() {
        let (waits, ours, theirs) = (Waits::default(), AppUid::from_bits(1), AppUid::from_bits(2));
        let mut held: Vec<_> = (0..WAITS).map(|_| waits.begin(ours).unwrap()).collect();
        assert!(waits.begin(ours).is_none() && waits.begin(theirs).is_some());
        held.pop();
        held.extend(waits.begin(ours));
        assert_eq!(held.len(), WAITS);
        drop(held);
        assert!(waits.0.lock().unwrap().is_empty());
    }
}
