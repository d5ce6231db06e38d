//! The last calls of each app's webhook, as this process answered them: who called, by which credentials, and why it was
//! refused.
//!
//! They are kept in memory alone, since nothing is written to the store for strangers, and only of apps that this process
//! knows: a made-up name leaves no trace. Strangers get the same answer for every fault; the reason is found by what
//! this process last read of the app's secrets, with the same work for every name, and without a read of the store.

use std::{
    collections::{HashMap, VecDeque},
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use rollhook_core::{
    app::{AppId, AppUid},
    deploy::Revision,
    service::Authorized,
    time::Timestamp,
};

use crate::{
    Management, Outcome,
    access::{Action, Principal},
    keyless::{IdentityFault, Presented},
};

/// The calls that are kept of each app: as many that were let in, and as many that were not, so that strangers push
/// nothing out but one another.
const KEPT: usize = 20;
/// The most apps whose calls are kept; the one that was called least lately makes room, first of those that strangers
/// alone have called.
const APPS: usize = 500;

/// A call of an app's webhook, and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookCall {
    /// The time of the answer.
    pub at: Timestamp,
    /// The caller's address.
    pub source: IpAddr,
    /// The kinds of credentials that it brought.
    pub credentials: Vec<&'static str>,
    /// The answer.
    pub answer: CallAnswer,
    /// The number of such calls in a row, of which this is the last.
    pub times: u64,
}

/// The answer to a webhook call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallAnswer {
    /// The HTTP status.
    pub status: u16,
    /// The reason of a refusal: a word and a sentence.
    pub reason: Option<(&'static str, &'static str)>,
    /// The deploy that was accepted, or repeated.
    pub revision: Option<Revision>,
}

/// The calls of apps.
#[derive(Default)]
pub(crate) struct WebhookCalls(Mutex<Apps>);

#[derive(Default)]
struct Apps {
    /// The number of calls so far, by which the app that was called least lately is found.
    count: u64,
    apps: HashMap<AppUid, CallsOfApp>,
}

/// The calls of one app, newest first.
#[derive(Default)]
struct CallsOfApp {
    /// The number of the last call that was let in, and that of the last call.
    last: (u64, u64),
    known: VecDeque<WebhookCall>,
    refused: VecDeque<WebhookCall>,
}

impl WebhookCalls {
    fn note(&self, app: AppUid, call: WebhookCall, is_known: bool) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.count += 1;
        let count = kept.count;
        if !kept.apps.contains_key(&app) && kept.apps.len() >= APPS {
            let oldest = kept.apps.iter().min_by_key(|(_, calls)| calls.last).map(|(app, _)| *app);
            oldest.map(|oldest| kept.apps.remove(&oldest));
        }
        let calls = kept.apps.entry(app).or_default();
        calls.last = (if is_known { count } else { calls.last.0 }, count);
        let kept = if is_known { &mut calls.known } else { &mut calls.refused };
        let is_like = |other: &WebhookCall| {
            (other.source, &other.credentials, other.answer) == (call.source, &call.credentials, call.answer)
        };
        // A caller that fails again and again is one entry.
        let before = kept.iter().position(is_like).and_then(|place| kept.remove(place));
        let times = before.map_or(0, |before| before.times) + 1;
        kept.push_front(WebhookCall { times, ..call });
        kept.truncate(KEPT);
    }

    fn of(&self, app: AppUid) -> Vec<WebhookCall> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(calls) = kept.apps.get(&app) else { return Vec::new() };
        let mut all: Vec<WebhookCall> = calls.known.iter().chain(&calls.refused).cloned().collect();
        all.sort_by_key(|call| std::cmp::Reverse(call.at));
        all
    }
}

/// The caller of a webhook.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The time of the call, by the host's clock.
    pub at: Timestamp,
    /// The address.
    pub source: IpAddr,
    /// The credentials that it presented.
    pub credentials: &'a Presented,
}

impl Caller<'_> {
    fn answered(&self, answer: CallAnswer) -> WebhookCall {
        let credentials = self.credentials.kinds().collect();
        WebhookCall { at: self.at, source: self.source, credentials, answer, times: 1 }
    }
}

impl CallAnswer {
    const fn unauthorized(reason: (&'static str, &'static str)) -> Self {
        Self { status: 401, reason: Some(reason), revision: None }
    }
}

impl Management {
    /// Remembers a call that was let in, and its answer. An id_token that was let in, and is answered 401, was used for
    /// another call.
    pub fn note_call(&self, access: &Authorized, caller: &Caller<'_>, answer: CallAnswer) {
        let answer =
            if answer.status == 401 { CallAnswer::unauthorized(IdentityFault::Reused.reason()) } else { answer };
        self.calls.note(access.uid(), caller.answered(answer), true);
    }

    /// Remembers a call whose credentials were refused over this body, and why, if this process knows the app.
    pub fn note_refused_call(&self, app: &AppId, caller: &Caller<'_>, body: &[u8]) {
        let (known, reason) = self.fault(app, caller.credentials, body);
        if let Some(uid) = known {
            self.calls.note(uid, caller.answered(CallAnswer::unauthorized(reason)), false);
        }
    }

    /// Returns the last calls of an app's webhook that this process answered, newest first.
    ///
    /// # Errors
    /// As [`Management::allow`].
    pub async fn webhook_calls(&self, principal: &Principal, id: &AppId) -> Outcome<Vec<WebhookCall>> {
        let app = self.readable_app(principal, id).await?;
        self.permit(principal, &app, Action::ReadCalls, None).await?;
        Ok(self.calls.of(app.uid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(source: u8, status: u16, millis: i64) -> WebhookCall {
        let answer = CallAnswer { status, reason: None, revision: None };
        let (at, source) = (Timestamp::from_millis(millis), IpAddr::from([10, 0, 0, source]));
        WebhookCall { at, source, credentials: vec!["token"], answer, times: 1 }
    }

    const APP: AppUid = AppUid::from_bits(1);

    #[test]
    fn strangers_push_out_nothing_but_one_another() {
        let calls = WebhookCalls::default();
        calls.note(APP, call(1, 202, 1), true);
        for index in 0..200_u8 {
            calls.note(APP, call(index, 401, i64::from(index) + 2), false);
        }
        let kept = calls.of(APP);
        assert_eq!(kept.len(), KEPT + 1);
        assert_eq!(kept.iter().filter(|call| call.answer.status == 202).count(), 1);
        assert_eq!(kept[0].source, IpAddr::from([10, 0, 0, 199]), "newest first");
    }

    #[test]
    fn a_caller_that_fails_again_and_again_is_one_entry() {
        let calls = WebhookCalls::default();
        for millis in 0..1000 {
            calls.note(APP, call(1, 401, millis), false);
            calls.note(APP, call(2, 401, millis), false);
        }
        let kept = calls.of(APP);
        assert_eq!(kept.iter().map(|call| (call.times, call.at.as_millis())).collect::<Vec<_>>(), [(1000, 999); 2]);
    }

    #[test]
    fn the_app_that_was_called_least_lately_makes_room() {
        let calls = WebhookCalls::default();
        calls.note(APP, call(1, 202, 1), true);
        for bits in 2..=APPS as u128 {
            calls.note(AppUid::from_bits(bits), call(1, 202, 1), true);
        }
        calls.note(APP, call(1, 202, 2), true);
        calls.note(AppUid::from_bits(1_000_000), call(1, 202, 3), true);
        assert_eq!((calls.of(APP).len(), calls.of(AppUid::from_bits(2)).len()), (1, 0));
        assert_eq!(calls.0.lock().unwrap().apps.len(), APPS);
    }

    #[test]
    fn strangers_who_name_many_apps_push_out_no_app_that_ci_calls() {
        let calls = WebhookCalls::default();
        calls.note(APP, call(1, 202, 1), true);
        for bits in 2..2 * APPS as u128 {
            calls.note(AppUid::from_bits(bits), call(2, 401, 2), false);
        }
        assert_eq!(calls.of(APP).len(), 1);
    }
}
