//! Checks that ask each instance of a deploy: the same request at the address of each, and one verdict of all.

use std::{net::SocketAddr, time::Duration};

use futures_util::{StreamExt, stream};
use http::{
    Method, Request, Uri,
    header::{HOST, HeaderValue},
};
use rollhook_core::{
    app::Namespace,
    check::Verdict,
    ports::{InstanceAddress, MeasureSpec, ReadyInstances},
    slots::Slots,
};
use rollhook_https::Fetch;
use tokio::time::{Instant, timeout_at};

use crate::found::Found;

/// The instances that are asked at once, and the most of them of one environment.
const AT_ONCE: (usize, usize) = (64, 20);
/// The most instances that a text names.
const NAMED: usize = 3;
/// The most characters of an instance's name in a message, which has little room.
const NAME_MAX: usize = 100;

/// Calls instances at the addresses that their platform names. No person has chosen these, so that the rules for the addresses of
/// URLs are not for them.
pub(crate) struct InstanceCalls {
    pub(crate) fetch: Fetch,
    slots: Slots,
}

impl InstanceCalls {
    pub(crate) fn new() -> Self {
        Self { fetch: Fetch::new(true, ""), slots: Slots::with_share(AT_ONCE.0, AT_ONCE.1) }
    }

    /// Returns what `ask` finds at each instance, in one verdict. `unanswered` is what it means that one does not answer in time.
    pub(crate) async fn each<F: Future<Output = Found>>(
        &self,
        spec: &MeasureSpec,
        unanswered: impl Fn() -> Found,
        ask: impl Fn(SocketAddr) -> F,
    ) -> Found {
        let Some(ready) = &spec.instances else {
            return Found::none("Nothing was measured: the platform names no addresses of instances.");
        };
        let until = Instant::now() + share(spec.check.timeout);
        let found = |(place, instance): (usize, &InstanceAddress)| {
            let asked =
                instance.address.map(|address| self.in_time(&spec.app.namespace, until, &unanswered, ask(address)));
            let name: String = instance.instance.as_str().chars().take(NAME_MAX).collect();
            async move {
                let found = match asked {
                    Some(asked) => asked.await,
                    None => Found::none("It has no address of its own."),
                };
                (place, name, found)
            }
        };
        let calls: Vec<_> = ready.instances.iter().enumerate().map(found).collect();
        let mut found: Vec<_> = stream::iter(calls).buffer_unordered(AT_ONCE.1).collect().await;
        found.sort_by_key(|(place, ..)| *place);
        together(found.into_iter().map(|(_, name, found)| (name, found)).collect(), ready.is_part)
    }

    /// Asks an instance as soon as there is a slot for it, and until this time.
    async fn in_time(
        &self,
        environment: &Namespace,
        until: Instant,
        unanswered: impl Fn() -> Found,
        asked: impl Future<Output = Found>,
    ) -> Found {
        let slot = timeout_at(until, self.slots.acquire(environment)).await;
        // Those before it may have had their slots until then.
        let Some(_slot) = slot.ok().filter(|_| Instant::now() < until) else {
            return Found::none("It was not asked, as the check's time was up.");
        };
        timeout_at(until, asked).await.unwrap_or_else(|_| unanswered())
    }
}

/// Returns the part of a check's time that instances have to answer: in the rest of it, what the others have answered is judged.
fn share(time: Duration) -> Duration {
    time * 9 / 10
}

/// Returns the request for an instance's address: that for the URL, with the URL's host as its header.
pub(crate) fn request(method: &Method, url: &str, address: SocketAddr) -> Option<Request<Vec<u8>>> {
    let uri: Uri = url.parse().ok()?;
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let host = HeaderValue::from_str(uri.authority()?.as_str()).ok()?;
    let request = Request::builder().method(method).uri(format!("http://{address}{path}"));
    request.header(HOST, host).body(Vec::new()).ok()
}

/// Returns a request at each instance as people read it.
pub(crate) fn shown(url: &str, port: u16, ready: Option<&ReadyInstances>) -> String {
    let instances = ready.map(|ready| ready.instances.as_slice()).unwrap_or_default();
    let names: Vec<_> = instances.iter().take(NAMED).map(|found| found.instance.as_str()).collect();
    let more = match instances.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let names = if names.is_empty() { "none is ready".to_owned() } else { names.join(", ") };
    format!("{url} at port {port} of each instance: {names}{more}")
}

/// Returns the one verdict of what was found at each instance, in their order.
fn together(found: Vec<(String, Found)>, is_part: bool) -> Found {
    let all = found.len();
    let of = |verdict: Verdict| found.iter().filter(move |(_, found)| found.verdict == verdict);
    let (failed, passed) = (of(Verdict::Fail).count(), of(Verdict::Pass).count());
    // Of those that failed, one that has answered says the most.
    let answered = of(Verdict::Fail).find(|(_, found)| found.value.is_some());
    if let Some((name, worst)) = answered.or_else(|| of(Verdict::Fail).next()) {
        let message = format!("{failed} of {all} instances failed. {name}: {}", worst.message);
        let value = worst.value.as_ref().map(|value| format!("{value} from {name} ({failed} of {all} instances)"));
        return Found { value, ..Found::new(Verdict::Fail, message) };
    }
    let value = format!("{passed} of {all} instances");
    if let Some((name, open)) = of(Verdict::None).next() {
        return Found::none(format!("{passed} of {all} instances passed. {name}: {}", open.message)).of(value);
    }
    if all == 0 {
        return Found::none("No instance is ready.");
    }
    if is_part {
        return Found::none(format!("There are more instances than the {all} that were asked, which passed."))
            .of(value);
    }
    Found::new(Verdict::Pass, format!("{passed} of {all} instances passed.")).of(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(verdicts: &[(&str, Found)]) -> Vec<(String, Found)> {
        verdicts.iter().map(|(name, found)| ((*name).to_owned(), found.clone())).collect()
    }

    #[test]
    fn all_instances_have_to_pass_and_one_that_fails_is_named() {
        let pass = || Found::new(Verdict::Pass, "Good.").of("200");
        let fail = || Found::new(Verdict::Fail, "Bad.").of("500");
        let silent = || Found::new(Verdict::Fail, "Silent.");
        let open = || Found::none("Unknown.");
        for (given, is_part, verdict, value, message) in [
            (
                vec![("a", pass()), ("b", pass())],
                false,
                Verdict::Pass,
                Some("2 of 2 instances"),
                "2 of 2 instances passed.",
            ),
            (
                vec![("a", pass()), ("b", fail())],
                false,
                Verdict::Fail,
                Some("500 from b (1 of 2 instances)"),
                "1 of 2 instances failed. b: Bad.",
            ),
            // One that fails decides, whatever is unknown of others.
            (
                vec![("a", open()), ("b", fail())],
                true,
                Verdict::Fail,
                Some("500 from b (1 of 2 instances)"),
                "1 of 2 instances failed. b: Bad.",
            ),
            (
                vec![("a", silent()), ("b", fail()), ("c", fail())],
                false,
                Verdict::Fail,
                Some("500 from b (3 of 3 instances)"),
                "3 of 3 instances failed. b: Bad.",
            ),
            (vec![("a", pass()), ("b", silent())], false, Verdict::Fail, None, "1 of 2 instances failed. b: Silent."),
            (
                vec![("a", pass()), ("b", open())],
                false,
                Verdict::None,
                Some("1 of 2 instances"),
                "1 of 2 instances passed. b: Unknown.",
            ),
            (vec![], false, Verdict::None, None, "No instance is ready."),
            (
                vec![("a", pass())],
                true,
                Verdict::None,
                Some("1 of 1 instances"),
                "There are more instances than the 1 that were asked, which passed.",
            ),
        ] {
            let whole = together(found(&given), is_part);
            assert_eq!((whole.verdict, whole.value.as_deref(), whole.message.as_str()), (verdict, value, message));
        }
    }

    #[test]
    fn request_for_an_instance_has_the_path_and_the_host_of_the_url() {
        for (url, address, uri, host) in [
            ("https://shop.example.com/a?b=c", "10.0.0.7:8080", "http://10.0.0.7:8080/a?b=c", "shop.example.com"),
            ("http://shop.example.com:8443", "[fd00::7]:80", "http://[fd00::7]:80/", "shop.example.com:8443"),
        ] {
            let request = request(&Method::GET, url, address.parse().unwrap()).unwrap();
            assert_eq!(
                (request.uri().to_string().as_str(), request.headers()[HOST].as_bytes()),
                (uri, host.as_bytes())
            );
        }
    }
}
