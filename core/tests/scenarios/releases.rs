//! Release commands: each rule as a scenario on the whole engine under simulated time.

use std::time::Duration;

use rollhook_core::{
    app::{OnFailure, Policy},
    deploy::{Deploy, Reason, ReleaseMark, Revision, State, Status},
    ports::{Clock, ReleaseRun, ReleaseRunner},
    request::{Hint, PolicyChange, Refusal, RollbackRequest},
    service::Authorized,
};
use rollhook_memory::Script;

use crate::world::{self, World, image, reason};

const SECOND: Duration = Duration::from_secs(1);
/// How long a rollout and a release command take.
const DELAY: Duration = Duration::from_secs(8);

fn migrates() -> Policy {
    Policy::default().with(|policy| policy.release_command = command("migrate"))
}

fn command(word: &str) -> Vec<String> {
    vec!["bin/release".to_owned(), word.to_owned()]
}

impl World {
    /// The revisions whose release commands have begun, in order.
    fn released(&self) -> Vec<u64> {
        self.cluster.releases().iter().map(|begun| begun.revision().unwrap().get()).collect()
    }

    async fn set_command(&self, access: &Authorized, word: &str) {
        let change = PolicyChange { release_command: Some(command(word)), ..PolicyChange::default() };
        self.deployer.change_policy(access, change).await.unwrap();
    }

    /// Registers an app, and waits until the release command of revision 2 has begun, which never ends by itself.
    async fn hanging(&self, policy: Policy) -> Authorized {
        let access = self.app("api", policy).await;
        self.set_command(&access, "hang").await;
        self.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        self.begins(&access, 2).await;
        access
    }

    /// Waits until an entry has this status, within ten minutes.
    async fn reaches(&self, access: &Authorized, revision: u64, status: Status) -> Deploy {
        for _ in 0..6000 {
            let entry = self.entry(access, revision).await;
            if entry.status() == status {
                return entry;
            }
            self.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("revision {revision} never is {status}: {:?}", self.entry(access, revision).await.state);
    }

    /// Waits until an entry's release command may have begun.
    async fn begins(&self, access: &Authorized, revision: u64) {
        for _ in 0..6000 {
            if self.released().contains(&revision) {
                return;
            }
            self.clock.sleep(Duration::from_millis(100)).await;
        }
        panic!("the command of revision {revision} never begins: {:?}", self.entry(access, revision).await.state);
    }
}

#[test]
fn command_runs_once_with_the_new_image_before_anything_is_touched() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        assert_eq!(world.released(), [1], "the first deploy runs its own");
        world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        let entry = world.reaches(&access, 2, Status::Releasing).await;
        assert_eq!((entry.touched, entry.release), (false, None));
        world.begins(&access, 2).await;
        let entry = world.entry(&access, 2).await;
        assert_eq!((entry.status(), entry.release), (Status::Releasing, Some(ReleaseMark::MayHaveRun)));
        assert_eq!(world.effects(), [1], "nothing is touched before the command has ended");
        let done = world.ended(&access, 2).await;
        assert_eq!((done.status(), done.release), (Status::Succeeded, Some(ReleaseMark::Done)));
        let begun = world.cluster.releases();
        assert_eq!((begun.len(), &begun[1].command), (2, &command("migrate")));
        assert_eq!(begun[1].image, image("registry.example.com/api:v2"));
        let effects = world.cluster.effects();
        let digest = world.cluster.digest(&image("registry.example.com/api:v2"));
        assert_eq!(effects[1].image, image("registry.example.com/api:v2").pinned(digest), "what ran is rolled out");
        world.quiet(&access).await;
        assert_eq!(world.view(&access).await.release_runs, []);
    });
}

#[test]
fn moved_tag_does_not_change_what_is_rolled_out() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        let moving = image("registry.example.com/api:latest");
        let before = world.cluster.push(&moving);
        world.deploy(&access, "registry.example.com/api:latest").await.unwrap();
        world.reaches(&access, 2, Status::RollingOut).await;
        world.cluster.push(&moving);
        let done = world.ended(&access, 2).await;
        assert_eq!((done.status(), done.digest), (Status::Succeeded, Some(before)));
    });
}

#[test]
fn failed_command_touches_nothing_and_restores_nothing() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.set_command(&access, "fail").await;
        let failed = world.deployed(&access, "registry.example.com/api:v2").await;
        let (why, message) = reason(&failed);
        assert_eq!((why.as_str(), failed.touched), (Reason::RELEASE_FAILED, false));
        assert!(message.contains("exit code 1") && message.ends_with("Nothing was rolled out."), "{message}");
        let State::Failed { evidence: Some(evidence), .. } = failed.state else { panic!("no evidence") };
        assert_eq!(evidence.log.last().map(String::as_str), Some("it failed"));
        assert_eq!(failed.release, Some(ReleaseMark::MayHaveRun));
        assert_eq!(world.quiet(&access).await.len(), 2, "no restore");
        assert_eq!((world.effects(), world.released()), (vec![1], vec![1, 2]));
    });
}

#[test]
fn image_that_cannot_be_pulled_never_begins() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        let failed = world.deployed(&access, "registry.example.com/missing:v2").await;
        assert_eq!((reason(&failed).0.as_str(), failed.release), ("ErrImagePull", None));
        world.quiet(&access).await;
        assert_eq!((world.effects(), world.released()), (vec![1], vec![1]));
        world.deployed(&access, "registry.example.com/api:v3").await;
        let back = world.rolled_back_past(&access).await;
        assert_eq!(back.status(), Status::Succeeded);
    });
}

impl World {
    async fn rolled_back_past(&self, access: &Authorized) -> Deploy {
        let request = RollbackRequest::default().with(|request| request.past_releases = true);
        let revision = self.deployer.rollback(access, request).await.unwrap().deploy.revision;
        self.ended(access, revision.get()).await
    }
}

#[test]
fn rollbacks_and_restores_run_none() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.deployed(&access, "registry.example.com/api:v2").await;
        let back = world.rolled_back_past(&access).await;
        assert_eq!((back.status(), back.release), (Status::Succeeded, None));
        let crashed = world.deployed(&access, "registry.example.com/crash:v3").await;
        assert_eq!((crashed.status(), crashed.release), (Status::Failed, Some(ReleaseMark::Done)));
        let (_, message) = reason(&crashed);
        assert!(message.contains("The release commands of revisions 4, 2 ran, or may have run"), "{message}");
        let history = world.quiet(&access).await;
        let restore = history.last().unwrap();
        assert!(restore.is_restore() && restore.status() == Status::Succeeded && restore.release.is_none());
        assert_eq!(world.released(), [1, 2, 4]);
    });
}

#[test]
fn rollback_past_a_command_asks_first() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.deployed(&access, "registry.example.com/api:v2").await;
        world.set_command(&access, "fail").await;
        world.deployed(&access, "registry.example.com/api:v3").await;
        let before = world.history(&access).await.len();
        let refused = world.deployer.rollback(&access, RollbackRequest::default()).await.unwrap_err();
        let Refusal::ReleaseBetween { target, released } = &refused else { panic!("{refused}") };
        assert_eq!(target.get(), 1);
        assert_eq!(released.iter().map(|it| it.revision.get()).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(refused.hint(), Some(Hint::PassReleases));
        assert!(refused.to_string().contains("revisions 3, 2"), "{refused}");
        assert_eq!(world.history(&access).await.len(), before, "nothing is recorded");
        let back = world.rolled_back_past(&access).await;
        assert_eq!((back.status(), back.effective.get()), (Status::Succeeded, 1));
    });
}

#[test]
fn rollback_to_a_version_whose_command_failed_asks_first_and_says_so_afterwards() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.set_command(&access, "fail").await;
        world.deployed(&access, "registry.example.com/api:v2").await;
        let before = world.history(&access).await.len();
        let request = RollbackRequest::default().with(|request| {
            request.revision = Some(Revision::new(2).unwrap());
            request.past_releases = true;
        });
        let refused = world.deployer.rollback(&access, request.clone()).await.unwrap_err();
        assert!(matches!(&refused, Refusal::NotReleased { target } if target.get() == 2), "{refused}");
        assert_eq!(refused.hint(), Some(Hint::GoWithoutRelease));
        assert!(refused.to_string().contains("deploy the image again instead"), "{refused}");
        assert_eq!(world.history(&access).await.len(), before, "nothing is recorded");

        let request = request.with(|request| request.without_release = true);
        let revision = world.deployer.rollback(&access, request).await.unwrap().deploy.revision;
        let back = world.ended(&access, revision.get()).await;
        let State::Succeeded { note: Some(note) } = &back.state else { panic!("{back:?}") };
        assert_eq!(note, "the release command of revision 2 did not succeed, and was not run");
        assert_eq!((back.release, world.released()), (None, vec![1, 2]));

        // A return to the return is none to a version that is better.
        let request = RollbackRequest::default().with(|request| request.revision = Some(revision));
        let refused = world.deployer.rollback(&access, request).await.unwrap_err();
        assert!(matches!(&refused, Refusal::NotReleased { .. }), "{refused}");
    });
}

#[test]
fn rollback_to_a_version_without_a_command_since_does_not_ask() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        world.deployed(&access, "registry.example.com/api:v2").await;
        world.set_command(&access, "migrate").await;
        let back = world.rolled_back(&access).await;
        assert_eq!((back.status(), back.effective.get(), world.released().len()), (Status::Succeeded, 1, 0));
    });
}

#[test]
fn newer_deploy_waits_for_the_end_of_a_command() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        world.begins(&access, 2).await;
        world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
        world.sleep(2).await;
        assert_eq!(world.entry(&access, 2).await.status(), Status::Releasing, "a command is not interrupted");
        assert_eq!(world.entry(&access, 3).await.status(), Status::Queued);
        let history = world.quiet(&access).await;
        assert_eq!((history[1].status(), history[1].release), (Status::Superseded, Some(ReleaseMark::Done)));
        assert_eq!((history[2].status(), world.released()), (Status::Succeeded, vec![1, 2, 3]));
        assert_eq!(world.effects(), [1, 3]);
    });
}

#[test]
fn deploy_superseded_in_the_queue_never_runs_its_command() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        for tag in ["v2", "v3", "v4"] {
            world.deploy(&access, &format!("registry.example.com/api:{tag}")).await.unwrap();
        }
        world.quiet(&access).await;
        let released = world.released();
        assert!(!released.contains(&3) && released.ends_with(&[4]), "{released:?}");
    });
}

#[test]
fn persons_rollback_ends_a_command_and_does_not_wait_for_it() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.deployed(&access, "registry.example.com/api:v2").await;
        world.set_command(&access, "hang").await;
        world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
        world.begins(&access, 3).await;
        let back = world.rolled_back_past(&access).await;
        assert_eq!((back.status(), back.effective.get()), (Status::Succeeded, 1));
        let interrupted = world.entry(&access, 3).await;
        assert_eq!(interrupted.release, Some(ReleaseMark::MayHaveRun));
        world.quiet(&access).await;
        assert_eq!(world.view(&access).await.release_runs, [], "its end was observed");
    });
}

#[test]
fn cancelled_command_ends_before_the_next_begins() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.hanging(migrates()).await;
        world.set_command(&access, "migrate").await;
        world.cluster.set_reachable(false);
        world.deployer.cancel(&access, Revision::new(2).unwrap()).await.unwrap();
        world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
        world.sleep(60).await;
        assert_eq!(world.released(), [1, 2], "not beside one whose end is not known");
        world.cluster.set_reachable(true);
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        assert_eq!(world.released(), [1, 2, 3]);
        world.quiet(&access).await;
    });
}

#[test]
fn command_past_its_deadline_is_ended() {
    let world = World::new(DELAY);
    world.run(async {
        let policy = migrates().with(|policy| policy.release_deadline = 90 * SECOND);
        let access = world.app("api", policy).await;
        world.set_command(&access, "hang").await;
        let began = world.now();
        let failed = world.deployed(&access, "registry.example.com/api:v2").await;
        assert_eq!(reason(&failed).0, Reason::RELEASE_DEADLINE);
        let took = failed.updated_at.since(began);
        assert!((90 * SECOND..100 * SECOND).contains(&took), "{took:?}");
        world.quiet(&access).await;
        let run = ReleaseRun::new(access.app(), access.uid(), Revision::new(2).unwrap());
        assert!(ReleaseRunner::observe(&*world.cluster, &run).await.unwrap().is_ended());
    });
}

#[test]
fn time_without_the_platform_does_not_count_up_to_an_hour() {
    let world = World::new(DELAY);
    world.run(async {
        let policy = migrates().with(|policy| policy.release_deadline = 30 * SECOND);
        let access = world.app("api", policy).await;
        world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        world.begins(&access, 2).await;
        world.cluster.set_reachable(false);
        world.sleep(600).await;
        assert_eq!(world.entry(&access, 2).await.status(), Status::Releasing);
        world.cluster.set_reachable(true);
        assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded);
        world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
        world.begins(&access, 3).await;
        world.cluster.set_reachable(false);
        let failed = world.ended(&access, 3).await;
        assert_eq!(
            (reason(&failed).0.as_str(), failed.release),
            (Reason::RELEASE_UNKNOWN, Some(ReleaseMark::MayHaveRun))
        );
        world.cluster.set_reachable(true);
        world.quiet(&access).await;
        assert_eq!(world.released(), [1, 2, 3], "never run again by itself");
    });
}

#[test]
fn lost_run_is_unknown_and_never_run_again() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        world.begins(&access, 2).await;
        world.cluster.lose_releases();
        let failed = world.ended(&access, 2).await;
        assert_eq!(reason(&failed).0, Reason::RELEASE_UNKNOWN);
        world.quiet(&access).await;
        assert_eq!((world.released(), world.effects()), (vec![1, 2], vec![1]));
    });
}

#[test]
fn another_process_attaches_to_what_runs() {
    for stop_after in [1, 3, 5, 12] {
        let world = World::new(DELAY);
        let access = world.run(async {
            let access = world.app("api", migrates()).await;
            world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
            world.sleep(stop_after).await;
            access
        });
        let next = world.replica("two", 2);
        world.run_beside(&next, async {
            assert_eq!(world.ended(&access, 2).await.status(), Status::Succeeded, "stopped after {stop_after} s");
            assert_eq!(world.released(), [1, 2], "stopped after {stop_after} s");
            world.quiet(&access).await;
        });
    }
}

#[test]
fn deleted_apps_command_is_ended() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.hanging(migrates()).await;
        world.deployer.delete(&access).await.unwrap();
        world.sleep(1).await;
        let run = ReleaseRun::new(access.app(), access.uid(), Revision::new(2).unwrap());
        assert!(ReleaseRunner::observe(&*world.cluster, &run).await.unwrap().is_ended());
    });
}

#[test]
fn adopted_version_runs_no_command() {
    let world = World::new(DELAY);
    world.run(async {
        let id = "shop-test/api".parse().unwrap();
        world.cluster.seed(&id, &rollhook_core::app::Target::default(), &image("registry.example.com/api:old"));
        let mut wanted = world::registration("api", migrates());
        wanted.image = None;
        let access = world.registered(wanted).await;
        assert_eq!(world.ended(&access, 1).await.status(), Status::Succeeded);
        assert_eq!(world.released(), [0; 0]);
        world.deployed(&access, "registry.example.com/api:v2").await;
        assert_eq!(world.released(), [2]);
    });
}

#[test]
fn built_commit_runs_its_command_after_the_build() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.built_app(migrates()).await;
        assert_eq!((world.begun(), world.released()), (vec![1], vec![1]));
        let begun = &world.cluster.releases()[0];
        assert!(begun.image.digest().is_some(), "by digest");
        let _ = access;
    });
}

#[test]
fn log_is_read_while_the_command_runs_and_after() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        world.begins(&access, 2).await;
        let revision = Revision::new(2).unwrap();
        let part = world.deployer.release_log(&access, revision, 0, false).await.unwrap();
        assert!(String::from_utf8(part.bytes.clone()).unwrap().starts_with("running bin/release migrate"));
        let rest = world.deployer.release_log(&access, revision, part.bytes.len() as u64, true).await.unwrap();
        assert_eq!(rest.bytes, b"it ended\n");
        let end = (part.bytes.len() + rest.bytes.len()) as u64;
        assert!(world.deployer.release_log(&access, revision, end, true).await.unwrap().last);
        world.set_no_command(&access).await;
        world.deployed(&access, "registry.example.com/api:v3").await;
        let none = world.deployer.release_log(&access, Revision::new(3).unwrap(), 0, true).await;
        assert_eq!(none, Err(Refusal::NoReleaseLog(Revision::new(3).unwrap())));
    });
}

impl World {
    async fn set_no_command(&self, access: &Authorized) {
        let change = PolicyChange { release_command: Some(Vec::new()), ..PolicyChange::default() };
        self.deployer.change_policy(access, change).await.unwrap();
    }
}

#[test]
fn stalled_rollout_gives_way_to_the_command_of_a_newer_deploy() {
    let world = World::new(DELAY);
    world.run(async {
        let policy = migrates().with(|policy| policy.on_failure = OnFailure::Restore);
        let access = world.app("api", policy).await;
        world.cluster.script("api:v2", Script::hangs());
        world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        world.reaches(&access, 2, Status::RollingOut).await;
        world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
        let history = world.quiet(&access).await;
        let statuses: Vec<_> = history.iter().map(Deploy::status).collect();
        assert_eq!(statuses, [Status::Succeeded, Status::Superseded, Status::Succeeded]);
        assert_eq!((world.released(), world.effects()), (vec![1, 2, 3], vec![1, 2, 3]));
    });
}

#[test]
fn command_that_fails_after_a_stalled_rollout_is_followed_by_the_restore() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.cluster.script("api:v2", Script::hangs());
        world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        world.reaches(&access, 2, Status::RollingOut).await;
        world.set_command(&access, "fail").await;
        world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
        let history = world.quiet(&access).await;
        let restore = history.last().unwrap();
        assert!(restore.is_restore() && restore.status() == Status::Succeeded, "{restore:?}");
        assert_eq!((history.len(), restore.effective.get()), (4, 1));
    });
}

#[test]
fn commands_that_could_not_run_are_refused() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", Policy::default()).await;
        for bad in [
            vec![" ".to_owned()],
            vec!["a".to_owned(), "b\0".to_owned()],
            vec!["a".to_owned(); 65],
            vec!["x".repeat(5000)],
        ] {
            let change = PolicyChange { release_command: Some(bad), ..PolicyChange::default() };
            let refused = world.deployer.change_policy(&access, change).await.unwrap_err();
            assert!(matches!(refused, Refusal::InvalidField(..)), "{refused}");
        }
        for bad in [Duration::ZERO, Duration::from_secs(4 * 3600 + 1)] {
            let change = PolicyChange { release_deadline: Some(bad), ..PolicyChange::default() };
            let refused = world.deployer.change_policy(&access, change).await.unwrap_err();
            assert!(matches!(refused, Refusal::InvalidField(..)), "{refused}");
        }
    });
}

#[test]
fn deadline_that_is_extended_while_the_command_runs_counts() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.hanging(migrates().with(|policy| policy.release_deadline = 60 * SECOND)).await;
        let change = PolicyChange { release_deadline: Some(300 * SECOND), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        world.sleep(200).await;
        assert_eq!(world.entry(&access, 2).await.status(), Status::Releasing);
        let failed = world.ended(&access, 2).await;
        assert!(reason(&failed).1.contains("300 s"), "{failed:?}");
    });
}

#[test]
fn command_that_ended_while_nobody_looked_has_not_missed_its_deadline() {
    for (word, wanted) in [("migrate", Status::Succeeded), ("fail", Status::Failed)] {
        let world = World::new(DELAY);
        let access = world.run(async {
            let access = world.app("api", migrates().with(|policy| policy.release_deadline = 60 * SECOND)).await;
            world.set_command(&access, word).await;
            world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
            world.begins(&access, 2).await;
            access
        });
        world.idle(world.sleep(300));
        let next = world.replica("two", 2);
        world.run_beside(&next, async {
            let ended = world.ended(&access, 2).await;
            assert_eq!(ended.status(), wanted, "{ended:?}");
            assert!(wanted == Status::Succeeded || reason(&ended).0 == Reason::RELEASE_FAILED, "{ended:?}");
        });
    }
}

#[test]
fn deploy_that_waits_for_a_command_without_end_fails_and_says_so() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.hanging(migrates()).await;
        world.cluster.keep_releases(true);
        world.deployer.cancel(&access, Revision::new(2).unwrap()).await.unwrap();
        world.set_command(&access, "migrate").await;
        let failed = world.deployed(&access, "registry.example.com/api:v3").await;
        let (why, message) = reason(&failed);
        assert_eq!((why.as_str(), failed.release), (Reason::RELEASE_DEADLINE, None));
        assert!(message.contains("that of revision 2 was told to end"), "{message}");
        assert_eq!(world.released(), [1, 2]);
        world.cluster.keep_releases(false);
        assert_eq!(world.deployed(&access, "registry.example.com/api:v4").await.status(), Status::Succeeded);
        assert_eq!(world.view(&access).await.release_runs, []);
    });
}

#[test]
fn deploys_that_only_waited_for_a_command_without_end_leave_no_run_behind() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.hanging(migrates()).await;
        world.cluster.keep_releases(true);
        world.deployer.cancel(&access, Revision::new(2).unwrap()).await.unwrap();
        for revision in 3..10 {
            world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
            world.reaches(&access, revision, Status::Releasing).await;
            world.deployer.cancel(&access, Revision::new(revision).unwrap()).await.unwrap();
        }
        assert_eq!(world.view(&access).await.release_runs, [Revision::new(2).unwrap()]);
        world.cluster.keep_releases(false);
        world.set_command(&access, "migrate").await;
        assert_eq!(world.deployed(&access, "registry.example.com/api:v4").await.status(), Status::Succeeded);
        assert_eq!((world.released(), world.view(&access).await.release_runs), (vec![1, 2, 10], vec![]));
    });
}

#[test]
fn command_that_its_platform_cannot_end_fails_its_deploy_all_the_same() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates().with(|policy| policy.release_deadline = 60 * SECOND)).await;
        world.set_command(&access, "hang").await;
        world.cluster.keep_releases(true);
        let failed = world.deployed(&access, "registry.example.com/api:v2").await;
        assert_eq!(
            (reason(&failed).0.as_str(), failed.release),
            (Reason::RELEASE_UNKNOWN, Some(ReleaseMark::MayHaveRun))
        );
        world.cluster.keep_releases(false);
        world.quiet(&access).await;
        world.sleep(60).await;
        assert_eq!(world.view(&access).await.release_runs, []);
    });
}

#[test]
fn command_that_runs_while_the_platform_is_away_is_not_forgotten() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.hanging(migrates()).await;
        world.cluster.set_reachable(false);
        assert_eq!(reason(&world.ended(&access, 2).await).0, Reason::RELEASE_UNKNOWN);
        world.set_command(&access, "migrate").await;
        world.deploy(&access, "registry.example.com/api:v3").await.unwrap();
        world.sleep(1800).await;
        assert_eq!(world.released(), [1, 2], "no other begins beside it");
        world.cluster.set_reachable(true);
        assert_eq!(world.ended(&access, 3).await.status(), Status::Succeeded);
        assert_eq!(world.cluster.running_releases(access.uid()), 0);
    });
}

#[test]
fn app_is_not_deleted_while_its_command_cannot_be_ended() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.hanging(migrates()).await;
        world.cluster.set_reachable(false);
        assert_eq!(world.deployer.delete(&access).await, Err(Refusal::ClusterUnavailable));
        world.cluster.set_reachable(true);
        world.deployer.delete(&access).await.unwrap();
        assert_eq!(world.cluster.running_releases(access.uid()), 0);
    });
}

#[test]
fn restore_names_every_release_command_that_ran_since_its_version() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        assert_eq!(world.deployed(&access, "registry.example.com/crash:v2").await.status(), Status::Failed);
        assert_eq!(world.quiet(&access).await.len(), 3, "with its restore");
        let failed = world.deployed(&access, "registry.example.com/crash:v3").await;
        let released = world.view(&access).await.released_since(Revision::FIRST);
        let named: Vec<u64> = released.iter().map(|released| released.revision.get()).collect();
        let (_, message) = reason(&failed);
        assert_eq!(named, [2, 4], "{message}");
        assert!(message.contains("The release commands of revisions 4, 2 ran, or may have run"), "{message}");
        world.quiet(&access).await;
    });
}

#[test]
fn log_of_a_run_that_is_made_ready_is_shown_though_the_app_has_lost_its_command() {
    let world = World::new(DELAY);
    world.run(async {
        let access = world.app("api", migrates()).await;
        world.deploy(&access, "registry.example.com/api:v2").await.unwrap();
        let revision = world.reaches(&access, 2, Status::Releasing).await.revision;
        let change = PolicyChange { release_command: Some(Vec::new()), ..PolicyChange::default() };
        world.deployer.change_policy(&access, change).await.unwrap();
        let part = world.deployer.release_log(&access, revision, 0, false).await.unwrap();
        assert!(part.bytes.is_empty() && part.last);
        let part = world.deployer.release_log(&access, revision, 0, true).await.unwrap();
        assert!(!part.bytes.is_empty(), "it waits for the command's begin");
    });
}
