//! Reads of tokens for callers. Of a store that marks its tokens, callers without a valid one cost a bounded number,
//! however many they are:
//!
//! ```text
//!   recognised ────────────────────────────── one read ─────────────────────────▶ fits what was read? let in / refused
//!   token not read since its mark changed ─── one read ──────────────────────────▶ let in / refused after the lag
//!   any other ─── one read, if this second's is left; else refused after the lag ▶ let in / refused
//! ```
//!
//! A caller is let in only by a read that its own call has made. Refusals tell nothing of which apps there are: a caller
//! of an app is refused no sooner than a caller of a name that no app has, and while reads fail, all are told so.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    app::AppId,
    error::{Error, Result},
    ports::{TokenMark, TokenMatcher, WebhookSecret},
    service::Deployer,
};

/// The time between two reads for strangers, and between two of a token whose read did not end.
const INTERVAL: Duration = Duration::from_secs(1);
/// The time for which a failed read counts for callers who cause none.
const FAILURE: Duration = Duration::from_secs(2);
/// The longest time after which a replica sees the mark of a token that another one wrote.
const LAG: Duration = Duration::from_secs(1);
/// The most apps; once there are more, all are forgotten, and read once more.
const READS: usize = 10_000;

/// The reads of tokens that have their marks, and those that strangers may cause.
#[derive(Default)]
pub(crate) struct TokenReads(Mutex<State>);

#[derive(Default)]
struct State {
    /// Each app's last read.
    reads: HashMap<AppId, Read>,
    /// The time from which the next read for a stranger is left.
    free_at: Duration,
    /// The time of the last read, if it failed.
    failed_at: Option<Duration>,
}

/// A read of an app's token.
struct Read {
    /// The token's mark before the read.
    mark: TokenMark,
    began_at: Duration,
    /// Whether it has ended: a caller may hang up before, and it may fail.
    has_ended: bool,
    /// The time of its failure.
    failed_at: Option<Duration>,
}

impl Deployer {
    /// Returns the app's token if it fits; reads it only for a caller who is worth a read.
    ///
    /// # Errors
    /// Those of the read; `Unavailable` if a read for another caller failed just now.
    pub(crate) async fn find_fitting(
        &self,
        app: &AppId,
        is_recognized: &(dyn Fn() -> bool + Sync),
        fits: TokenMatcher<'_>,
    ) -> Result<Option<WebhookSecret>> {
        let (tokens, now) = (&self.ports.tokens, || self.ports.clock.elapsed());
        for is_last in [false, true] {
            let mark = tokens.mark(app).await?;
            if mark == TokenMark::Unmarked {
                return tokens.find_fitting(app, fits).await;
            }
            let is_paid = is_recognized() || self.token_reads.take(now());
            if self.token_reads.begin(app, &mark, now(), is_last) || is_paid {
                let found = tokens.find_fitting(app, fits).await;
                self.token_reads.end(app, &mark, found.is_err().then(now));
                let found = found?;
                if found.is_some() || is_paid {
                    return Ok(found);
                }
            }
            self.token_reads.check(app, now())?;
            if !is_last {
                // Another replica may have registered the app, or enabled its webhook, just now. The delay is the same
                // for every name.
                self.ports.clock.sleep(LAG).await;
            }
        }
        Ok(None)
    }
}

impl TokenReads {
    /// Takes the read of this second, if it is left. Those of earlier seconds are not saved up.
    fn take(&self, now: Duration) -> bool {
        let mut state = self.lock();
        let is_left = now >= state.free_at;
        if is_left {
            state.free_at = now + INTERVAL;
        }
        is_left
    }

    /// Returns whether the app's token was not read since it has this mark, and is to be read now. A caller who has waited
    /// for a read that does not end reads too: the store joins the reads of one token.
    fn begin(&self, app: &AppId, mark: &TokenMark, now: Duration, has_waited: bool) -> bool {
        let mut state = self.lock();
        let is_under_way = |read: &Read| !has_waited && now < read.began_at + INTERVAL;
        let holds = |read: &Read| read.mark == *mark && (read.has_ended || is_under_way(read));
        if !matches!(mark, TokenMark::Token(_)) || state.reads.get(app).is_some_and(holds) {
            return false;
        }
        if state.reads.len() >= READS {
            state.reads.clear();
        }
        state.reads.insert(app.clone(), Read { mark: mark.clone(), began_at: now, has_ended: false, failed_at: None });
        true
    }

    /// Notes the end of a read that began when the token had this mark.
    fn end(&self, app: &AppId, mark: &TokenMark, failed_at: Option<Duration>) {
        let mut state = self.lock();
        state.failed_at = failed_at;
        if let Some(read) = state.reads.get_mut(app)
            && read.mark == *mark
        {
            read.has_ended |= failed_at.is_none();
            read.failed_at = failed_at;
        }
    }

    /// Fails if the last read did just now, or the last one of this app's token.
    fn check(&self, app: &AppId, now: Duration) -> Result<()> {
        let state = self.lock();
        let of_app = state.reads.get(app).and_then(|read| read.failed_at);
        match of_app.max(state.failed_at) {
            Some(at) if now < at + FAILURE => {
                Err(Error::Unavailable { what: "reading a token failed just now".to_owned(), cause: None })
            }
            Some(_) | None => Ok(()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
