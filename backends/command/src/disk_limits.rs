//! When the space of a disk is too little.

use std::{fmt, str::FromStr};

use rollhook_core::disk::DiskSpace;

/// The free space below which a disk is low, and work that fills it is refused.
///
/// A disk is low below a tenth of its size, and below 5 GiB where a tenth is more, as images of that size still fit on
/// a large disk. Work is refused below a quarter of that: enough for a store, logs and a rollback to go on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskLimits(Option<u64>);

/// The most free space below which a disk is low, unless an operator says otherwise.
const LOW_MOST: u64 = 5 << 30;

impl DiskLimits {
    /// A disk is low below so many bytes; with 0, never.
    pub const fn below(bytes: u64) -> Self {
        Self(Some(bytes))
    }

    /// Returns whether no disk is ever low.
    pub fn are_off(self) -> bool {
        self == Self::below(0)
    }

    /// Returns the free space below which a disk of this size is low.
    pub fn low(self, size: u64) -> u64 {
        self.0.unwrap_or_else(|| (size / 10).min(LOW_MOST))
    }

    /// Returns the free space below which work that fills a disk of this size is refused.
    pub fn least(self, size: u64) -> u64 {
        self.low(size) / 4
    }

    /// Returns whether a disk is low. One that was low before has to have a quarter more, so that it is not told again
    /// and again.
    pub fn is_low(self, space: DiskSpace, was_low: bool) -> bool {
        let low = self.low(space.size);
        space.free < if was_low { low.saturating_add(low / 4) } else { low }
    }

    /// Returns whether work that fills the disk is refused.
    pub fn is_scarce(self, space: DiskSpace) -> bool {
        space.free < self.least(space.size)
    }
}

impl FromStr for DiskLimits {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text.get(digits.len()..).unwrap_or_default().to_ascii_lowercase().as_str() {
            "" if digits == "0" => 0,
            "m" | "mi" => 20,
            "g" | "gi" => 30,
            "t" | "ti" => 40,
            _ => return Err(RULE),
        };
        let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        bytes.map(Self::below).ok_or(RULE)
    }
}

/// The form of an amount.
const RULE: &str = "must be an amount such as 500m or 5g, or 0";

/// A number of bytes, for people.
#[derive(Clone, Copy, Debug)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")];
        let Some((shift, unit)) = units.into_iter().find(|(shift, _)| self.0 >> shift > 0) else {
            return write!(f, "{} bytes", self.0);
        };
        // Rounded down: free space is never told larger than it is.
        let tenths = u128::from(self.0) * 10 / (1 << shift);
        match tenths {
            ..100 if tenths % 10 != 0 => write!(f, "{}.{} {unit}", tenths / 10, tenths % 10),
            _ => write!(f, "{} {unit}", tenths / 10),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn space(free: u64, size: u64) -> DiskSpace {
        DiskSpace { free, size, device: 1 }
    }

    #[test]
    fn disk_is_low_below_a_tenth_and_at_most_5_gib() {
        let limits = DiskLimits::default();
        for (size, low) in [(0, 0), (100 * MIB, 10 * MIB), (20 * GIB, 2 * GIB), (50 * GIB, 5 * GIB), (1 << 42, 5 * GIB)]
        {
            assert_eq!(limits.low(size), low, "{size}");
        }
        assert!(!limits.is_low(space(2 * GIB, 20 * GIB), false));
        assert!(limits.is_low(space(2 * GIB - 1, 20 * GIB), false));
    }

    #[test]
    fn disk_that_was_low_recovers_with_a_quarter_more() {
        let limits = DiskLimits::below(8 * GIB);
        assert!(limits.is_low(space(10 * GIB - 1, 100 * GIB), true));
        assert!(!limits.is_low(space(10 * GIB, 100 * GIB), true));
        assert!(!limits.is_low(space(8 * GIB, 100 * GIB), false));
    }

    #[test]
    fn work_is_refused_below_a_quarter_of_what_is_low() {
        let limits = DiskLimits::default();
        assert!(!limits.is_scarce(space(512 * MIB, 20 * GIB)));
        assert!(limits.is_scarce(space(512 * MIB - 1, 20 * GIB)));
    }

    #[test]
    fn nothing_is_low_or_refused_where_the_operator_says_so() {
        let limits: DiskLimits = "0".parse().unwrap();
        assert!(limits.are_off() && !DiskLimits::default().are_off());
        assert!(!limits.is_low(space(0, GIB), false) && !limits.is_low(space(0, GIB), true));
        assert!(!limits.is_scarce(space(0, GIB)));
    }

    #[test]
    fn limit_is_an_amount_with_a_unit() {
        for (text, bytes) in [("500m", 500 * MIB), ("5g", 5 * GIB), ("5Gi", 5 * GIB), ("1T", 1 << 40), ("0", 0)] {
            assert_eq!(text.parse(), Ok(DiskLimits::below(bytes)), "{text}");
        }
        for text in ["", "5", "g", "-1g", "1.5g", "10%", "5gb", "99999999999999t"] {
            assert_eq!(text.parse::<DiskLimits>(), Err(RULE), "{text}");
        }
    }

    #[test]
    fn amounts_are_rounded_down() {
        let told = |bytes: u64| Bytes(bytes).to_string();
        assert_eq!([told(0), told(2048), told(GIB - 1)], ["0 bytes", "2 KiB", "1023 MiB"]);
        assert_eq!(
            [told(GIB * 3 / 2), told(12 * GIB + GIB / 2), told(u64::MAX)],
            ["1.5 GiB", "12 GiB", "16777215 TiB"]
        );
    }
}
