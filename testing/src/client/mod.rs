//! The HTTP client: small enough to send what no library would.

mod call;
mod connection;
mod reply;

use std::time::Duration;

pub use call::Call;
pub use connection::Connection;
pub use reply::{Reply, events};

/// The time that an answer may take: longer than a waiting call waits.
const PATIENCE: Duration = Duration::from_secs(70);
