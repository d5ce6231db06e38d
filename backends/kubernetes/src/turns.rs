//! The turns of those who ask the API server: one party that asks very much leaves room for the others.
//!
//! A party has a few questions at once, and its further ones wait for these. So those that wait for room are few of each
//! party, and are let in by the order in which they came. Tokens of unknown accounts are a party each, and together one
//! more: any number of them may come from one caller.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, Weak},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::lock;

/// The most questions at once: rollouts share the API server's patience with this service account.
const AT_ONCE: usize = 16;
/// The most questions of one party at once.
const OF_ONE: usize = 4;

/// The most questions about all tokens of unknown accounts at once.
const OF_UNKNOWN: usize = 8;

/// The party that a question is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Party<'a> {
    /// An account by its name, which the cluster has signed or said.
    Account(&'a str),
    /// A token by its hash, of an account that is not known yet.
    Token(&'a str),
}

/// Room for questions, and each party's part of it.
pub(crate) struct Turns {
    room: Semaphore,
    unknown: Semaphore,
    parties: Mutex<HashMap<String, Weak<Semaphore>>>,
}

/// A question's turn, until it is dropped.
pub(crate) struct Turn<'a> {
    _room: Option<SemaphorePermit<'a>>,
    _unknown: Option<SemaphorePermit<'a>>,
    _own: Option<OwnedSemaphorePermit>,
}

impl Default for Turns {
    fn default() -> Self {
        Self { room: Semaphore::new(AT_ONCE), unknown: Semaphore::new(OF_UNKNOWN), parties: Mutex::default() }
    }
}

impl Turns {
    /// Waits for the turn of a question of this party.
    pub(crate) async fn of(&self, party: Party<'_>) -> Turn<'_> {
        // None of them is ever closed.
        let (own, unknown) = match party {
            Party::Account(name) => (self.party(name).acquire_owned().await.ok(), None),
            Party::Token(hash) => {
                let own = self.party(hash).acquire_owned().await.ok();
                (own, self.unknown.acquire().await.ok())
            }
        };
        Turn { _room: self.room.acquire().await.ok(), _unknown: unknown, _own: own }
    }

    fn party(&self, party: &str) -> Arc<Semaphore> {
        let mut parties = lock(&self.parties);
        if let Some(known) = parties.get(party).and_then(Weak::upgrade) {
            return known;
        }
        // Parties that ask nothing now are forgotten.
        parties.retain(|_, known| known.strong_count() > 0);
        let new = Arc::new(Semaphore::new(OF_ONE));
        parties.insert(party.to_owned(), Arc::downgrade(&new));
        new
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn party_that_asks_very_much_leaves_room_for_the_others() {
        let turns = Turns::default();
        let mut waiting: Vec<_> = (0..1000).map(|_| Box::pin(turns.of(Party::Account("greedy")))).collect();
        let at_once: Vec<_> = waiting.iter_mut().filter_map(|turn| turn.now_or_never()).collect();
        assert_eq!(at_once.len(), OF_ONE);
        let other = turns.of(Party::Account("another")).now_or_never();
        assert!(other.is_some(), "it need not wait for the first");
        drop(at_once);
        let next: Vec<_> = waiting[OF_ONE..].iter_mut().filter_map(|turn| turn.now_or_never()).collect();
        assert_eq!(next.len(), OF_ONE, "as many once those have ended");
    }

    #[tokio::test]
    async fn all_parties_together_have_the_room_and_are_forgotten_afterwards() {
        let turns = Turns::default();
        let names: Vec<String> = (0..10).map(|number| number.to_string()).collect();
        let mut all: Vec<_> =
            names.iter().flat_map(|name| [name; OF_ONE]).map(|name| Box::pin(turns.of(Party::Account(name)))).collect();
        let at_once: Vec<_> = all.iter_mut().filter_map(|turn| turn.now_or_never()).collect();
        assert_eq!(at_once.len(), AT_ONCE);
        drop(at_once);
        for turn in all.into_iter().skip(AT_ONCE) {
            drop(turn.await);
        }
        drop(turns.of(Party::Account("last")).await);
        drop(turns.of(Party::Account("one more")).await);
        assert_eq!(lock(&turns.parties).len(), 1);
    }

    #[tokio::test]
    async fn tokens_of_unknown_accounts_leave_room_to_known_ones() {
        let turns = Turns::default();
        let hashes: Vec<String> = (0..100).map(|number| number.to_string()).collect();
        let mut all: Vec<_> = hashes.iter().map(|hash| Box::pin(turns.of(Party::Token(hash)))).collect();
        let at_once: Vec<_> = all.iter_mut().filter_map(|turn| turn.now_or_never()).collect();
        assert_eq!(at_once.len(), OF_UNKNOWN);
        assert!(turns.of(Party::Account("known")).now_or_never().is_some());
        assert!(turns.of(Party::Token("another")).now_or_never().is_none());
    }
}
