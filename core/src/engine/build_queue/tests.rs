use super::*;
use crate::{
    app::Policy,
    deploy::Outage,
    samples::{NOW, git_source as source, git_state as view, revision},
    source::GitSource,
};

/// The view with its first entry being built.
fn building(mut view: AppState) -> AppState {
    let Turn::Record(changes) = BuildQueue::Free.turn(&view, NOW, NOW) else { panic!("nothing begins") };
    for change in changes {
        view.unfinished.retain(|deploy| deploy.revision != change.revision);
        view.unfinished.insert(0, std::sync::Arc::new(change));
    }
    view
}

fn taken(number: u64) -> BuildQueue {
    BuildQueue::taken(revision(number), NOW)
}

#[test]
fn build_queue_of_an_image_app_is_always_free() {
    let mut view = view(&[1]);
    std::sync::Arc::make_mut(&mut view.app).source = Source::Image;
    assert_eq!(BuildQueue::default().turn(&view, NOW, NOW), Turn::Idle);
    assert!(BuildQueue::default().is_free(&view));
}

#[test]
fn builder_is_asked_for_running_builds_until_it_answers() {
    let view = view(&[1]);
    let mut queue = BuildQueue::default();
    assert_eq!(queue.turn(&view, NOW, NOW), Turn::call(Effect::FindBuild));
    assert_eq!(queue.found(&view, Err(CallFailed::Away), NOW), None, "nothing is being built yet");
    assert!(matches!(queue.turn(&view, NOW, NOW), Turn::At(at) if at > NOW));
    assert!(!queue.is_free(&view));
    assert_eq!(queue.found(&view, Ok(None), NOW), None);
    assert!(matches!(queue.turn(&view, NOW, NOW), Turn::Record(_)), "the oldest begins");
}

#[test]
fn the_oldest_is_recorded_before_it_is_started() {
    let view = building(view(&[3, 4]));
    assert_eq!(view.unfinished[0].status(), Status::Building);
    let Turn::Call(call) = BuildQueue::Free.turn(&view, NOW, NOW) else { panic!("it is not started") };
    let Effect::StartBuild(spec) = *call else { panic!("{call:?}") };
    assert_eq!(spec.id.revision, revision(3));
}

#[test]
fn start_without_answer_asks_for_running_builds() {
    let view = building(view(&[3]));
    let mut queue = BuildQueue::Free;
    let told = queue.started(&view, revision(3), Err(CallFailed::Away), NOW).unwrap();
    assert!(matches!(
        told.state,
        Stored::Building { paused: Paused { away: Outage { since: Some(NOW), .. }, .. }, .. }
    ));
    let later = NOW.after(LOOK);
    assert_eq!(queue.turn(&view, NOW, later), Turn::call(Effect::FindBuild));
}

#[test]
fn a_build_of_an_ended_entry_is_cancelled_once_and_then_watched() {
    let view = building(view(&[3, 4]));
    let mut queue = taken(2);
    let build = DeployId { app: view.app.uid, revision: revision(2) };
    assert_eq!(queue.turn(&view, NOW, NOW), Turn::call(Effect::CancelBuild(build)));
    queue.cancelled(Err(CallFailed::Away), NOW);
    assert!(matches!(queue.turn(&view, NOW, NOW), Turn::At(_)));
    assert_eq!(queue.turn(&view, NOW, NOW.after(LOOK)), Turn::call(Effect::CancelBuild(build)));
    queue.cancelled(Ok(()), NOW);
    assert_eq!(queue.turn(&view, NOW, NOW), Turn::call(Effect::ObserveBuild(build)));
    assert_eq!(queue.observed(&view, Ok(BuildState::Unknown), NOW), Turn::Idle);
    assert!(queue.is_free(&view));
}

#[test]
fn build_newer_than_the_loaded_app_is_not_cancelled() {
    let view = building(view(&[3]));
    let mut queue = BuildQueue::Free;
    assert_eq!(queue.started(&view, revision(3), Ok(Started::Busy(revision(5))), NOW), None);
    let later = NOW.after(LOOK);
    let build = DeployId { app: view.app.uid, revision: revision(5) };
    assert_eq!(queue.turn(&view, NOW, later), Turn::call(Effect::ObserveBuild(build)));
}

#[test]
fn built_image_has_the_exact_commit_and_a_digest() {
    let view = building(view(&[3]));
    let commit = view.unfinished[0].commit.clone().unwrap();
    let image = |text: &str| text.parse().unwrap();
    let digest = format!("registry.example.com/api@sha256:{}", "0".repeat(64));
    let told = |image, commit| {
        let mut queue = taken(3);
        let turn = queue.observed(&view, Ok(BuildState::Built { image, commit }), NOW);
        (turn, queue)
    };
    let status = |turn| match turn {
        Turn::Record(changes) => changes.first().map(Deploy::status),
        Turn::Call(_) | Turn::At(_) | Turn::Idle => None,
    };
    let (turn, queue) = told(image(&digest), commit.clone());
    assert_eq!(turn, Turn::call(Effect::Load), "whether it is still wanted is to be read first");
    let Turn::Record(changes) = queue.turn(&view, NOW, NOW.after(Duration::from_secs(86_400))) else {
        panic!("{queue:?}")
    };
    let good = &changes[0];
    assert!(good.image.is_some() && good.status() == Status::Building && good.step == 2, "no deadline runs any more");
    assert_eq!(status(told(image(&digest), "d00d00d".parse().unwrap()).0), Some(Status::Failed));
    assert_eq!(status(told(image("registry.example.com/api:v1"), commit).0), Some(Status::Failed));
}

#[test]
fn image_of_a_former_source_is_not_deployed() {
    let mut view = building(view(&[3, 4]));
    let commit = view.unfinished[0].commit.clone().unwrap();
    let image = format!("registry.example.com/api@sha256:{}", "0".repeat(64)).parse().unwrap();
    let queue = BuildQueue::Built { revision: revision(3), image, commit };
    assert!(queue.is_free(&view) && queue.building().is_none());
    std::sync::Arc::make_mut(&mut view.app).source =
        Source::Git(GitSource { branch: "next".parse().unwrap(), ..source() });
    let Turn::Record(changes) = queue.turn(&view, NOW, NOW) else { panic!("it goes on") };
    let Stored::Failed { reason, .. } = &changes[0].state else { panic!("{:?}", changes[0].state) };
    assert_eq!((reason.as_str(), &changes[0].image), (Reason::SOURCE_CHANGED, &None));
    view.unfinished.remove(0);
    let Turn::Record(changes) = queue.turn(&view, NOW, NOW) else { panic!("the next one does not begin") };
    assert_eq!(changes[0].revision, revision(4));
}

#[test]
fn driver_reloads_the_app_during_a_long_build() {
    let view = building(view(&[3]));
    let later = NOW.after(READ);
    assert_eq!(
        taken(3).turn(&view, NOW, later),
        Turn::call(Effect::Load),
        "its entry may have ended, and no sign came of it"
    );
    let build = DeployId { app: view.app.uid, revision: revision(3) };
    assert_eq!(taken(3).turn(&view, later, later), Turn::call(Effect::ObserveBuild(build)));
}

#[test]
fn a_builder_that_refuses_ends_the_entry() {
    let view = building(view(&[3]));
    let refused = Err(CallFailed::Refused("There is no builder here.".to_owned()));
    let mut queue = BuildQueue::default();
    assert_eq!(queue.found(&view, refused.clone().map(|()| None), NOW), None);
    let ended = queue.started(&view, revision(3), refused.map(|()| Started::Known), NOW).unwrap();
    let Stored::Failed { reason, .. } = ended.state else { panic!("{:?}", ended.state) };
    assert_eq!(reason.as_str(), Reason::BUILD_REFUSED);
}

#[test]
fn build_pauses_are_recorded_once_and_not_counted_twice() {
    let mut view = building(view(&[3]));
    let mut queue = taken(3);
    let mut look = |view: &mut AppState, seen, now| match queue.observed(view, seen, now) {
        Turn::Record(mut entries) => {
            view.unfinished = vec![std::sync::Arc::new(entries.remove(0))];
            true
        }
        turn @ (Turn::Call(_) | Turn::At(_) | Turn::Idle) => {
            assert_eq!(turn, Turn::Idle);
            false
        }
    };
    let at = |seconds| NOW.after(Duration::from_secs(seconds));
    assert!(look(&mut view, Ok(BuildState::Waiting), at(10)));
    assert!(!look(&mut view, Ok(BuildState::Waiting), at(20)));
    assert!(look(&mut view, Err(CallFailed::Away), at(30)));
    assert!(look(&mut view, Ok(BuildState::Running), at(70)));
    assert!(!look(&mut view, Ok(BuildState::Running), at(80)));
    let Stored::Building { paused, .. } = &view.unfinished[0].state else { panic!("{:?}", view.unfinished[0].state) };
    assert_eq!(paused.waiting, Outage { since: None, past: Duration::from_secs(20) });
    assert_eq!(paused.away, Outage { since: None, past: Duration::from_secs(40) });
}

#[test]
fn a_builder_that_is_away_beyond_its_hour_is_the_reason() {
    let reason = |away, passed| {
        let mut view = building(view(&[3]));
        let Stored::Building { paused, .. } = &mut std::sync::Arc::make_mut(&mut view.unfinished[0]).state else {
            panic!("it is not being built")
        };
        paused.away = away;
        let Turn::Record(ended) = taken(3).turn(&view, NOW, NOW.after(passed)) else { return None };
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
