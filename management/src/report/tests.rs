//! The measures of histories.

use std::time::Duration;

use proptest::prelude::*;
use rollhook_core::{deploy::Revision, time::Timestamp};

use super::measures::{DAY, End, Entry, Kind, Measures, measure, period};

const MINUTE: Duration = Duration::from_secs(60);

/// The begin of a day.
const BEGIN: Timestamp = Timestamp::from_millis(1_767_312_000_000);

fn at(minute: u32) -> Timestamp {
    BEGIN.after(MINUTE * minute)
}

/// An entry that was accepted in this minute, and ended in the next one.
fn entry(revision: u64, kind: Kind, end: End, minute: u32) -> Entry {
    let revision = Revision::new(revision).unwrap();
    Entry {
        revision,
        effective: revision,
        kind,
        end,
        touched: end != End::None,
        created_at: at(minute),
        ended_at: at(minute + 1),
        recovered_at: None,
        revoked_at: None,
        committed_at: None,
    }
}

fn good(revision: u64, minute: u32) -> Entry {
    entry(revision, Kind::Change, End::Succeeded, minute)
}

fn bad(revision: u64, minute: u32) -> Entry {
    entry(revision, Kind::Change, End::Failed, minute)
}

/// A return to a revision that succeeded.
fn returns(revision: u64, kind: Kind, to: u64, minute: u32) -> Entry {
    Entry { effective: Revision::new(to).unwrap(), ..entry(revision, kind, End::Succeeded, minute) }
}

fn of(entries: &[Entry]) -> Measures {
    measure(&[entries.to_vec()], BEGIN, at(600))
}

/// Deployments, failed ones, repairs and unrecovered failures.
fn counts(entries: &[Entry]) -> (usize, usize, usize, usize) {
    let Measures { deployments, failed, repairs, unrecovered, .. } = of(entries);
    (deployments, failed, repairs, unrecovered)
}

fn minutes(duration: Option<Duration>) -> Option<u64> {
    duration.map(|duration| duration.as_secs() / 60)
}

#[test]
fn deployment_that_failed_ends_with_the_restore() {
    let entries = [good(1, 0), bad(2, 10), returns(3, Kind::Restore, 1, 12)];
    assert_eq!(counts(&entries), (2, 1, 1, 0));
    let measures = of(&entries);
    assert_eq!(minutes(measures.recovery), Some(2), "from its end to the end of the restore");
    assert_eq!((measures.fail_rate, measures.rework_rate), (Some(0.5), Some(1.0 / 3.0)));
}

#[test]
fn deployment_that_a_person_rolled_back_from_failed() {
    let entries = [good(1, 0), good(2, 10), returns(3, Kind::Rollback, 1, 30)];
    assert_eq!(counts(&entries), (2, 1, 1, 0));
    assert_eq!(minutes(of(&entries).recovery), Some(20));
    let twice =
        [good(1, 0), good(2, 10), good(3, 20), returns(4, Kind::Rollback, 2, 30), returns(5, Kind::Rollback, 1, 40)];
    assert_eq!(counts(&twice), (3, 2, 2, 0));
    let forward = [good(1, 0), good(2, 10), returns(3, Kind::Rollback, 1, 20), returns(4, Kind::Rollback, 2, 30)];
    assert_eq!(counts(&forward), (2, 1, 2, 0), "a return to what is newer is no failure of what ran");
    let failed_rollback = Entry { end: End::Failed, ..returns(3, Kind::Rollback, 1, 30) };
    assert_eq!(counts(&[good(1, 0), good(2, 10), failed_rollback]), (2, 1, 1, 1));
    let redeployed = Entry { effective: Revision::new(2).unwrap(), ..entry(3, Kind::Other, End::Succeeded, 15) };
    let entries = [good(1, 0), good(2, 10), redeployed, returns(4, Kind::Rollback, 1, 30)];
    assert_eq!(counts(&entries), (2, 1, 1, 0), "what was redeployed is the same version");
}

#[test]
fn deployment_after_a_failure_that_lasts_is_a_repair() {
    let entries = [good(1, 0), bad(2, 10), good(3, 20)];
    assert_eq!(counts(&entries), (3, 1, 1, 0));
    assert_eq!(minutes(of(&entries).recovery), Some(10));
    let restored = [good(1, 0), bad(2, 10), returns(3, Kind::Restore, 1, 11), good(4, 20)];
    assert_eq!(counts(&restored), (3, 1, 1, 0), "after the restore, nothing is left to repair");
    let again = [good(1, 0), bad(2, 10), bad(3, 20), good(4, 30)];
    assert_eq!(counts(&again), (4, 2, 2, 0));
    assert_eq!(counts(&[good(1, 0), bad(2, 10)]), (2, 1, 0, 1));
}

#[test]
fn failure_that_healed_by_itself_has_ended() {
    let healed = Entry { recovered_at: Some(at(15)), ..bad(2, 10) };
    let entries = [good(1, 0), healed, good(3, 40)];
    assert_eq!(counts(&entries), (3, 1, 0, 0));
    assert_eq!(minutes(of(&entries).recovery), Some(4));
    let late = Entry { end: End::Failed, recovered_at: Some(at(25)), ..returns(3, Kind::Restore, 1, 12) };
    assert_eq!(minutes(of(&[good(1, 0), bad(2, 10), late]).recovery), Some(14));
}

#[test]
fn version_whose_verification_was_revoked_has_failed() {
    let revoked = Entry { revoked_at: Some(at(30)), ..good(2, 10) };
    let restored = [good(1, 0), revoked.clone(), returns(3, Kind::Restore, 1, 31)];
    assert_eq!(counts(&restored), (2, 1, 1, 0));
    assert_eq!(minutes(of(&restored).recovery), Some(21), "from its success to the restore");
    assert_eq!(counts(&[good(1, 0), revoked.clone()]), (2, 1, 0, 1), "nothing was restored");
    assert_eq!(counts(&[good(1, 0), revoked, good(3, 40)]), (3, 1, 1, 0));
}

#[test]
fn what_users_never_saw_or_what_is_no_change_does_not_count() {
    let untouched = Entry { touched: false, ..bad(2, 10) };
    let ended = |revision, touched| Entry { touched, ..entry(revision, Kind::Change, End::None, 20) };
    let other = entry(5, Kind::Other, End::Failed, 30);
    let none = Entry { touched: false, ..entry(6, Kind::Restore, End::Failed, 40) };
    assert_eq!(counts(&[good(1, 0), untouched, ended(3, false), ended(4, true), other, none]), (1, 0, 0, 0));
}

#[test]
fn lead_time_is_that_of_deployments_whose_commit_has_a_time() {
    let with = |entry: Entry, minutes: u64| Entry {
        committed_at: Some(entry.created_at.before(Duration::from_secs(60 * minutes))),
        ..entry
    };
    let ahead = Entry { committed_at: Some(at(31)), ..good(4, 30) };
    let entries = [with(good(1, 0), 9), with(good(2, 10), 29), with(bad(3, 20), 99), ahead, good(5, 40)];
    let measures = of(&entries);
    assert_eq!((measures.lead_times, minutes(measures.lead_time)), (2, Some(10)));
}

#[test]
fn entries_before_the_period_count_for_what_they_say_of_later_ones() {
    let entries = [bad(1, 0), good(2, 1_500)];
    let measures = measure(&[entries.to_vec()], at(1_440), at(1_600));
    assert_eq!((measures.deployments, measures.failed, measures.repairs), (1, 0, 1));
}

#[test]
fn entries_that_are_no_longer_kept_are_told() {
    assert_eq!(of(&[good(1, 5), good(2, 10)]).kept_since, None);
    assert_eq!(of(&[good(1, 5), good(4, 10)]).kept_since, Some(at(10)));
    assert_eq!(of(&[good(7, 5), good(8, 10)]).kept_since, Some(at(5)));
    let older = Entry { created_at: BEGIN.before(DAY), ..good(7, 0) };
    assert_eq!(of(&[older.clone(), good(8, 10)]).kept_since, None);
    let two = [vec![good(7, 5)], vec![good(9, 20)]];
    assert_eq!(measure(&two, BEGIN, at(600)).kept_since, Some(at(20)));
}

#[test]
fn period_is_today_and_the_days_before_it() {
    for until in [BEGIN, at(1), at(1_439)] {
        assert_eq!(period(until, 1), BEGIN);
        assert_eq!(period(until, 7), BEGIN.before(DAY * 6));
        let weeks = [(1..=14).map(|revision| good(revision, 0)).collect()];
        let per_day = measure(&weeks, period(until, 7), until).per_day;
        assert!((per_day - 2.0).abs() < 1e-9, "{per_day}");
    }
}

fn entries() -> impl Strategy<Value = Vec<Entry>> {
    let kind = prop::sample::select(vec![Kind::Change, Kind::Change, Kind::Rollback, Kind::Restore, Kind::Other]);
    let end = prop::sample::select(vec![End::Succeeded, End::Failed, End::None]);
    let one = (kind, end, any::<bool>(), 0..3u32, 0..3u32, prop::option::of(0..50u64), 1..9u64);
    prop::collection::vec(one, 0..40).prop_map(|drawn| {
        let (mut minute, mut revision) = (0, 0);
        let entry = |(kind, end, touched, later, lasts, before, gap): (_, _, bool, u32, u32, Option<u64>, u64)| {
            minute += later * 200;
            revision += if gap == 8 { 3 } else { 1 };
            let entry = entry(revision, kind, end, minute);
            let to = if matches!(kind, Kind::Rollback | Kind::Restore) {
                revision.saturating_sub(gap).max(1)
            } else {
                revision
            };
            Entry {
                effective: Revision::new(to).unwrap(),
                touched,
                ended_at: entry.created_at.after(MINUTE * lasts),
                recovered_at: before
                    .filter(|_| end == End::Failed)
                    .map(|minutes| entry.ended_at.after(Duration::from_secs(minutes))),
                committed_at: before.map(|minutes| entry.created_at.before(Duration::from_secs(minutes))),
                ..entry
            }
        };
        drawn.into_iter().map(entry).collect()
    })
}

proptest! {
    #[test]
    fn shares_are_shares_and_sums_agree(apps in prop::collection::vec(entries(), 0..4), since in 0..5_000u32) {
        let (since, until) = (at(since), at(30_000));
        let measures = measure(&apps, since, until);
        for rate in [measures.fail_rate, measures.rework_rate].into_iter().flatten() {
            prop_assert!((0.0..=1.0).contains(&rate));
        }
        prop_assert_eq!(measures.fail_rate.is_none(), measures.deployments == 0);
        prop_assert!(measures.failed <= measures.deployments && measures.unrecovered <= measures.failed);
        prop_assert!(measures.returns <= measures.repairs);
        prop_assert!(measures.lead_times <= measures.deployments - measures.unrecovered.min(measures.deployments) + measures.failed);
        prop_assert_eq!(measures.recovery.is_some(), measures.failed > measures.unrecovered);
        prop_assert_eq!(measures.days.values().map(|day| day.deployments).sum::<usize>(), measures.deployments);
        prop_assert_eq!(measures.days.values().map(|day| day.failed).sum::<usize>(), measures.failed);
        // The apps count one by one.
        let each = apps.iter().map(|app| measure(std::slice::from_ref(app), since, until).deployments);
        prop_assert_eq!(each.sum::<usize>(), measures.deployments);
    }

    #[test]
    fn older_entries_are_forgotten_without_a_change_of_the_later_counts(app in entries(), cut in 0..40usize) {
        let cut = cut.min(app.len());
        let Some(first) = app.get(cut) else { return Ok(()) };
        let count = |entries: &[Entry]| measure(&[entries.to_vec()], first.created_at.after(Duration::from_millis(1)), at(30_000));
        let (whole, part) = (count(&app), count(&app[cut..]));
        prop_assert_eq!((whole.deployments, whole.returns), (part.deployments, part.returns));
        prop_assert!(part.repairs <= whole.repairs, "what is not known makes no repair");
    }
}
