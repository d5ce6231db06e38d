//! The binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// An accept is many small allocations on several threads, on which the allocator of the system spends a fifth of the
/// time. Without transparent huge pages (`no_thp`), as these would hold a third more memory.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    match rollhook_server::run(rollhook_server::Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("rollhook-server: {}", rollhook_core::error::chain(&*failure));
            rollhook_server::exit_code(&failure)
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_sound() {
        rollhook_server::Args::command().debug_assert();
    }
}
