use std::sync::atomic::{AtomicU64, Ordering};

use rollhook_conformance::samples;
use rollhook_core::{
    ledger::{Change, Record},
    time::Timestamp,
};

use super::*;
use crate::store::{app_record::Kept, archive, crd::UID_LABEL};

fn cache() -> Cache {
    Cache::new(StoreClock::system())
}

fn uid() -> AppUid {
    samples::app("shop", "test", "api").uid
}

/// The `RollhookApp` in this version, with this many deploys, the first of which have ended and are archiving.
fn record(version: u64, latest: u64, archiving: u64) -> AppRecord {
    let mut change = Change::register(samples::app("shop", "test", "api"));
    for number in 1..=latest {
        let key = samples::key(&format!("run-{number}"), 1);
        let deploy = samples::admit(&mut change, samples::keyed(key, samples::deploy("v1")), Timestamp::default());
        let mut ended = Change::on(change.state.clone());
        if number <= archiving {
            let changes = vec![deploy.moved(samples::succeeded())];
            ended.record(Record { changes, ..Record::default() }, Timestamp::default()).unwrap();
            change.state = ended.state;
            change.ended.extend(ended.ended);
        }
    }
    let metadata = ObjectMeta {
        name: Some("api".to_owned()),
        namespace: Some("shop-test".to_owned()),
        resource_version: Some(version.to_string()),
        uid: Some("object".to_owned()),
        labels: Some([(UID_LABEL.to_owned(), uid().to_string())].into()),
        ..ObjectMeta::default()
    };
    let keys = change.keys.iter().map(|write| (write.made.revision, crate::store::app_record::StoredKey::of(write)));
    let kept = Kept { archiving: change.ended.clone(), keys: keys.collect(), lease_namespace: None };
    AppRecord::new(metadata.clone(), change.state, kept).written(metadata).unwrap()
}

fn app(version: u64, latest: u64) -> AppObject {
    record(version, latest, 0).object().unwrap()
}

/// The metadata of an `AppDeploy` in this version.
fn deploy(version: u64, revision: u64, is_ended: bool) -> ObjectMeta {
    let record = record(1, revision, if is_ended { revision } else { 0 });
    let deploy = record.deploys().last().unwrap();
    let mut metadata = archive::object_of(&record, deploy, ObjectMeta::default()).unwrap().metadata;
    metadata.resource_version = Some(version.to_string());
    metadata
}

fn shown(metadata: ObjectMeta) -> PartialObjectMeta<DeployObject> {
    PartialObjectMeta { metadata, ..PartialObjectMeta::default() }
}

fn list_apps(cache: &Cache, apps: Vec<AppObject>) {
    cache.app_event(Event::Init);
    for app in apps {
        cache.app_event(Event::InitApply(app));
    }
    assert_eq!(cache.app_event(Event::InitDone), Some(AppChange::Any));
}

fn list_deploys(cache: &Cache, deploys: Vec<ObjectMeta>) {
    cache.deploy_event(Event::Init);
    for deploy in deploys {
        cache.deploy_event(Event::InitApply(shown(deploy)));
    }
    cache.deploy_event(Event::InitDone);
}

fn latest(cache: &Cache) -> Option<u64> {
    cache.app(uid())?.state.latest.map(Revision::get)
}

fn archived(cache: &Cache, record: &AppRecord) -> Vec<u64> {
    cache.archived(record).into_iter().map(|(revision, _)| revision.get()).collect()
}

#[test]
fn older_copy_is_no_news() {
    let cache = cache();
    let hint = Some(AppChange::App(uid(), Version(5)));
    assert_eq!(cache.app_event(Event::Apply(app(5, 2))), hint);
    assert_eq!(cache.app_event(Event::Apply(app(4, 0))), None);
    assert_eq!(cache.app_event(Event::Apply(app(5, 0))), None);
    assert_eq!(latest(&cache), Some(2));
    cache.note_deploy(deploy(7, 1, true), false);
    cache.note_deploy(deploy(6, 1, false), false);
    assert_eq!(archived(&cache, &record(8, 1, 1)), [0; 0], "it is in the App");
    assert!(cache.shows(uid(), record(8, 1, 1).deploys().next().unwrap()));
    assert_eq!(cache.app_event(Event::Delete(app(4, 2))), None, "nor is an older end");
    let gone = Some(AppChange::App(uid(), Version::REMOVED));
    assert_eq!(cache.app_event(Event::Delete(app(8, 2))), gone);
    assert!(cache.app(uid()).is_none());
    assert!(!cache.shows(uid(), record(8, 1, 1).deploys().next().unwrap()), "its deploys go with it");
}

#[test]
fn object_that_a_list_does_not_show_is_gone_unless_it_was_noted_since() {
    let cache = cache();
    cache.app_event(Event::Apply(app(5, 3)));
    for (version, revision) in [(10, 1), (11, 2)] {
        cache.note_deploy(deploy(version, revision, true), false);
    }
    cache.deploy_event(Event::Init);
    cache.note_deploy(deploy(13, 3, true), false);
    cache.deploy_event(Event::InitApply(shown(deploy(11, 2, true))));
    cache.deploy_event(Event::InitDone);
    let none_open = AppRecord::new(ObjectMeta::default(), record(1, 3, 3).state, Kept::default());
    assert_eq!(archived(&cache, &none_open), [3, 2]);
    list_apps(&cache, vec![app(5, 3)]);
    assert_eq!(latest(&cache), Some(3));
    list_apps(&cache, Vec::new());
    assert_eq!(latest(&cache), None);
}

#[test]
fn list_is_right_about_what_was_known_when_it_began_also_if_it_is_older() {
    let cache = cache();
    cache.app_event(Event::Apply(app(50, 3)));
    cache.app_event(Event::Init);
    cache.app_event(Event::Apply(app(51, 4)));
    cache.app_event(Event::InitApply(app(50, 3)));
    cache.app_event(Event::InitDone);
    assert_eq!(latest(&cache), Some(4), "what was noted since is newer");
    list_apps(&cache, vec![app(20, 1)]);
    assert_eq!(latest(&cache), Some(1), "the cluster's store was restored");
    cache.app_event(Event::Apply(app(21, 2)));
    assert_eq!(latest(&cache), Some(2));
}

#[test]
fn revisions_that_were_not_seen_are_missing() {
    let cache = cache();
    let missing = |record: &AppRecord| -> Vec<u64> { cache.missing(record).into_iter().map(Revision::get).collect() };
    // 1 and 2 are archived, 3 is archiving, 4 is unfinished.
    let mut stored = record(5, 4, 3);
    stored.kept.archiving.drain(..2);
    cache.note_record(&Arc::new(stored.clone()));
    assert_eq!(missing(&stored), [1, 2]);
    cache.note_deploy(deploy(3, 2, true), false);
    assert_eq!(missing(&stored), [1]);
    cache.note_complete(&stored);
    assert_eq!(missing(&stored), [0; 0], "it is gone");
    let next = AppRecord::new(ObjectMeta::default(), record(6, 6, 6).state, Kept::default());
    assert_eq!(missing(&next), [3, 4, 5, 6]);
    for revision in [3, 6] {
        cache.note_deploy(deploy(10 + revision, revision, true), false);
    }
    assert_eq!(missing(&next), [4, 5]);
    list_deploys(&cache, vec![deploy(13, 3, true)]);
    assert_eq!(missing(&next), [4, 5, 6], "the list was complete for the app as it was known");
}

#[test]
fn evidence_is_kept_until_it_is_archived() {
    let cache = cache();
    let held =
        || cache.app(uid()).unwrap().kept.archiving.iter().map(|deploy| deploy.revision.get()).collect::<Vec<_>>();
    cache.note_record(&Arc::new(record(5, 3, 2)));
    assert_eq!(held(), [1, 2]);
    cache.note_deploy(deploy(6, 1, false), false);
    assert_eq!(held(), [1, 2], "its end is not told yet");
    cache.note_deploy(deploy(7, 1, true), false);
    assert_eq!(held(), [2]);
    cache.app_event(Event::Apply(record(8, 3, 2).object().unwrap()));
    assert_eq!(held(), [2]);
}

#[test]
fn key_is_remembered_until_long_after_it_has_expired() {
    let hours = Arc::<AtomicU64>::default();
    let passed = hours.clone();
    let now = move || Timestamp::from_millis(i64::try_from(passed.load(Ordering::SeqCst) * 3_600_000).unwrap());
    let cache = Cache::new(StoreClock::new(now, || Duration::ZERO));
    let key = samples::key("run-1", 1);
    let hash = crate::store::app_record::key_hash(key.header, &key.key);
    cache.note_record(&Arc::new(record(5, 1, 0)));
    for (hour, is_kept) in [(0, true), (24, true), (25, false)] {
        hours.store(hour, Ordering::SeqCst);
        cache.forget_deploy(uid(), Revision::FIRST);
        cache.note_deploy(deploy(7, 1, true), false);
        let used = cache.key_use(&record(5, 1, 0), hash);
        assert_eq!(used.map(|used| used.request), is_kept.then_some([1; 32]), "{hour}");
    }
    hours.store(0, Ordering::SeqCst);
    cache.note_deploy(deploy(8, 1, true), false);
    assert_eq!(cache.key_use(&record(5, 0, 0), hash), None, "the app as it was before");
}

#[test]
fn damaged_app_is_named_until_it_is_gone_or_mended() {
    let cache = cache();
    let page = AppPage::first(9);
    let mut damaged = app(2, 1);
    damaged.spec.0.insert("created_at".to_owned(), "at no time".into());
    cache.app_event(Event::Apply(app(1, 0)));
    cache.app_event(Event::Apply(damaged.clone()));
    let [Err(UnreadableApp { id, error: Error::Corrupt { .. } })] = &cache.list(&page)[..] else {
        panic!("it is not named")
    };
    assert_eq!(*id, *record(1, 0, 0).id());
    assert_eq!(cache.pick(|_| true).1, [uid()]);
    cache.app_event(Event::Apply(app(3, 0)));
    assert!(matches!(cache.list(&page)[..], [Ok(_)]));
    damaged.metadata.resource_version = Some("4".to_owned());
    cache.app_event(Event::Apply(damaged.clone()));
    cache.app_event(Event::Delete(damaged));
    assert!(cache.list(&page).is_empty());
}

#[test]
fn name_that_another_uid_has_taken_is_that_ones() {
    let cache = cache();
    cache.app_event(Event::Apply(app(5, 1)));
    cache.note_deploy(deploy(6, 1, true), false);
    let mut other = record(9, 0, 0);
    Arc::make_mut(&mut other.state.app).uid = AppUid::from_bits(7);
    cache.note_record(&Arc::new(other));
    assert!(cache.app(uid()).is_none() && cache.app(AppUid::from_bits(7)).is_some());
    assert_eq!(cache.app_event(Event::Apply(app(6, 1))), None, "a late event of the old one");
    assert_eq!(cache.app_event(Event::Delete(app(6, 1))), None);
    assert!(cache.app(AppUid::from_bits(7)).is_some());
}

#[test]
fn copies_are_not_seen() {
    let cache = cache();
    let in_another_namespace = |metadata| ObjectMeta { namespace: Some("shop-prod".to_owned()), ..metadata };
    let copy = app(1, 1);
    assert_eq!(
        cache.app_event(Event::Apply(AppObject { metadata: in_another_namespace(copy.metadata.clone()), ..copy })),
        None
    );
    cache.app_event(Event::Apply(app(5, 2)));
    cache.note_deploy(in_another_namespace(deploy(6, 1, true)), false);
    cache.note_deploy(ObjectMeta { name: Some("web-1".to_owned()), ..deploy(6, 1, true) }, false);
    let none_open = AppRecord::new(ObjectMeta::default(), record(1, 2, 2).state, Kept::default());
    assert_eq!(archived(&cache, &none_open), [0; 0]);
}

#[test]
fn store_that_went_back_is_listed_anew_once_in_a_while() {
    let cache = cache();
    cache.app_event(Event::Apply(app(50, 2)));
    let told = cache.relists();
    for _ in 0..3 {
        let read = Arc::new(record(20, 1, 0));
        cache.went_back(&read);
        cache.note_record(&read);
        assert_eq!(latest(&cache), Some(1), "what is read now counts");
    }
    assert_eq!(*told.borrow(), 1);
}

#[test]
fn end_that_contradicts_the_app_is_not_its_end() {
    let cache = cache();
    let ended = Arc::new(record(5, 1, 1));
    cache.note_record(&ended);
    let mut contradicting = deploy(6, 1, true);
    contradicting.labels.as_mut().unwrap().insert(crate::store::crd::STATUS_LABEL.to_owned(), "failed".to_owned());
    cache.note_deploy(contradicting, false);
    let end = ended.deploys().next().unwrap();
    assert!(!cache.shows(uid(), end), "it must be written anew");
    assert_eq!(cache.app(uid()).unwrap().kept.archiving, std::slice::from_ref(end), "and stays in the App until then");
    cache.note_deploy(deploy(7, 1, true), false);
    assert!(cache.shows(uid(), end));
    assert_eq!(cache.app(uid()).unwrap().kept.archiving, []);
}

/// Another `RollhookApp` in this version, created this many seconds after the epoch, that claims the uid of the app.
fn claimant(name: &str, version: u64, created_at: i64) -> AppObject {
    let mut record = record(version, 1, 0);
    let app = Arc::make_mut(&mut record.state.app);
    app.id = format!("other-test/{name}").parse().unwrap();
    let AppObject { metadata, spec, status } = record.object().unwrap();
    let (namespace, name) = (Some("other-test".to_owned()), Some(name.to_owned()));
    created(AppObject { metadata: ObjectMeta { namespace, name, ..metadata }, spec, status }, created_at)
}

fn created(mut object: AppObject, created_at: i64) -> AppObject {
    let time = serde_json::from_value(format!("1970-01-01T00:00:{created_at:02}Z").into()).unwrap();
    object.metadata.creation_timestamp = Some(time);
    object
}

fn holder(cache: &Cache) -> Option<String> {
    cache.holder(uid()).map(|id| id.to_string())
}

fn denied(cache: &Cache) -> Vec<String> {
    cache.take_denied().into_iter().map(|(object, _)| object.name.unwrap()).collect()
}

/// The names of the apps that are listed, and those of the objects that are no apps.
fn listed(cache: &Cache) -> (Vec<String>, Vec<String>) {
    let (apps, others): (Vec<_>, Vec<_>) = cache.list(&AppPage::first(9)).into_iter().partition(Result::is_ok);
    let apps = apps.into_iter().flatten().map(|state| state.app.id.to_string()).collect();
    (apps, others.into_iter().filter_map(Result::err).map(|unreadable| unreadable.id.to_string()).collect())
}

#[test]
fn uid_stays_with_the_object_that_held_it_first() {
    let cache = cache();
    list_apps(&cache, vec![created(app(5, 2), 9)]);
    cache.note_deploy(deploy(6, 1, true), false);
    // Older, and under a name that comes first.
    assert_eq!(cache.app_event(Event::Apply(claimant("a", 10, 1))), None);
    assert_eq!(denied(&cache), ["a"]);
    assert_eq!(holder(&cache).unwrap(), "shop-test/api");
    assert_eq!(latest(&cache), Some(2));
    assert_eq!(listed(&cache), (vec!["shop-test/api".to_owned()], vec!["other-test/a".to_owned()]));
    assert!(cache.named(&"other-test/a".parse().unwrap()).is_none());
    assert_eq!(cache.pick(|_| true).0.len(), 1);

    let read = Arc::new(AppRecord::read(claimant("a", 11, 1)).unwrap());
    assert!(cache.note_record(&read).unwrap().contains("the uid of shop-test/api"));
    assert_eq!(cache.app_event(Event::Delete(claimant("a", 12, 1))), None, "the app is not gone");
    assert_eq!(holder(&cache).unwrap(), "shop-test/api");
    assert!(cache.shows(uid(), record(8, 1, 1).deploys().next().unwrap()), "nor are its deploys");

    cache.app_event(Event::Init);
    cache.app_event(Event::InitApply(claimant("a", 13, 1)));
    cache.app_event(Event::InitApply(created(app(5, 2), 9)));
    cache.app_event(Event::InitDone);
    assert_eq!(holder(&cache).unwrap(), "shop-test/api", "it held it before the list");
    let gone = Some(AppChange::App(uid(), Version::REMOVED));
    assert_eq!(cache.app_event(Event::Delete(app(14, 2))), gone);
}

#[test]
fn first_list_gives_the_uid_to_the_older_object() {
    let cache = cache();
    cache.app_event(Event::Init);
    cache.app_event(Event::InitApply(claimant("a", 10, 9)));
    assert_eq!(holder(&cache), None, "an older one may follow");
    cache.app_event(Event::InitApply(created(app(5, 2), 3)));
    assert_eq!(denied(&cache), ["a"]);
    cache.app_event(Event::InitApply(claimant("z", 11, 3)));
    cache.app_event(Event::InitDone);
    assert_eq!(holder(&cache).unwrap(), "other-test/z", "of the same second, by name");
    assert_eq!(denied(&cache), ["api"]);
    assert_eq!(listed(&cache).0, ["other-test/z"]);
    assert_eq!(cache.app_event(Event::Apply(created(app(12, 2), 3))), None);
    assert_eq!(cache.app_event(Event::Delete(claimant("a", 13, 9))), None);
    assert_eq!(holder(&cache).unwrap(), "other-test/z");
}

#[test]
fn label_or_spec_alone_claims_no_uid() {
    let cache = cache();
    list_apps(&cache, vec![app(5, 2)]);
    let mut labelled = claimant("a", 10, 1);
    labelled.spec.0.retain(|field, _| field == "image");
    let mut relabelled = claimant("b", 11, 1);
    relabelled.spec.0.insert("uid".to_owned(), AppUid::from_bits(7).to_string().into());
    let mut unlabelled = claimant("c", 12, 1);
    unlabelled.metadata.labels = None;
    let mut copied = claimant("d", 13, 1);
    copied.spec.0.insert("id".to_owned(), serde_json::json!({"namespace": "shop-test", "name": "api"}));
    for object in [labelled, relabelled, unlabelled, copied] {
        for event in [Event::Apply(object.clone()), Event::Delete(object)] {
            assert_eq!(cache.app_event(event), None);
            assert_eq!(latest(&cache), Some(2));
        }
    }
    assert!(denied(&cache).is_empty());
    assert_eq!(holder(&cache).unwrap(), "shop-test/api");
}

#[test]
fn status_that_says_why_the_object_is_no_app_is_written_once() {
    let cache = cache();
    list_apps(&cache, vec![app(5, 2)]);
    let mut object = claimant("a", 10, 1);
    cache.app_event(Event::Apply(object.clone()));
    let (metadata, why) = cache.take_denied().remove(0);
    assert_eq!((metadata.uid, metadata.namespace), (object.metadata.uid.clone(), Some("other-test".to_owned())));
    object.metadata.resource_version = Some("11".to_owned());
    object.status.as_mut().unwrap().insert("message".to_owned(), why.into());
    cache.app_event(Event::Apply(object));
    assert!(denied(&cache).is_empty());
}

#[test]
fn object_that_takes_the_uid_of_another_app_loses_its_own() {
    let cache = cache();
    let mut own = claimant("web", 5, 1);
    let bits = AppUid::from_bits(7);
    own.spec.0.insert("uid".to_owned(), bits.to_string().into());
    own.metadata.labels = Some([(UID_LABEL.to_owned(), bits.to_string())].into());
    list_apps(&cache, vec![app(4, 2), own]);
    assert!(cache.app(bits).is_some());
    assert_eq!(cache.app_event(Event::Apply(claimant("web", 6, 1))), None);
    assert!(cache.app(bits).is_none() && latest(&cache) == Some(2));
    assert_eq!(denied(&cache), ["web"]);
}
