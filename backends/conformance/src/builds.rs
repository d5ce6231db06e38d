//! The promises of [`rollhook_core::ports::BuildTrigger`].

use rollhook_core::{
    app::AppUid,
    deploy::{Commit, Reason, Revision},
    image::ImageRef,
    ports::{BuildFailure, BuildSpec, BuildState, BuildTrigger, DeployId, Started},
};

use crate::{
    builders::{Builders, Made},
    report::Can,
    samples,
};

/// How often is looked for what must come: a minute, at ten looks a second.
const LOOKS: usize = 600;

const OURS: AppUid = AppUid::from_bits(0xa11);
const THEIRS: AppUid = AppUid::from_bits(0xb0b);

fn deploy_id(revision: u64) -> DeployId {
    DeployId { app: OURS, revision: samples::revision(revision) }
}

fn order(builder: &dyn Builders, revision: u64, made: Made) -> Can<BuildSpec> {
    let app = samples::app("shop", "test", "api").id;
    Ok(BuildSpec::new(app, deploy_id(revision), builder.source(), builder.commit(made)?))
}

/// Looks until the build has ended.
async fn ended(builder: &dyn Builders, builds: &dyn BuildTrigger, build: DeployId) -> BuildState {
    for _ in 0..LOOKS {
        match builds.observe(build).await.unwrap() {
            BuildState::Waiting | BuildState::Running => builder.pause().await,
            ended @ (BuildState::Built { .. } | BuildState::Failed(_) | BuildState::Unknown) => return ended,
        }
    }
    panic!("revision {} has not ended within a minute", build.revision);
}

/// Returns the build that runs. Another handle may have a moment's work after the end that it reports.
async fn running(builder: &dyn Builders, builds: &dyn BuildTrigger) -> Option<Revision> {
    for _ in 0..LOOKS {
        match builds.running(OURS).await {
            Err(error) if error.is_transient() => builder.pause().await,
            answer => return answer.unwrap(),
        }
    }
    panic!("what runs is not known within a minute")
}

async fn built(builder: &dyn Builders, order: &BuildSpec) -> (ImageRef, Commit) {
    assert_eq!(builder.builds().start(order).await.unwrap(), Started::Known);
    match ended(builder, &*builder.builds(), order.id).await {
        BuildState::Built { image, commit } => (image, commit),
        other @ (BuildState::Waiting | BuildState::Running | BuildState::Failed(_) | BuildState::Unknown) => {
            panic!("not built: {other:?}")
        }
    }
}

async fn failed(builder: &dyn Builders, order: &BuildSpec) -> BuildFailure {
    assert_eq!(builder.builds().start(order).await.unwrap(), Started::Known);
    match ended(builder, &*builder.builds(), order.id).await {
        BuildState::Failed(failure) => {
            assert!(!failure.message.is_empty(), "a person is told what is wrong: {failure:?}");
            assert!(failure.log.len() <= 50 && failure.log.iter().all(|line| line.chars().count() <= 500));
            failure
        }
        other @ (BuildState::Waiting | BuildState::Running | BuildState::Built { .. } | BuildState::Unknown) => {
            panic!("no failure: {other:?}")
        }
    }
}

/// A sound commit ends as an image by digest, of the source's repository, and the commit in full.
pub async fn start_then_observe_built(builder: &dyn Builders) -> Can {
    let order = order(builder, 1, Made::Good)?;
    let (image, commit) = built(builder, &order).await;
    assert_eq!(commit, order.commit);
    assert!(image.digest().is_some(), "{image}");
    assert_eq!(image.repository(), builder.source().image_repository.as_str());
    Ok(())
}

/// Repeated while it runs and after it has ended, an order changes nothing.
pub async fn start_is_idempotent(builder: &dyn Builders) -> Can {
    let builds = builder.builds();
    let hanging = order(builder, 1, Made::Hanging)?;
    for _ in 0..3 {
        assert_eq!(builds.start(&hanging).await.unwrap(), Started::Known);
    }
    assert!(builds.observe(hanging.id).await.unwrap().is_under_way());
    builds.cancel(hanging.id).await.unwrap();
    ended(builder, &*builds, hanging.id).await;

    let good = order(builder, 2, Made::Good)?;
    let first = built(builder, &good).await;
    let log = builds.log(good.id, 0).await.unwrap();
    assert_eq!(built(builder, &good).await, first);
    assert_eq!(builds.log(good.id, 0).await.unwrap(), log, "nothing was built again");
    assert_eq!(running(builder, &*builds).await, None);
    Ok(())
}

/// While a build of the app runs, no other starts; another app's does.
pub async fn start_while_another_runs_is_busy(builder: &dyn Builders) -> Can {
    let builds = builder.builds();
    let hanging = order(builder, 1, Made::Hanging)?;
    assert_eq!(builds.start(&hanging).await.unwrap(), Started::Known);
    let next = order(builder, 2, Made::Good)?;
    assert_eq!(builds.start(&next).await.unwrap(), Started::Busy(samples::revision(1)));
    assert_eq!(builds.observe(next.id).await.unwrap(), BuildState::Unknown);
    let other = next.clone().with(|spec| spec.id = DeployId { app: THEIRS, ..next.id });
    built(builder, &other).await;
    assert!(builds.observe(hanging.id).await.unwrap().is_under_way());
    builds.cancel(hanging.id).await.unwrap();
    ended(builder, &*builds, hanging.id).await;
    built(builder, &next).await;
    Ok(())
}

/// A prefix is resolved to the one commit that begins so.
pub async fn start_resolves_a_short_commit(builder: &dyn Builders) -> Can {
    let order = order(builder, 1, Made::Short)?;
    let (_, commit) = built(builder, &order).await;
    assert!(matches!(commit.as_str().len(), 40 | 64), "{commit}");
    assert!(commit.as_str().starts_with(order.commit.as_str()), "{commit}");
    Ok(())
}

/// A commit that the source does not have is not built.
pub async fn unknown_commit_fails(builder: &dyn Builders) -> Can {
    let failure = failed(builder, &order(builder, 1, Made::Missing)?).await;
    assert_eq!(failure.reason.as_str(), Reason::COMMIT_NOT_FOUND, "{failure:?}");
    Ok(())
}

/// First digits that several commits have are not built.
pub async fn ambiguous_commit_fails(builder: &dyn Builders) -> Can {
    let failure = failed(builder, &order(builder, 1, Made::Ambiguous)?).await;
    assert_eq!(failure.reason.as_str(), Reason::COMMIT_AMBIGUOUS, "{failure:?}");
    Ok(())
}

/// The last lines of a failed build are told with it.
pub async fn failed_build_keeps_its_log(builder: &dyn Builders) -> Can {
    let order = order(builder, 1, Made::Failing)?;
    let failure = failed(builder, &order).await;
    assert_eq!(failure.reason.as_str(), Reason::BUILD_FAILED);
    assert_eq!(failure.commit, Some(order.commit));
    assert!(failure.log.iter().any(|line| line.contains("broken")), "{failure:?}");
    Ok(())
}

/// A cancelled build ends, stays so, and makes room.
pub async fn cancel_ends_and_frees(builder: &dyn Builders) -> Can {
    let builds = builder.builds();
    builds.cancel(deploy_id(7)).await.unwrap();
    let hanging = order(builder, 1, Made::Hanging)?;
    assert_eq!(builds.start(&hanging).await.unwrap(), Started::Known);
    for _ in 0..5 {
        builder.pause().await;
    }
    builds.cancel(hanging.id).await.unwrap();
    builds.cancel(hanging.id).await.unwrap();
    let end = ended(builder, &*builds, hanging.id).await;
    assert!(matches!(&end, BuildState::Failed(failure) if failure.reason.as_str() == Reason::CANCELLED), "{end:?}");
    assert_eq!(builds.start(&hanging).await.unwrap(), Started::Known);
    assert_eq!(builds.observe(hanging.id).await.unwrap(), end, "it does not start again");
    let good = order(builder, 2, Made::Good)?;
    let image = built(builder, &good).await;
    builds.cancel(good.id).await.unwrap();
    assert_eq!(built(builder, &good).await, image, "what has ended stays as it ended");
    Ok(())
}

/// A build that was never started is unknown.
pub async fn observe_unknown_is_unknown(builder: &dyn Builders) -> Can {
    assert_eq!(builder.builds().observe(deploy_id(1)).await.unwrap(), BuildState::Unknown);
    Ok(())
}

/// The app's build is told until it has ended, and no other app's.
pub async fn running_is_what_has_not_ended(builder: &dyn Builders) -> Can {
    let builds = builder.builds();
    assert_eq!(running(builder, &*builds).await, None);
    let hanging = order(builder, 3, Made::Hanging)?;
    builds.start(&hanging).await.unwrap();
    assert_eq!(running(builder, &*builds).await, Some(samples::revision(3)));
    assert_eq!(builds.running(THEIRS).await.unwrap(), None);
    builds.cancel(hanging.id).await.unwrap();
    ended(builder, &*builds, hanging.id).await;
    assert_eq!(running(builder, &*builds).await, None);
    Ok(())
}

/// Ends and logs are there for the next process.
pub async fn end_outlives_a_restart(builder: &dyn Builders) -> Can {
    let good = order(builder, 1, Made::Good)?;
    let (image, commit) = built(builder, &good).await;
    let failing = order(builder, 2, Made::Failing)?;
    let failure = failed(builder, &failing).await;
    let log = builder.builds().log(failing.id, 0).await.unwrap();
    let builds = builder.restarted().await?;
    assert_eq!(builds.start(&good).await.unwrap(), Started::Known);
    assert_eq!(builds.observe(good.id).await.unwrap(), BuildState::Built { image, commit });
    assert_eq!(builds.observe(failing.id).await.unwrap(), BuildState::Failed(failure));
    assert_eq!(builds.log(failing.id, 0).await.unwrap(), log);
    Ok(())
}

/// A log is the same in whatever parts it is read.
pub async fn log_is_read_in_parts(builder: &dyn Builders) -> Can {
    let builds = builder.builds();
    assert_eq!(builds.log(deploy_id(9), 0).await.unwrap(), None);
    let failing = order(builder, 1, Made::Failing)?;
    failed(builder, &failing).await;
    let whole = builds.log(failing.id, 0).await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&whole).contains("broken"));
    let middle = whole.len() / 2;
    let rest = builds.log(failing.id, middle as u64).await.unwrap().unwrap();
    assert_eq!(rest, whole[middle..]);
    assert_eq!(builds.log(failing.id, whole.len() as u64).await.unwrap(), Some(Vec::new()));
    assert_eq!(builds.log(failing.id, u64::MAX / 2).await.unwrap(), Some(Vec::new()));
    Ok(())
}

/// Builds of a deleted app are forgotten with their logs, the last one once it has ended; those of another app stay.
pub async fn forgets_a_deleted_app(builder: &dyn Builders) -> Can {
    builder.forgets()?;
    let builds = builder.builds();
    let failing = order(builder, 1, Made::Failing)?;
    failed(builder, &failing).await;
    let other = failing.clone().with(|spec| spec.id = DeployId { app: THEIRS, ..failing.id });
    let kept = failed(builder, &other).await;
    let hanging = order(builder, 2, Made::Hanging)?;
    assert_eq!(builds.start(&hanging).await.unwrap(), Started::Known);
    builds.cancel(hanging.id).await.unwrap();
    builds.forget(OURS).await.unwrap();
    builds.forget(OURS).await.unwrap();
    for build in [hanging.id, failing.id] {
        let mut looks = 0;
        while builds.observe(build).await.unwrap() != BuildState::Unknown {
            looks += 1;
            assert!(looks < LOOKS, "revision {} is not forgotten within a minute", build.revision);
            builder.pause().await;
        }
        assert_eq!(builds.log(build, 0).await.unwrap(), None, "revision {}", build.revision);
    }
    assert_eq!(running(builder, &*builds).await, None);
    assert_eq!(builds.observe(other.id).await.unwrap(), BuildState::Failed(kept));
    assert!(builds.log(other.id, 0).await.unwrap().is_some());
    Ok(())
}
