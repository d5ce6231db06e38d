//! Whether the store answers, asked at most once in a while: anyone may ask the server.

use std::time::Duration;

use rollhook_management::Refusal;
use tokio::{sync::Mutex, time::Instant};

/// The time for which an answer counts.
const AGE: Duration = Duration::from_secs(1);

/// The last answer of the store.
#[derive(Default)]
pub(crate) struct Readiness(Mutex<Option<(Instant, Result<(), Refusal>)>>);

impl Readiness {
    /// Returns the store's last answer, or asks; calls of the same moment share one question.
    ///
    /// # Errors
    /// The store's refusal.
    pub(crate) async fn get(&self, ask: impl AsyncFnOnce() -> Result<(), Refusal>) -> Result<(), Refusal> {
        let mut last = self.0.lock().await;
        if let Some((at, answer)) = &*last
            && at.elapsed() < AGE
        {
            return answer.clone();
        }
        let answer = ask().await;
        *last = Some((Instant::now(), answer.clone()));
        answer
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn callers_of_the_same_moment_share_one_question() {
        let (readiness, asked) = (Readiness::default(), std::cell::Cell::new(0));
        let ask = async || {
            asked.set(asked.get() + 1);
            tokio::task::yield_now().await;
            Err(rollhook_core::request::Refusal::StoreUnavailable { maybe_recorded: false }.into())
        };
        let answers = join_all((0..50).map(|_| readiness.get(ask))).await;
        assert!(answers.iter().all(Result::is_err));
        assert_eq!(asked.get(), 1);
    }
}
