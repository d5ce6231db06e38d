//! The secret of a check, and how it is kept: bound to the one place that it is for.

use std::{fmt, str::FromStr};

use zeroize::Zeroizing;

use super::CheckName;
use crate::configuration::{Variable, VariableName, Variables};

/// The longest secret, in characters.
pub const SECRET_MAX: usize = 1_024;
/// The variable that a kept secret is the value of.
const VARIABLE: &str = "CHECK_SECRET";
/// The settings beside it: the check's name, and the place that the secret is for.
const CHECK: &str = "check";
const PLACE: &str = "secret_for";

/// The secret of a check, such as the token that its requests carry. `Debug` shows none of it, and its memory is wiped when it is
/// dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct CheckSecret(Zeroizing<String>);

impl CheckSecret {
    /// The secret's text: only for requests of the check, and for sealing.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the secret as the store of configurations keeps it: sealed with the check's name and the place that it is for, so
    /// that no change of the app's record brings it elsewhere. `empty` are no variables, with the app's key of fingerprints.
    pub(crate) fn kept(&self, check: &CheckName, place: &str, empty: Variables) -> Variables {
        let mut kept = empty;
        let name = VARIABLE.parse::<VariableName>().ok();
        kept.entries.extend(name.map(|name| (name, Variable::new(self.0.clone(), false))));
        kept.settings.insert(CHECK.to_owned(), check.as_str().into());
        kept.settings.insert(PLACE.to_owned(), place.into());
        kept
    }

    /// Returns a secret that was [kept](Self::kept) for this check and place; `None`: it is another one's.
    pub(crate) fn of_kept(kept: &Variables, check: &CheckName, place: &str) -> Option<Self> {
        let is = |setting: &str, text: &str| kept.settings.get(setting).and_then(|value| value.as_str()) == Some(text);
        let (_, secret) = kept.entries.iter().find(|(name, _)| name.as_str() == VARIABLE)?;
        let is_for_it = is(CHECK, check.as_str()) && is(PLACE, place);
        is_for_it.then(|| secret.expose().parse().ok()).flatten()
    }
}

impl FromStr for CheckSecret {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        let is_text = !text.is_empty() && text.chars().count() <= SECRET_MAX && !text.chars().any(char::is_control);
        // The text is not repeated: it is a secret.
        if is_text {
            Ok(Self(Zeroizing::new(text.to_owned())))
        } else {
            Err("must be 1 to 1024 characters in one line")
        }
    }
}

impl fmt::Debug for CheckSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CheckSecret(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::configuration::SALT_BYTES;

    #[test]
    fn secret_is_kept_for_one_check_and_place() {
        let secret: CheckSecret = "hunter2".parse().unwrap();
        let (front, errors) = ("front".parse().unwrap(), "errors".parse().unwrap());
        let kept = secret.kept(&front, "https://a.example", Variables::empty([7; SALT_BYTES]));
        let kept = Variables::from_text(&kept.to_text()).unwrap();
        assert_eq!(CheckSecret::of_kept(&kept, &front, "https://a.example"), Some(secret.clone()));
        assert_eq!(CheckSecret::of_kept(&kept, &errors, "https://a.example"), None);
        assert_eq!(CheckSecret::of_kept(&kept, &front, "https://b.example"), None);
        assert_eq!(CheckSecret::of_kept(&Variables::empty([7; SALT_BYTES]), &front, "https://a.example"), None);
        assert_eq!(format!("{secret:?} {kept:?}").matches("hunter2").count(), 0);
    }

    #[test]
    fn text_of_a_secret_is_one_line() {
        let long = "x".repeat(SECRET_MAX + 1);
        for text in ["", "a\nb", "a\r", "\0", &long] {
            assert!(text.parse::<CheckSecret>().is_err(), "{text}");
        }
        assert!("alice:correct horse".parse::<CheckSecret>().is_ok());
    }
}
