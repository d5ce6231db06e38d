//! The events and notices about disks, as functions of readings.

use rollhook_core::disk::DiskSpace;
use rollhook_wiring::{Bytes, DiskLimits};

/// A disk that a server needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Disk {
    /// The disk that the rollout driver stores images on.
    Images,
    /// The disk of the store's file.
    Store,
}

impl Disk {
    /// Returns the disk's label value.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Images => "images",
            Self::Store => "store",
        }
    }
}

/// A reading of a disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// There is no such disk.
    None,
    /// The space of the disk.
    Space(DiskSpace),
    /// The platform cannot be reached now, which is told elsewhere.
    Away,
    /// The disk cannot be seen, for this reason.
    Hidden(String),
}

impl Reading {
    pub(super) fn space(&self) -> Option<DiskSpace> {
        match self {
            Self::Space(space) => Some(*space),
            Self::None | Self::Away | Self::Hidden(_) => None,
        }
    }
}

/// A line for the log, of what is on the disk.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Little space is left.
    Low(&'static str, DiskSpace),
    /// There is enough space again.
    Recovered(&'static str, DiskSpace),
    /// The disk cannot be seen.
    Hidden(&'static str, String),
}

/// The state of the disks that was told last.
#[derive(Default)]
pub(super) struct Told {
    images: Known,
    store: Known,
    /// Whether one disk holds both, of which the first is told.
    is_one: bool,
}

/// The state of a disk that was told last.
#[derive(Default)]
struct Known {
    low: Option<Low>,
    is_hidden: bool,
}

/// A disk with little space left.
struct Low {
    of: &'static str,
    space: DiskSpace,
    is_scarce: bool,
}

impl Told {
    /// Takes in what was read, and returns what is to be told: each state once. A disk that holds both is told once.
    pub(super) fn take(&mut self, limits: DiskLimits, images: Reading, store: Reading) -> Vec<Event> {
        let device = |reading: &Reading| reading.space().map(|space| space.device);
        self.is_one = device(&images).is_some_and(|images| Some(images) == device(&store));
        let (images, store) = match self.is_one {
            true => (self.images.take(limits, "images and store", images), self.store.take(limits, "", Reading::None)),
            false => (self.images.take(limits, "images", images), self.store.take(limits, "store", store)),
        };
        images.into_iter().chain(store).collect()
    }

    /// Returns whether a disk has little space left.
    pub(super) fn is_low(&self, disk: Disk) -> bool {
        match disk {
            Disk::Store if !self.is_one => self.store.low.is_some(),
            Disk::Images | Disk::Store => self.images.low.is_some(),
        }
    }

    /// Returns a sentence for each disk that has little space left.
    pub(super) fn notice(&self) -> Option<String> {
        let low = || [&self.images, &self.store].into_iter().filter_map(|known| known.low.as_ref());
        let mut sentences: Vec<String> = low()
            .map(|low| {
                let (free, size) = (Bytes(low.space.free), Bytes(low.space.size));
                format!("Little disk space is left for {}: {free} of {size} free.", low.of)
            })
            .collect();
        if self.images.low.as_ref().is_some_and(|low| low.is_scarce) {
            sentences.push("No image is pulled or built until there is more.".to_owned());
        }
        (!sentences.is_empty()).then(|| sentences.join(" "))
    }
}

impl Known {
    fn take(&mut self, limits: DiskLimits, of: &'static str, reading: Reading) -> Option<Event> {
        let was_hidden = std::mem::take(&mut self.is_hidden);
        let space = match reading {
            Reading::Space(space) => space,
            Reading::None => {
                self.low = None;
                return None;
            }
            Reading::Away => {
                self.is_hidden = was_hidden;
                return None;
            }
            Reading::Hidden(error) => {
                *self = Self { low: None, is_hidden: true };
                return (!was_hidden).then_some(Event::Hidden(of, error));
            }
        };
        let was_low = self.low.is_some();
        let is_low = limits.is_low(space, was_low);
        self.low = is_low.then(|| Low { of, space, is_scarce: limits.is_scarce(space) });
        match (was_low, is_low) {
            (false, true) => Some(Event::Low(of, space)),
            (true, false) => Some(Event::Recovered(of, space)),
            (false, false) | (true, true) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn space(free: u64, device: u64) -> DiskSpace {
        DiskSpace { free, size: 100 * GIB, device }
    }

    fn images(told: &mut Told, reading: Reading) -> Vec<Event> {
        told.take(DiskLimits::default(), reading, Reading::None)
    }

    #[test]
    fn little_space_is_told_once_and_so_is_its_end() {
        let mut told = Told::default();
        let (enough, little) = (space(20 * GIB, 1), space(4 * GIB, 1));
        assert_eq!(images(&mut told, Reading::Space(enough)), []);
        assert_eq!(told.notice(), None);
        assert_eq!(images(&mut told, Reading::Space(little)), [Event::Low("images", little)]);
        assert_eq!(images(&mut told, Reading::Space(little)), []);
        assert_eq!(told.notice().unwrap(), "Little disk space is left for images: 4 GiB of 100 GiB free.");
        // While the platform is away, what was told stays told.
        assert_eq!(images(&mut told, Reading::Away), []);
        assert_eq!(images(&mut told, Reading::Space(space(5 * GIB, 1))), [], "a little more is not enough");
        assert_eq!(images(&mut told, Reading::Space(enough)), [Event::Recovered("images", enough)]);
        assert_eq!(told.notice(), None);
    }

    #[test]
    fn disk_that_holds_both_is_told_once() {
        let mut told = Told::default();
        let little = space(GIB, 1);
        let both = || Reading::Space(little);
        let events = told.take(DiskLimits::default(), both(), both());
        assert_eq!(events, [Event::Low("images and store", little)]);
        assert!(told.is_low(Disk::Images) && told.is_low(Disk::Store));
        let notice = told.notice().unwrap();
        assert!(notice.starts_with("Little disk space is left for images and store: 1 GiB"), "{notice}");
        assert!(notice.ends_with("No image is pulled or built until there is more."), "{notice}");
        let other = space(GIB, 2);
        let events = told.take(DiskLimits::default(), both(), Reading::Space(other));
        assert_eq!(events, [Event::Low("store", other)]);
        assert!(
            told.notice().unwrap().contains("for images: 1 GiB of 100 GiB free. Little disk space is left for store")
        );
    }

    #[test]
    fn disk_that_cannot_be_seen_is_told_once_until_it_can() {
        let mut told = Told::default();
        let hidden = || Reading::Hidden("denied".to_owned());
        let event = || vec![Event::Hidden("images", "denied".to_owned())];
        assert_eq!(images(&mut told, hidden()), event());
        assert_eq!(images(&mut told, Reading::Away), []);
        assert_eq!(images(&mut told, hidden()), []);
        assert_eq!(images(&mut told, Reading::Space(space(20 * GIB, 1))), []);
        assert_eq!(images(&mut told, hidden()), event());
    }
}
