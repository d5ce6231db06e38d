//! Times as text.

pub(crate) use rollhook_api::time::{absolute, ago};
use rollhook_core::time::Timestamp;

/// Returns the time by this machine's clock, which is good enough for "2 min ago".
pub(crate) fn now() -> Timestamp {
    Timestamp::from_millis(jiff::Timestamp::now().as_millisecond())
}
