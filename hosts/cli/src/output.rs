//! Output: data on standard output, messages on standard error.
//!
//! A reader that closes its end (`| head`) does not fail the command, whose work is done: the rest of the output is
//! dropped.

use std::{
    env,
    io::{self, ErrorKind, IsTerminal, Write},
};

use rollhook_core::text::escaped;
use serde::Serialize;

use crate::{
    args::Format,
    exit::CliError,
    table::{Colour, Style},
};

/// The format of a command's output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    /// The value of `--output`.
    pub(crate) format: Format,
    /// How tables are printed.
    pub(crate) style: Style,
    /// Whether a person watches standard error.
    pub(crate) watched: bool,
}

impl Output {
    /// Returns the output for this terminal and `NO_COLOR`.
    pub(crate) fn new(format: Format) -> Self {
        let plain = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env::var_os("TERM").is_some_and(|term| term == "dumb");
        let colour = if io::stdout().is_terminal() && !plain { Colour::On } else { Colour::Off };
        let columns = || terminal_size::terminal_size_of(io::stdout()).map(|(width, _)| usize::from(width.0));
        let width = if format == Format::Table && io::stdout().is_terminal() { columns() } else { None };
        // A terminal that does not know its size says 0.
        let style = Style { colour, width: width.filter(|width| *width > 0) };
        Self { format, style, watched: io::stderr().is_terminal() }
    }

    /// Prints the document if a program reads, else the text, which is made only then.
    pub(crate) fn data<T: Serialize>(self, document: &T, text: impl FnOnce() -> String) -> Result<(), CliError> {
        let printed = match self.format {
            Format::Table | Format::Wide => text(),
            Format::Json => json(document)?,
            Format::Csv => return Err(CliError::Usage("This command has no output as csv.".to_owned())),
            Format::Yaml => yaml(document)?,
        };
        print(&printed)
    }

    /// Prints the document if a program reads, else a table, with all columns for the format `wide`.
    pub(crate) fn list<T: Serialize>(
        self,
        document: &T,
        table: impl FnOnce() -> String,
        wide: impl FnOnce() -> String,
    ) -> Result<(), CliError> {
        if self.format == Format::Wide { self.data(document, wide) } else { self.data(document, table) }
    }

    /// Prints a sentence for people, and nothing if a program reads.
    pub(crate) fn line(self, line: &str) -> Result<(), CliError> {
        if self.format.is_document() { Ok(()) } else { print(&format!("{line}\n")) }
    }
}

/// Prints the text on standard output, as it is.
pub(crate) fn print(text: &str) -> Result<(), CliError> {
    print_to_reader(text).map(drop)
}

/// Prints the text as [`print`] does. Returns whether the reader is still there, for output that goes on.
pub(crate) fn print_to_reader(text: &str) -> Result<bool, CliError> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(CliError::Other(format!("Standard output cannot be written to: {error}.")))
        }
        written => Ok(written.is_ok()),
    }
}

/// Prints a line on standard error; a failure to print is ignored.
pub(crate) fn message(line: &str) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Returns the system's user, whom the history names as the actor.
pub(crate) fn user() -> String {
    let named = |name| env::var(name).ok().filter(|value: &String| !value.is_empty());
    named("USER").or_else(|| named("LOGNAME")).unwrap_or_else(|| "cli".to_owned())
}

pub(crate) fn json<T: Serialize>(document: &T) -> Result<String, CliError> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| CliError::Other(format!("The answer is not JSON: {error}.")))?;
    Ok(format!("{}\n", unprintable_escaped(&text)))
}

pub(crate) fn yaml<T: Serialize>(document: &T) -> Result<String, CliError> {
    // By way of JSON's model, so that both formats have the same members, flattened ones included.
    let value =
        serde_json::to_value(document).map_err(|error| CliError::Other(format!("The answer is not JSON: {error}.")))?;
    let text = serde_saphyr::to_string(&value)
        .map_err(|error| CliError::Other(format!("The answer is not YAML: {error}.")))?;
    Ok(unprintable_escaped(&text))
}

/// Returns the text with the control characters that the format leaves as they are, in quoted text only, as `\u…`.
fn unprintable_escaped(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        let mut bytes = [0; 4];
        let text: &str = character.encode_utf8(&mut bytes);
        if character == '\n' || escaped(text) == text {
            shown.push(character);
        } else {
            shown.push_str(&format!("\\u{:04x}", u32::from(character)));
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[31mb\u{9b}2Jc\u{202e}d\u{7f}\r\n\u{0}\"\\: #e\u{85}\u{2028}";

    #[test]
    fn documents_hold_no_control_characters_and_read_back() {
        let document = serde_json::json!({ "message": HOSTILE, "plain": "ok", "multi": "a\nb" });
        let shown = json(&document).unwrap();
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert!(!shown.contains('\u{202e}'));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
        let shown = yaml(&document).unwrap();
        assert!(shown.chars().all(|c| c == '\n' || !c.is_control()), "{shown:?}");
        assert!(!shown.contains('\u{202e}'));
        assert_eq!(serde_saphyr::from_str::<serde_json::Value>(&shown).unwrap(), document, "{shown}");
    }
}
