//! The records as the watch has shown them: their names, versions and ends.

use std::{
    sync::{Mutex, MutexGuard},
    time::Duration,
};

use kube::{api::ObjectMeta, core::PartialObjectMeta, runtime::watcher::Event};
use rollhook_core::{ports::Version, time::Timestamp};
use tokio::sync::watch;

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

/// The records that are known, by the names of their objects, with the ends of their times.
#[derive(Default)]
pub(crate) struct SeenRecords {
    records: Mutex<Table<String, Option<Timestamp>>>,
    listed: watch::Sender<bool>,
}

impl SeenRecords {
    /// Notes what the watch shows.
    pub(crate) fn event(&self, event: Event<PartialObjectMeta<RecordObject>>) {
        match event {
            Event::Init => self.lock().list_begins(),
            Event::InitApply(object) => self.note(&object.metadata, true),
            Event::Apply(object) => self.note(&object.metadata, false),
            Event::Delete(object) => {
                if let (Some(name), Ok(version)) = (&object.metadata.name, version(&object.metadata)) {
                    self.forget(name, version);
                }
            }
            Event::InitDone => {
                let mut records = self.lock();
                for name in records.not_listed() {
                    records.remove(&name);
                }
                drop(records);
                self.listed.send_replace(true);
            }
        }
    }

    /// Notes an object that was listed, read or written.
    pub(crate) fn note(&self, metadata: &ObjectMeta, listed: bool) {
        let (Some(name), Ok(version)) = (metadata.name.clone(), version(metadata)) else { return };
        let end = metadata.annotations.as_ref().and_then(|annotations| annotations.get(EXPIRY_ANNOTATION));
        let end = end.and_then(|end| end.parse().ok()).map(Timestamp::from_millis);
        self.lock().note(name, version, end, listed);
    }

    /// Forgets an object that was deleted in this version or an older one.
    pub(crate) fn forget(&self, name: &str, version: Version) {
        let (name, mut records) = (name.to_owned(), self.lock());
        if records.is_known_by(&name, version) {
            records.remove(&name);
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
        let records = self.lock();
        records.get(&name.to_owned()).is_some_and(|end| end.is_none_or(|end| now < end))
    }

    /// Returns the version in which an object is known.
    pub(crate) fn version(&self, metadata: &ObjectMeta) -> Option<Version> {
        self.lock().rows().get(metadata.name.as_ref()?).map(|row| row.version)
    }

    /// Returns at most this many objects that are to be deleted.
    pub(crate) fn expired(&self, now: Timestamp, most: usize) -> Vec<(String, Version)> {
        let records = self.lock();
        let is_due = |end: &Option<Timestamp>| end.is_some_and(|end| end.after(EXPIRED_FOR) <= now);
        let due = records.rows().iter().filter(|(_, row)| is_due(&row.value));
        due.map(|(name, row)| (name.clone(), row.version)).take(most).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Table<String, Option<Timestamp>>> {
        lock(&self.records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
