//! Log lines on stderr. No line has a token, a query string, an authentication header, or a panic's text.

use std::error::Error;

use tracing_subscriber::EnvFilter;

use crate::args::LogFormat;

/// Starts logging; `RUST_LOG` chooses the lines.
pub(crate) fn init(format: LogFormat) -> Result<(), Box<dyn Error + Send + Sync>> {
    // The cluster's client names no call when it reports an outage, and repeats what it is denied; rollhook's own lines do
    // the one, and say the other once.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=off,kube_runtime=off"));
    // A line that cannot be written is lost. Reporting that on the same stderr would panic: a full disk must not end
    // calls.
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).log_internal_errors(false);
    match format {
        LogFormat::Text => lines.with_ansi(false).try_init()?,
        LogFormat::Json => lines.json().flatten_event(true).with_span_list(false).try_init()?,
    }
    // A panic's text may quote what a caller sent; the engine logs it where an app's driver panicked.
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(location, backtrace = %std::backtrace::Backtrace::force_capture(), "code panicked");
    }));
    Ok(())
}
