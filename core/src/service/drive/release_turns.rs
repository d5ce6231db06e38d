//! The turns of other apps in a release group. The deploys of a group that wait at the same time share their reads: each one's
//! answer is of a read that began after it asked, as the turns need (see [`crate::ledger::release_turns`]).

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use futures_util::{TryStreamExt, lock};

use crate::{
    app::{App, Namespace, ReleaseGroup},
    ledger::release_turns::OtherTurn,
    ports::AppPage,
    service::{Deployer, read::SharedValues},
    time::Timestamp,
};

/// The reads of groups that are under way or waited for: of each one at a time. The flag says whether nothing committed
/// before may be missing.
pub(crate) type GroupReads = SharedValues<(Namespace, ReleaseGroup, bool), GroupRead>;

/// The reads of one group, for as long as a deploy waits for one.
#[derive(Default)]
pub(crate) struct GroupRead {
    /// The number of reads that have begun.
    begun: AtomicU64,
    /// The number of the last read that ended, and the turns that it found. Held by the read that is under way.
    last: lock::Mutex<(u64, Option<Arc<[OtherTurn]>>)>,
}

impl GroupRead {
    /// Returns the answer of a read that begins after this call, by whichever caller.
    async fn answer(&self, read: impl AsyncFnOnce(&AtomicU64) -> Option<Vec<OtherTurn>>) -> Option<Arc<[OtherTurn]>> {
        let asked_at = self.begun.load(Ordering::SeqCst);
        let mut last = self.last.lock().await;
        if last.0 <= asked_at {
            let found = read(&self.begun).await;
            *last = (self.begun.load(Ordering::SeqCst), found.map(Arc::from));
        }
        last.1.clone()
    }
}

impl Deployer {
    /// Returns the turns of the other apps in this group; `None` while the store is away.
    pub(super) async fn other_turns(
        &self,
        app: &App,
        group: &ReleaseGroup,
        is_fresh: bool,
        now: Timestamp,
    ) -> Option<Vec<OtherTurn>> {
        let namespace = &app.id.namespace;
        let shared = self.group_reads.of((namespace.clone(), group.clone(), is_fresh));
        let turns = shared.answer(async |begun| {
            // All apps of the environment are read, which is as long as a long list, and waits for none of those. Deploys that
            // ask until the turn has come share the read.
            let _turn = self.group_turn(namespace).await;
            begun.fetch_add(1, Ordering::SeqCst);
            self.group_turns(namespace, group, is_fresh, now).await
        });
        Some(turns.await?.iter().filter(|turn| turn.uid != app.uid).cloned().collect())
    }

    /// Reads the turns of all apps in this group; `None` while the store is away. An app that cannot be read holds up no other
    /// one: nothing drives it.
    async fn group_turns(
        &self,
        namespace: &Namespace,
        group: &ReleaseGroup,
        is_fresh: bool,
        now: Timestamp,
    ) -> Option<Vec<OtherTurn>> {
        let page = AppPage::first(0).of(namespace.clone()).fresh(is_fresh);
        let mut pages = pin!(self.listed(page));
        let mut turns = Vec::new();
        loop {
            match pages.try_next().await {
                Ok(Some(apps)) => {
                    turns.extend(apps.iter().flatten().flat_map(|state| state.turns_in(group, now)));
                }
                Ok(None) => return Some(turns),
                Err(error) => {
                    tracing::debug!(%namespace, %group, error = %error.chain(), "reading the release group failed");
                    return None;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use futures_util::{FutureExt, poll};

    use super::*;

    /// Counts a read that begins, and ends it when it is polled again.
    async fn read(begun: &AtomicU64) -> Option<Vec<OtherTurn>> {
        begun.fetch_add(1, Ordering::SeqCst);
        let mut is_begun = false;
        std::future::poll_fn(|_| if std::mem::replace(&mut is_begun, true) { Poll::Ready(()) } else { Poll::Pending })
            .await;
        Some(Vec::new())
    }

    #[test]
    fn answer_is_of_a_read_that_began_after_the_question() {
        let group = GroupRead::default();
        let asked = || Box::pin(group.answer(read));
        let work = async {
            let mut first = asked();
            assert!(poll!(&mut first).is_pending());
            // Its read is under way, and may miss what has happened since.
            let mut later = [asked(), asked(), asked()];
            for one in &mut later {
                assert!(poll!(one).is_pending());
            }
            assert!(first.await.is_some());
            // Those that ask before the next read begins share it, and one that is given up takes nothing along.
            let [mut given_up, mut second, third] = later;
            assert!(poll!(&mut given_up).is_pending());
            assert_eq!(group.begun.load(Ordering::SeqCst), 2);
            drop(given_up);
            assert!(poll!(&mut second).is_pending());
            assert!(poll!(&mut second).is_ready());
            assert!(third.await.is_some());
            assert_eq!(group.begun.load(Ordering::SeqCst), 3);
        };
        work.now_or_never().unwrap();
    }
}
