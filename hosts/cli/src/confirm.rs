//! Confirmation of operations that cannot be undone.

use std::io::{self, BufRead, IsTerminal, Write};

use crate::exit::CliError;

/// Asks a question on the terminal.
///
/// # Errors
/// [`CliError::Unconfirmed`] unless the answer is yes, and always without a terminal.
pub(crate) fn confirm(question: &str) -> Result<(), CliError> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(CliError::Unconfirmed(format!("{question}\nThere is no terminal to ask on: confirm with --yes.")));
    }
    let mut answer = String::new();
    let asked = write!(io::stderr(), "{question} [y/N] ").and_then(|()| io::stdin().lock().read_line(&mut answer));
    match asked {
        Ok(_) if matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes") => Ok(()),
        _ => Err(CliError::Unconfirmed("Nothing was changed.".to_owned())),
    }
}
