//! Which archived deploys may go.

use super::*;
use crate::{
    deploy::Status,
    image::Digest,
    ledger::retention::{REPEATABLE_MAX, is_due, needed_digests, surplus, surplus_images},
    request::KeyHeader,
};

/// How many of the newest a policy keeps by default.
const KEEP: usize = 200;
/// When retention looks.
const LATER: Timestamp = Timestamp::from_millis(NOW.as_millis() + 8 * 24 * 3600 * 1000);

/// A deploy that has ended so, of an image of its own.
fn ended(number: u64, status: Status) -> Deploy {
    let queued = deploy(&format!("v{number}")).deploy.entry(AdmissionId(number.into()), revision(number), NOW);
    let ended = if status == Status::Succeeded { succeeded(&queued) } else { failed(&queued) };
    Deploy { touched: false, ..ended }
}

/// Deploys up to 1000, newest first, of which every hundredth succeeded.
fn archive() -> Vec<Deploy> {
    let status = |number: u64| if number.is_multiple_of(100) { Status::Succeeded } else { Status::Failed };
    (1..=1000).rev().map(|number| ended(number, status(number))).collect()
}

/// The same, all of which failed.
fn failures() -> Vec<Deploy> {
    (1..=1000).rev().map(|number| ended(number, Status::Failed)).collect()
}

fn at(number: u64) -> usize {
    usize::try_from(1000 - number).unwrap()
}

/// A state whose current deploy is the newest that succeeded, if any.
fn state(archived: &[Deploy]) -> AppState {
    let current = archived.iter().find(|deploy| deploy.status() == Status::Succeeded);
    let current = current.map(|deploy| Arc::new(deploy.clone()));
    AppState { latest: Some(revision(1000)), current, ..registered() }
}

/// The deploys that are kept, but for the newest.
fn kept(archived: &[Deploy], state: &AppState) -> Vec<u64> {
    let gone = surplus(state, archived, LATER);
    let left = archived.iter().map(|deploy| deploy.revision).filter(|revision| !gone.contains(revision));
    let left: Vec<u64> = left.map(Revision::get).collect();
    assert_eq!(left[..KEEP], (801..=1000).rev().collect::<Vec<_>>(), "the newest are kept");
    left[KEEP..].to_vec()
}

#[test]
fn newest_deploys_and_rollback_targets_are_kept() {
    let archived = archive();
    assert_eq!(kept(&archived, &state(&archived)), [800, 700, 600, 500, 400, 300, 200, 100]);
    let few = &archived[..KEEP];
    assert_eq!(surplus(&state(few), few, LATER), [], "there are no more than are kept");
    let more: Vec<Deploy> = (1..=2000).rev().map(|number| ended(number, Status::Succeeded)).collect();
    let mut five = state(&more);
    Arc::make_mut(&mut five.app).policy.keep = 5;
    let gone = surplus(&five, &more, LATER);
    assert_eq!(gone.len(), 1990, "ten versions can be returned to, the newest ones among them");
}

#[test]
fn rollback_keeps_the_versions_before_its_target() {
    let mut archived = archive();
    for deploy in archived.iter_mut().filter(|deploy| deploy.revision.get() > 300) {
        *deploy = ended(deploy.revision.get(), Status::Succeeded);
    }
    let rollback =
        |number: u64| Some(Arc::new(Deploy { effective: revision(300), ..ended(number, Status::Succeeded) }));
    let current = AppState { current: rollback(1000), ..state(&archived) };
    assert_eq!(kept(&archived, &current), [300, 200, 100]);
    let on_cluster = AppState { current: None, ended_on_cluster: rollback(1000), ..state(&archived) };
    assert_eq!(kept(&archived, &on_cluster), [300, 200, 100]);
    let mut unfinished = state(&archived);
    let rolling = deploy("v1").deploy.entry(AdmissionId(1), revision(1001), NOW);
    unfinished.unfinished.push(Arc::new(Deploy { effective: revision(300), ..rolling_out(&rolling) }));
    assert_eq!(kept(&archived, &unfinished), [300, 200, 100]);
    assert_eq!(kept(&archived, &state(&archived)), [0; 0]);
}

#[test]
fn rollback_targets_are_counted_by_images() {
    let mut archived = archive();
    for deploy in &mut archived {
        // Two images in turn, and one image ever since.
        let tag = match deploy.revision.get() {
            301.. => "new",
            even if even % 2 == 0 => "even",
            _ => "odd",
        };
        *deploy = Deploy { image: Some(image(tag)), ..ended(deploy.revision.get(), Status::Succeeded) };
    }
    assert_eq!(kept(&archived, &state(&archived)), [300, 299, 298, 297, 296, 295, 294, 293, 292]);
}

#[test]
fn deploys_that_something_depends_on_are_kept() {
    let mut archived = failures();
    archived[at(11)].kept_until = Some(LATER.after(Duration::from_millis(1)));
    archived[at(12)].kept_until = Some(LATER);
    let state = AppState {
        current: Some(Arc::new(ended(16, Status::Succeeded))),
        ended_on_cluster: Some(Arc::new(ended(17, Status::Failed))),
        last_restore: Some(revision(18)),
        ..state(&archived)
    };
    assert_eq!(kept(&archived, &state), [18, 17, 16, 11], "a key that has expired is no reason");
    let returned = Deploy { effective: revision(9), ..ended(16, Status::Succeeded) };
    let state = AppState { current: Some(Arc::new(returned)), ..state };
    assert_eq!(kept(&archived, &state), [18, 17, 16, 11, 9]);
    let ahead = AppState { updated_at: LATER.after(Duration::from_secs(86_400)), ..state };
    assert_eq!(
        kept(&archived, &ahead),
        [18, 17, 16, 11, 9],
        "a replica whose clock is ahead makes no key expire early"
    );
}

#[test]
fn keys_keep_a_bounded_number_of_deploys_and_the_newest_of_them() {
    let most = u64::try_from(KEEP + REPEATABLE_MAX).unwrap();
    let week = Some(NOW.after(KeyHeader::WebhookId.kept_for()));
    let of_keys = |number: u64| Deploy { kept_until: week, ..ended(number, Status::Failed) };
    let archived: Vec<Deploy> = (1..=most + 300).rev().map(of_keys).collect();
    let now = NOW.after(Duration::from_secs(3600));
    let state = AppState { latest: Some(revision(most + 300)), ..registered() };
    let gone: Vec<u64> = surplus(&state, &archived, now).into_iter().map(Revision::get).collect();
    assert_eq!(gone, (1..=300).rev().collect::<Vec<_>>(), "the oldest go");
    assert_eq!(surplus(&state, &archived[..KEEP + REPEATABLE_MAX], now), []);

    let mut some = archived;
    some[KEEP].kept_until = None;
    let gone: Vec<u64> = surplus(&state, &some, now).into_iter().map(Revision::get).collect();
    assert_eq!((gone.len(), gone[0]), (300, most + 100), "one without a key takes no other's place");
}

#[test]
fn retention_is_due_once_many_have_gathered() {
    let at = |latest: u64| AppState { latest: Revision::new(latest), ..registered() };
    for (latest, due) in [(0, false), (1, false), (250, false), (251, false), (252, true), (1000, true)] {
        assert_eq!(is_due(&at(latest)), due, "{latest}");
    }
    let mut change = Change::on(at(1000));
    change.forget(vec![revision(1), revision(2)], LATER);
    assert_eq!((&change.forgotten, change.state.kept_from), (&vec![revision(1), revision(2)], revision(800)));
    assert!(!change.is_empty() && !is_due(&change.state));
    for (latest, due) in [(1050, false), (1051, true)] {
        let state = AppState { latest: Some(revision(latest)), ..change.state.clone() };
        assert_eq!(is_due(&state), due, "{latest}: one look serves fifty deploys");
    }
}

/// The digest of the image of a deploy.
fn digest_of(number: u64) -> Digest {
    format!("sha256:{number:064x}").parse().unwrap()
}

/// Deploys up to a number, newest first, each of an image of its own, whose digest is known.
fn versions(number: u64) -> Vec<Deploy> {
    let of = |number| Deploy { digest: Some(digest_of(number)), ..ended(number, Status::Succeeded) };
    (1..=number).rev().map(of).collect()
}

fn surplus_of(state: &AppState, archived: &[Deploy], versions: usize) -> Vec<Digest> {
    let surplus = surplus_images(archived, &needed_digests(state, archived, versions));
    surplus.iter().map(|image| image.digest().unwrap().clone()).collect()
}

#[test]
fn images_of_the_newest_versions_are_needed() {
    let archived = versions(5);
    assert_eq!(surplus_of(&state(&archived), &archived, 3), [digest_of(2), digest_of(1)]);
    assert_eq!(surplus_of(&state(&archived), &archived, 5), []);
    let mut failures = archived.clone();
    let failed = |number| Deploy { digest: Some(digest_of(number)), ..ended(number, Status::Failed) };
    failures.splice(0..0, (6..=9).rev().map(failed));
    let surplus = surplus_of(&state(&failures), &failures, 3);
    assert_eq!(surplus, [9, 8, 7, 6, 2, 1].map(digest_of), "failed deploys push none out");
}

#[test]
fn images_that_run_are_needed_and_those_before_them() {
    let archived = versions(6);
    // A rollback to revision 2 runs, and a restore to revision 4 came before.
    let back = Deploy { effective: revision(2), digest: Some(digest_of(2)), ..archived[0].clone() };
    let state = AppState { current: Some(Arc::new(back)), last_restore: Some(revision(4)), ..state(&archived) };
    assert_eq!(surplus_of(&state, &archived, 1), [5, 3, 1].map(digest_of));
    assert_eq!(surplus_of(&state, &archived, 2), [digest_of(3)]);
}

#[test]
fn image_without_a_known_digest_is_never_surplus() {
    let archived: Vec<Deploy> = (1..=5).rev().map(|number| ended(number, Status::Failed)).collect();
    let archived: Vec<Deploy> = archived.into_iter().map(|deploy| Deploy { digest: None, ..deploy }).collect();
    assert_eq!(surplus_of(&state(&archived), &archived, 1), []);
}
