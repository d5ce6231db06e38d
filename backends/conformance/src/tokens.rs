//! The promises of [`rollhook_core::ports::TokenStore`].

use std::time::Duration;

use rollhook_core::{
    Error,
    app::{App, AppId, AppUid},
    error::Entity,
    ports::{Sealing, TokenMark, WebhookSecret},
    time::Timestamp,
    token::Token,
};

use crate::{
    client,
    report::{Can, Lack},
    samples,
    stores::{Handles, Stores},
};

/// How often the mark of a token is asked for that was put elsewhere, until it must have changed.
const SOON: usize = 50;

/// A token is found under the app's id, with the uid that it was put for.
pub async fn put_then_find(store: &dyn Stores) -> Can {
    let (handles, app) = registered(store).await;
    let other = register(&handles, samples::app("shop", "prod", "api")).await;
    let before = client::load(&*handles.history, app.uid).await.now;
    let put = handles.tokens.put(app.uid, &samples::token(1)).await.unwrap();
    let after = client::load(&*handles.history, app.uid).await.now;
    handles.tokens.put(other.uid, &samples::token(2)).await.unwrap();
    assert_is(Some(&put), &app, &samples::token(1));
    let found = handles.tokens.find(&app.id).await.unwrap();
    assert_is(found.as_ref(), &app, &samples::token(1));
    assert_eq!(found.unwrap().created_at, put.created_at);
    assert!((before..=after).contains(&put.created_at), "{:?} is the store's time", put.created_at);
    assert_is(handles.tokens.find(&other.id).await.unwrap().as_ref(), &other, &samples::token(2));
    Ok(())
}

/// After `put` returned, every replica finds the new token alone.
pub async fn put_replaces_at_once(store: &dyn Stores) -> Can {
    let (handles, app) = registered(store).await;
    let replicas = [store.open().await.tokens, store.open().await.tokens];
    for seed in 1..=20 {
        handles.tokens.put(app.uid, &samples::token(seed)).await.unwrap();
        for replica in &replicas {
            assert_is(replica.find(&app.id).await.unwrap().as_ref(), &app, &samples::token(seed));
        }
    }
    Ok(())
}

/// A token that was put or removed is so after an abrupt end of the store: the one before opens nothing again.
pub async fn put_outlives_an_abrupt_end(store: &dyn Stores) -> Can {
    let (handles, app) = registered(store).await;
    handles.tokens.put(app.uid, &samples::token(1)).await.unwrap();
    handles.tokens.put(app.uid, &samples::token(2)).await.unwrap();
    let tokens = store.reopen().await?.tokens;
    assert_is(tokens.find(&app.id).await.unwrap().as_ref(), &app, &samples::token(2));
    tokens.remove(app.uid).await.unwrap();
    let tokens = store.reopen().await?.tokens;
    assert!(tokens.find(&app.id).await.unwrap().is_none(), "a token that was removed is back after an abrupt end");
    Ok(())
}

/// No such app, no token, or one that was removed: none.
pub async fn find_unknown_is_none(store: &dyn Stores) -> Can {
    let (handles, app) = registered(store).await;
    assert!(handles.tokens.find(&app.id).await.unwrap().is_none(), "no token");
    assert!(handles.tokens.find(&samples::app("shop", "prod", "api").id).await.unwrap().is_none(), "no app");
    handles.tokens.put(app.uid, &samples::token(1)).await.unwrap();
    assert!(
        handles.tokens.find(&samples::app("shop", "prod", "api").id).await.unwrap().is_none(),
        "same name elsewhere"
    );
    handles.tokens.remove(app.uid).await.unwrap();
    assert!(handles.tokens.find(&app.id).await.unwrap().is_none(), "removed");
    Ok(())
}

/// A token that another handle put or removed is seen by the next `find`, though this one has found another before.
pub async fn find_reads_the_store(store: &dyn Stores) -> Can {
    let (one, app) = registered(store).await;
    let two = store.open().await;
    assert!(two.tokens.find(&app.id).await.unwrap().is_none());
    one.tokens.put(app.uid, &samples::token(1)).await.unwrap();
    assert_is(two.tokens.find(&app.id).await.unwrap().as_ref(), &app, &samples::token(1));
    two.tokens.remove(app.uid).await.unwrap();
    assert!(one.tokens.find(&app.id).await.unwrap().is_none());
    one.tokens.put(app.uid, &samples::token(2)).await.unwrap();
    client::remove(&*one.history, app.uid).await;
    assert!(two.tokens.find(&app.id).await.unwrap().is_none(), "the app is gone, and its token with it");
    Ok(())
}

/// What fits is found by a read, whatever another handle stored meanwhile; what does not fit is not.
pub async fn find_fitting_opens_by_what_is_stored(store: &dyn Stores) -> Can {
    let (one, app) = registered(store).await;
    let two = store.open().await;
    let other = samples::app("shop", "prod", "api").id;
    assert!(fitting(&two, &app.id, 1).await.is_none(), "no token");
    for seed in 1..=5 {
        one.tokens.put(app.uid, &samples::token(seed)).await.unwrap();
        assert!(fitting(&two, &app.id, seed - 1).await.is_none(), "the token before");
        assert!(fitting(&two, &app.id, 77).await.is_none(), "another token");
        assert!(fitting(&two, &other, seed).await.is_none(), "another app");
        for handles in [&one, &two] {
            assert_is(fitting(handles, &app.id, seed).await.as_ref(), &app, &samples::token(seed));
        }
    }
    one.tokens.remove(app.uid).await.unwrap();
    assert!(fitting(&two, &app.id, 5).await.is_none(), "the webhook is closed");
    one.tokens.put(app.uid, &samples::token(6)).await.unwrap();
    client::remove(&*one.history, app.uid).await;
    assert!(fitting(&two, &app.id, 6).await.is_none(), "the app is gone");
    Ok(())
}

/// Every change of the token soon shows as another mark, on every handle.
pub async fn mark_changes_with_the_token(store: &dyn Stores) -> Can {
    let (one, app) = registered(store).await;
    let two = store.open().await;
    if one.tokens.mark(&app.id).await.unwrap() == TokenMark::Unmarked {
        return Err(Lack::NotApplicable("each call of a stranger is read for"));
    }
    assert_eq!(two.tokens.mark(&samples::app("shop", "prod", "api").id).await.unwrap(), TokenMark::NoToken, "no app");
    let until = Timestamp::from_millis(4_000_000_000_000);
    let mut marks = Vec::new();
    for round in 0..3 {
        one.tokens.put(app.uid, &samples::token(1)).await.unwrap();
        marks.push(changed(store, [&one, &two], &app.id, &marks).await);
        two.tokens.rotate(app.uid, &samples::token(2), until).await.unwrap();
        marks.push(changed(store, [&one, &two], &app.id, &marks).await);
        assert!(!marks.contains(&TokenMark::NoToken), "round {round}");
        match round {
            0 => {}
            1 => one.tokens.remove(app.uid).await.unwrap(),
            _ => client::remove(&*one.history, app.uid).await,
        }
        if round > 0 {
            assert_eq!(changed(store, [&one, &two], &app.id, &marks).await, TokenMark::NoToken);
        }
    }
    Ok(())
}

/// A closed webhook has no token; closing it again is no error.
pub async fn remove_forgets(store: &dyn Stores) -> Can {
    let (handles, app) = registered(store).await;
    let other = register(&handles, samples::app("shop", "prod", "api")).await;
    handles.tokens.put(app.uid, &samples::token(1)).await.unwrap();
    handles.tokens.put(other.uid, &samples::token(2)).await.unwrap();
    handles.tokens.remove(app.uid).await.unwrap();
    handles.tokens.remove(app.uid).await.unwrap();
    handles.tokens.remove(AppUid::from_bits(404)).await.unwrap();
    assert!(handles.tokens.find(&app.id).await.unwrap().is_none());
    assert_is(handles.tokens.find(&other.id).await.unwrap().as_ref(), &other, &samples::token(2));
    handles.tokens.put(app.uid, &samples::token(3)).await.unwrap();
    assert_is(handles.tokens.find(&app.id).await.unwrap().as_ref(), &app, &samples::token(3));
    Ok(())
}

/// A uid that is not registered, or no more, gets no token.
pub async fn put_for_a_gone_app_is_not_found(store: &dyn Stores) -> Can {
    let (handles, app) = registered(store).await;
    let unknown = handles.tokens.put(AppUid::from_bits(404), &samples::token(1)).await;
    assert!(matches!(unknown, Err(Error::NotFound(Entity::App))), "{unknown:?}");
    client::remove(&*handles.history, app.uid).await;
    let again = register(&handles, App { uid: AppUid::from_bits(7), ..samples::app("shop", "test", "api") }).await;
    let late = handles.tokens.put(app.uid, &samples::token(1)).await;
    assert!(matches!(late, Err(Error::NotFound(Entity::App))), "{late:?}");
    assert!(handles.tokens.find(&again.id).await.unwrap().is_none(), "the late token opens nothing");
    Ok(())
}

/// Where tokens are sealed, the stored bytes do not hold them, and a sealed one opens no other app.
pub async fn stored_token_is_sealed(store: &dyn Stores) -> Can {
    let (handles, app) = registered(store).await;
    match handles.tokens.sealing() {
        Sealing::Sealed => {}
        Sealing::Cluster => return Err(Lack::NotApplicable("sealing is left to the cluster")),
        Sealing::Memory => return Err(Lack::NotApplicable("nothing is written anywhere")),
    }
    let other = register(&handles, samples::app("shop", "prod", "api")).await;
    let token = samples::token(1);
    handles.tokens.put(app.uid, &token).await.unwrap();
    handles.tokens.put(other.uid, &samples::token(2)).await.unwrap();
    let stored = store.raw_bytes().await?;
    assert!(!stored.is_empty(), "something is stored");
    for (form, bytes) in readable_forms(token.expose()) {
        assert!(!stored.windows(bytes.len()).any(|window| window == bytes), "the token is stored as {form}");
    }
    store.move_secret(app.uid, other.uid).await?;
    for replica in [handles, store.open().await] {
        let moved = replica.tokens.find(&other.id).await;
        assert!(matches!(moved, Err(Error::Corrupt { .. })), "a sealed token of another app: {moved:?}");
    }
    Ok(())
}

/// A rotated token is found beside the one before it, by every handle; older ones are gone, and so is every one after a
/// `put` or `remove`.
pub async fn rotate_keeps_the_token_before(store: &dyn Stores) -> Can {
    let (one, app) = registered(store).await;
    let two = store.open().await;
    let until = Timestamp::from_millis(4_000_000_000_000);
    let early = one.tokens.rotate(app.uid, &samples::token(1), until).await;
    assert!(matches!(early, Err(Error::NotFound(Entity::Object))), "there is no token to rotate: {early:?}");
    let unknown = one.tokens.rotate(AppUid::from_bits(404), &samples::token(1), until).await;
    assert!(matches!(unknown, Err(Error::NotFound(_))), "{unknown:?}");
    one.tokens.put(app.uid, &samples::token(1)).await.unwrap();
    for seed in 2..=4 {
        let handles = if seed % 2 == 0 { &two } else { &one };
        let rotated = handles.tokens.rotate(app.uid, &samples::token(seed), until).await.unwrap();
        for found in [Some(rotated), one.tokens.find(&app.id).await.unwrap(), two.tokens.find(&app.id).await.unwrap()] {
            assert_is(found.as_ref(), &app, &samples::token(seed));
            let previous = found.and_then(|found| found.previous).expect("the token before");
            assert_eq!(previous.token.expose(), samples::token(seed - 1).expose(), "rotation {seed}");
            assert_eq!(previous.until, until);
        }
    }
    for (seed, opens) in [(4, true), (3, true), (2, false), (1, false)] {
        assert_eq!(fitting(&two, &app.id, seed).await.is_some(), opens, "token {seed}");
    }
    let racing = [5, 6, 7].map(|seed| {
        let (tokens, app) = (one.tokens.clone(), app.uid);
        async move { tokens.rotate(app, &samples::token(seed), until).await.unwrap() }
    });
    let racing = futures_util::future::join_all(racing).await;
    let last = one.tokens.find(&app.id).await.unwrap().unwrap();
    let firsts = racing.iter().filter(|secret| {
        secret.previous.as_ref().is_some_and(|previous| previous.token.expose() == samples::token(4).expose())
    });
    assert_eq!(firsts.count(), 1, "each rotation replaces what the one before it stored");
    assert!(racing.iter().any(|secret| secret.token.expose() == last.token.expose()));
    one.tokens.put(app.uid, &samples::token(8)).await.unwrap();
    assert!(two.tokens.find(&app.id).await.unwrap().unwrap().previous.is_none(), "put takes both away");
    assert!(fitting(&two, &app.id, 4).await.is_none());
    Ok(())
}

/// The app's token, if it is this one, looked for as for a caller who presents it.
async fn fitting(handles: &Handles, app: &AppId, seed: u8) -> Option<WebhookSecret> {
    let presented = samples::token(seed);
    let is = |token: &Token| token.expose() == presented.expose();
    let fits = |stored: Option<&WebhookSecret>| {
        stored.is_some_and(|stored| {
            is(&stored.token) | stored.previous.as_ref().is_some_and(|previous| is(&previous.token))
        })
    };
    let found = handles.tokens.find_fitting(app, &fits).await.unwrap();
    if let Some(found) = &found {
        assert!(fits(Some(found)), "what does not fit is not found");
    }
    found
}

/// The app's mark, once it is one that it never had, the same on both handles.
async fn changed(store: &dyn Stores, handles: [&Handles; 2], app: &AppId, before: &[TokenMark]) -> TokenMark {
    for _ in 0..SOON {
        let [one, two] = handles.map(|handles| handles.tokens.mark(app));
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        if one == two && !before.contains(&one) {
            return one;
        }
        store.pause(Duration::from_millis(20)).await;
    }
    panic!("the mark stays as it was, or is not the same on both handles")
}

async fn registered(store: &dyn Stores) -> (Handles, App) {
    let handles = store.open().await;
    let app = register(&handles, samples::app("shop", "test", "api")).await;
    (handles, app)
}

async fn register(handles: &Handles, app: App) -> App {
    (*client::register(&*handles.history, app).await.state.app).clone()
}

#[track_caller]
fn assert_is(found: Option<&WebhookSecret>, app: &App, token: &Token) {
    let found = found.expect("a token");
    assert_eq!(found.app, app.uid, "the token of another app");
    assert_eq!(found.token.expose(), token.expose(), "another token");
}

/// The ways in which bytes hold a secret for everybody to read: its text, hexadecimal, and base64 at any offset.
pub(crate) fn readable_forms(secret: &str) -> Vec<(&'static str, Vec<u8>)> {
    let text = secret.as_bytes();
    let hex = rollhook_core::text::hex(text);
    let mut forms = vec![("text", text.to_vec()), ("hexadecimal digits", hex.into_bytes())];
    // What stands before it shifts base64 by up to two bytes: only whole groups look the same whatever is around them.
    forms.extend((0..3).map(|offset| ("base64", base64(&text[offset..]))));
    forms
}

/// The whole groups of three bytes, in base64.
fn base64(bytes: &[u8]) -> Vec<u8> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let groups =
        bytes.chunks_exact(3).map(|group| group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte)));
    groups.flat_map(|bits| [18, 12, 6, 0].map(|shift| DIGITS[bits >> shift & 63])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_base64() {
        assert_eq!(base64(b"light work"), b"bGlnaHQgd29y");
    }
}
