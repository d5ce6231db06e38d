use rollhook_conformance::samples;
use rollhook_core::deploy::AdmissionId;

use super::*;
use crate::store::{codec, crd::AppStatus};

fn uid() -> AppUid {
    samples::app("shop", "test", "api").uid
}

fn app(version: u64, status: AppStatus) -> AppObject {
    let mut object = codec::app_object(&samples::app("shop", "test", "api")).unwrap();
    object.metadata.resource_version = Some(version.to_string());
    object.status = Some(status);
    object
}

fn entry(version: u64, revision: u64) -> DeployObject {
    let accepted = samples::app("shop", "test", "api");
    let admission = samples::admission(&accepted, samples::draft("v1"));
    let deploy = admission.draft.clone().entry(AdmissionId(1), samples::revision(revision), accepted.created_at);
    let mut object = codec::deploy_object(&app(1, AppStatus::default()), &admission, &deploy).unwrap();
    object.metadata.resource_version = Some(version.to_string());
    object
}

fn mirror() -> Mirror {
    Mirror::new(StoreClock::system())
}

#[test]
fn an_older_copy_is_no_news() {
    let mirror = mirror();
    assert_eq!(mirror.note_app(app(5, AppStatus { folded: 2, ..AppStatus::default() })), Some(uid()));
    assert_eq!(mirror.note_app(app(4, AppStatus::default())), None);
    assert_eq!(mirror.note_app(app(5, AppStatus::default())), None);
    assert_eq!(mirror.app(uid()).unwrap().status.as_ref().unwrap().folded, 2);
    assert_eq!(mirror.note_entry(entry(7, 1)), Some(uid()));
    assert_eq!(mirror.note_entry(entry(6, 1)), None);
    assert!(!mirror.forget_app(uid(), 4), "nor is its end");
    assert!(mirror.forget_app(uid(), 8));
    assert_eq!((mirror.app(uid()), mirror.last(uid())), (None, 0), "its entries go with it");
}

#[test]
fn what_a_list_does_not_name_is_gone_unless_it_came_after() {
    let mirror = mirror();
    for (version, revision) in [(10, 1), (11, 2), (13, 3)] {
        mirror.note_entry(entry(version, revision));
    }
    let before = [((uid(), 1), 10), ((uid(), 2), 11)].into();
    mirror.settle_entries(&before, [mirror.reduced(entry(11, 2)).unwrap()].into());
    assert_eq!(mirror.entries(uid(), |(revision, _)| Some(*revision)), [3, 2]);
    mirror.note_app(app(5, AppStatus::default()));
    mirror.settle_apps(&[(uid(), 4)].into(), BTreeMap::new());
    assert!(mirror.app(uid()).is_some());
    mirror.settle_apps(&[(uid(), 5)].into(), BTreeMap::new());
    assert!(mirror.app(uid()).is_none());
}

#[test]
fn a_list_is_right_about_what_was_known_when_it_began_though_it_be_older() {
    let mirror = mirror();
    let folded = |folded| AppStatus { folded, ..AppStatus::default() };
    let stored = || mirror.app(uid()).unwrap().status.as_ref().unwrap().folded;
    mirror.note_app(app(50, folded(3)));
    for (version, revision) in [(40, 1), (41, 2), (49, 3)] {
        mirror.note_entry(entry(version, revision));
    }
    mirror.note_all_seen(uid(), 3);
    let (apps, entries) = (mirror.known_apps(), mirror.known_entries());
    mirror.note_app(app(51, folded(4)));
    mirror.settle_apps(&apps, [(uid(), app(50, folded(3)))].into());
    assert_eq!(stored(), 4, "what was seen since is newer");
    // The store is restored as it was at 20.
    let apps = mirror.known_apps();
    mirror.settle_apps(&apps, [(uid(), app(20, folded(1)))].into());
    mirror.settle_entries(&entries, [mirror.reduced(entry(18, 1)).unwrap()].into());
    assert_eq!((stored(), mirror.last(uid())), (1, 1));
    mirror.note_app(app(21, folded(2)));
    assert_eq!((stored(), mirror.note_entry(entry(22, 2))), (2, Some(uid())), "and goes on from there");
}

#[test]
fn a_key_is_kept_until_it_is_free() {
    let wall = Arc::<std::sync::atomic::AtomicI64>::default();
    let passed = wall.clone();
    let hours = move || passed.load(std::sync::atomic::Ordering::SeqCst);
    let elapsed = hours.clone();
    let mirror = Mirror::new(StoreClock::new(
        move || rollhook_core::time::Timestamp::from_millis(hours() * 3_600_000),
        move || Duration::from_secs(3600 * u64::try_from(elapsed()).unwrap()),
    ));
    let mut keyed = entry(5, 1);
    let expires_at = "1970-01-01T10:00:00.000Z".to_owned();
    keyed.spec.key = Some(KeyUse { expires_at, ..KeyUse::default() });
    let has_key = || mirror.entry(uid(), 1).unwrap().key.is_some();
    mirror.note_entry(keyed.clone());
    for (hour, kept) in [(9, true), (10, false)] {
        wall.store(hour, std::sync::atomic::Ordering::SeqCst);
        mirror.sweep_keys();
        assert_eq!(has_key(), kept, "{hour}");
    }
    keyed.metadata.resource_version = Some("6".to_owned());
    mirror.note_entry(keyed);
    assert!(!has_key());
}

#[test]
fn a_damaged_app_is_named_until_it_is_gone_or_mended() {
    let mirror = mirror();
    let mut damaged = app(1, AppStatus::default());
    damaged.spec.uid = "none".to_owned();
    let name = || ("shop-test".to_owned(), "api".to_owned());
    mirror.note_damaged(&damaged, true);
    assert_eq!((mirror.note_app(damaged.clone()), mirror.app_names()), (None, vec![name()]));
    mirror.note_damaged(&damaged, false);
    assert_eq!(mirror.app_names(), []);
    mirror.note_damaged(&damaged, true);
    mirror.note_app(app(2, AppStatus::default()));
    assert_eq!(mirror.app_names(), [name()]);
}

#[test]
fn a_list_leaves_a_lease_its_age() {
    let elapsed = Arc::<std::sync::atomic::AtomicU64>::default();
    let passed = elapsed.clone();
    let clock = StoreClock::new(
        || rollhook_core::time::Timestamp::from_millis(0),
        move || Duration::from_secs(passed.load(std::sync::atomic::Ordering::SeqCst)),
    );
    let mirror = Mirror::new(clock);
    let lease = |version: &str| {
        let mut lease = Lease::default();
        (lease.metadata.name, lease.metadata.resource_version) = (Some("a".to_owned()), Some(version.to_owned()));
        lease
    };
    mirror.note_lease(lease("10"));
    elapsed.store(7, std::sync::atomic::Ordering::SeqCst);
    mirror.settle_leases(&mirror.known_leases(), [("a".to_owned(), lease("10"))].into());
    assert_eq!(mirror.lease("a").unwrap().changed, Duration::ZERO);
    mirror.settle_leases(&mirror.known_leases(), [("a".to_owned(), lease("9"))].into());
    assert_eq!(mirror.lease("a").unwrap().changed, Duration::from_secs(7), "another world's");
    mirror.settle_leases(&mirror.known_leases(), BTreeMap::new());
    assert!(mirror.lease("a").is_none());
}

#[test]
fn a_store_that_went_back_is_listed_anew_once_in_a_while() {
    let mirror = mirror();
    mirror.note_app(app(50, AppStatus::default()));
    let told = mirror.went_back();
    for _ in 0..3 {
        mirror.note_went_back(uid());
        assert_eq!(mirror.note_app(app(20, AppStatus::default())), Some(uid()), "what is read now counts");
    }
    assert_eq!(*told.borrow(), 1);
}

#[test]
fn a_copy_is_not_seen() {
    let mirror = mirror();
    let elsewhere = |metadata| kube::api::ObjectMeta { namespace: Some("shop-prod".to_owned()), ..metadata };
    let copy = app(1, AppStatus::default());
    assert_eq!(mirror.note_app(AppObject { metadata: elsewhere(copy.metadata.clone()), ..copy }), None);
    let copy = entry(1, 1);
    assert_eq!(mirror.note_entry(DeployObject { metadata: elsewhere(copy.metadata.clone()), ..copy }), None);
}

#[test]
fn only_what_views_are_made_of_is_kept_whole() {
    let mirror = mirror();
    for revision in 1..=4 {
        mirror.note_entry(entry(revision, revision));
    }
    let whole = || mirror.entries(uid(), |(revision, known)| known.body.as_ref().map(|_| *revision));
    assert_eq!(whole(), [4, 3, 2, 1], "as long as the app is not known");
    mirror.note_app(app(5, AppStatus { folded: 3, current: Some(2), ..AppStatus::default() }));
    assert_eq!(whole(), [4, 2], "what is new, and what is current");
    mirror.note_entry(entry(6, 1));
    assert_eq!(whole(), [4, 2]);
    assert_eq!(mirror.entry(uid(), 3).unwrap().accepted_at, "1970-01-01T00:00:00.000Z");
}

#[test]
fn a_read_serves_one_decision_on_just_that_version() {
    let mirror = mirror();
    let read = app(5, AppStatus::default());
    mirror.note_app(read.clone());
    let now = mirror.clock.elapsed();
    assert!(!mirror.take_read(uid()));
    mirror.note_read(uid(), &read, now);
    assert!(mirror.take_read(uid()));
    assert!(!mirror.take_read(uid()), "a second one reads anew");
    mirror.note_read(uid(), &read, now);
    mirror.note_app(app(6, AppStatus::default()));
    assert!(!mirror.take_read(uid()), "something has changed since");
}
