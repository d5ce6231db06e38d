//! The metrics that tell a present state, read when they are asked for.

use std::{sync::atomic::AtomicU64, time::SystemTime};

use prometheus_client::{
    metrics::{family::Family, gauge::Gauge},
    registry::{Registry, Unit},
};
use rollhook_core::{deploy::Status, disk::DiskSpace, service::Deployer};

use super::{Labels, progress::DeploysUnderWay, register::put};
use crate::disks::Disk;

const UNFINISHED: [Status; 5] =
    [Status::Queued, Status::Building, Status::Releasing, Status::RollingOut, Status::Verifying];

/// The metrics that are read when they are asked for.
pub(crate) struct Gauges {
    unfinished: Family<Labels<1>, Gauge>,
    oldest: Seconds,
    builds_waiting: Gauge,
    drifted: Gauge,
    degraded: Gauge,
    writable: Gauge,
    replicas: Gauge,
    engine: Seconds,
    key: Family<Labels<0>, Seconds>,
    disk_free: Family<Labels<1>, Gauge>,
    disk_size: Family<Labels<1>, Gauge>,
    disk_low: Family<Labels<1>, Gauge>,
}

/// A number of seconds.
type Seconds = Gauge<f64, AtomicU64>;

impl Gauges {
    /// Registers the metrics. A server that has just started has reached its store.
    pub(super) fn new(r: &mut Registry) -> Self {
        let seconds = |r: &mut Registry, name: &str, help: &str| {
            let gauge = Seconds::default();
            r.register_with_unit(name, help, Unit::Seconds, gauge.clone());
            gauge
        };
        let bytes = |r: &mut Registry, name: &str, help: &str| {
            let family = Family::<Labels<1>, Gauge>::default();
            r.register_with_unit(name, help, Unit::Bytes, family.clone());
            family
        };
        let gauges = Self {
            unfinished: put(r, "deploys_unfinished", "Unfinished deploys that this replica drives", &Family::default()),
            oldest: seconds(
                r,
                "deploys_oldest_unfinished_age",
                "Age of the oldest unfinished deploy that this replica drives; 0 if there is none",
            ),
            builds_waiting: put(
                r,
                "builds_waiting",
                "Commits that wait for their build to begin or for a build slot",
                &Gauge::default(),
            ),
            drifted: put(
                r,
                "apps_drifted",
                "Apps whose workload another party changed since their current deploy",
                &Gauge::default(),
            ),
            degraded: put(
                r,
                "apps_degraded",
                "Apps whose instances crash again and again, or are missing, since their deploy ended",
                &Gauge::default(),
            ),
            writable: put(r, "store_writable", "1 if the store took the last heartbeat, else 0", &Gauge::default()),
            replicas: put(r, "replicas", "Living servers on this store, this one included", &Gauge::default()),
            engine: seconds(r, "engine_last_step_age", "Time since the engine went on; a healthy one goes on each 5 s"),
            key: {
                let key = Family::<Labels<0>, Seconds>::default();
                let help = "Time at which the file of the newest key was written, as seconds since 1970";
                r.register_with_unit("key_written_timestamp", help, Unit::Seconds, key.clone());
                key
            },
            disk_free: bytes(r, "disk_free", "Space that is left on the disk of images, or of the store"),
            disk_size: bytes(r, "disk_size", "Size of that disk"),
            disk_low: put(r, "disk_low", "1 if little space is left on that disk, else 0", &Family::default()),
        };
        gauges.writable.set(1);
        gauges
    }

    /// Notes the answer to a heartbeat: whether the store can be written, and the number of living servers.
    pub(crate) fn heartbeat(&self, servers: Option<usize>) {
        self.writable.set(servers.is_some().into());
        if let Some(servers) = servers {
            self.replicas.set(number(servers));
        }
    }

    /// Notes when the file of the key that seals was written.
    pub(crate) fn key_written(&self, at: SystemTime) {
        let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        self.key.get_or_create(&[]).set(since.as_secs_f64());
    }

    /// Notes the space of a disk, and whether it is little; `None` if it is unknown, or there is no such disk.
    pub(crate) fn disk(&self, disk: Disk, read: Option<(DiskSpace, bool)>) {
        let labels = [("of", disk.as_str())];
        let families = [&self.disk_free, &self.disk_size, &self.disk_low];
        match read {
            Some((space, is_low)) => {
                let values = [space.free, space.size, is_low.into()];
                for (family, value) in families.into_iter().zip(values) {
                    family.get_or_create(&labels).set(i64::try_from(value).unwrap_or(i64::MAX));
                }
            }
            None => families.into_iter().for_each(|family| {
                let _ = family.remove(&labels);
            }),
        }
    }

    /// Takes in what is known of apps and the engine now.
    pub(super) fn look(&self, deployer: &Deployer) {
        self.drifted.set(number(deployer.drifted_apps()));
        self.degraded.set(number(deployer.degraded_apps()));
        self.engine.set(deployer.since_last_turn().as_secs_f64());
    }

    /// Takes in the deploys that are under way now.
    pub(super) fn under_way(&self, under_way: &DeploysUnderWay) {
        for status in UNFINISHED {
            let deploys = under_way.statuses.iter().filter(|known| **known == status).count();
            self.unfinished.get_or_create(&[("status", status.as_str())]).set(number(deploys));
        }
        self.oldest.set(under_way.oldest.as_secs_f64());
        self.builds_waiting.set(number(under_way.builds_waiting));
    }
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
