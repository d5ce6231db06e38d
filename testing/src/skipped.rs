//! Tests that cannot run on this machine are counted by the test command, and named.

use std::{fs::File, io::Write};

/// Reports a test as skipped: prints `SKIPPED <test>: <reason>`, and appends the line to the file that the environment
/// variable `ROLLHOOK_SKIPS` names.
pub fn skip(test: &str, reason: &str) {
    let line = format!("SKIPPED {test}: {reason}");
    println!("{line}");
    if let Some(file) = std::env::var_os("ROLLHOOK_SKIPS") {
        let mut file = File::options().create(true).append(true).open(file).expect("ROLLHOOK_SKIPS is writable");
        file.write_all(format!("{line}\n").as_bytes()).expect("ROLLHOOK_SKIPS is writable");
    }
}

/// The name of the surrounding test: its package, program, modules and function.
#[macro_export]
macro_rules! test_name {
    () => {{
        struct Here;
        $crate::name_of::<Here>(env!("CARGO_PKG_NAME"))
    }};
}

/// Returns the name of the function in which a type is declared, for [`test_name!`](crate::test_name).
pub fn name_of<T>(package: &str) -> String {
    let path = std::any::type_name::<T>().replace("::{{closure}}", "");
    format!("{package}/{}", path.rsplit_once("::").map_or("", |(function, _)| function))
}
