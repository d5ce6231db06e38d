//! Reading.

use rollhook_core::{
    Error,
    app::{App, AppUid},
    deploy::{Deploy, Outage, State},
    ports::{Admission, History, HistoryExt, Page},
};

use super::{admit, all, entry, failed, moved, new, record_of, registered, revisions, succeeded};
use crate::{report::Can, samples, stores::Stores};

/// Each field of a view is what its documentation says, after succeeded, failed, superseded and restored entries.
pub async fn view_is_whole(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let empty = history.view(app.uid).await.unwrap();
    assert_eq!((empty.last, empty.unfinished, empty.last_restore), (None, vec![], None));
    assert_eq!((empty.current, empty.on_cluster), (None, None));
    assert_eq!(empty.app, app);

    let one = admit(&*history, &app, samples::draft("v1")).await;
    let one = touched(&*history, &app, &one).await;
    let one = moved(&*history, &app, &one, succeeded()).await;
    let two = admit(&*history, &app, samples::draft("v2")).await;
    let two = touched(&*history, &app, &two).await;
    let two = moved(&*history, &app, &two, failed()).await;
    let view = history.view(app.uid).await.unwrap();
    assert_eq!(view.last, Some(two.revision));
    assert_eq!((view.current, view.on_cluster), (Some(one.clone()), Some(two.clone())));
    assert_eq!(view.last_restore, None);

    let three = admit(&*history, &app, samples::restore("v1", one.revision)).await;
    let four = admit(&*history, &app, samples::draft("v4")).await;
    let view = history.view(app.uid).await.unwrap();
    assert_eq!(view.last, Some(four.revision));
    assert_eq!(view.unfinished, [three.clone(), four]);
    assert_eq!((view.current, view.on_cluster), (Some(one.clone()), Some(two.clone())), "neither has touched it");
    assert_eq!(view.last_restore, Some(three.revision));

    let rollback = samples::rollback("v1", one.revision);
    let by = Admission { supersede: true, hold: Some(samples::hold("v2")), ..samples::admission(&app, rollback) };
    let five = new(history.admit(by).await.unwrap());
    let five = touched(&*history, &app, &five).await;
    let view = history.view(app.uid).await.unwrap();
    assert_eq!((view.last, view.unfinished), (Some(five.revision), vec![five.clone()]));
    assert_eq!((view.current, view.on_cluster), (Some(one), Some(five.clone())));
    assert_eq!(view.last_restore, Some(three.revision), "a person's rollback is no restore, and an ended one still is");
    assert_eq!((view.app.holds.len(), view.app.guard), (1, app.guard + 1));

    let five = moved(&*history, &app, &five, succeeded()).await;
    let view = store.open().await.history.view(app.uid).await.unwrap();
    assert_eq!((view.unfinished, view.current, view.on_cluster), (vec![], Some(five.clone()), Some(five.clone())));
    assert!(view.now >= five.updated_at, "the store's clock");

    let unknown = history.view(AppUid::from_bits(404)).await;
    assert!(matches!(unknown, Err(Error::NotFound("app"))), "{unknown:?}");
    Ok(())
}

/// The newest come first; `before`, `succeeded` and `limit` narrow it; an unknown app has no entries.
pub async fn page_is_newest_first(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    let page = async |before: Option<u64>, succeeded, limit| {
        let page = Page { before: before.map(samples::revision), succeeded, limit };
        revisions(&history.page(app.uid, page).await.unwrap())
    };
    assert_eq!(page(None, false, 10).await, [0; 0]);
    let mut accepted = Vec::new();
    for number in 1..=12 {
        let deploy = admit(&*history, &app, samples::draft(&format!("v{number}"))).await;
        accepted.push(match number % 3 {
            0 => moved(&*history, &app, &deploy, succeeded()).await,
            1 => moved(&*history, &app, &deploy, failed()).await,
            _ => deploy,
        });
    }
    accepted.reverse();
    assert_eq!(all(&*history, &app).await, accepted);
    assert_eq!(page(None, false, 3).await, [12, 11, 10]);
    assert_eq!(page(Some(10), false, 3).await, [9, 8, 7]);
    assert_eq!(page(Some(3), false, 9).await, [2, 1]);
    assert_eq!(page(Some(1), false, 9).await, [0; 0]);
    assert_eq!(page(Some(1000), false, 1).await, [12]);
    assert_eq!(page(None, false, 0).await, [0; 0]);
    assert_eq!(page(None, true, 9).await, [12, 9, 6, 3]);
    assert_eq!(page(Some(9), true, 1).await, [6]);
    let unknown = history.page(AppUid::from_bits(404), Page { before: None, succeeded: false, limit: 9 }).await;
    assert_eq!(unknown.unwrap(), []);

    let seven = entry(&*history, &app, samples::revision(7)).await;
    assert_eq!(history.admitted(app.uid, seven.id).await.unwrap(), Some(seven));
    assert_eq!(HistoryExt::entry(&*history, app.uid, samples::revision(13)).await.unwrap(), None);
    Ok(())
}

/// What cannot be read is an error, and no shorter list.
pub async fn corrupt_entry_is_an_error(store: &dyn Stores) -> Can {
    let (history, app) = registered(store).await;
    for tag in ["v1", "v2", "v3"] {
        admit(&*history, &app, samples::draft(tag)).await;
    }
    store.corrupt_entry(app.uid, samples::revision(2)).await?;
    for replica in [history, store.open().await.history] {
        let page = replica.page(app.uid, Page { before: None, succeeded: false, limit: 9 }).await;
        assert!(matches!(page, Err(Error::Corrupt { .. })), "{page:?}");
        let entry = HistoryExt::entry(&*replica, app.uid, samples::revision(2)).await;
        assert!(matches!(entry, Err(Error::Corrupt { .. })), "{entry:?}");
        let view = replica.view(app.uid).await;
        assert!(matches!(view, Err(Error::Corrupt { .. })), "{view:?}");
    }
    Ok(())
}

/// The entry, rolling out, with the mark that it may have changed the cluster.
async fn touched(history: &dyn History, app: &App, deploy: &Deploy) -> Deploy {
    let rolling = deploy.moved(State::RollingOut { since: deploy.created_at, outage: Outage::default() });
    history.record(record_of(app, vec![Deploy { touched: true, ..rolling }])).await.unwrap();
    entry(history, app, deploy.revision).await
}
