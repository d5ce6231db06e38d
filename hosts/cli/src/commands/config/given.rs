//! Variables as a person gives them. No error repeats a text that may be a value.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    path::Path,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rollhook_core::{
    app::InvalidName,
    configuration::{VARIABLE_BYTES_MAX, VARIABLES_BYTES_MAX, Variable, VariableName},
};

use crate::{dotenv, exit::CliError, output::message};

/// Returns the variables of the arguments and of a file.
pub(super) fn variables(
    given: &[String],
    file: Option<&Path>,
    is_plain: bool,
) -> Result<BTreeMap<VariableName, Variable>, CliError> {
    let mut variables = BTreeMap::new();
    let mut add = |name: VariableName, value: String| {
        let again = CliError::Usage(format!("{name} is given more than once."));
        match variables.insert(name, Variable::new(value, is_plain)) {
            Some(_) => Err(again),
            None => Ok(()),
        }
    };
    for (name, value) in file.map(of_file).transpose()?.into_iter().flatten() {
        add(name, value)?;
    }
    let is_input = |given: &&String| given.split_once('=').is_some_and(|(_, value)| value == "-");
    if given.iter().filter(is_input).count() > 1 {
        return Err(CliError::Usage("Standard input can be the value of one variable only.".to_owned()));
    }
    for (index, given) in given.iter().enumerate() {
        let place = format!("Variable {}", index + 1);
        let Some((name, value)) = given.split_once('=') else {
            return Err(CliError::Usage(format!("{place}: must be NAME=VALUE, NAME=- or NAME=@FILE.")));
        };
        let name = self::name(name, &place)?;
        let value = match value {
            "-" => of_input(&name)?,
            file if file.starts_with('@') => of_content(&name, Path::new(&file[1..]))?,
            value => value.to_owned(),
        };
        add(name, value)?;
    }
    Ok(variables)
}

/// Returns the names of the arguments.
pub(super) fn names(given: &[String]) -> Result<Vec<String>, CliError> {
    let named = |(index, given): (usize, &String)| Ok(name(given, &format!("Variable {}", index + 1))?.to_string());
    given.iter().enumerate().map(named).collect()
}

fn name(text: &str, place: &str) -> Result<VariableName, CliError> {
    text.parse().map_err(|invalid: InvalidName| CliError::Usage(format!("{place}: the name {}.", invalid.rule)))
}

/// Reads at most so many bytes and one more, so that too many are seen.
fn bounded(from: impl Read, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(most as u64 + 1).read_to_end(&mut bytes)?;
    if bytes.len() > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

/// Reads a value from standard input.
fn of_input(name: &VariableName) -> Result<String, CliError> {
    let read = bounded(io::stdin().lock(), VARIABLE_BYTES_MAX);
    let bytes = read.map_err(|error| CliError::Other(format!("{name}: standard input cannot be read: {error}.")))?;
    let text = String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'));
    let text = text.ok_or_else(|| {
        CliError::Usage(format!(
            "{name}: standard input is no text; {name}=@FILE sets the content of a file as base64."
        ))
    })?;
    let line = text.strip_suffix('\n').map(|line| line.strip_suffix('\r').unwrap_or(line));
    Ok(line.unwrap_or(&text).to_owned())
}

/// Reads a value from a file: text as it is, anything else as base64.
fn of_content(name: &VariableName, file: &Path) -> Result<String, CliError> {
    // The name of the file is not repeated: it may be a value that begins with @.
    let failed = |error: io::Error| CliError::Other(format!("{name}: the file after @ cannot be read: {error}."));
    let bytes = File::open(file).and_then(|file| bounded(file, VARIABLE_BYTES_MAX)).map_err(failed)?;
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') => Ok(text),
        other => {
            message(&format!("note: the file of {name} is no text: its value is the content as base64"));
            Ok(STANDARD.encode(other.map_or_else(std::string::FromUtf8Error::into_bytes, String::into_bytes)))
        }
    }
}

/// Reads the variables of a `.env` file.
fn of_file(file: &Path) -> Result<Vec<(VariableName, String)>, CliError> {
    // As much again for comments and quotes.
    let read = File::open(file).and_then(|file| bounded(file, 2 * VARIABLES_BYTES_MAX));
    let shown = file.display();
    let bytes = read.map_err(|error| CliError::Other(format!("--file {shown} cannot be read: {error}.")))?;
    let text = String::from_utf8(bytes)
        .map_err(|_| CliError::Other(format!("--file {shown} cannot be read: it is no UTF-8.")))?;
    let read = dotenv::read(&text)
        .map_err(|error| CliError::Usage(format!("--file {shown}, line {}: {}.", error.line, error.why)))?;
    let named = |(name, value): (String, String)| Ok((self::name(&name, &format!("--file {shown}"))?, value));
    read.into_iter().map(named).collect()
}
