//! The promises of [`rollhook_management::ports::RecordStore`].

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use rollhook_core::{Error, Result, error::Entity, ports::Version};
use rollhook_management::ports::{NewRecord, RECORD_KEY_MAX, Record, RecordKey, RecordKind, RecordPlace, RecordStore};

use crate::{
    report::{Can, Lack},
    stores::Stores,
};

const KINDS: [RecordKind; 13] = RecordKind::ALL;
const KIND: RecordKind = RecordKind::Session;
/// How often a record is read that another handle wrote, until it must be found.
const SOON: usize = 500;
const HOUR: Duration = Duration::from_secs(3600);
/// The number of writers at the same time, and of their races.
const WRITERS: usize = 4;
const RACES: usize = 12;

/// A record is read as it was written: at once by the handle that wrote it, soon by another.
pub async fn write_then_read(store: &dyn Stores) -> Can {
    let [one, two] = [open(store).await?, open(store).await?];
    assert_eq!(one.read(KIND, &key("unknown")).await.unwrap(), None);
    let before = written(&*one, "first", None).await;
    let longest = format!("z{}9", "-.".repeat(RECORD_KEY_MAX / 2 - 1));
    for name in ["a", "0", "token-1.of.alice", "a..b", "a.-b", "a-.b", "a--b", "2026-11-22.1", &longest] {
        let text = "\\\"ü🦀\\u0000 %s {} \\n".repeat(100);
        for text in [format!("{{\"text\":\"{name} {text}\"}}"), " [ ] ".to_owned(), sized(16 << 10)] {
            let stored = one.read(KIND, &key(name)).await.unwrap();
            let version = one.write(KIND, new(name, &text, Some(HOUR)), stored.map(|record| record.version)).await;
            let record = one.read(KIND, &key(name)).await.unwrap().expect("the record that was written");
            assert_eq!((&record.key, &record.document, record.version), (&key(name), &text, version.unwrap()));
            assert!(before.created_at <= record.created_at && record.created_at <= record.now, "{record:?}");
            let (first, last) = (record.created_at.after(HOUR), record.now.after(HOUR));
            assert!(record.expires_at.is_some_and(|end| first <= end && end <= last), "{record:?}");
            assert_same(&soon(store, &*two, name, &record).await, &record);
        }
    }
    Ok(())
}

/// A record that was written or removed is so after an abrupt end of the store.
pub async fn write_outlives_an_abrupt_end(store: &dyn Stores) -> Can {
    let records = open(store).await?;
    written(&*records, "removed", None).await;
    let first = written(&*records, "kept", None).await;
    records.remove(KIND, &key("removed")).await.unwrap();
    let last = written(&*records, "kept", Some(first.version)).await;
    let reopened = store.reopen().await?.records.expect("the store keeps records");
    let found = reopened.read(KIND, &key("kept")).await.unwrap().expect("a record that was written is gone");
    assert_eq!(found.version, last.version, "a confirmed write is missing after an abrupt end");
    assert_eq!(reopened.read(KIND, &key("removed")).await.unwrap(), None, "a record that was removed is back");
    Ok(())
}

/// What another handle wrote or removed counts from then on, whatever this one has read before.
pub async fn read_returns_what_is_stored(store: &dyn Stores) -> Can {
    let [one, two] = [open(store).await?, open(store).await?];
    for _ in 0..3 {
        assert_eq!(two.read(KIND, &key("shared")).await.unwrap(), None);
        let mut record = written(&*one, "shared", None).await;
        assert_same(&soon(store, &*two, "shared", &record).await, &record);
        for (writer, reader) in [(&one, &two), (&two, &one), (&one, &two)] {
            record = written(&**writer, "shared", Some(record.version)).await;
            assert_same(&reader.read(KIND, &key("shared")).await.unwrap().expect("the record"), &record);
        }
        two.remove(KIND, &key("shared")).await.unwrap();
        for records in [&one, &two] {
            assert_eq!(records.read(KIND, &key("shared")).await.unwrap(), None, "removed by another handle");
        }
    }
    Ok(())
}

/// Records of one key in several kinds are written, listed and removed each for itself.
pub async fn kinds_are_apart(store: &dyn Stores) -> Can {
    let records = open(store).await?;
    let mut versions = Vec::new();
    for (number, kind) in KINDS.into_iter().enumerate() {
        versions.push(records.write(kind, new("same", &format!("{number}"), None), None).await.unwrap());
    }
    assert_conflict(records.write(KINDS[0], new("same", "9", None), Some(versions[1])).await);
    for (number, kind) in KINDS.into_iter().enumerate() {
        let record = records.read(kind, &key("same")).await.unwrap().expect("the record");
        assert_eq!((record.document, record.version), (format!("{number}"), versions[number]));
        assert_eq!(all(&*records, kind).await.len(), 1);
    }
    records.remove(KINDS[1], &key("same")).await.unwrap();
    for (kind, kept) in KINDS.into_iter().map(|kind| (kind, usize::from(kind != KINDS[1]))) {
        assert_eq!(all(&*records, kind).await.len(), kept);
    }
    Ok(())
}

/// A write is made on the version that is stored, or on none, and by one of several writers.
pub async fn write_is_compare_and_swap(store: &dyn Stores) -> Can {
    let records = open(store).await?;
    assert_conflict(records.write(KIND, new("swap", "0", None), Some(Version(1))).await);
    assert_eq!(records.read(KIND, &key("swap")).await.unwrap(), None, "nothing was written");
    let first = records.write(KIND, new("swap", "1", None), None).await.unwrap();
    let foreign = records.write(KIND, new("other", "1", None), None).await.unwrap();
    assert_conflict(records.write(KIND, new("swap", "2", None), None).await);
    for wrong in [Version(0), foreign, Version(first.0 + 1_000_000_007), Version(i64::MAX as u64), Version(u64::MAX)] {
        assert_conflict(records.write(KIND, new("swap", "2", None), Some(wrong)).await);
    }
    assert_eq!(records.read(KIND, &key("swap")).await.unwrap().map(|record| record.document), Some("1".to_owned()));
    let second = records.write(KIND, new("swap", "2", None), Some(first)).await.unwrap();
    assert_conflict(records.write(KIND, new("swap", "3", None), Some(first)).await);
    let again = records.write(KIND, new("swap", "2", None), Some(second)).await.unwrap();
    assert!(first != second && second != again, "each write makes another version");
    assert_conflict(records.write(KIND, new("swap", "2", None), Some(second)).await);

    let mut writers = Vec::new();
    for _ in 0..WRITERS {
        writers.push(open(store).await?);
    }
    for race in 0..RACES {
        // Now and then all of them write what is stored already, or there is nothing.
        if race % 4 == 0 {
            records.remove(KIND, &key("swap")).await.unwrap();
        }
        let stored = records.read(KIND, &key("swap")).await.unwrap();
        let version = stored.as_ref().map(|record| record.version);
        let text = |writer: usize| match &stored {
            Some(record) if race % 3 == 0 => record.document.clone(),
            _ => format!("[{race}, {writer}]"),
        };
        let writes = writers.iter().enumerate().map(|(writer, records)| {
            let record = new("swap", &text(writer), None);
            async { records.write(KIND, record, version).await }
        });
        let outcomes = join_all(writes).await;
        let winners: Vec<usize> = (0..WRITERS).filter(|writer| outcomes[*writer].is_ok()).collect();
        assert_eq!(winners.len(), 1, "race {race}: one of the writers succeeds: {outcomes:?}");
        let is_lost = |outcome: &Result<Version>| !matches!(outcome, Ok(_) | Err(Error::Conflict(Entity::Version)));
        assert!(!outcomes.iter().any(is_lost), "race {race}: {outcomes:?}");
        let record = records.read(KIND, &key("swap")).await.unwrap().expect("the winner's record");
        assert_eq!((&record.document, record.version), (&text(winners[0]), *outcomes[winners[0]].as_ref().unwrap()));
    }
    Ok(())
}

/// The next write of a record keeps the time of the first one, and lasts for its own time.
pub async fn write_keeps_created_at(store: &dyn Stores) -> Can {
    let records = open(store).await?;
    let first = written(&*records, "kept", None).await;
    assert_eq!(first.expires_at, None);
    pass(store, Duration::from_millis(20)).await;
    let mut version = first.version;
    for ttl in [Some(HOUR), Some(2 * HOUR), None, Some(HOUR)] {
        version = records.write(KIND, new("kept", "1", ttl), Some(version)).await.unwrap();
        let record = records.read(KIND, &key("kept")).await.unwrap().expect("the record");
        assert_eq!(record.created_at, first.created_at);
        let (first, last) = (ttl.map(|ttl| first.now.after(ttl)), ttl.map(|ttl| record.now.after(ttl)));
        assert!(first <= record.expires_at && record.expires_at <= last, "{record:?}");
    }
    Ok(())
}

/// A removed record is gone for every handle; removing it again is no error.
pub async fn remove_forgets(store: &dyn Stores) -> Can {
    let [one, two] = [open(store).await?, open(store).await?];
    one.remove(KIND, &key("unknown")).await.unwrap();
    let removed = written(&*one, "removed", None).await;
    written(&*one, "kept", None).await;
    two.remove(KIND, &key("removed")).await.unwrap();
    two.remove(KIND, &key("removed")).await.unwrap();
    assert_conflict(one.write(KIND, new("removed", "1", None), Some(removed.version)).await);
    for records in [&one, &two] {
        assert_eq!(records.read(KIND, &key("removed")).await.unwrap(), None);
        assert_eq!(keys(&all(&**records, KIND).await), ["kept"]);
    }
    written(&*one, "removed", None).await;
    assert_eq!(all(&*two, KIND).await.len(), 2);
    Ok(())
}

/// A record that is written anew after its removal has another version than any before.
pub async fn versions_are_not_reused(store: &dyn Stores) -> Can {
    let mut versions = BTreeSet::new();
    for _ in 0..5 {
        // A store that counts in memory would begin anew.
        let records = open(store).await?;
        let mut record = written(&*records, "again", None).await;
        assert!(versions.insert(record.version), "version {:?} was used before: {versions:?}", record.version);
        for old in versions.iter().filter(|old| **old != record.version) {
            assert_conflict(records.write(KIND, new("again", "1", None), Some(*old)).await);
        }
        record = written(&*records, "again", Some(record.version)).await;
        assert!(versions.insert(record.version), "version {:?} was used before: {versions:?}", record.version);
        records.remove(KIND, &key("again")).await.unwrap();
    }
    Ok(())
}

/// A record whose time is over is none, and its key is free.
pub async fn expired_is_gone(store: &dyn Stores) -> Can {
    let [one, two] = [open(store).await?, open(store).await?];
    // A clock that cannot be moved is waited for, long enough that a slow machine reads the record in time.
    let ttl = if store.advance(Duration::ZERO).await.is_ok() { HOUR } else { Duration::from_secs(3) };
    written(&*one, "stays", None).await;
    let version = one.write(KIND, new("ends", "1", Some(ttl)), None).await.unwrap();
    let record = one.read(KIND, &key("ends")).await.unwrap().expect("its time is not over");
    assert_eq!(all(&*two, KIND).await.len(), 2);
    // This one's time is extended before it is over.
    let longer = one.write(KIND, new("renewed", "1", Some(ttl)), None).await.unwrap();
    one.write(KIND, new("renewed", "2", Some(2 * ttl + HOUR)), Some(longer)).await.unwrap();

    pass(store, ttl).await;
    for records in [&one, &two] {
        assert_eq!(records.read(KIND, &key("ends")).await.unwrap(), None);
        let listed = all(&**records, KIND).await;
        assert_eq!(keys(&listed).into_iter().collect::<BTreeSet<_>>(), BTreeSet::from(["renewed", "stays"]));
    }
    assert_eq!(two.list(KIND, None, 1).await.unwrap().len(), 1, "it takes no place of a page");
    assert_conflict(two.write(KIND, new("ends", "2", None), Some(version)).await);
    let again = two.write(KIND, new("ends", "3", None), None).await.unwrap();
    let renewed = two.read(KIND, &key("ends")).await.unwrap().expect("it was written anew");
    assert_eq!((renewed.version, renewed.expires_at), (again, None));
    assert!(renewed.created_at >= record.expires_at.expect("it had a ttl"), "this is another record: {renewed:?}");
    assert_conflict(two.write(KIND, new("ends", "4", None), Some(version)).await);
    // One without any time at all is written, and gone.
    one.write(KIND, new("instant", "1", Some(Duration::ZERO)), None).await.unwrap();
    assert_eq!(one.read(KIND, &key("instant")).await.unwrap(), None);
    one.write(KIND, new("instant", "1", None), None).await.unwrap();
    Ok(())
}

/// Pages hold the newest records first, and each record that stays once, while others come, change and go.
pub async fn list_is_newest_first(store: &dyn Stores) -> Can {
    let [one, two] = [open(store).await?, open(store).await?];
    assert_eq!(one.list(KIND, None, 10).await.unwrap(), []);
    let mut places = Vec::new();
    for number in 0..12 {
        // Names in another order than times, of which some may be the same.
        places.push(written(&*one, &format!("r{}", number * 7 % 12), None).await.place());
        if number % 3 == 0 {
            pass(store, Duration::from_millis(2)).await;
        }
    }
    places.sort_unstable();
    places.reverse();
    let listed: Vec<RecordPlace> = all(&*two, KIND).await.iter().map(Record::place).collect();
    assert_eq!(listed, places);
    assert_eq!(two.list(KIND, None, 0).await.unwrap(), []);
    for record in two.list(KIND, None, 100).await.unwrap() {
        assert_same(&record, &one.read(KIND, &record.key).await.unwrap().expect("a record"));
    }

    let (mut seen, mut after): (Vec<RecordPlace>, _) = (Vec::new(), None);
    loop {
        let page = two.list(KIND, after, 3).await.unwrap();
        assert!(page.len() <= 3);
        seen.extend(page.iter().map(Record::place));
        let Some(last) = page.last() else { break };
        after = Some(last.place());
        if seen.len() == 6 {
            // One on each side of here is rewritten, and one on each side goes.
            for place in [&places[1], &places[8]] {
                let stored = one.read(KIND, &place.key).await.unwrap().expect("the record");
                one.write(KIND, new(place.key.as_str(), "\"again\"", None), Some(stored.version)).await.unwrap();
            }
            for place in [&places[4], &places[9]] {
                one.remove(KIND, &place.key).await.unwrap();
            }
        }
        written(&*one, &format!("new{}", seen.len()), None).await;
    }
    let old: Vec<&RecordPlace> = seen.iter().filter(|place| places.contains(place)).collect();
    let expected: Vec<&RecordPlace> = places.iter().filter(|place| **place != places[9]).collect();
    assert_eq!(old, expected);
    Ok(())
}

/// The oldest records of one kind go, whatever was written after them in their place.
pub async fn remove_oldest_keeps_the_newest(store: &dyn Stores) -> Can {
    let records = open(store).await?;
    assert_eq!(records.remove_oldest(KIND, 0).await.unwrap(), 0, "there is none");
    let mut places = Vec::new();
    for number in 0..7 {
        places.push(written(&*records, &format!("r{}", number * 3 % 7), None).await.place());
        pass(store, Duration::from_millis(2)).await;
    }
    let oldest = records.read(KIND, &places[0].key).await.unwrap().expect("the record");
    written(&*records, oldest.key.as_str(), Some(oldest.version)).await;
    records.write(RecordKind::Audit, new("r0", "1", None), None).await.unwrap();
    records.write(KIND, new("gone", "1", Some(Duration::ZERO)), None).await.unwrap();
    assert_eq!(records.remove_oldest(KIND, 9).await.unwrap(), 0);
    assert_eq!(records.remove_oldest(KIND, 3).await.unwrap(), 4);
    places.reverse();
    let left: Vec<RecordPlace> = all(&*records, KIND).await.iter().map(Record::place).collect();
    assert_eq!(left, places[..3]);
    assert_eq!(records.remove_oldest(KIND, 3).await.unwrap(), 0);
    assert_eq!(records.remove_oldest(KIND, 0).await.unwrap(), 3);
    assert_eq!(records.list(RecordKind::Audit, None, 9).await.unwrap().len(), 1, "another kind");
    Ok(())
}

/// A handle on the store's records.
async fn open(store: &dyn Stores) -> Can<Arc<dyn RecordStore>> {
    store.open().await.records.ok_or(Lack::NotApplicable("the store keeps no records"))
}

fn key(text: &str) -> RecordKey {
    text.parse().unwrap()
}

fn new(name: &str, document: &str, ttl: Option<Duration>) -> NewRecord {
    NewRecord { key: key(name), document: document.to_owned(), ttl }
}

/// A JSON document of this many bytes.
fn sized(bytes: usize) -> String {
    format!("\"{}\"", "x".repeat(bytes - 2))
}

/// Writes a record without an end, and reads it.
async fn written(records: &dyn RecordStore, name: &str, version: Option<Version>) -> Record {
    let written = records.write(KIND, new(name, &format!("\"{name}\""), None), version).await.unwrap();
    let record = records.read(KIND, &key(name)).await.unwrap().expect("the record that was written");
    assert_eq!(record.version, written);
    record
}

/// Reads a record until the handle finds it: it may answer from memory for a moment that there is none.
async fn soon(store: &dyn Stores, records: &dyn RecordStore, name: &str, expected: &Record) -> Record {
    for _ in 0..SOON {
        match records.read(KIND, &key(name)).await.unwrap() {
            None => store.pause(Duration::from_millis(20)).await,
            Some(found) => return found,
        }
    }
    panic!("not found by another handle: {expected:?}");
}

/// Reads all records of a kind, in pages of different sizes.
async fn all(records: &dyn RecordStore, kind: RecordKind) -> Vec<Record> {
    let mut listed: Vec<Record> = Vec::new();
    loop {
        let page = records.list(kind, listed.last().map(Record::place), listed.len() + 2).await.unwrap();
        if page.is_empty() {
            return listed;
        }
        listed.extend(page);
    }
}

fn keys(records: &[Record]) -> Vec<&str> {
    records.iter().map(|record| record.key.as_str()).collect()
}

/// Lets time pass by the store's clock.
async fn pass(store: &dyn Stores, time: Duration) {
    if store.advance(time).await.is_err() {
        store.pause(time).await;
    }
}

/// Both are one record as it was written, read at different times.
#[track_caller]
fn assert_same(one: &Record, other: &Record) {
    assert_eq!(Record { now: other.now, ..one.clone() }, *other);
}

#[track_caller]
fn assert_conflict(outcome: Result<Version>) {
    assert!(matches!(outcome, Err(Error::Conflict(Entity::Version))), "not Conflict(Version), but {outcome:?}");
}
