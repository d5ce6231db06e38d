//! The disks that a server needs: that of images, and that of its store. Their space is told before it runs out.

mod told;

use std::{
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rollhook_core::{ports::RolloutDriver, service::Deployer};
use rollhook_wiring::{Bytes, DiskLimits, disk_space};

pub(crate) use self::told::Disk;
use self::told::{Event, Reading, Told};
use crate::metrics::Metrics;

/// The pause between two readings.
const PERIOD: Duration = Duration::from_secs(30);

/// The state of the disks, as it was told last.
#[derive(Default)]
pub(crate) struct Disks(Mutex<Told>);

impl Disks {
    /// Returns a sentence for people, for each disk that has little space left; `None` if all have enough.
    pub(crate) fn notice(&self) -> Option<String> {
        self.lock().notice()
    }

    fn lock(&self) -> MutexGuard<'_, Told> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads the space of disks again and again.
pub(crate) struct DiskWatch {
    pub(crate) limits: DiskLimits,
    /// The store's file, if it is one of this machine.
    pub(crate) store: Option<PathBuf>,
    pub(crate) rollouts: Arc<dyn RolloutDriver>,
    pub(crate) deployer: Arc<Deployer>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) disks: Arc<Disks>,
}

impl DiskWatch {
    /// Reads and tells for as long as it is polled.
    pub(crate) async fn run(self) {
        loop {
            let are_images_low = self.take(self.images().await, self.store().await);
            if are_images_low {
                self.deployer.discard_all_images().await;
            }
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Takes in what was read, and tells it. Returns whether little space is left for images since this reading.
    fn take(&self, images: Reading, store: Reading) -> bool {
        let spaces = [(Disk::Images, images.space()), (Disk::Store, store.space())];
        let mut told = self.disks.lock();
        let was_low = told.is_low(Disk::Images);
        let events = told.take(self.limits, images, store);
        let is_low = told.is_low(Disk::Images);
        for (disk, space) in spaces {
            self.metrics.gauges().disk(disk, space.map(|space| (space, told.is_low(disk))));
        }
        drop(told);
        events.into_iter().for_each(tell);
        is_low && !was_low
    }

    async fn images(&self) -> Reading {
        let Some(stored) = self.rollouts.stored_images() else { return Reading::None };
        match stored.disk_space().await {
            Ok(space) => space.map_or(Reading::None, Reading::Space),
            Err(error) if error.is_unavailable() => Reading::Away,
            Err(error) => Reading::Hidden(error.chain()),
        }
    }

    async fn store(&self) -> Reading {
        let Some(file) = &self.store else { return Reading::None };
        let read = disk_space(file).await;
        read.map_or_else(|error| Reading::Hidden(format!("{}: {error}", file.display())), Reading::Space)
    }
}

fn tell(event: Event) {
    match event {
        Event::Low(of, space) => {
            tracing::warn!(of, free = %Bytes(space.free), size = %Bytes(space.size), "little disk space is left");
        }
        Event::Recovered(of, space) => {
            tracing::info!(of, free = %Bytes(space.free), size = %Bytes(space.size), "enough disk space is left again");
        }
        Event::Hidden(of, error) => {
            tracing::warn!(of, error, "reading the disk space failed: nothing is told before it runs out");
        }
    }
}
