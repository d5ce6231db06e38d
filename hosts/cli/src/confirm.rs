//! Asking before something that cannot be taken back.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::Failure;

/// Asks on the terminal; without one there is nobody to ask.
///
/// # Errors
/// [`Failure::Unconfirmed`] unless the answer is yes.
pub(crate) fn confirm(question: &str) -> Result<(), Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::Unconfirmed(format!("{question}\nWithout a terminal to ask on, say so with --yes.")));
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question} [y/N] ").and_then(|()| io::stdin().lock().read_line(&mut answer));
    match asked {
        Ok(_) if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") => Ok(()),
        _ => Err(Failure::Unconfirmed("Nothing was changed.".to_owned())),
    }
}
