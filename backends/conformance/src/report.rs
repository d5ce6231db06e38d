//! How cases that could not run are told from those that passed.

use std::{fs::OpenOptions, io::Write};

/// Why a case cannot run on a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lack {
    /// Something is missing here, such as a server or a clock that can be moved. The case counts as skipped.
    Skip(&'static str),
    /// The case has no meaning for this backend by its design, so that nothing is missing.
    NotApplicable(&'static str),
}

/// The outcome of something that a backend may be unable to do.
pub type Can<T = ()> = Result<T, Lack>;

/// Tells of a case that did not run: printed, and where it was skipped, appended as `SKIPPED <case>: <reason>` to the
/// file that the environment variable `ROLLHOOK_SKIPS` names.
///
/// # Panics
/// Where that file cannot be written: a skip must not pass unseen.
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
