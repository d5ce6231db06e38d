use super::*;
use crate::{
    app::Policy,
    deploy::Outage,
    source::GitSource,
    tests::{NOW, git_source as source, git_state as app_state, revision},
};

/// The app_state with its first entry being built.
fn building(mut app_state: AppState) -> AppState {
    let BuildStep::Record(changes) = BuildQueue::Free.next_step(&app_state, NOW, NOW) else { panic!("nothing begins") };
    for change in changes {
        app_state.unfinished.retain(|deploy| deploy.revision != change.revision);
        app_state.unfinished.insert(0, std::sync::Arc::new(change));
    }
    app_state
}

/// The deploy whose image is recorded next.
#[track_caller]
fn built(queue: &BuildQueue, app_state: &AppState, now: Timestamp) -> Deploy {
    let BuildStep::Call(call) = queue.next_step(app_state, NOW, now) else { panic!("{queue:?}") };
    let Effect::RecordBuilt(deploy) = *call else { panic!("{call:?}") };
    *deploy
}

fn taken(number: u64) -> BuildQueue {
    BuildQueue::taken(revision(number), NOW)
}

#[test]
fn build_queue_of_an_image_app_is_always_free() {
    let mut app_state = app_state(&[1]);
    std::sync::Arc::make_mut(&mut app_state.app).source = Source::Image;
    assert_eq!(BuildQueue::default().next_step(&app_state, NOW, NOW), BuildStep::Idle);
    assert!(BuildQueue::default().is_free(&app_state));
}

#[test]
fn builder_is_asked_for_running_builds_until_it_answers() {
    let app_state = app_state(&[1]);
    let mut queue = BuildQueue::default();
    assert_eq!(queue.next_step(&app_state, NOW, NOW), BuildStep::call(Effect::FindBuild));
    assert_eq!(queue.found(&app_state, Err(CallError::Unavailable), NOW), None, "nothing is being built yet");
    assert!(matches!(queue.next_step(&app_state, NOW, NOW), BuildStep::At(at) if at > NOW));
    assert!(!queue.is_free(&app_state));
    assert_eq!(queue.found(&app_state, Ok(None), NOW), None);
    assert!(matches!(queue.next_step(&app_state, NOW, NOW), BuildStep::Record(_)), "the oldest begins");
}

#[test]
fn the_oldest_is_recorded_before_it_is_started() {
    let app_state = building(app_state(&[3, 4]));
    assert_eq!(app_state.unfinished[0].status(), Status::Building);
    let BuildStep::Call(call) = BuildQueue::Free.next_step(&app_state, NOW, NOW) else { panic!("it is not started") };
    let Effect::StartBuild(spec) = *call else { panic!("{call:?}") };
    assert_eq!(spec.id.revision, revision(3));
}

#[test]
fn start_without_answer_asks_for_running_builds() {
    let app_state = building(app_state(&[3]));
    let mut queue = BuildQueue::Free;
    let may_observe = queue.started(&app_state, revision(3), Err(CallError::Unavailable), NOW).unwrap();
    assert!(matches!(
        may_observe.state,
        Stored::Building { paused: Paused { away: Outage { since: Some(NOW), .. }, .. }, .. }
    ));
    let later = NOW.after(OBSERVE_INTERVAL);
    assert_eq!(queue.next_step(&app_state, NOW, later), BuildStep::call(Effect::FindBuild));
}

#[test]
fn a_build_of_an_ended_entry_is_cancelled_once_and_then_watched() {
    let app_state = building(app_state(&[3, 4]));
    let mut queue = taken(2);
    let build = DeployId { app: app_state.app.uid, revision: revision(2) };
    assert_eq!(queue.next_step(&app_state, NOW, NOW), BuildStep::call(Effect::CancelBuild(build)));
    queue.cancelled(Err(CallError::Unavailable), NOW);
    assert!(matches!(queue.next_step(&app_state, NOW, NOW), BuildStep::At(_)));
    assert_eq!(
        queue.next_step(&app_state, NOW, NOW.after(OBSERVE_INTERVAL)),
        BuildStep::call(Effect::CancelBuild(build))
    );
    queue.cancelled(Ok(()), NOW);
    assert_eq!(queue.next_step(&app_state, NOW, NOW), BuildStep::call(Effect::ObserveBuild(build)));
    assert_eq!(queue.observed(&app_state, Ok(BuildState::Unknown), NOW), BuildStep::Idle);
    assert!(queue.is_free(&app_state));
}

#[test]
fn build_newer_than_the_loaded_app_is_not_cancelled() {
    let app_state = building(app_state(&[3]));
    let mut queue = BuildQueue::Free;
    assert_eq!(queue.started(&app_state, revision(3), Ok(Started::Busy(revision(5))), NOW), None);
    let later = NOW.after(OBSERVE_INTERVAL);
    let build = DeployId { app: app_state.app.uid, revision: revision(5) };
    assert_eq!(queue.next_step(&app_state, NOW, later), BuildStep::call(Effect::ObserveBuild(build)));
}

#[test]
fn built_image_has_the_exact_commit_and_a_digest() {
    let app_state = building(app_state(&[3]));
    let commit = app_state.unfinished[0].commit.clone().unwrap();
    let image = |text: &str| text.parse().unwrap();
    let digest = format!("registry.example.com/api@sha256:{}", "0".repeat(64));
    let may_observe = |image, commit| {
        let mut queue = taken(3);
        let next_step = queue.observed(&app_state, Ok(BuildState::Built { image, commit }), NOW);
        (next_step, queue)
    };
    let status = |next_step| match next_step {
        BuildStep::Record(changes) => changes.first().map(Deploy::status),
        BuildStep::Call(_) | BuildStep::At(_) | BuildStep::Idle => None,
    };
    let (next_step, queue) = may_observe(image(&digest), commit.clone());
    assert_eq!(next_step, BuildStep::call(Effect::Load), "whether it is still wanted is to be read first");
    let good = built(&queue, &app_state, NOW.after(Duration::from_secs(86_400)));
    assert!(good.image.is_some() && good.status() == Status::Building && good.step == 2, "no deadline runs any more");
    assert_eq!(status(may_observe(image(&digest), "d00d00d".parse().unwrap()).0), Some(Status::Failed));
    assert_eq!(status(may_observe(image("registry.example.com/api:v1"), commit).0), Some(Status::Failed));
}

#[test]
fn image_of_a_former_source_is_not_deployed() {
    let mut app_state = building(app_state(&[3, 4]));
    let commit = app_state.unfinished[0].commit.clone().unwrap();
    let image = format!("registry.example.com/api@sha256:{}", "0".repeat(64)).parse().unwrap();
    let queue = BuildQueue::Built { revision: revision(3), image, commit };
    assert!(queue.is_free(&app_state) && queue.building().is_none());
    std::sync::Arc::make_mut(&mut app_state.app).source =
        Source::Git(GitSource { branch: "next".parse().unwrap(), ..source() });
    let BuildStep::Record(changes) = queue.next_step(&app_state, NOW, NOW) else { panic!("it goes on") };
    let Stored::Failed { reason, .. } = &changes[0].state else { panic!("{:?}", changes[0].state) };
    assert_eq!((reason.as_str(), &changes[0].image), (Reason::SOURCE_CHANGED, &None));
    app_state.unfinished.remove(0);
    let BuildStep::Record(changes) = queue.next_step(&app_state, NOW, NOW) else {
        panic!("the next one does not begin")
    };
    assert_eq!(changes[0].revision, revision(4));
}

#[test]
fn driver_reloads_the_app_during_a_long_build() {
    let app_state = building(app_state(&[3]));
    let later = NOW.after(RELOAD_INTERVAL);
    assert_eq!(
        taken(3).next_step(&app_state, NOW, later),
        BuildStep::call(Effect::Load),
        "its entry may have ended, and no status came of it"
    );
    let build = DeployId { app: app_state.app.uid, revision: revision(3) };
    assert_eq!(taken(3).next_step(&app_state, later, later), BuildStep::call(Effect::ObserveBuild(build)));
}

#[test]
fn a_builder_that_refuses_ends_the_entry() {
    let app_state = building(app_state(&[3]));
    let refused = Err(CallError::Refused("There is no builder here.".to_owned()));
    let mut queue = BuildQueue::default();
    assert_eq!(queue.found(&app_state, refused.clone().map(|()| None), NOW), None);
    let ended = queue.started(&app_state, revision(3), refused.map(|()| Started::Known), NOW).unwrap();
    let Stored::Failed { reason, .. } = ended.state else { panic!("{:?}", ended.state) };
    assert_eq!(reason.as_str(), Reason::BUILD_REFUSED);
}

#[test]
fn a_builder_that_denies_permission_is_asked_again() {
    let app_state = building(app_state(&[3]));
    let denied = || CallError::Denied("jobs are forbidden".to_owned());
    let mut queue = BuildQueue::default();
    let waits = queue.started(&app_state, revision(3), Err(denied()), NOW).unwrap();
    let Stored::Building { paused, .. } = waits.state else { panic!("{:?}", waits.state) };
    assert_eq!(paused.away.since, Some(NOW), "its time does not count");
    assert!(matches!(queue, BuildQueue::Unknown { .. }));
}

#[test]
fn build_pauses_are_recorded_once_and_not_counted_twice() {
    let mut app_state = building(app_state(&[3]));
    let mut queue = taken(3);
    let mut look = |app_state: &mut AppState, seen, now| match queue.observed(app_state, seen, now) {
        BuildStep::Record(mut entries) => {
            app_state.unfinished = vec![std::sync::Arc::new(entries.remove(0))];
            true
        }
        next_step @ (BuildStep::Call(_) | BuildStep::At(_) | BuildStep::Idle) => {
            assert_eq!(next_step, BuildStep::Idle);
            false
        }
    };
    let at = |seconds| NOW.after(Duration::from_secs(seconds));
    assert!(look(&mut app_state, Ok(BuildState::Waiting), at(10)));
    assert!(!look(&mut app_state, Ok(BuildState::Waiting), at(20)));
    assert!(look(&mut app_state, Err(CallError::Unavailable), at(30)));
    assert!(look(&mut app_state, Ok(BuildState::Running), at(70)));
    assert!(!look(&mut app_state, Ok(BuildState::Running), at(80)));
    let Stored::Building { paused, .. } = &app_state.unfinished[0].state else {
        panic!("{:?}", app_state.unfinished[0].state)
    };
    assert_eq!(paused.waiting, Outage { since: None, past: Duration::from_secs(20) });
    assert_eq!(paused.away, Outage { since: None, past: Duration::from_secs(40) });
}

#[test]
fn a_builder_that_is_away_beyond_its_hour_is_the_reason() {
    let reason = |away, passed| {
        let mut app_state = building(app_state(&[3]));
        let Stored::Building { paused, .. } = &mut std::sync::Arc::make_mut(&mut app_state.unfinished[0]).state else {
            panic!("it is not being built")
        };
        paused.away = away;
        let BuildStep::Record(ended) = taken(3).next_step(&app_state, NOW, NOW.after(passed)) else { return None };
        let Stored::Failed { reason, message, .. } = &ended[0].state else { panic!("{ended:?}") };
        assert!(message.contains("The b"), "{message}");
        Some(reason.as_str().to_owned())
    };
    let (still, hour) = (Outage { since: Some(NOW), past: Duration::ZERO }, UNREACHABLE_MAX);
    let second = Duration::from_secs(1);
    assert_eq!(reason(still, hour - second), None);
    assert_eq!(reason(still, hour).as_deref(), Some(Reason::UNREACHABLE));
    let several = Outage { since: Some(NOW), past: hour - second };
    assert_eq!(reason(several, second).as_deref(), Some(Reason::UNREACHABLE), "all of it together");
    let deadline = Policy::default().build_deadline;
    let back = Outage { since: None, past: hour * 2 };
    assert_eq!(reason(back, hour + deadline - second), None, "it answers again, and builds");
    assert_eq!(reason(back, hour + deadline).as_deref(), Some(Reason::BUILD_DEADLINE));
}
