//! The promises of [`rollhook_core::ports::Apps`].

use std::time::Duration;

use rollhook_core::{
    Error,
    app::{App, AppUid, OnFailure, Policy, Source},
    deploy::Revision,
    ports::{Admitted, AppPage, Claim, Page, Record},
};
use serde_json::json;

use crate::{
    report::Can,
    samples,
    stores::{Handles, Stores},
};

/// A created app is found by its id, as it was given.
pub async fn create_then_find(store: &dyn Stores) -> Can {
    let handles = store.open().await;
    let mut given = samples::app("shop", "test", "api");
    given.policy.settle = Duration::from_millis(1500);
    given.policy.repositories = vec!["registry.example.com/shop/*".to_owned()].try_into().unwrap();
    given.target.settings.insert("env".to_owned(), json!({ "MODE": "a \"quoted\" value\n", "n": [1, 2.5, null] }));
    given.target.requested = Some(samples::settings(json!({ "template": { "replicas": 3 } })));
    given.target.take_over = Some(AppUid::from_bits(u128::MAX));
    let created = handles.apps.create(given.clone()).await.unwrap();
    assert_eq!(created, App { guard: created.guard, created_at: created.created_at, ..given.clone() });
    assert_eq!(handles.apps.find(&given.id).await.unwrap(), Some(created.clone()));
    assert_eq!(store.open().await.apps.find(&given.id).await.unwrap(), Some(created.clone()));

    let later = handles.apps.create(samples::app("shop", "test", "web")).await.unwrap();
    assert!(later.created_at >= created.created_at, "created_at is the store's time");
    let view = handles.history.view(created.uid).await.unwrap();
    assert!(view.now >= created.created_at, "created_at is the store's time");
    Ok(())
}

/// A second app of the same id is a conflict, and changes nothing; of many at once, one is created.
pub async fn create_twice_conflicts(store: &dyn Stores) -> Can {
    let handles = store.open().await;
    let first = handles.apps.create(samples::app("shop", "test", "api")).await.unwrap();
    let second = App { uid: AppUid::from_bits(2), ..first.clone() };
    assert_conflict(handles.apps.create(second).await, "app");
    assert_eq!(handles.apps.find(&first.id).await.unwrap(), Some(first));

    let other = store.open().await;
    let race = (0..10_u128).map(|number| {
        let app = App { uid: AppUid::from_bits(100 + number), ..samples::app("shop", "test", "raced") };
        if number % 2 == 0 { handles.apps.create(app) } else { other.apps.create(app) }
    });
    let outcomes = futures_util::future::join_all(race).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "{outcomes:?}");
    outcomes.into_iter().filter(|outcome| outcome.is_err()).for_each(|outcome| assert_conflict(outcome, "app"));
    Ok(())
}

/// `a-b` + `c` and `a` + `b-c` spell one namespace; the first to come has it, until its last app is gone.
pub async fn create_namespace_of_another_pair_conflicts(store: &dyn Stores) -> Can {
    let apps = store.open().await.apps;
    let first = apps.create(samples::app("a-b", "c", "one")).await.unwrap();
    let second = apps.create(samples::app("a-b", "c", "two")).await.unwrap();
    let foreign = samples::app("a", "b-c", "three");
    assert_conflict(apps.create(foreign.clone()).await, "namespace");
    assert!(apps.create(samples::app("a", "b-c", "one")).await.is_err_and(|error| error.is_conflict()));
    apps.remove(first.uid).await.unwrap();
    assert_conflict(apps.create(foreign.clone()).await, "namespace");
    apps.remove(second.uid).await.unwrap();
    apps.create(foreign).await.unwrap();
    assert_conflict(apps.create(samples::app("a-b", "c", "four")).await, "namespace");
    Ok(())
}

/// An app that was never created, or was removed, is not found.
pub async fn find_unknown_is_none(store: &dyn Stores) -> Can {
    let apps = store.open().await.apps;
    let app = samples::app("shop", "test", "api");
    assert_eq!(apps.find(&app.id).await.unwrap(), None);
    let app = apps.create(app).await.unwrap();
    assert_eq!(apps.find(&samples::app("shop", "test", "web").id).await.unwrap(), None);
    assert_eq!(apps.find(&samples::app("shop", "prod", "api").id).await.unwrap(), None);
    apps.remove(app.uid).await.unwrap();
    assert_eq!(apps.find(&app.id).await.unwrap(), None);
    Ok(())
}

/// The list is ordered by namespace, then name, and `namespace`, `after` and `limit` narrow it.
pub async fn list_is_sorted_and_paged(store: &dyn Stores) -> Can {
    let apps = store.open().await.apps;
    for (environment, name) in [("test", "web"), ("prod", "web"), ("test", "api"), ("prod", "api"), ("test-2", "api")] {
        apps.create(samples::app("shop", environment, name)).await.unwrap();
    }
    let listed = async |page: AppPage| -> Vec<String> {
        apps.list(page).await.unwrap().iter().map(|app| app.id.to_string()).collect()
    };
    let all = ["shop-prod/api", "shop-prod/web", "shop-test/api", "shop-test/web", "shop-test-2/api"];
    assert_eq!(listed(AppPage { limit: 100, ..AppPage::default() }).await, all);
    assert_eq!(listed(AppPage { limit: 2, ..AppPage::default() }).await, all[..2]);
    assert_eq!(listed(AppPage { limit: 0, ..AppPage::default() }).await, [""; 0]);

    let mut after = None;
    let mut paged = Vec::new();
    for _ in 0..3 {
        let page = apps.list(AppPage { namespace: None, after, limit: 2 }).await.unwrap();
        after = page.last().map(|last| last.id.clone());
        paged.extend(page.iter().map(|app| app.id.to_string()));
    }
    assert_eq!(paged, all);

    let namespace = |text: &str| Some(text.parse().unwrap());
    assert_eq!(listed(AppPage { namespace: namespace("shop-test"), after: None, limit: 9 }).await, all[2..4]);
    let after = Some("shop-test/api".parse().unwrap());
    assert_eq!(listed(AppPage { namespace: namespace("shop-test"), after, limit: 9 }).await, all[3..4]);
    let after = Some("shop-test/unknown".parse().unwrap());
    assert_eq!(listed(AppPage { namespace: None, after, limit: 9 }).await, all[3..]);
    assert_eq!(listed(AppPage { namespace: namespace("shop"), after: None, limit: 9 }).await, [""; 0]);
    Ok(())
}

/// Source, policy and holds are replaced where uid and guard are as they were read, and only those.
pub async fn update_is_guarded(store: &dyn Stores) -> Can {
    let apps = store.open().await.apps;
    let read = apps.create(samples::app("shop", "test", "api")).await.unwrap();
    let changed = App {
        source: Source::Git(samples::git_source()),
        policy: Policy { on_failure: OnFailure::Leave, ..Policy::default() },
        holds: vec![samples::hold("bad")],
        target: samples::target("ignored"),
        ..read.clone()
    };
    let written = apps.update(changed.clone()).await.unwrap();
    assert!(written.guard > read.guard, "the guard is counted up");
    let expected = App { target: read.target.clone(), guard: written.guard, ..changed.clone() };
    assert_eq!(written, expected);
    assert_eq!(apps.find(&read.id).await.unwrap(), Some(expected));

    assert_conflict(apps.update(changed).await, "app");
    let gone = App { uid: AppUid::from_bits(404), ..written.clone() };
    assert!(matches!(apps.update(gone).await, Err(Error::NotFound("app"))));

    let other = store.open().await.apps;
    let race = (0..10)
        .map(|number| if number % 2 == 0 { apps.update(written.clone()) } else { other.update(written.clone()) });
    let outcomes = futures_util::future::join_all(race).await;
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 1, "one of many at once: {outcomes:?}");

    apps.remove(read.uid).await.unwrap();
    let latest = outcomes.into_iter().find_map(Result::ok).unwrap();
    assert!(matches!(apps.update(latest).await, Err(Error::NotFound("app"))));
    Ok(())
}

/// What belonged to the uid is gone with the app, and an app of the same id starts clean.
pub async fn remove_takes_everything(store: &dyn Stores) -> Can {
    let handles = store.open().await;
    let Handles { apps, tokens, history } = &handles;
    let old = apps.create(samples::app("shop", "test", "api")).await.unwrap();
    let key = samples::key("run-1", 1);
    let keyed = |app: &App| rollhook_core::ports::Admission {
        key: Some(key.clone()),
        ..samples::admission(app, samples::draft("one"))
    };
    history.admit(keyed(&old)).await.unwrap();
    history.admit(samples::admission(&old, samples::draft("two"))).await.unwrap();
    tokens.put(old.uid, &samples::token(1)).await.unwrap();
    let claim = Claim { replica: samples::replica("a", 1), ttl: Duration::from_secs(60), limit: 10 };
    assert_eq!(history.claim(claim.clone()).await.unwrap().apps, [old.uid]);

    apps.remove(old.uid).await.unwrap();
    apps.remove(old.uid).await.unwrap();
    assert!(matches!(history.view(old.uid).await, Err(Error::NotFound("app"))));
    assert_eq!(history.page(old.uid, Page { before: None, succeeded: false, limit: 9 }).await.unwrap(), []);
    assert_eq!(history.claim(claim.clone()).await.unwrap().apps, []);
    let late = Record { app: old.uid, claim: None, changes: Vec::new(), lift: Vec::new(), rest: false };
    assert!(matches!(history.record(late).await, Err(Error::NotFound("app"))));
    assert!(tokens.find(&old.id).await.unwrap().is_none());

    let new = App { uid: AppUid::from_bits(7), ..samples::app("shop", "test", "api") };
    let new = apps.create(new).await.unwrap();
    assert!(tokens.find(&new.id).await.unwrap().is_none(), "the token belonged to the old one");
    let view = history.view(new.uid).await.unwrap();
    assert_eq!((view.last, view.unfinished), (None, vec![]));
    assert!(
        matches!(history.admit(keyed(&new)).await.unwrap(), Admitted::New { deploy, .. } if deploy.revision == Revision::FIRST)
    );
    assert_eq!(history.claim(claim).await.unwrap().apps, [new.uid]);
    Ok(())
}

#[track_caller]
fn assert_conflict<T: std::fmt::Debug>(outcome: rollhook_core::Result<T>, with: &str) {
    assert!(
        matches!(&outcome, Err(Error::Conflict(what)) if *what == with),
        "not a conflict of the {with}: {outcome:?}"
    );
}
