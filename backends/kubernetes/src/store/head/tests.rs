use std::collections::BTreeMap;

use rollhook_conformance::samples;
use rollhook_core::deploy::{AdmissionId, Outage, Reason};

use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

fn entry(number: u64, time: i64) -> Accepted {
    let draft = samples::draft(&format!("v{number}"));
    let deploy = draft.entry(AdmissionId(number.into()), samples::revision(number), at(time));
    Accepted { deploy, supersede: false, hold: None }
}

fn rollback(number: u64, time: i64) -> Accepted {
    let draft = samples::rollback("v1", Revision::FIRST);
    let deploy = draft.entry(AdmissionId(number.into()), samples::revision(number), at(time));
    Accepted { deploy, supersede: true, hold: Some(samples::hold("bad")) }
}

fn folded(entries: &[Accepted]) -> Head {
    let mut head = Head::default();
    for entry in entries {
        head.fold(entry, at(0));
    }
    head
}

fn rolling() -> State {
    State::RollingOut { since: at(1), outage: Outage::default() }
}

fn failed() -> State {
    State::Failed { reason: Reason::new(Reason::DEADLINE), message: "it took too long".to_owned(), evidence: None }
}

fn record(changes: Vec<Deploy>) -> Record {
    Record { app: samples::app("shop", "test", "api").uid, claim: None, changes, lift: Vec::new(), rest: false }
}

fn known(entries: &[Accepted]) -> BTreeMap<Revision, Deploy> {
    entries.iter().map(|entry| (entry.deploy.revision, entry.deploy.clone())).collect()
}

fn numbers<'a>(entries: impl IntoIterator<Item = &'a Revision>) -> Vec<u64> {
    entries.into_iter().map(|revision| revision.get()).collect()
}

#[test]
fn what_is_folded_is_queued_work_since_the_first() {
    let head = folded(&[entry(1, 5), entry(2, 3)]);
    assert_eq!(numbers(head.open.keys()), [1, 2]);
    assert_eq!((head.folded, head.work_since, head.last_time), (2, Some(at(5)), at(5)));
    assert_eq!(entry(1, 5).with(&head.open[&Revision::FIRST]), entry(1, 5).deploy);
}

#[test]
fn one_that_supersedes_ends_all_below_and_counts_its_hold() {
    let mut head = folded(&[entry(1, 1), entry(2, 2)]);
    head.record(&record(vec![entry(1, 1).deploy.moved(failed())]), &known(&[entry(1, 1)]), at(7)).unwrap();
    assert_eq!(numbers(&head.fold(&rollback(3, 9), at(4))), [2]);
    assert_eq!((numbers(head.open.keys()), numbers(head.pending.keys())), (vec![3], vec![1, 2]));
    let end = &head.pending[&samples::revision(2)];
    assert_eq!(end.state, State::Superseded { by: samples::revision(3), rollback: true });
    assert_eq!((end.step, end.updated_at), (1, at(9)), "not before what ended it was accepted");
    assert_eq!((head.guard, head.holds.len(), head.holds[0].by), (1, 1, samples::revision(3)));
    for number in 4..120 {
        head.fold(&rollback(number, 10), at(10));
    }
    assert_eq!((head.holds.len(), head.holds[0].by.get()), (HOLDS_MAX, 20), "the oldest go first");
}

#[test]
fn a_record_is_made_whole_or_not_at_all() {
    let entries = [entry(1, 1), entry(2, 2)];
    let head = folded(&entries);
    let [one, two] = entries.clone().map(|entry| entry.deploy);
    for changes in [
        vec![one.moved(rolling()), two.clone()],
        vec![one.moved(rolling()), two.moved(failed()).moved(failed())],
        vec![one.moved(rolling()), one.moved(rolling())],
        vec![one.moved(rolling()), entry(3, 3).deploy.moved(failed())],
    ] {
        let mut after = head.clone();
        let refused = after.record(&record(changes), &known(&entries), at(3));
        assert!(matches!(refused, Err(Error::Conflict("deploy"))));
        assert_eq!(after, head);
    }
    let mut after = head;
    after.record(&record(vec![one.moved(rolling()), two.moved(failed())]), &known(&entries), at(3)).unwrap();
    assert_eq!((numbers(after.open.keys()), numbers(after.pending.keys())), (vec![1], vec![2]));
    let again = after.record(&record(vec![two.moved(failed())]), &known(&entries), at(4));
    assert!(again.is_err(), "what has ended stays as it is");
}

#[test]
fn what_is_on_the_cluster_follows_touches_and_those_taken_back() {
    let entries = [entry(1, 1), entry(2, 2)];
    let mut head = folded(&entries);
    let touched = entries.clone().map(|entry| Deploy { touched: true, ..entry.deploy.moved(rolling()) });
    head.record(&record(touched.to_vec()), &known(&entries), at(3)).unwrap();
    assert_eq!(head.on_cluster(), Some(samples::revision(2)));
    let refused = Deploy { touched: false, ..touched[1].moved(failed()) };
    head.record(&record(vec![refused]), &known(&entries), at(4)).unwrap();
    assert_eq!(head.on_cluster(), Some(Revision::FIRST));
    let done = touched[0].moved(State::Succeeded { note: None });
    head.record(&record(vec![done]), &known(&entries), at(5)).unwrap();
    assert_eq!((head.on_cluster(), head.current), (Some(Revision::FIRST), Some(Revision::FIRST)));
}

#[test]
fn what_is_lost_gives_way_to_what_is_left() {
    let number = samples::revision;
    let mut head = Head { current: Some(number(5)), ended_on_cluster: Some(number(6)), ..Head::default() };
    head.lose(&[number(5)], Some(number(3)));
    assert_eq!((head.current, head.ended_on_cluster), (Some(number(3)), Some(number(6))));
    head.lose(&[number(6), number(3)], None);
    assert_eq!((head.current, head.ended_on_cluster), (None, None));
}

#[test]
fn there_is_no_rest_while_anything_is_unfinished() {
    let entries = [entry(1, 1)];
    let mut head = folded(&entries);
    let rest = |changes| Record { rest: true, ..record(changes) };
    head.record(&rest(Vec::new()), &known(&entries), at(2)).unwrap();
    assert_eq!(head.work_since, Some(at(1)));
    head.record(&rest(vec![entries[0].deploy.moved(failed())]), &known(&entries), at(3)).unwrap();
    assert_eq!(head.work_since, None);
    head.record(&record(Vec::new()), &known(&entries), at(4)).unwrap();
    assert_eq!(head.work_since, Some(at(4)), "a change without rest leaves something to look at");
}

#[test]
fn a_built_image_stands_beside_what_was_accepted() {
    let mut accepted = entry(1, 1);
    accepted.deploy.image = None;
    let mut head = folded(std::slice::from_ref(&accepted));
    let built = Deploy { image: Some(samples::image("built")), ..accepted.deploy.moved(rolling()) };
    head.record(&record(vec![built.clone()]), &known(&[accepted.clone()]), at(1)).unwrap();
    assert_eq!(accepted.with(&head.open[&Revision::FIRST]), Deploy { updated_at: at(1), ..built });
}

#[test]
fn a_status_is_read_as_it_was_written_with_what_a_newer_version_added() {
    let entries = [entry(1, 1), entry(2, 2)];
    let mut head = folded(&entries);
    let touched = Deploy { touched: true, digest: Some(samples::digest(1)), ..entries[0].deploy.moved(rolling()) };
    head.record(&record(vec![touched, entries[1].deploy.moved(failed())]), &known(&entries), at(3)).unwrap();
    head.fold(&rollback(3, 4), at(5));
    head.owner = Some(Owner { replica: "pod-1".to_owned(), incarnation: u64::MAX.to_string(), ..Owner::default() });
    head.extra.insert("newer".to_owned(), 1.into());
    if let Some(entry) = head.open.get_mut(&samples::revision(3)) {
        entry.extra.insert("newer".to_owned(), "too".into());
    }
    let stored = serde_json::to_string(&head.clone().into_status().unwrap()).unwrap();
    let status: AppStatus = serde_json::from_str(&stored).unwrap();
    assert_eq!(Head::of(status, String::new).unwrap(), head);
    let damaged: AppStatus = serde_json::from_str(&stored.replace("queued", "waiting")).unwrap();
    assert!(matches!(Head::of(damaged, String::new), Err(Error::Corrupt { .. })));
}
