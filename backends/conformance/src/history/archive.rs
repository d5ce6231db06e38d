//! The archive of ended deploys.

use rollhook_core::{
    Error,
    app::AppUid,
    deploy::{Deploy, Reason, Sequence, State},
    ledger::{Admission, Change, NewDeploy, OtherDeploys, Record, UNFINISHED_MAX},
    ports::{AppPage, AppRef, HistoryStore, Loaded, Page, UnreadableApp},
};

use super::{commit_all, registered, revisions};
use crate::{client, report::Can, samples, stores::Stores};

/// How many deploys the archive of the paged app has.
const ARCHIVED: u64 = 520;

/// Ended deploys are in the archive as they were committed, unfinished ones are not, and forgotten ones are gone.
pub async fn commit_archives_and_forgets(store: &dyn Stores) -> Can {
    let ([one, two], uid) = registered(store).await;
    for tag in ["v1", "v2", "v3", "v4", "v5"] {
        client::admit(&*one, uid, samples::admission(samples::deploy(tag))).await;
    }
    assert_eq!(client::archive(&*two, uid).await, [], "unfinished deploys are in the state alone");
    let ends = [
        State::Succeeded { note: Some("0 replicas: no pod runs 🦀".to_owned()) },
        State::Failed {
            reason: Reason::new("CrashLoopBackOff"),
            message: "it crashes".to_owned(),
            evidence: Some(samples::evidence()),
        },
        samples::cancelled("by alice"),
    ];
    let (mut expected, _) = client::change(&*one, uid, |change, now| {
        let deploys = change.state.unfinished.iter().zip(&ends);
        let changes = deploys.map(|(deploy, end)| {
            let (touched, digest, kept_until) = (true, Some(samples::digest(1)), Some(now));
            Deploy { touched, digest, kept_until, ..deploy.moved(end.clone()) }
        });
        let record = Record { changes: changes.collect(), ..Record::default() };
        change.record(record, now).unwrap();
        change.ended.iter().map(|deploy| (**deploy).clone()).collect::<Vec<_>>()
    })
    .await;
    expected.reverse();
    assert_eq!(revisions(&expected), [3, 2, 1]);
    for history in [&*one, &*two, &*store.open().await.history] {
        assert_eq!(client::archive(history, uid).await, expected);
    }

    let (superseded, _) = client::change(&*two, uid, |change, now| {
        let rollback = samples::admission(samples::rollback("v1", samples::revision(1)));
        samples::admit(change, Admission { others: OtherDeploys::EndSuperseded, ..rollback }, now);
        change.forget(vec![samples::revision(2), samples::revision(77)], now);
        change.ended.iter().rev().map(|deploy| (**deploy).clone()).collect::<Vec<_>>()
    })
    .await;
    assert_eq!(revisions(&superseded), [5, 4]);
    expected.remove(1);
    expected.splice(0..0, superseded);
    for history in [&*one, &*two] {
        assert_eq!(client::archive(history, uid).await, expected, "archived and forgotten in one commit");
        assert_eq!(history.archived(uid, samples::revision(2)).await.unwrap(), None);
    }
    client::change(&*one, uid, |change, now| change.forget(vec![samples::revision(2)], now)).await;
    assert_eq!(client::archive(&*two, uid).await, expected, "forgetting again changes nothing");
    let all = expected.iter().map(|deploy| deploy.revision).collect();
    client::change(&*one, uid, |change, now| change.forget(all, now)).await;
    assert_eq!(client::archive(&*two, uid).await, []);
    assert_eq!(client::load(&*two, uid).await.state.latest, Some(samples::revision(6)));
    Ok(())
}

/// A deploy that ends in the commit which accepts it is in the archive, and found by its key.
pub async fn deploy_that_ends_as_it_is_accepted_is_archived(store: &dyn Stores) -> Can {
    let ([one, two], uid) = registered(store).await;
    let run = |number: u64| NewDeploy { order: Sequence::new(number).into(), ..samples::deploy("v1") };
    client::admit(&*one, uid, samples::admission(run(7))).await;
    let key = samples::key("late", 1);
    let late = client::admit(&*one, uid, samples::keyed(key.clone(), run(6))).await;
    assert!(late.is_out_of_order(), "{late:?}");
    for history in [&*one, &*two, &*store.open().await.history] {
        assert_eq!(client::archive(history, uid).await, std::slice::from_ref(&late));
        assert_eq!(history.archived(uid, late.revision).await.unwrap(), Some(late.clone()));
        let loaded = history.load(AppRef::Uid(uid), Some(&key)).await.unwrap().expect("the app is there");
        assert_eq!(loaded.key.map(|used| used.revision), Some(late.revision));
        assert_eq!((loaded.state.unfinished.len(), loaded.state.latest), (1, Some(late.revision)));
    }
    Ok(())
}

/// The newest come first; `before`, `succeeded` and `limit` narrow it; an unknown app has no archive.
pub async fn page_is_newest_first(store: &dyn Stores) -> Can {
    let ([one, two], uid) = registered(store).await;
    assert_eq!(page(&*one, uid, None, false, 10).await, [0; 0]);
    let expected = fill(&*one, uid).await;
    let whole = two.page(uid, Page::newest(10_000)).await.unwrap();
    assert_eq!(whole, expected.iter().map(Deploy::without_logs).collect::<Vec<_>>());

    let newest = |from: u64, count: u64| (0..count).map(|number| from - number).collect::<Vec<_>>();
    assert_eq!(page(&*two, uid, None, false, 3).await, newest(520, 3));
    assert_eq!(page(&*two, uid, Some(10), false, 3).await, newest(9, 3));
    assert_eq!(page(&*two, uid, Some(3), false, 9).await, [2, 1]);
    assert_eq!(page(&*two, uid, Some(1), false, 9).await, [0; 0]);
    assert_eq!(page(&*two, uid, Some(100_000), false, 1).await, [520]);
    assert_eq!(page(&*two, uid, Some(523), false, 2).await, newest(520, 2), "unfinished deploys are not archived");
    assert_eq!(page(&*two, uid, None, false, 0).await, [0; 0]);
    assert_eq!(page(&*two, uid, None, true, 3).await, [518, 511, 504]);
    assert_eq!(page(&*two, uid, Some(504), true, 2).await, [497, 490]);
    assert_eq!(page(&*two, uid, Some(7), true, 9).await, [0; 0]);
    assert_eq!(page(&*two, uid, None, true, 1000).await, (1..=74).rev().map(|number| number * 7).collect::<Vec<_>>());
    let unknown = Page::newest(9);
    assert_eq!(one.page(AppUid::from_bits(404), unknown).await.unwrap(), []);

    let paged = by_pages(&*one, uid).await;
    assert_eq!(paged, newest(520, ARCHIVED));
    assert_eq!(two.archived(uid, samples::revision(77)).await.unwrap().as_ref(), expected.get(520 - 77));
    assert_eq!(two.archived(uid, samples::revision(521)).await.unwrap(), None, "it is unfinished");
    assert_eq!(two.archived(uid, samples::revision(999)).await.unwrap(), None);

    let forgotten = (101..=200).map(samples::revision).collect();
    client::change(&*one, uid, |change, now| change.forget(forgotten, now)).await;
    let left: Vec<u64> = paged.into_iter().filter(|number| !(101..=200).contains(number)).collect();
    assert_eq!(by_pages(&*two, uid).await, left);
    assert_eq!(page(&*two, uid, Some(202), false, 3).await, [201, 100, 99]);
    assert_eq!(page(&*two, uid, Some(203), true, 2).await, [98, 91]);
    Ok(())
}

/// The deploys of a page have of their evidence the states of several workloads alone, however many they are and on whichever
/// handle; one deploy is read with all of it.
pub async fn page_has_no_logs(store: &dyn Stores) -> Can {
    let ([one, two], uid) = registered(store).await;
    let mut archived = fill(&*one, uid).await;
    let failed = client::admit(&*one, uid, samples::admission(samples::deploy("failed"))).await;
    let message = "it crashes".to_owned();
    let end = State::Failed { reason: Reason::new("Error"), message, evidence: Some(samples::evidence()) };
    client::record(&*one, uid, vec![failed.moved(end)]).await;
    // Also just after its end.
    let newest = one.archived(uid, failed.revision).await.unwrap().expect("it has ended");
    archived.insert(0, newest);
    for history in [&*one, &*two, &*store.open().await.history] {
        for limit in [1, 30, 1000] {
            let page = history.page(uid, Page::newest(limit)).await.unwrap();
            let bare: Vec<Deploy> = archived.iter().take(limit).map(Deploy::without_logs).collect();
            assert!(page == bare, "a page of {limit} has the deploys without their logs");
        }
        for deploy in [&archived[0], &archived[521 - 500], &archived[521 - 499]] {
            let read = history.archived(uid, deploy.revision).await.unwrap();
            assert_eq!(read.as_ref(), Some(deploy), "one deploy has its evidence");
        }
    }
    let has_evidence = |deploy: &Deploy| *deploy != deploy.without_logs();
    assert!(has_evidence(&archived[0]) && has_evidence(&archived[521 - 500]), "the archive keeps the evidence");
    Ok(())
}

/// Archives deploys, every seventh of which succeeded and every fiftieth of which has evidence, and returns them,
/// newest first; two more are unfinished.
async fn fill(history: &dyn HistoryStore, uid: AppUid) -> Vec<Deploy> {
    let mut archived = Vec::new();
    while archived.len() < ARCHIVED as usize {
        let count = UNFINISHED_MAX.min(ARCHIVED as usize - archived.len());
        client::change(history, uid, |change, now| {
            for _ in 0..count {
                samples::admit(change, samples::admission(samples::deploy("paged")), now);
            }
        })
        .await;
        let (ended, _) = client::change(history, uid, |change, now| {
            let changes = change.state.unfinished.iter().map(|deploy| deploy.moved(end(deploy))).collect();
            change.record(Record { changes, ..Record::default() }, now).unwrap();
            change.ended.clone()
        })
        .await;
        archived.extend(ended.iter().map(|deploy| (**deploy).clone()));
    }
    for _ in 0..2 {
        client::admit(history, uid, samples::admission(samples::deploy("unfinished"))).await;
    }
    archived.reverse();
    archived
}

fn end(deploy: &Deploy) -> State {
    let evidence = deploy.revision.get().is_multiple_of(50).then(samples::evidence);
    match (deploy.revision.get() % 7, samples::failed()) {
        (0, _) => samples::succeeded(),
        (_, State::Failed { reason, message, .. }) => State::Failed { reason, message, evidence },
        (_, other) => other,
    }
}

async fn page(history: &dyn HistoryStore, uid: AppUid, before: Option<u64>, succeeded: bool, limit: usize) -> Vec<u64> {
    let page = Page::newest(limit).below(before.map(samples::revision)).succeeded(succeeded);
    revisions(&history.page(uid, page).await.unwrap())
}

/// The whole archive, read by pages of 50.
async fn by_pages(history: &dyn HistoryStore, uid: AppUid) -> Vec<u64> {
    let mut paged = Vec::new();
    loop {
        let next = page(history, uid, paged.last().copied(), false, 50).await;
        if next.is_empty() {
            return paged;
        }
        paged.extend(next);
    }
}

/// Commits a sound app in one call with a damaged one, as a journal does that knows both.
async fn commit_beside(history: &dyn HistoryStore, sound: AppUid, damaged: Loaded) {
    let lease = |loaded: Loaded| {
        let mut change = Change::on(loaded.state);
        change.lease(&samples::replica("driver", 0), loaded.now);
        client::put(change, loaded.version)
    };
    let sound = client::load(history, sound).await;
    let answers = commit_all(history, vec![lease(damaged), lease(sound)]).await;
    assert!(answers[1].is_ok(), "{answers:?}");
}

/// A state or deploy that cannot be read is an error, and other apps stay readable.
pub async fn corrupt_is_an_error(store: &dyn Stores) -> Can {
    let ([one, _], uid) = registered(store).await;
    let sound = client::register(&*one, samples::app("shop", "prod", "api")).await.state.app.uid;
    let accept = |change: &mut Change, now| samples::admit(change, samples::admission(samples::deploy("v1")), now);
    client::change(&*one, sound, accept).await;
    let sound = client::load(&*one, sound).await.state;
    for end in [samples::succeeded(), samples::succeeded(), samples::failed()] {
        let deploy = client::admit(&*one, uid, samples::admission(samples::deploy("v1"))).await;
        client::record(&*one, uid, vec![deploy.moved(end)]).await;
    }
    let damaged = client::load(&*one, uid).await;
    let id = damaged.state.app.id.clone();

    store.corrupt_entry(uid, samples::revision(2)).await?;
    for history in [&*one, &*store.open().await.history] {
        for succeeded in [false, true] {
            let page = history.page(uid, Page::newest(9).succeeded(succeeded)).await;
            assert!(matches!(page, Err(Error::Corrupt { .. })), "{page:?}");
        }
        let entry = history.archived(uid, samples::revision(2)).await;
        assert!(matches!(entry, Err(Error::Corrupt { .. })), "{entry:?}");
        assert_eq!(page(history, uid, Some(2), false, 9).await, [1], "the deploys below it can be read");
        client::load(history, uid).await;
    }

    store.corrupt_state(uid).await?;
    for history in [&*one, &*store.open().await.history] {
        for app in [AppRef::Uid(uid), AppRef::Name(&id)] {
            let loaded = history.load(app, None).await;
            assert!(matches!(loaded, Err(Error::Corrupt { .. })), "{loaded:?}");
        }
        let list = history.list(AppPage::first(9)).await.unwrap();
        let [Ok(listed), Err(UnreadableApp { id: named, error: Error::Corrupt { .. } })] = &list[..] else {
            panic!("the damaged app is named, and the other one is listed: {list:?}")
        };
        assert_eq!((&listed.app, named), (&sound.app, &id));
        let work = history.work(&[], 9).await.unwrap();
        assert!(work.contains(&sound.app.uid), "the others' work is found: {work:?}");
        assert_eq!(client::load(history, sound.app.uid).await.state, sound);
    }
    commit_beside(&*one, sound.app.uid, damaged).await;
    Ok(())
}
