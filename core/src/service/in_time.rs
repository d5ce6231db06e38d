//! Waits that end.

use std::{pin::pin, time::Duration};

use futures_util::future::{Either, select};

use crate::ports::Clock;

/// Returns an answer, or `None` if it has not come after this time.
pub(crate) async fn in_time<T>(clock: &dyn Clock, time: Duration, answer: impl Future<Output = T>) -> Option<T> {
    match select(pin!(answer), clock.sleep(time)).await {
        Either::Left((answer, _)) => Some(answer),
        Either::Right(((), _)) => None,
    }
}
