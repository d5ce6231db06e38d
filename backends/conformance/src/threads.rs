//! Writes of several threads at once, each thread with an executor of its own.
//!
//! The cases of the suites run on one thread, where calls of a store that never waits follow one another. Here they
//! overlap, so that a store needs a lock, or a compare-and-swap, around checking the version and writing.

use std::{
    collections::BTreeSet,
    hint,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use futures_util::{FutureExt, future::BoxFuture};
use rollhook_core::{
    Error, Result,
    app::AppUid,
    error::Entity,
    ledger::Change,
    ports::{AppRef, Committed, HistoryStoreExt, Version},
};
use rollhook_management::ports::{NewRecord, RecordKey, RecordKind, RecordStore};

use crate::{
    client,
    report::{Can, Lack},
    samples,
    stores::Stores,
};

const THREADS: usize = 2;
/// Each round costs a slow store one commit that is written, and one that is refused.
const ROUNDS: usize = 400;
/// The number of rounds of records, whose writers would not overlap by chance in each.
const RECORD_ROUNDS: usize = 100;

/// Of commits that threads make on one version at the same time, exactly one is written, round after round.
///
/// Each thread opens a handle of its own in the executor that `block_on` starts.
///
/// # Errors
/// Never: every store can be called from several threads.
///
/// # Panics
/// If a round has another number of winners than one, or the app has not the state of the last one.
pub async fn commits_have_one_winner(store: &dyn Stores, block_on: impl Fn(BoxFuture<'_, ()>) + Sync) -> Can {
    let history = store.open().await.history;
    let app = client::register(&*history, samples::app("race", "test", "threads")).await.state.app.uid;
    let barrier = SpinBarrier::default();
    let race = |racer: usize| {
        let mut answers = Vec::new();
        block_on(Box::pin(async { answers = commit_in_rounds(store, app, racer, &barrier).await }));
        answers
    };
    let answers: Vec<Vec<Result<Committed>>> = thread::scope(|scope| {
        let race = &race;
        let racers: Vec<_> = (0..THREADS).map(|racer| scope.spawn(move || race(racer))).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });

    let (mut version, mut winner) = (Version(0), 0);
    for round in 0..ROUNDS {
        let outcomes: Vec<_> = answers.iter().map(|answers| &answers[round]).collect();
        let winners: Vec<usize> = (0..THREADS).filter(|racer| outcomes[*racer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "round {round}: one of the commits on a version is written: {outcomes:?}");
        winner = winners[0];
        for outcome in outcomes {
            match outcome {
                Ok(committed) => assert!(version < committed.version, "each commit makes a higher version"),
                Err(error) => assert!(matches!(error, Error::Conflict(Entity::Version)), "round {round}: {error:?}"),
            }
        }
        version = answers[winner][round].as_ref().unwrap().version;
    }
    let stored = client::load(&*history, app).await;
    assert_eq!((stored.state.lease, stored.version), (Some(samples::replica("racer", winner as u64)), version));
    Ok(())
}

/// Loads the app with the other threads, and commits a change of it with them. A call that panics has an answer too, so
/// that the other threads do not wait for this one.
async fn commit_in_rounds(
    store: &dyn Stores,
    app: AppUid,
    racer: usize,
    barrier: &SpinBarrier,
) -> Vec<Result<Committed>> {
    let history = caught(store.open()).await.map(|handles| handles.history);
    let mut answers = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        barrier.wait();
        let load = async {
            let history = history.as_ref()?;
            let loaded = history.load(AppRef::Uid(app), None).await.ok()??;
            let mut change = Change::on(loaded.state);
            change.lease(&samples::replica("racer", racer as u64), loaded.now);
            Some(history.commit_one(client::put(change, loaded.version)))
        };
        let commit = caught(load).await.flatten();
        barrier.wait();
        let commit = async { Some(commit?.await) };
        let failed =
            || Err(Error::Unavailable { what: "opening or loading failed, or panicked".to_owned(), cause: None });
        answers.push(caught(commit).await.flatten().unwrap_or_else(failed));
    }
    answers
}

/// Of writes that threads make on one version of a record at the same time, exactly one is made, round after round, and
/// no version is used twice.
///
/// # Errors
/// [`Lack`], if the store keeps no records.
///
/// # Panics
/// If a round has another number of winners than one.
pub async fn record_writes_have_one_winner(store: &dyn Stores, block_on: impl Fn(BoxFuture<'_, ()>) + Sync) -> Can {
    let key: RecordKey = "race".parse().unwrap();
    let first = store.open().await.records.ok_or(Lack::NotApplicable("the store keeps no records"))?;
    first.write(RecordKind::Session, record(&key), None).await.unwrap();
    let barrier = SpinBarrier::default();
    let race = || {
        let mut answers = Vec::new();
        block_on(Box::pin(async { answers = write_in_rounds(store, &key, &barrier).await }));
        answers
    };
    let answers: Vec<Vec<Result<Version>>> = thread::scope(|scope| {
        let racers: Vec<_> = (0..THREADS).map(|_| scope.spawn(race)).collect();
        racers.into_iter().map(|racer| racer.join().unwrap()).collect()
    });

    let mut versions = BTreeSet::new();
    for round in 0..RECORD_ROUNDS {
        let outcomes: Vec<_> = answers.iter().map(|answers| &answers[round]).collect();
        let mut winners = outcomes.iter().filter_map(|outcome| outcome.as_ref().ok());
        let winner = winners.next().filter(|_| winners.next().is_none());
        let Some(winner) = winner else {
            panic!("round {round}: one of the writes on a version is made: {outcomes:?}")
        };
        assert!(versions.insert(*winner), "round {round}: version {winner:?} was used before");
        let is_refused = |outcome: &&&Result<Version>| matches!(outcome, Err(Error::Conflict(Entity::Version)));
        assert_eq!(outcomes.iter().filter(is_refused).count(), THREADS - 1, "round {round}: {outcomes:?}");
    }
    Ok(())
}

/// The same record in each write: a store must not take it for the one that is stored.
fn record(key: &RecordKey) -> NewRecord {
    NewRecord { key: key.clone(), document: "{}".to_owned(), ttl: None }
}

/// Reads the record with the other threads, and writes it with them.
async fn write_in_rounds(store: &dyn Stores, key: &RecordKey, barrier: &SpinBarrier) -> Vec<Result<Version>> {
    let records: Option<Arc<dyn RecordStore>> = caught(store.open()).await.and_then(|handles| handles.records);
    let mut answers = Vec::with_capacity(RECORD_ROUNDS);
    for _ in 0..RECORD_ROUNDS {
        barrier.wait();
        let read = async {
            let records = records.as_ref()?;
            // A handle may take a moment to find what another one wrote.
            for _ in 0..ROUNDS {
                if let Some(stored) = records.read(RecordKind::Session, key).await.ok()? {
                    return Some(records.write(RecordKind::Session, record(key), Some(stored.version)));
                }
                store.pause(Duration::from_millis(20)).await;
            }
            None
        };
        let write = caught(read).await.flatten();
        barrier.wait();
        let write = async { Some(write?.await) };
        let failed =
            || Err(Error::Unavailable { what: "opening or reading failed, or panicked".to_owned(), cause: None });
        answers.push(caught(write).await.flatten().unwrap_or_else(failed));
    }
    answers
}

/// Lets the threads go on together. A thread that sleeps until it is woken would be late by more than most commits
/// take.
#[derive(Default)]
struct SpinBarrier(AtomicUsize);

impl SpinBarrier {
    fn wait(&self) {
        let arrived = self.0.fetch_add(1, Ordering::SeqCst);
        let all = (arrived / THREADS + 1) * THREADS;
        let mut spins = 0_u32;
        while self.0.load(Ordering::SeqCst) < all {
            spins += 1;
            if spins.is_multiple_of(1000) {
                thread::yield_now();
            } else {
                hint::spin_loop();
            }
        }
    }
}

/// Returns `None` if the call panics.
async fn caught<T>(call: impl Future<Output = T>) -> Option<T> {
    AssertUnwindSafe(call).catch_unwind().await.ok()
}
