//! Names of instances.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{app::InvalidName, text::checked_text};

/// The longest name: a pod's and a container's.
const NAME_MAX: usize = 320;

checked_text! {
    /// The name of an instance, as its platform shows it, such as that of a pod or a container.
    InstanceName, InvalidName, |text| {
        match text.chars().all(is_known) && (1..=NAME_MAX).contains(&text.len()) {
            true => Ok(text.to_owned()),
            false => Err(InvalidName::new("instance", text, "must be 1 to 320 letters, digits, '-', '_', '.' and ':'")),
        }
    }
}

impl InstanceName {
    /// Returns a platform's name of an instance, without the characters that no platform gives.
    pub fn shortened(name: &str) -> Self {
        let is_known = |character: &char| is_known(*character);
        Self(name.chars().filter(is_known).take(NAME_MAX).collect())
    }
}

const fn is_known(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '_' | '.' | ':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_one_that_platforms_give() {
        for text in ["api-7d4b9c-x2x", "api-7d4b9c-x2x:sidecar", "shop-web-1", "web.old-0123456789ab"] {
            assert_eq!(text.parse::<InstanceName>().unwrap().as_str(), text);
        }
        for text in ["", "a/b", "a,b", "a b", "a?b", "\u{e4}", &"a".repeat(321)] {
            assert!(text.parse::<InstanceName>().is_err(), "{text}");
        }
    }
}
