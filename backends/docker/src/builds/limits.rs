//! The processors and the memory of builds.

use std::num::NonZeroU16;

use rollhook_core::{Error, Result};

use crate::rules::creation;

/// The least memory that the engine takes as a limit.
const MEMORY_MIN: u64 = 6 << 20;

/// The most that each step of a build may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildLimits {
    pub(crate) memory: Option<u64>,
    /// In thousandths of a processor.
    pub(crate) processors: Option<u64>,
    /// How many builds share the machine; `None`: one.
    at_once: Option<NonZeroU16>,
}

impl BuildLimits {
    /// Reads the limits, such as `2g` or `512Mi` of memory, and `1.5` or `1500m` of processors. Without one, memory is
    /// half of the machine's for all builds together ([`Self::at_once`]), and processors are all of it, with a lower
    /// weight than the containers that serve.
    ///
    /// # Errors
    /// `Invalid` if one is no amount.
    pub fn parse(memory: Option<&str>, processors: Option<&str>) -> Result<Self> {
        let fail = |flag, given: &str, rule| Error::invalid(format!("{flag} {given:?} must be {rule}"));
        let memory = memory.map(|given| {
            creation::memory(given).ok_or_else(|| fail("--build-memory", given, "an amount such as 512m or 2g"))
        });
        let processors = processors
            .map(|given| thousandths(given).ok_or_else(|| fail("--build-cpu", given, "an amount such as 2 or 500m")));
        Ok(Self { memory: memory.transpose()?, processors: processors.transpose()?, at_once: None })
    }

    /// Returns the limits of so many builds at once.
    #[must_use]
    pub fn at_once(self, builds: NonZeroU16) -> Self {
        Self { at_once: Some(builds), ..self }
    }

    /// Returns the flags that set a limit; `None` if there is none.
    pub(crate) fn flags(&self) -> Option<String> {
        let memory = self.memory.map(|_| "--build-memory");
        let processors = self.processors.map(|_| "--build-cpu");
        let flags: Vec<&str> = memory.into_iter().chain(processors).collect();
        (!flags.is_empty()).then(|| flags.join(" and "))
    }

    /// Returns the memory of a build on a machine with so much; `None` if neither is known.
    pub(crate) fn memory_of(&self, machine: Option<u64>) -> Option<u64> {
        let builds = u64::from(self.at_once.map_or(1, NonZeroU16::get));
        let share = machine.filter(|all| *all > 0).map(|all| (all / (2 * builds)).max(MEMORY_MIN));
        self.memory.or(share)
    }
}

fn thousandths(text: &str) -> Option<u64> {
    let amount = match text.strip_suffix('m') {
        Some(text) => text.parse::<u64>().ok()?,
        None => {
            let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
            let part = part.get(..3).unwrap_or(part);
            let scale = 10_u64.checked_pow(3_u32.checked_sub(u32::try_from(part.len()).ok()?)?)?;
            whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part.parse::<u64>().ok()? * scale)?
        }
    };
    (10..=1_000_000).contains(&amount).then_some(amount)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_in_dockers_words_and_in_those_of_kubernetes() {
        let limits = |memory, processors| BuildLimits::parse(memory, processors);
        for (memory, expected) in [("2g", 2 << 30), ("512Mi", 512 << 20), ("4Gi", 4 << 30), ("64m", 64 << 20)] {
            assert_eq!(limits(Some(memory), None).unwrap().memory, Some(expected), "{memory}");
        }
        for (processors, expected) in [("2", 2000), ("1.5", 1500), ("500m", 500), ("0.25", 250)] {
            assert_eq!(limits(None, Some(processors)).unwrap().processors, Some(expected), "{processors}");
        }
        for (memory, processors) in [(Some("much"), None), (Some("1k"), None), (None, Some("two")), (None, Some("0"))] {
            let refused = limits(memory, processors).unwrap_err().to_string();
            assert!(refused.contains("--build-") && refused.contains("such as"), "{refused}");
        }
    }

    #[test]
    fn builds_share_half_of_the_machine() {
        let limits = |builds| BuildLimits::default().at_once(NonZeroU16::new(builds).unwrap());
        assert_eq!(limits(2).memory_of(Some(8 << 30)), Some(2 << 30));
        assert_eq!(limits(8).memory_of(Some(8 << 30)), Some(512 << 20));
        assert_eq!(limits(u16::MAX).memory_of(Some(8 << 30)), Some(6 << 20), "the engine takes no less");
        assert_eq!(limits(2).memory_of(None), None);
        let given = BuildLimits::parse(Some("3g"), None).unwrap().at_once(NonZeroU16::MAX);
        assert_eq!(given.memory_of(Some(8 << 30)), Some(3 << 30));
    }
}
