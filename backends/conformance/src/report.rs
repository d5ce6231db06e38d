//! Reports cases that could not run, so that they do not count as passed.

use std::{fs::OpenOptions, io::Write};

/// The cause for which a case cannot run on a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Something is missing here, such as a server or a clock that can be moved. The case counts as skipped.
    Skip(&'static str),
    /// The case has no meaning for this backend by its design, so that nothing is missing.
    NotApplicable(&'static str),
}

/// The outcome of something that a backend may be unable to do.
pub type Can<T = ()> = Result<T, Lack>;

/// Reports a case that did not run: prints it, and appends skipped ones as `SKIPPED <case>: <reason>` to the
/// file that the environment variable `ROLLHOOK_SKIPS` names.
///
/// # Panics
/// If that file cannot be written: a skip must not go unnoticed.
pub fn report(case: &str, outcome: Can) {
    match outcome {
        Ok(()) => {}
        Err(Lack::NotApplicable(reason)) => println!("NOT APPLICABLE {case}: {reason}"),
        Err(Lack::Skip(reason)) => {
            println!("SKIPPED {case}: {reason}");
            let Some(path) = std::env::var_os("ROLLHOOK_SKIPS") else { return };
            let mut file = OpenOptions::new().create(true).append(true).open(path).expect("ROLLHOOK_SKIPS is writable");
            file.write_all(format!("SKIPPED {case}: {reason}\n").as_bytes()).expect("ROLLHOOK_SKIPS is writable");
        }
    }
}
