//! What a store reads back: an app in the first line, its entries in the others, as JSON. Each line is what it was, or
//! an error; and whatever can be read, nothing that decides on it or shows it panics.

#![no_main]

use std::{sync::Arc, time::Duration};

use libfuzzer_sys::fuzz_target;
use rollhook_api::Standing;
use rollhook_core::{
    Error,
    app::App,
    deploy::{Commit, Deploy, Outage, Revision, Status},
    engine::{
        CallError, Event, State,
        polling::{Detected, Head},
        step,
    },
    image::Digest,
    ledger::{AppState, Runs, check::check, restore, retention, rollback},
    ports::{Applied, BuildState, Observation, Phase, ReleaseState, RunKind},
    run::{Run, RunNumber, RunState},
    time::Timestamp,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The first moment that RFC 3339 cannot write, in milliseconds.
const YEAR_10000: i64 = 253_402_300_800_000;

fuzz_target!(|stored: &[u8]| {
    let mut lines = stored.split(|byte| *byte == b'\n');
    let app = read::<App>(lines.next().unwrap_or_default());
    // The count of an entry's changes does not come to its end.
    let entries = lines
        .filter_map(|line| read(line).ok().inspect(|deploy| is_what_is_stored(line, deploy)))
        .filter(|deploy| deploy.step < u32::MAX - 8);
    let mut history: Vec<Deploy> = entries.take(8).collect();
    history.sort_by_key(|deploy| deploy.revision);
    history.dedup_by_key(|deploy| deploy.revision);
    if let Ok(app) = app {
        uses(app, &history);
    }
});

fn read<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(text: &[u8]) -> Result<T, Error> {
    let value = serde_json::from_slice(text).map_err(|error| Error::corrupt("it cannot be read", error))?;
    let again = serde_json::to_vec(&value).expect("it can be written");
    assert_eq!(serde_json::from_slice::<T>(&again).expect("what was written can be read"), value);
    Ok(value)
}

fn is_what_is_stored(text: &[u8], deploy: &Deploy) {
    let Ok(stored) = serde_json::from_slice::<Value>(text) else { return };
    let number = |field: &str| stored[field].as_u64();
    let revisions = [deploy.revision.get(), deploy.effective.get(), deploy.step.into()].map(Some);
    assert_eq!([number("revision"), number("effective"), number("step")], revisions);
    assert_eq!(stored["state"]["status"].as_str(), Some(deploy.status().as_str()));
    assert_eq!([&stored["touched"], &stored["adopted"]], [deploy.touched, deploy.adopted]);
    let image = deploy.image.as_ref().map(ToString::to_string);
    let texts =
        [image.as_deref(), deploy.commit.as_ref().map(Commit::as_str), deploy.digest.as_ref().map(Digest::as_str)];
    assert_eq!([stored["image"].as_str(), stored["commit"].as_str(), stored["digest"].as_str()], texts);
}

fn uses(app: App, history: &[Deploy]) {
    let newest = |wanted: &dyn Fn(&Deploy) -> bool| history.iter().rev().find(|deploy| wanted(deploy));
    let view = AppState {
        latest: history.last().map(|deploy| deploy.revision),
        unfinished: history.iter().filter(|deploy| !deploy.is_terminal()).cloned().map(Arc::new).collect(),
        current: newest(&|deploy| deploy.status() == Status::Succeeded).cloned().map(Arc::new),
        ended_on_cluster: newest(&|deploy| {
            deploy.is_terminal() && (deploy.touched || deploy.status() == Status::Succeeded)
        })
        .filter(|deploy| deploy.status() != Status::Succeeded)
        .map(|deploy| Arc::new(deploy.without_evidence())),
        ended_off_cluster: history
            .last()
            .filter(|deploy| deploy.is_terminal() && !deploy.touched && deploy.status() != Status::Succeeded)
            .map(|deploy| Arc::new(deploy.without_evidence())),
        last_restore: newest(&Deploy::is_restore).map(|deploy| deploy.revision),
        release_runs: newest(&|deploy| deploy.status() == Status::Releasing)
            .map(|deploy| deploy.revision)
            .into_iter()
            .collect(),
        runs: history.last().filter(|deploy| !deploy.is_terminal()).map(run).unwrap_or_default(),
        updated_at: history.iter().map(|deploy| deploy.updated_at).max().unwrap_or_default(),
        ..AppState::new(app)
    };
    let stored = serde_json::to_vec(&view).expect("a state can be written");
    assert_eq!(read::<AppState>(&stored).expect("what was written can be read"), view);
    let _ = (check(history, &view), restore::owed(&view), rollback::default_target(&view));
    let _ = (retention::is_due(&view), retention::surplus(&view, history, view.updated_at));
    let standing = Standing::of(&view);
    for deploy in history {
        let _ = (deploy.pinned_image(), rollback::hold(&view, deploy));
        for other in history {
            assert_eq!(deploy.same_image(other), other.same_image(deploy));
        }
        let shown = serde_json::to_vec(&rollhook_api::Deploy::of(&view.app.id, deploy, &standing)).expect("an answer");
        if [deploy.created_at, deploy.updated_at].iter().all(|time| (0..YEAR_10000).contains(&time.as_millis())) {
            read::<rollhook_api::Deploy>(&shown).expect("our own clients read it");
        }
    }
    let shown = rollhook_api::App::of(&view, view.app.created_at);
    serde_json::to_vec(&shown).expect("an answer");
    drives(view);
}

/// An unfinished run by hand, of what a deploy holds.
fn run(deploy: &Deploy) -> Runs {
    let run = Run {
        number: RunNumber::FIRST,
        image: deploy.image.clone().unwrap_or_else(|| "a:b".parse().expect("an image")),
        command: vec!["true".to_owned()],
        actor: deploy.actor.clone(),
        deadline: Duration::from_secs(3600),
        created_at: deploy.created_at,
        updated_at: deploy.updated_at,
        step: deploy.step,
        key: None,
        cancelled: None,
        state: RunState::Preparing { outage: Outage::default() },
    };
    Runs { latest: Some(run.number), unfinished: Some(Arc::new(run)), ended: Vec::new() }
}

/// Every kind of event, at times near and far.
fn drives(view: AppState) {
    let seen = |phase| Observation::new(None, phase, "", "it is seen");
    let (release, by_hand) = (RunKind::Release(Revision::FIRST), RunKind::ByHand(RunNumber::FIRST));
    let events = [
        Event::Loaded(Box::new(view.clone())),
        Event::Recorded(Box::new(view.clone())),
        Event::Applied(Err(CallError::Unavailable)),
        Event::Recorded(Box::new(view.clone())),
        Event::Applied(Ok(Applied::Done)),
        Event::Recorded(Box::new(view.clone())),
        Event::Observed(Ok(seen(Phase::Progressing))),
        Event::Observed(Ok(seen(Phase::Complete { digest: None, note: None }))),
        Event::Woke,
        Event::Collected(None),
        Event::BuildFound(Ok(view.latest)),
        Event::BuildChanged,
        Event::BuildObserved(Ok(BuildState::Unknown)),
        Event::BuildCancelled(Ok(())),
        Event::BuildFound(Ok(None)),
        Event::ReleaseObserved(release, Ok(ReleaseState::Prepared)),
        Event::ReleaseStarted(release, Ok(())),
        Event::ReleaseObserved(release, Err(CallError::Unavailable)),
        Event::ReleaseCancelled(release, Ok(())),
        Event::ReleaseChanged,
        Event::ReleaseObserved(release, Ok(ReleaseState::Succeeded { digest: None })),
        Event::ReleaseObserved(release, Ok(ReleaseState::Unknown)),
        Event::ReleaseObserved(by_hand, Ok(ReleaseState::Prepared)),
        Event::ReleaseStarted(by_hand, Ok(())),
        Event::ReleaseObserved(by_hand, Err(CallError::Unavailable)),
        Event::ReleaseCancelled(by_hand, Ok(())),
        Event::ReleaseChanged,
        Event::ReleaseObserved(by_hand, Ok(ReleaseState::Succeeded { digest: None })),
        Event::ReleaseObserved(by_hand, Ok(ReleaseState::Unknown)),
        Event::HeadReadStarted,
        Event::HeadRead("0123456".parse().ok().map(Head::Commit), u64::MAX),
        Event::Detected(Detected::Postponed, u64::MAX),
        Event::Woke,
        Event::HeadReadStarted,
        Event::HeadRead(None, 0),
    ];

    let far = [view.updated_at, Timestamp::from_millis(i64::MIN), Timestamp::from_millis(i64::MAX)];
    for now in far {
        let mut state = State::new(view.clone(), now);
        for event in events.clone() {
            (state, _) = step(state, event, now);
        }
    }
}
