//! The promises of [`rollhook_core::ports::ConfigurationStore`].

use std::{collections::BTreeSet, sync::Arc};

use rollhook_core::{
    Error,
    app::{App, AppUid},
    configuration::{ConfigurationId, Variables},
    error::Entity,
    ports::{ConfigurationStore, Sealing},
};

use crate::{
    client,
    report::{Can, Lack},
    samples,
    stores::{Handles, Stores},
    tokens::readable_forms,
};

const ONE: ConfigurationId = ConfigurationId(1);
const TWO: ConfigurationId = ConfigurationId(u128::MAX);

fn of(handles: &Handles) -> Can<Arc<dyn ConfigurationStore>> {
    handles.configurations.clone().ok_or(Lack::NotApplicable("the store keeps no configurations"))
}

async fn opened(store: &dyn Stores) -> Can<(Handles, Arc<dyn ConfigurationStore>, App)> {
    let handles = store.open().await;
    let configurations = of(&handles)?;
    let app = register(&handles, "test").await;
    Ok((handles, configurations, app))
}

async fn register(handles: &Handles, environment: &str) -> App {
    let app = samples::app("shop", environment, "api");
    (*client::register(&*handles.history, app).await.state.app).clone()
}

fn variables(value: &str) -> Variables {
    samples::configuration(1, &[("A", value), ("B", "")]).variables
}

/// Variables come back as they were put, through every handle.
pub async fn put_then_get(store: &dyn Stores) -> Can {
    let (_, one, app) = opened(store).await?;
    let two = of(&store.open().await)?;
    let odd = variables("one\ntwo \"\\\u{1f600} \u{1} ä");
    let large = variables(&"x".repeat(100_000));
    one.put(app.uid, ONE, &odd).await.unwrap();
    two.put(app.uid, TWO, &large).await.unwrap();
    for handle in [&one, &two] {
        assert_eq!(handle.get(app.uid, ONE).await.unwrap(), Some(odd.clone()));
        assert_eq!(handle.get(app.uid, TWO).await.unwrap(), Some(large.clone()));
    }
    Ok(())
}

/// A repeated `put`, as after a lost answer, is no error.
pub async fn put_again_is_the_same(store: &dyn Stores) -> Can {
    let (_, configurations, app) = opened(store).await?;
    for _ in 0..2 {
        configurations.put(app.uid, ONE, &variables("a")).await.unwrap();
    }
    assert_eq!(configurations.get(app.uid, ONE).await.unwrap(), Some(variables("a")));
    assert_eq!(configurations.list(app.uid).await.unwrap().len(), 1);
    Ok(())
}

/// An id that is not the app's is unknown.
pub async fn get_unknown_is_none(store: &dyn Stores) -> Can {
    let (handles, configurations, app) = opened(store).await?;
    let other = register(&handles, "prod").await;
    configurations.put(app.uid, ONE, &variables("a")).await.unwrap();
    assert_eq!(configurations.get(app.uid, TWO).await.unwrap(), None);
    assert_eq!(configurations.get(other.uid, ONE).await.unwrap(), None, "another app's");
    assert_eq!(configurations.get(AppUid::from_bits(404), ONE).await.unwrap(), None);
    Ok(())
}

/// A list has the app's own, with their sizes and times.
pub async fn list_has_each_once(store: &dyn Stores) -> Can {
    let (handles, configurations, app) = opened(store).await?;
    let other = register(&handles, "prod").await;
    assert!(configurations.list(app.uid).await.unwrap().is_empty());
    let before = client::load(&*handles.history, app.uid).await.now;
    let ids: BTreeSet<ConfigurationId> = (0..30).map(ConfigurationId).collect();
    for id in &ids {
        configurations.put(app.uid, *id, &variables(&"x".repeat(1_000))).await.unwrap();
    }
    configurations.put(other.uid, TWO, &variables("b")).await.unwrap();
    let after = client::load(&*handles.history, app.uid).await.now;
    let listed = configurations.list(app.uid).await.unwrap();
    assert_eq!(listed.len(), ids.len());
    assert_eq!(listed.iter().map(|one| one.id).collect::<BTreeSet<_>>(), ids);
    for one in listed {
        assert!((1_000..10_000).contains(&one.bytes), "{one:?}");
        // Some stores keep whole seconds.
        let (from, to) = (before.as_millis() / 1_000, after.as_millis() / 1_000);
        assert!((from..=to).contains(&(one.created_at.as_millis() / 1_000)), "{one:?} is of the store's time");
    }
    assert!(configurations.list(AppUid::from_bits(404)).await.unwrap().is_empty());
    Ok(())
}

/// The bytes of an environment are those that its apps' lists have.
pub async fn bytes_of_an_environment(store: &dyn Stores) -> Can {
    let (handles, configurations, app) = opened(store).await?;
    let beside = client::register(&*handles.history, samples::app("shop", "test", "web")).await.state.app.uid;
    let other = register(&handles, "prod").await;
    let namespace = app.id.namespace.clone();
    assert_eq!(configurations.bytes_of(&namespace).await.unwrap(), 0);
    for (app, size) in [(app.uid, 1_000), (beside, 2_000), (other.uid, 4_000)] {
        configurations.put(app, ONE, &variables(&"x".repeat(size))).await.unwrap();
        configurations.put(app, TWO, &variables("")).await.unwrap();
    }
    configurations.remove(beside, &[TWO]).await.unwrap();
    let mut listed = 0;
    for app in [app.uid, beside] {
        listed += configurations.list(app).await.unwrap().iter().map(|one| one.bytes).sum::<u64>();
    }
    assert_eq!(configurations.bytes_of(&namespace).await.unwrap(), listed);
    assert!((3_000..10_000).contains(&listed), "{listed}");
    assert_eq!(configurations.bytes_of(&"nobody".parse().unwrap()).await.unwrap(), 0);
    Ok(())
}

/// Those that were removed are gone, and no other one is.
pub async fn remove_forgets(store: &dyn Stores) -> Can {
    let (handles, configurations, app) = opened(store).await?;
    let other = register(&handles, "prod").await;
    for app in [app.uid, other.uid] {
        configurations.put(app, ONE, &variables("a")).await.unwrap();
        configurations.put(app, TWO, &variables("b")).await.unwrap();
    }
    configurations.remove(app.uid, &[ONE, ConfigurationId(404)]).await.unwrap();
    configurations.remove(app.uid, &[ONE]).await.unwrap();
    configurations.remove(AppUid::from_bits(404), &[ONE]).await.unwrap();
    assert_eq!(configurations.get(app.uid, ONE).await.unwrap(), None);
    assert!(configurations.get(app.uid, TWO).await.unwrap().is_some());
    assert!(configurations.get(other.uid, ONE).await.unwrap().is_some());
    Ok(())
}

/// The app may have been removed meanwhile.
pub async fn put_for_a_gone_app_is_not_found(store: &dyn Stores) -> Can {
    let (handles, configurations, app) = opened(store).await?;
    client::remove(&*handles.history, app.uid).await;
    for uid in [app.uid, AppUid::from_bits(404)] {
        let put = configurations.put(uid, ONE, &variables("a")).await;
        assert!(matches!(put, Err(Error::NotFound(Entity::App))), "{put:?}");
    }
    Ok(())
}

/// They are removed with their app, and an app that is registered anew has none.
pub async fn configurations_go_with_their_app(store: &dyn Stores) -> Can {
    let (handles, configurations, app) = opened(store).await?;
    configurations.put(app.uid, ONE, &variables("a")).await.unwrap();
    client::remove(&*handles.history, app.uid).await;
    assert_eq!(configurations.get(app.uid, ONE).await.unwrap(), None);
    assert!(configurations.list(app.uid).await.unwrap().is_empty());
    let anew = App { uid: AppUid::from_bits(0xa2), ..samples::app("shop", "test", "api") };
    let anew = client::register(&*handles.history, anew).await.state.app.uid;
    assert_eq!(configurations.get(anew, ONE).await.unwrap(), None);
    assert!(configurations.list(anew).await.unwrap().is_empty());
    Ok(())
}

/// No value is readable where it is stored, and a sealed form opens for its own app and id alone.
pub async fn stored_configuration_is_sealed(store: &dyn Stores) -> Can {
    let (handles, configurations, app) = opened(store).await?;
    match handles.tokens.sealing() {
        Sealing::Sealed => {}
        Sealing::Cluster => return Err(Lack::NotApplicable("sealing is left to the cluster")),
        Sealing::Memory => return Err(Lack::NotApplicable("nothing is written anywhere")),
    }
    let other = register(&handles, "prod").await;
    let secret = "a value that nobody may read";
    configurations.put(app.uid, ONE, &variables(secret)).await.unwrap();
    configurations.put(app.uid, TWO, &variables("b")).await.unwrap();
    configurations.put(other.uid, ONE, &variables("c")).await.unwrap();
    let stored = store.raw_bytes().await?;
    for (form, bytes) in readable_forms(secret) {
        assert!(!stored.windows(bytes.len()).any(|window| window == bytes), "the value is stored as {form}");
    }
    for to in [(app.uid, TWO), (other.uid, ONE)] {
        store.move_configuration((app.uid, ONE), to).await?;
        for replica in [handles.clone(), store.open().await] {
            let moved = of(&replica)?.get(to.0, to.1).await;
            assert!(
                matches!(moved, Err(Error::Corrupt { .. })),
                "another's sealed form: {:?}",
                moved.map(|_| "opened")
            );
        }
    }
    Ok(())
}

/// What was put or removed is so after an abrupt end of the store.
pub async fn put_outlives_an_abrupt_end(store: &dyn Stores) -> Can {
    let (_, configurations, app) = opened(store).await?;
    configurations.put(app.uid, ONE, &variables("a")).await.unwrap();
    configurations.put(app.uid, TWO, &variables("b")).await.unwrap();
    configurations.remove(app.uid, &[TWO]).await.unwrap();
    let configurations = of(&store.reopen().await?)?;
    assert_eq!(configurations.get(app.uid, ONE).await.unwrap(), Some(variables("a")));
    assert_eq!(configurations.get(app.uid, TWO).await.unwrap(), None);
    Ok(())
}
