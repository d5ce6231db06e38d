//! The records as the watch has shown them: their names, versions and ends.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use kube::{api::ObjectMeta, core::PartialObjectMeta, runtime::watcher::Event};
use rollhook_core::{ports::Version, time::Timestamp};
use rollhook_management::ports::{RecordKey, RecordKind, RecordPlace};
use tokio::sync::watch;

use super::object;
use crate::{
    lock,
    store::{
        app_record::version,
        cache::Table,
        crd::{EXPIRY_ANNOTATION, RecordObject},
    },
};

/// How long an expired record is kept: no replica's clock is further behind.
const EXPIRED_FOR: Duration = Duration::from_secs(3600);

/// The records that are known.
#[derive(Default)]
pub(crate) struct SeenRecords {
    state: Mutex<State>,
    listed: watch::Sender<bool>,
}

/// The known records, by the names of their objects, and the order of each kind.
#[derive(Default)]
struct State {
    records: Table<String, SeenRecord>,
    places: BTreeMap<RecordKind, BTreeSet<RecordPlace>>,
}

/// A record as it was seen last.
struct SeenRecord {
    end: Option<Timestamp>,
    created_at: Timestamp,
    /// The kind of a record that has a place, and its key if the name of the object does not spell it.
    kind: Option<(RecordKind, Option<RecordKey>)>,
}

impl SeenRecord {
    fn of(metadata: &ObjectMeta) -> Self {
        let end = metadata.annotations.as_ref().and_then(|annotations| annotations.get(EXPIRY_ANNOTATION));
        let end = end.and_then(|end| end.parse().ok()).map(Timestamp::from_millis);
        let Some((kind, RecordPlace { created_at, key })) = object::place(metadata) else {
            return Self { end, created_at: Timestamp::default(), kind: None };
        };
        let is_spelled = metadata.name.as_deref().and_then(|name| spelled_key(kind, name)).as_ref() == Some(&key);
        Self { end, created_at, kind: Some((kind, (!is_spelled).then_some(key))) }
    }

    fn place(&self, name: &str) -> Option<(RecordKind, RecordPlace)> {
        let (kind, key) = self.kind.clone()?;
        let key = key.or_else(|| spelled_key(kind, name))?;
        Some((kind, RecordPlace { created_at: self.created_at, key }))
    }

    fn is_kept(&self, now: Timestamp) -> bool {
        self.end.is_none_or(|end| now < end)
    }
}

/// The key that the name of an object of this kind spells.
fn spelled_key(kind: RecordKind, name: &str) -> Option<RecordKey> {
    name.strip_prefix(kind.as_str())?.strip_prefix('.')?.parse().ok()
}

impl State {
    fn note(&mut self, name: String, version: Version, seen: SeenRecord, listed: bool) {
        let before = self.records.get(&name).and_then(|before| before.place(&name));
        let place = seen.place(&name);
        if !self.records.note(name, version, seen, listed) {
            return;
        }
        self.remove_place(before);
        if let Some((kind, place)) = place {
            self.places.entry(kind).or_default().insert(place);
        }
    }

    fn remove(&mut self, name: &String) {
        let place = self.records.remove(name).and_then(|seen| seen.place(name));
        self.remove_place(place);
    }

    fn remove_place(&mut self, place: Option<(RecordKind, RecordPlace)>) {
        if let Some((kind, place)) = place
            && let Some(of_kind) = self.places.get_mut(&kind)
        {
            of_kind.remove(&place);
        }
    }

    /// The records of a kind after this place whose time is not over, newest first.
    fn after(
        &self,
        kind: RecordKind,
        after: Option<&RecordPlace>,
        now: Timestamp,
    ) -> impl Iterator<Item = (&RecordPlace, String, Version)> {
        let before = after.map_or(Bound::Unbounded, |after| Bound::Excluded(after.clone()));
        let of_kind = self.places.get(&kind).into_iter();
        let places = of_kind.flat_map(move |places| places.range((Bound::Unbounded, before.clone())).rev());
        places.filter_map(move |place| {
            let name = object::name(kind, &place.key);
            let row = self.records.rows().get(&name).filter(|row| row.value.is_kept(now))?;
            Some((place, name, row.version))
        })
    }
}

impl SeenRecords {
    /// Notes what the watch shows.
    pub(crate) fn event(&self, event: Event<PartialObjectMeta<RecordObject>>) {
        match event {
            Event::Init => self.lock().records.list_begins(),
            Event::InitApply(object) => self.note(&object.metadata, true),
            Event::Apply(object) => self.note(&object.metadata, false),
            Event::Delete(object) => {
                if let (Some(name), Ok(version)) = (&object.metadata.name, version(&object.metadata)) {
                    self.forget(name, version);
                }
            }
            Event::InitDone => {
                let mut state = self.lock();
                for name in state.records.not_listed() {
                    state.remove(&name);
                }
                drop(state);
                self.listed.send_replace(true);
            }
        }
    }

    /// Notes an object that was listed, read or written.
    pub(crate) fn note(&self, metadata: &ObjectMeta, listed: bool) {
        let (Some(name), Ok(version)) = (metadata.name.clone(), version(metadata)) else { return };
        self.lock().note(name, version, SeenRecord::of(metadata), listed);
    }

    /// Forgets an object that was deleted in this version or an older one.
    pub(crate) fn forget(&self, name: &str, version: Version) {
        let (name, mut state) = (name.to_owned(), self.lock());
        if state.records.is_known_by(&name, version) {
            state.remove(&name);
        }
    }

    /// Returns whether the first list has been seen.
    pub(crate) fn is_listed(&self) -> bool {
        *self.listed.borrow()
    }

    /// Returns once the first list has been seen.
    pub(crate) async fn listed(&self) {
        // The sender is ours, so that it cannot be gone.
        let _ = self.listed.subscribe().wait_for(|listed| *listed).await;
    }

    /// Returns whether an object of this name is known whose time is not over.
    pub(crate) fn may_have(&self, name: &str, now: Timestamp) -> bool {
        self.lock().records.get(&name.to_owned()).is_some_and(|seen| seen.is_kept(now))
    }

    /// Returns the version in which an object is known.
    pub(crate) fn version(&self, metadata: &ObjectMeta) -> Option<Version> {
        self.lock().records.rows().get(metadata.name.as_ref()?).map(|row| row.version)
    }

    /// Returns at most this many objects that are to be deleted.
    pub(crate) fn expired(&self, now: Timestamp, most: usize) -> Vec<(String, Version)> {
        let state = self.lock();
        let is_due = |seen: &SeenRecord| seen.end.is_some_and(|end| end.after(EXPIRED_FOR) <= now);
        let due = state.records.rows().iter().filter(|(_, row)| is_due(&row.value));
        due.map(|(name, row)| (name.clone(), row.version)).take(most).collect()
    }

    /// Returns the places and names of at most this many records after this place, newest first.
    pub(crate) fn page(
        &self,
        kind: RecordKind,
        after: Option<&RecordPlace>,
        limit: usize,
        now: Timestamp,
    ) -> Vec<(RecordPlace, String)> {
        let state = self.lock();
        state.after(kind, after, now).map(|(place, name, _)| (place.clone(), name)).take(limit).collect()
    }

    /// Returns the objects of all but the newest `keep` records of a kind.
    pub(crate) fn oldest(&self, kind: RecordKind, keep: usize, now: Timestamp) -> Vec<(String, Version)> {
        let state = self.lock();
        state.after(kind, None, now).skip(keep).map(|(_, name, version)| (name, version)).collect()
    }

    /// Returns whether more than this many records of a kind are known.
    pub(crate) fn has_more_than(&self, kind: RecordKind, most: usize, now: Timestamp) -> bool {
        self.lock().after(kind, None, now).nth(most).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::crd::{CREATED_ANNOTATION, RECORD_LABEL};

    fn object(name: &str, version: u64, end: Option<i64>) -> PartialObjectMeta<RecordObject> {
        let annotations = end.map(|end| [(EXPIRY_ANNOTATION.to_owned(), end.to_string())].into());
        let (name, resource_version) = (Some(name.to_owned()), Some(version.to_string()));
        let metadata = ObjectMeta { name, resource_version, annotations, ..ObjectMeta::default() };
        PartialObjectMeta { metadata, ..PartialObjectMeta::default() }
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn list_tells_what_is_there_and_what_is_gone() {
        let seen = SeenRecords::default();
        assert!(!seen.is_listed());
        for event in [Event::Init, Event::InitApply(object("a", 1, None)), Event::InitApply(object("b", 2, Some(9)))] {
            seen.event(event);
        }
        seen.event(Event::InitDone);
        assert!(seen.is_listed() && seen.may_have("a", at(99)) && !seen.may_have("c", at(0)));
        assert!(seen.may_have("b", at(8)) && !seen.may_have("b", at(9)));
        // A write of this process during a list is not taken back by it.
        seen.event(Event::Init);
        seen.note(&object("own", 4, None).metadata, false);
        seen.event(Event::InitApply(object("b", 2, Some(9))));
        seen.event(Event::InitDone);
        assert!(!seen.may_have("a", at(0)) && seen.may_have("own", at(0)));
    }

    #[test]
    fn late_news_of_a_deletion_leaves_the_next_record() {
        let seen = SeenRecords::default();
        seen.note(&object("a", 5, None).metadata, false);
        seen.event(Event::Delete(object("a", 4, None)));
        assert!(seen.may_have("a", at(0)), "it was written anew since");
        seen.event(Event::Apply(object("a", 3, Some(1))));
        assert_eq!(seen.version(&object("a", 0, None).metadata), Some(Version(5)), "older news");
        seen.event(Event::Delete(object("a", 6, None)));
        assert!(!seen.may_have("a", at(0)));
    }

    #[test]
    fn expired_ones_are_due_an_hour_later_and_in_bounded_numbers() {
        let (seen, hour) = (SeenRecords::default(), 3_600_000);
        for number in 0..10 {
            seen.note(&object(&format!("r{number}"), number + 1, Some(i64::try_from(number).unwrap())).metadata, false);
        }
        seen.note(&object("kept", 20, None).metadata, false);
        assert_eq!(seen.expired(at(hour - 1), 5), []);
        assert_eq!(seen.expired(at(hour), 5), [("r0".to_owned(), Version(1))]);
        assert_eq!(seen.expired(at(2 * hour), 5).len(), 5);
    }

    fn record(key: &str, version: u64, created_at: i64, end: Option<i64>) -> PartialObjectMeta<RecordObject> {
        let mut object = object(&format!("audit.{key}"), version, end);
        object.metadata.labels = Some([(RECORD_LABEL.to_owned(), "audit".to_owned())].into());
        let annotations = object.metadata.annotations.get_or_insert_default();
        annotations.insert(CREATED_ANNOTATION.to_owned(), created_at.to_string());
        object
    }

    fn page(seen: &SeenRecords, after: Option<&RecordPlace>, limit: usize, now: i64) -> Vec<String> {
        let page = seen.page(RecordKind::Audit, after, limit, at(now));
        page.into_iter().map(|(place, _)| place.key.to_string()).collect()
    }

    #[test]
    fn order_of_a_kind_is_known_without_its_documents() {
        let seen = SeenRecords::default();
        for (key, created_at, end) in [("a", 1, None), ("c", 3, Some(90)), ("b", 3, None), ("d", 9, Some(50))] {
            seen.note(&record(key, 10, created_at, end).metadata, false);
        }
        seen.note(&object("session.z", 11, None).metadata, false);
        assert_eq!(page(&seen, None, 9, 0), ["d", "c", "b", "a"]);
        assert_eq!(page(&seen, None, 2, 60), ["c", "b"], "one has expired");
        let place = RecordPlace { created_at: at(3), key: "c".parse().unwrap() };
        assert_eq!(page(&seen, Some(&place), 9, 0), ["b", "a"]);
        assert!(seen.has_more_than(RecordKind::Audit, 3, at(0)) && !seen.has_more_than(RecordKind::Audit, 3, at(60)));
        let names = |keep| seen.oldest(RecordKind::Audit, keep, at(0)).into_iter().map(|(name, _)| name);
        assert_eq!(names(2).collect::<Vec<_>>(), ["audit.b", "audit.a"]);
        assert_eq!(names(4).count(), 0);
        assert_eq!(seen.oldest(RecordKind::Session, 0, at(0)), []);

        // One is written anew, one is rewritten, and one goes.
        seen.note(&record("a", 12, 20, None).metadata, false);
        seen.note(&record("b", 13, 3, Some(30)).metadata, false);
        seen.event(Event::Delete(record("c", 14, 3, None)));
        assert_eq!(page(&seen, None, 9, 0), ["a", "d", "b"]);
        for event in [Event::Init, Event::InitApply(record("d", 10, 9, None)), Event::InitDone] {
            seen.event(event);
        }
        assert_eq!(page(&seen, None, 9, 0), ["d"]);
    }
}
