//! Accepting.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use rollhook_core::{
    Error,
    app::{App, AppUid, HOLDS_MAX},
    deploy::{Deploy, Revision, State, Status},
    ports::{Admission, Admitted, UNFINISHED_MAX},
    request::{IdempotencyKey, KeyHeader},
};

use super::{admit, all, entry, failed, keyed, moved, new, record_of, registered, reread, revisions, succeeded};
use crate::{report::Can, samples, stores::Stores};

/// Revisions are 1, 2, 3, … per app, though fifty are accepted at once through two handles.
pub async fn admit_numbers_without_gaps(store: &dyn Stores) -> Can {
    let (one, app) = registered(store).await;
    let handles = store.open().await;
    let other = handles.apps.create(samples::app("shop", "prod", "api")).await.unwrap();
    let two = handles.history;
    let first = admit(&*one, &app, samples::draft("first")).await;
    assert_eq!((first.revision, first.effective), (Revision::FIRST, Revision::FIRST));
    assert_eq!((first.status(), first.step, first.touched), (Status::Queued, 0, false));

    let admissions: Vec<Admission> =
        (2..=51).map(|number| samples::admission(&app, samples::draft(&format!("v{number}")))).collect();
    let ids: BTreeSet<_> = admissions.iter().map(|admission| admission.id).collect();
    let accepts = admissions.into_iter().enumerate();
    let accepts = accepts.map(|(at, admission)| if at % 2 == 0 { one.admit(admission) } else { two.admit(admission) });
    let admitted: Vec<Deploy> = join_all(accepts).await.into_iter().map(|answer| new(answer.unwrap())).collect();

    let numbers: BTreeSet<u64> = revisions(&admitted).into_iter().collect();
    assert_eq!(numbers, (2..=51).collect(), "each has its own, without gaps");
    let stored = all(&*two, &app).await;
    assert_eq!(revisions(&stored), (1..=51).rev().collect::<Vec<u64>>());
    for deploy in admitted {
        assert_eq!(entry(&*one, &app, deploy.revision).await, deploy, "stored as it was answered");
        assert!(ids.contains(&deploy.id));
    }
    assert_eq!(admit(&*two, &other, samples::draft("first")).await.revision, Revision::FIRST, "each app counts");
    Ok(())
}

/// The same request under the same key is the same entry, as it is now; also for twenty at once.
pub async fn admit_same_key_replays(store: &dyn Stores) -> Can {
    let (one, app) = registered(store).await;
    let two = store.open().await.history;
    let key = || samples::key("run-1", 1);
    let accepts = (0..20).map(|at| {
        let admission = keyed(&app, samples::draft("v1"), key());
        if at % 2 == 0 { one.admit(admission) } else { two.admit(admission) }
    });
    let answers: Vec<Admitted> = join_all(accepts).await.into_iter().map(Result::unwrap).collect();
    let made: Vec<&Deploy> = answers.iter().filter_map(as_new).collect();
    let [made] = made[..] else { panic!("one of many is new: {answers:?}") };
    for answer in &answers {
        assert!(matches!(answer, Admitted::New { .. }) || is_replay(answer, made), "{answer:?}");
    }
    assert_eq!(revisions(&all(&*one, &app).await), [1]);

    let done = moved(&*one, &app, made, succeeded()).await;
    let again = two.admit(keyed(&app, samples::draft("v1"), key())).await.unwrap();
    assert!(is_replay(&again, &done), "the entry as it is now: {again:?}");

    let next = new(one.admit(keyed(&app, samples::draft("v1"), samples::key("run-2", 1))).await.unwrap());
    assert_eq!(next.revision, samples::revision(2), "another key is another deploy");
    let again = two.admit(keyed(&app, samples::draft("v1"), key())).await.unwrap();
    assert!(is_replay(&again, &done), "not the newest, but the key's own: {again:?}");
    Ok(())
}

/// A key that was used for another request is refused, and nothing is recorded.
pub async fn admit_same_key_other_request_is_reused(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let first = new(history.admit(keyed(&app, samples::draft("v1"), samples::key("run-1", 1))).await.unwrap());
    let other = history.admit(keyed(&app, samples::draft("v2"), samples::key("run-1", 2))).await.unwrap();
    assert_eq!(other, Admitted::KeyReused);
    assert_eq!(all(&*history, &app).await, std::slice::from_ref(&first));
    let again = history.admit(keyed(&app, samples::draft("v1"), samples::key("run-1", 1))).await.unwrap();
    assert!(is_replay(&again, &first), "{again:?}");
    Ok(())
}

/// The same text for another app, or in another header, is another key.
pub async fn admit_keys_are_per_app_and_header(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let other = store.open().await.apps.create(samples::app("shop", "prod", "api")).await.unwrap();
    let key = |header| IdempotencyKey::new(header, "same", [1; 32]).unwrap();
    for app in [&app, &other] {
        for (header, number) in
            [KeyHeader::IdempotencyKey, KeyHeader::WebhookId, KeyHeader::GithubDelivery].into_iter().zip(1..)
        {
            let deploy = new(history.admit(keyed(app, samples::draft("v1"), key(header))).await.unwrap());
            assert_eq!(deploy.revision, samples::revision(number));
            let again = history.admit(keyed(app, samples::draft("v1"), key(header))).await.unwrap();
            assert!(is_replay(&again, &deploy), "{again:?}");
        }
    }
    Ok(())
}

/// A key is free again after its header's time, and not before.
pub async fn admit_key_expires(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let key = |header, request| IdempotencyKey::new(header, "run-1", [request; 32]).unwrap();
    let short = || key(KeyHeader::IdempotencyKey, 1);
    let long = || key(KeyHeader::WebhookId, 1);
    let first = new(history.admit(keyed(&app, samples::draft("v1"), short())).await.unwrap());
    let second = new(history.admit(keyed(&app, samples::draft("v2"), long())).await.unwrap());
    let minute = Duration::from_secs(60);

    store.advance(KeyHeader::IdempotencyKey.kept_for() - minute).await?;
    assert!(is_replay(&history.admit(keyed(&app, samples::draft("v1"), short())).await.unwrap(), &first));
    store.advance(2 * minute).await?;
    let other = history.admit(keyed(&app, samples::draft("v3"), key(KeyHeader::IdempotencyKey, 3))).await.unwrap();
    assert_eq!(new(other).revision, samples::revision(3), "the key is free, for any request");
    assert!(is_replay(&history.admit(keyed(&app, samples::draft("v2"), long())).await.unwrap(), &second));
    store.advance(KeyHeader::WebhookId.kept_for() - KeyHeader::IdempotencyKey.kept_for()).await?;
    let again = history.admit(keyed(&app, samples::draft("v2"), long())).await.unwrap();
    assert_eq!(new(again).revision, samples::revision(4));
    assert_eq!(revisions(&all(&*history, &app).await), [4, 3, 2, 1], "the entries stay");
    Ok(())
}

/// A decision made on other policy or holds is stale: nothing is recorded; a known key replays first.
pub async fn admit_stale_guard(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let key = || samples::key("run-1", 1);
    let first = new(history.admit(keyed(&app, samples::draft("v1"), key())).await.unwrap());
    let updated = store.open().await.apps.update(app.clone()).await.unwrap();
    let held = Admission {
        hold: Some(samples::hold("bad")),
        supersede: true,
        ..samples::admission(&app, samples::draft("v2"))
    };
    assert_eq!(history.admit(held).await.unwrap(), Admitted::Stale);
    let other_key = keyed(&app, samples::draft("v2"), samples::key("run-2", 2));
    assert_eq!(history.admit(other_key.clone()).await.unwrap(), Admitted::Stale);
    let ahead = App { guard: updated.guard + 1, ..updated.clone() };
    assert_eq!(history.admit(samples::admission(&ahead, samples::draft("v2"))).await.unwrap(), Admitted::Stale);
    let view = history.view(app.uid).await.unwrap();
    assert_eq!((view.app, view.unfinished), (updated.clone(), vec![first.clone()]), "nothing is recorded");

    assert!(is_replay(&history.admit(keyed(&app, samples::draft("v1"), key())).await.unwrap(), &first));
    let reused = keyed(&app, samples::draft("v2"), samples::key("run-1", 2));
    assert_eq!(history.admit(reused).await.unwrap(), Admitted::KeyReused);
    let retried = Admission { guard: updated.guard, ..other_key };
    assert_eq!(new(history.admit(retried).await.unwrap()).revision, samples::revision(2), "the key was not taken");
    Ok(())
}

/// A decision made before a newer revision came is stale, where it says so; a known key replays first.
pub async fn admit_stale_after(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let after = |last: Option<u64>, tag| Admission {
        after: Some(last.map(samples::revision)),
        ..samples::admission(&app, samples::draft(tag))
    };
    assert_eq!(history.admit(after(Some(1), "v1")).await.unwrap(), Admitted::Stale);
    let first =
        new(history.admit(Admission { key: Some(samples::key("run-1", 1)), ..after(None, "v1") }).await.unwrap());
    assert_eq!(first.revision, Revision::FIRST);
    assert_eq!(history.admit(after(None, "v2")).await.unwrap(), Admitted::Stale);
    assert_eq!(history.admit(after(Some(2), "v2")).await.unwrap(), Admitted::Stale);
    let done = moved(&*history, &app, &first, failed()).await;
    assert_eq!(revisions(&all(&*history, &app).await), [1], "nothing is recorded");
    assert_eq!(new(history.admit(after(Some(1), "v2")).await.unwrap()).revision, samples::revision(2));
    let replay = Admission { key: Some(samples::key("run-1", 1)), ..after(None, "v1") };
    assert!(is_replay(&history.admit(replay).await.unwrap(), &done));

    let two = store.open().await.history;
    let race = (0..10)
        .map(|at| if at % 2 == 0 { history.admit(after(Some(2), "v3")) } else { two.admit(after(Some(2), "v3")) });
    let answers: Vec<Admitted> = join_all(race).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(answers.iter().filter(|answer| **answer == Admitted::Stale).count(), 9, "one of many at once");
    Ok(())
}

/// At [`UNFINISHED_MAX`] nothing is recorded; what supersedes the others is no addition to them.
pub async fn admit_full(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let max = u64::try_from(UNFINISHED_MAX).unwrap();
    let mut first = None;
    for number in 1..=max {
        let deploy = new(history
            .admit(keyed(&app, samples::draft("v"), samples::key(&format!("run-{number}"), 1)))
            .await
            .unwrap());
        first.get_or_insert(deploy);
    }
    let first = first.unwrap();
    let refused = keyed(&app, samples::draft("v"), samples::key("run-101", 1));
    assert_eq!(history.admit(refused.clone()).await.unwrap(), Admitted::Full);
    assert_eq!(history.view(app.uid).await.unwrap().last, Some(samples::revision(max)));
    let known = history.admit(keyed(&app, samples::draft("v"), samples::key("run-1", 1))).await.unwrap();
    assert!(is_replay(&known, &first), "{known:?}");
    let other = store.open().await.apps.create(samples::app("shop", "prod", "api")).await.unwrap();
    admit(&*history, &other, samples::draft("v")).await;

    moved(&*history, &app, &first, failed()).await;
    assert_eq!(new(history.admit(refused).await.unwrap()).revision, samples::revision(max + 1), "there is room again");
    assert_eq!(history.admit(samples::admission(&app, samples::draft("v"))).await.unwrap(), Admitted::Full);
    let rollback = Admission { supersede: true, ..samples::admission(&app, samples::rollback("v", Revision::FIRST)) };
    let Admitted::New { superseded, deploy } = history.admit(rollback).await.unwrap() else {
        panic!("a rollback waits")
    };
    assert_eq!(superseded.len(), UNFINISHED_MAX);
    assert_eq!(history.view(app.uid).await.unwrap().unfinished, [deploy]);
    Ok(())
}

/// Everything unfinished ends `superseded` by the new entry in the same write, and is listed, ascending.
pub async fn admit_supersedes(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let one = admit(&*history, &app, samples::draft("v1")).await;
    let one = moved(&*history, &app, &one, succeeded()).await;
    let two = admit(&*history, &app, samples::draft("v2")).await;
    let rolling = State::RollingOut { since: two.created_at, outage: Default::default() };
    let two = moved(&*history, &app, &two, rolling).await;
    let three = admit(&*history, &app, samples::draft("v3")).await;

    let by = Admission { supersede: true, ..samples::admission(&app, samples::rollback("v1", one.revision)) };
    let Admitted::New { deploy, superseded } = history.admit(by).await.unwrap() else { panic!("not new") };
    assert_eq!(superseded, [two.revision, three.revision]);
    assert_eq!((deploy.revision, deploy.effective), (samples::revision(4), one.revision));
    for before in [two, three] {
        let ended = entry(&*history, &app, before.revision).await;
        let state = State::Superseded { by: deploy.revision, rollback: true };
        assert_eq!(ended, Deploy { updated_at: ended.updated_at, ..before.moved(state) });
        assert!(ended.updated_at >= before.updated_at);
        let late = history.record(record_of(&app, vec![before.moved(failed())])).await;
        assert!(matches!(late, Err(Error::Conflict("deploy"))), "its end stands: {late:?}");
    }
    assert_eq!(entry(&*history, &app, one.revision).await, one, "what has ended stays as it is");

    let five = Admission { supersede: true, ..samples::admission(&app, samples::draft("v5")) };
    let Admitted::New { superseded, .. } = history.admit(five).await.unwrap() else { panic!("not new") };
    assert_eq!(superseded, [deploy.revision]);
    let ended = entry(&*history, &app, deploy.revision).await;
    assert_eq!(ended.state, State::Superseded { by: samples::revision(5), rollback: false });
    let six = admit(&*history, &app, samples::draft("v6")).await;
    let view = history.view(app.uid).await.unwrap();
    assert_eq!(revisions(&view.unfinished), [5, six.revision.get()], "one that does not say so supersedes nothing");
    Ok(())
}

/// The hold is in the app, by the new revision, with the guard counted up; the oldest go where there are too many.
pub async fn admit_holds(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let by = Admission {
        hold: Some(samples::hold("bad")),
        ..samples::admission(&app, samples::rollback("v1", Revision::FIRST))
    };
    let deploy = new(history.admit(by).await.unwrap());
    let held = store.open().await.apps.find(&app.id).await.unwrap().unwrap();
    assert_eq!(held.guard, app.guard + 1);
    assert_eq!(held.holds, [rollhook_core::app::Hold { by: deploy.revision, ..samples::hold("bad") }]);
    assert_eq!(reread(&*history, &app).await, held);
    assert_eq!(history.admit(samples::admission(&app, samples::draft("v2"))).await.unwrap(), Admitted::Stale);

    let mut latest = held;
    for _ in 0..HOLDS_MAX {
        let draft = samples::rollback("v1", Revision::FIRST);
        let hold = Some(samples::hold("bad"));
        new(history.admit(Admission { hold, supersede: true, ..samples::admission(&latest, draft) }).await.unwrap());
        latest = reread(&*history, &app).await;
    }
    let by: Vec<u64> = latest.holds.iter().map(|hold| hold.by.get()).collect();
    assert_eq!(by, (2..=1 + HOLDS_MAX as u64).collect::<Vec<_>>(), "the oldest went first");
    Ok(())
}

/// A uid that is not registered, or no more, accepts nothing.
pub async fn admit_unknown_app_is_not_found(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let unknown = App { uid: AppUid::from_bits(404), ..app.clone() };
    let answer = history.admit(samples::admission(&unknown, samples::draft("v1"))).await;
    assert!(matches!(answer, Err(Error::NotFound("app"))), "{answer:?}");
    let key = samples::key("run-1", 1);
    new(history.admit(keyed(&app, samples::draft("v1"), key.clone())).await.unwrap());
    let apps = store.open().await.apps;
    apps.remove(app.uid).await.unwrap();
    apps.create(App { uid: AppUid::from_bits(7), ..app.clone() }).await.unwrap();
    let answer = history.admit(keyed(&app, samples::draft("v1"), key)).await;
    assert!(matches!(answer, Err(Error::NotFound("app"))), "a late accept of a removed app: {answer:?}");
    Ok(())
}

fn as_new(answer: &Admitted) -> Option<&Deploy> {
    match answer {
        Admitted::New { deploy, .. } => Some(deploy),
        Admitted::Replay(_) | Admitted::KeyReused | Admitted::Stale | Admitted::Full => None,
    }
}

fn is_replay(answer: &Admitted, of: &Deploy) -> bool {
    matches!(answer, Admitted::Replay(deploy) if deploy == of)
}
