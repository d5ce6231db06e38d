//! The list of apps, and hints of their changes.

use std::time::Duration;

use futures_util::{
    FutureExt, StreamExt,
    future::{Either, select},
    stream::BoxStream,
};
use rollhook_core::{
    app::{AppId, AppUid, Namespace, Policy, Source},
    ledger::Change,
    ports::{AppChange, AppPage, HistoryStoreExt, Version},
};

use super::{commit_all, registered};
use crate::{client, report::Can, samples, stores::Stores};

/// The list is ordered by namespace, then name, and `namespace`, `after` and `limit` narrow it.
pub async fn list_is_sorted_and_paged(store: &dyn Stores) -> Can {
    let history = store.open().await.history;
    for (environment, name) in [("test", "web"), ("prod", "web"), ("test", "api"), ("prod", "api"), ("test-2", "api")] {
        let app = client::register(&*history, samples::app("shop", environment, name)).await.state.app.uid;
        client::admit(&*history, app, samples::admission(samples::deploy(name))).await;
    }
    let other = store.open().await.history;
    let listed = async |page: AppPage| -> Vec<String> {
        other.states(page).await.unwrap().iter().map(|state| state.app.id.to_string()).collect()
    };
    let all = ["shop-prod/api", "shop-prod/web", "shop-test/api", "shop-test/web", "shop-test-2/api"];
    assert_eq!(listed(AppPage::first(100)).await, all);
    assert_eq!(listed(AppPage::first(2)).await, all[..2]);
    assert_eq!(listed(AppPage::first(0)).await, [""; 0]);
    for state in history.states(AppPage::first(100)).await.unwrap() {
        assert_eq!(state, client::load(&*other, state.app.uid).await.state, "listed as it is loaded");
    }

    let mut after = None;
    let mut paged = Vec::new();
    for _ in 0..3 {
        let page = history.states(AppPage::first(2).after(after)).await.unwrap();
        after = page.last().map(|last| last.app.id.clone());
        paged.extend(page.iter().map(|state| state.app.id.to_string()));
    }
    assert_eq!(paged, all);

    let namespace = |text: &str| Some(text.parse().unwrap());
    let after = |text: &str| Some(text.parse().unwrap());
    for (wanted, following, expected) in [
        (namespace("shop-test"), None, &all[2..4]),
        (namespace("shop-test"), after("shop-test/api"), &all[3..4]),
        (namespace("shop-test"), after("shop-prod/web"), &all[2..4]),
        (namespace("shop-test"), after("shop-test-2/api"), &[]),
        (namespace("shop"), None, &[]),
        (None, after("shop-test/unknown"), &all[3..]),
        (None, after("shop-test/web"), &all[4..]),
        (None, after("shop-test-2/api"), &[]),
        (None, after("a/a"), &all[..]),
    ] {
        assert_eq!(listed(AppPage::first(9).of(wanted).after(following)).await, expected);
    }
    let gone = history.states(AppPage::first(1)).await.unwrap()[0].app.uid;
    client::remove(&*history, gone).await;
    assert_eq!(listed(AppPage::first(100)).await, all[1..]);
    Ok(())
}

/// A fresh list has every registration and commit that another handle was answered, at once.
pub async fn fresh_list_has_what_others_committed(store: &dyn Stores) -> Can {
    let (history, other) = (store.open().await.history, store.open().await.history);
    let first = |limit| AppPage::first(limit).of("shop-test".parse::<Namespace>().unwrap()).fresh(true);
    let page = || first(100);
    assert_eq!(other.states(page()).await.unwrap(), []);
    for name in ["api", "web", "worker"] {
        let app = client::register(&*history, samples::app("shop", "test", name)).await.state.app.uid;
        for tag in ["v1", "v2"] {
            client::admit(&*history, app, samples::admission(samples::deploy(tag))).await;
            let listed = other.states(page()).await.unwrap();
            let found = listed.into_iter().find(|state| state.app.uid == app);
            let stored = client::load(&*history, app).await.state;
            assert_eq!(found, Some(stored), "{name}: a fresh list has what was committed before");
        }
    }
    let after = first(1).after("shop-test/api".parse::<AppId>().unwrap());
    let listed = other.states(after).await.unwrap();
    assert_eq!(listed.iter().map(|state| state.app.id.name.as_str()).collect::<Vec<_>>(), ["web"]);
    client::remove(&*history, listed[0].app.uid).await;
    assert_eq!(other.states(page()).await.unwrap().len(), 2, "a fresh list lacks what was removed before");
    Ok(())
}

/// A handle's stream has an item after each kind of commit through that handle, also where the stream is read late.
pub async fn watch_follows_commits(store: &dyn Stores) -> Can {
    let ([history, _], uid) = registered(store).await;
    let mut changes = history.watch();
    let accept = |change: &mut Change, now| samples::admit(change, samples::admission(samples::deploy("v1")), now);
    let (deploy, accepted) = client::change(&*history, uid, accept).await;
    assert_hint(store, &mut changes, uid, accepted.version).await;
    client::record(&*history, uid, vec![deploy.moved(samples::succeeded())]).await;
    assert_hint(store, &mut changes, uid, client::load(&*history, uid).await.version).await;
    let configure = |change: &mut Change, now| change.configure(Source::Image, Policy::default(), now);
    let (_, configured) = client::change(&*history, uid, configure).await;
    assert_hint(store, &mut changes, uid, configured.version).await;
    let web = client::register(&*history, samples::app("shop", "test", "web")).await;
    assert_hint(store, &mut changes, web.state.app.uid, web.version).await;
    client::remove(&*history, web.state.app.uid).await;
    assert_hint(store, &mut changes, web.state.app.uid, Version::REMOVED).await;

    let mut late = history.watch();
    for _ in 0..50 {
        client::change(&*history, uid, accept).await;
    }
    assert_hint(store, &mut late, uid, client::load(&*history, uid).await.version).await;

    let app = |number: usize| samples::app("other", "test", &format!("app-{number}"));
    let batch = (0..10).map(app).map(Change::register).map(client::registration).collect();
    let answers = commit_all(&*history, batch).await;
    assert_hint(store, &mut late, app(9).uid, answers[9].as_ref().unwrap().version).await;
    Ok(())
}

/// Reads the stream until a hint of the app in this version or a higher one.
async fn assert_hint(store: &dyn Stores, changes: &mut BoxStream<'static, AppChange>, app: AppUid, version: Version) {
    let hint = async {
        while let Some(change) = changes.next().await {
            match change {
                AppChange::App(of, at_least) if of == app && at_least >= version => return,
                AppChange::App(..) => {}
                AppChange::Any => return,
            }
        }
        panic!("the stream has ended");
    };
    match select(Box::pin(hint), store.pause(Duration::from_secs(10))).await {
        Either::Left(_) => while changes.next().now_or_never().is_some() {},
        Either::Right(_) => panic!("no item after a commit"),
    }
}
