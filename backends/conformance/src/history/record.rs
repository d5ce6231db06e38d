//! Changing entries.

use std::time::Duration;

use futures_util::future::join_all;
use rollhook_core::{
    Error,
    app::App,
    deploy::{Deploy, Evidence, Outage, Reason, Revision, State},
    ports::{Admission, Claim, History, Record},
};

use super::{admit, all, entry, failed, moved, new, record_of, registered, reread, succeeded};
use crate::{report::Can, samples, stores::Stores};

/// An entry takes the step that follows its last, until it has ended; where one cannot, nothing is written.
pub async fn record_moves_forward_only(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let one = admit(&*history, &app, samples::draft("v1")).await;
    let two = admit(&*history, &app, samples::draft("v2")).await;
    let outage = Outage { since: Some(one.created_at), past: Duration::from_secs(3) };
    let rolling = State::RollingOut { since: one.created_at, outage };
    let change = Deploy { touched: true, digest: Some(samples::digest(1)), ..one.moved(rolling.clone()) };
    history.record(record_of(&app, vec![change.clone()])).await.unwrap();
    let stored = entry(&*history, &app, one.revision).await;
    assert_eq!(stored, Deploy { updated_at: stored.updated_at, ..change.clone() }, "stored as it is to be");

    let again = || record_of(&app, vec![change.clone()]);
    assert_conflict(&*history, again()).await;
    assert_conflict(&*history, record_of(&app, vec![Deploy { step: 3, ..stored.clone() }])).await;
    assert_conflict(&*history, record_of(&app, vec![stored.clone()])).await;
    let both = record_of(&app, vec![two.moved(failed()), change.clone()]);
    assert_conflict(&*history, Record { lift: vec![Revision::FIRST], ..both }).await;
    assert_eq!(all(&*history, &app).await, [two.clone(), stored.clone()], "nothing of it is written");
    assert_eq!(reread(&*history, &app).await, app);

    let evidence = Evidence {
        container: Some("app".to_owned()),
        pod: Some("api-1".to_owned()),
        state: Some("terminated: exit code 1".to_owned()),
        events: vec!["Warning BackOff: \"restarting\"".to_owned()],
        log: vec!["\u{1b}[31mpanic\u{1b}[0m \\ 'ü'".to_owned(), String::new()],
    };
    let end = State::Failed {
        reason: Reason::new("CrashLoopBackOff"),
        message: "it crashes".to_owned(),
        evidence: Some(evidence),
    };
    let ends = vec![
        stored.moved(end.clone()),
        two.moved(State::Cancelled { reason: Reason::new(Reason::CANCELLED), message: "by alice".to_owned() }),
    ];
    history.record(record_of(&app, ends)).await.unwrap();
    let ended = entry(&*history, &app, one.revision).await;
    assert_eq!((ended.step, &ended.state), (2, &end), "both are written, with all they hold");
    assert_conflict(&*history, record_of(&app, vec![ended.moved(rolling)])).await;
    assert_conflict(&*history, record_of(&app, vec![ended.moved(succeeded())])).await;
    race(store, &*history, &app).await;
    Ok(())
}

/// Of many that take the same step at once, one does.
async fn race(store: &dyn Stores, one: &dyn History, app: &App) {
    let two = store.open().await.history;
    let deploy = admit(one, app, samples::draft("v3")).await;
    let ends = (0..10).map(|at| {
        let message = format!("by {at}");
        let end = deploy.moved(State::Cancelled { reason: Reason::new(Reason::CANCELLED), message });
        let record = record_of(app, vec![end]);
        if at % 2 == 0 { one.record(record) } else { two.record(record) }
    });
    let outcomes = join_all(ends).await;
    let winners: Vec<usize> = (0..10).filter(|at| outcomes[*at].is_ok()).collect();
    let [winner] = winners[..] else { panic!("one of many at once: {outcomes:?}") };
    assert!(outcomes.iter().all(|outcome| matches!(outcome, Ok(()) | Err(Error::Conflict("deploy")))), "{outcomes:?}");
    let stored = entry(&*two, app, deploy.revision).await.state;
    assert!(matches!(&stored, State::Cancelled { message, .. } if *message == format!("by {winner}")), "{stored:?}");
}

/// An engine writes under a claim on the app that is its own; a person needs none.
pub async fn record_needs_the_claim(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let deploy = admit(&*history, &app, samples::draft("v1")).await;
    let rolling = deploy.moved(State::RollingOut { since: deploy.created_at, outage: Outage::default() });
    let under =
        |incarnation, change: &Deploy| Record { claim: Some(incarnation), ..record_of(&app, vec![change.clone()]) };
    assert_claim_conflict(&*history, under(1, &rolling)).await;

    let ttl = Duration::from_secs(600);
    let claim =
        |incarnation| Claim { replica: samples::replica(&format!("r{incarnation}"), incarnation), ttl, limit: 9 };
    assert_eq!(history.claim(claim(1)).await.unwrap().apps, [app.uid]);
    assert_eq!(history.claim(claim(2)).await.unwrap().apps, []);
    assert_claim_conflict(&*history, under(2, &rolling)).await;
    let only_rest = Record { claim: Some(2), rest: true, ..record_of(&app, Vec::new()) };
    assert_claim_conflict(&*history, only_rest).await;
    assert_eq!(all(&*history, &app).await, std::slice::from_ref(&deploy), "nothing is written");

    history.record(under(1, &rolling)).await.unwrap();
    let stored = entry(&*history, &app, deploy.revision).await;
    let cancelled = State::Cancelled { reason: Reason::new(Reason::CANCELLED), message: "by alice".to_owned() };
    let done = moved(&*history, &app, &stored, cancelled).await;
    assert_conflict(&*history, under(1, &done.moved(succeeded()))).await;
    Ok(())
}

/// An entry that turned out not to have touched the cluster leaves it to the one that did before.
pub async fn record_takes_a_touch_back(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let mut deploys = Vec::new();
    for tag in ["v1", "v2", "v3"] {
        let deploy = admit(&*history, &app, samples::draft(tag)).await;
        let rolling = deploy.moved(State::RollingOut { since: deploy.created_at, outage: Outage::default() });
        history.record(record_of(&app, vec![Deploy { touched: true, ..rolling }])).await.unwrap();
        deploys.push(entry(&*history, &app, deploy.revision).await);
    }
    let on_cluster = async || history.view(app.uid).await.unwrap().on_cluster.map(|deploy| deploy.revision.get());
    assert_eq!(on_cluster().await, Some(3));
    for (deploy, left) in deploys.iter().rev().zip([Some(2), Some(1), None]) {
        let refused = Deploy { touched: false, ..deploy.moved(failed()) };
        history.record(record_of(&app, vec![refused])).await.unwrap();
        assert!(!entry(&*history, &app, deploy.revision).await.touched);
        assert_eq!(on_cluster().await, left);
    }
    Ok(())
}

/// Holds of the named rollbacks are lifted, others stay, and the guard counts up.
pub async fn record_lifts_holds(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let mut latest = app.clone();
    for tag in ["bad1", "bad2", "bad3"] {
        let hold = Some(samples::hold(tag));
        let admission = Admission { hold, ..samples::admission(&latest, samples::rollback("v1", Revision::FIRST)) };
        new(history.admit(admission).await.unwrap());
        latest = reread(&*history, &app).await;
    }
    let lift = vec![samples::revision(1), samples::revision(3)];
    let deploy = entry(&*history, &app, samples::revision(3)).await;
    history.record(Record { lift, ..record_of(&app, vec![deploy.moved(succeeded())]) }).await.unwrap();
    let lifted = reread(&*history, &app).await;
    assert_eq!(lifted.holds, latest.holds[1..2]);
    assert!(lifted.guard > latest.guard, "a decision made on the holds is stale");
    assert_eq!(entry(&*history, &app, deploy.revision).await.state, succeeded(), "written together");

    history.record(record_of(&app, Vec::new())).await.unwrap();
    assert_eq!(reread(&*history, &app).await, lifted, "the guard stays where nothing is lifted");
    Ok(())
}

/// Stored times follow each other, though the store's clock be set back.
pub async fn times_never_decrease(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let one = admit(&*history, &app, samples::draft("v1")).await;
    assert!(one.created_at >= app.created_at && one.updated_at >= one.created_at);
    store.set_back(Duration::from_secs(3600)).await?;
    let two = admit(&*history, &app, samples::draft("v2")).await;
    assert!(two.created_at >= one.updated_at, "{two:?} after {one:?}");
    let one = moved(&*history, &app, &one, succeeded()).await;
    assert!(one.updated_at >= two.updated_at, "{one:?} after {two:?}");
    store.set_back(Duration::from_secs(3600)).await?;
    let by = Admission { supersede: true, ..samples::admission(&app, samples::rollback("v1", Revision::FIRST)) };
    let three = new(history.admit(by).await.unwrap());
    assert!(three.created_at >= one.updated_at, "{three:?} after {one:?}");
    let two = entry(&*history, &app, two.revision).await;
    assert!(two.updated_at >= one.updated_at, "{two:?} after {one:?}");
    store.advance(Duration::from_secs(3 * 3600)).await?;
    let later = moved(&*history, &app, &three, succeeded()).await;
    assert!(later.updated_at > three.created_at, "and go on once the clock does");
    Ok(())
}

async fn assert_conflict(history: &dyn History, record: Record) {
    let outcome = history.record(record).await;
    assert!(matches!(outcome, Err(Error::Conflict("deploy"))), "not a conflict of the deploy: {outcome:?}");
}

async fn assert_claim_conflict(history: &dyn History, record: Record) {
    let outcome = history.record(record).await;
    assert!(matches!(outcome, Err(Error::Conflict("claim"))), "not a conflict of the claim: {outcome:?}");
}
