//! Checks of kind `http`: a request through the app's route, or of each instance.

use std::net::SocketAddr;

use http::{Method, Request, StatusCode};
use memchr::memmem;
use rollhook_core::{
    app::Settings,
    check::Verdict,
    ports::{CheckSetting, MeasureSpec},
    text::quoted,
};
use rollhook_https::{Body, BodyStart, Fetch, FetchError, check_values};
use serde_json::Value;

use crate::{
    found::Found,
    instances::{self, InstanceCalls},
    login::{self, Hidden, Login},
    placeholders::{self, Values},
    settings::{Texts, written},
    status::Statuses,
    verifier::AllowedAddresses,
};

pub(crate) const ABOUT: &str = "A request through the app's route, or of each instance, and what its answer must be.";

pub(crate) const SETTINGS: &[CheckSetting] = &[
    CheckSetting {
        name: "url",
        about: "The URL; its path and query may have {{namespace}}, {{app}} and {{revision}}.",
        required: true,
    },
    CheckSetting { name: "method", about: "GET, HEAD or POST; by default GET.", required: false },
    CheckSetting {
        name: "status",
        about: "The statuses of a good answer, such as 200-299,404; by default 200. Redirects are not followed.",
        required: false,
    },
    CheckSetting { name: "contains", about: "A text that the first 64 KiB of the answer must have.", required: false },
    CheckSetting {
        name: "json",
        about: "A JSON pointer into the answer, such as /status: its value must be that of equals.",
        required: false,
    },
    CheckSetting { name: "equals", about: "The value at json, such as ok, 3 or true.", required: false },
    CheckSetting {
        name: "unreachable",
        about: "The verdict of a request that is not answered in time: none, or fail; by default none.",
        required: false,
    },
    CheckSetting {
        name: EACH_INSTANCE,
        about: "The port of the container, such as 8080: each new instance that is ready is asked there, over http, in place of the \
                URL's server, and all must pass. The URL gives the path and the Host header.",
        required: false,
    },
    login::SETTING,
];

/// The setting of a check that asks each instance.
const EACH_INSTANCE: &str = "each_instance";

/// The most bytes of an answer that are read.
const BODY_MAX: usize = 64 * 1024;

/// What the body of an answer must have.
#[derive(Clone, Debug, Default)]
struct Expected {
    contains: Option<String>,
    /// A JSON pointer, and the value there.
    json: Option<(String, String)>,
}

/// A check of kind `http`.
#[derive(Clone, Debug)]
pub(crate) struct HttpCheck {
    url: String,
    method: Method,
    statuses: Statuses,
    expected: Expected,
    /// The verdict of a request that is not answered.
    unreachable: Verdict,
    /// The port at which each instance is asked, in place of the URL's server.
    each_instance: Option<u16>,
    pub(crate) login: Option<Login>,
}

impl HttpCheck {
    pub(crate) fn parse(
        mut texts: Texts,
        (addresses, fetch): (&AllowedAddresses, &Fetch),
        instances: &InstanceCalls,
    ) -> Result<Self, String> {
        let mut take = |name| texts.remove(name);
        let url = take("url").unwrap_or_default();
        let filled = placeholders::url(&url, &Values::sample()).map_err(|why| format!("url {why}"))?;
        let each_instance = take(EACH_INSTANCE).map(|port| parse_port(&port)).transpose()?;
        match each_instance {
            // The URL's host is not called.
            Some(_) => instances.fetch.check(&filled).map_err(|why| format!("url {why}."))?,
            None => addresses.check(fetch, &filled).map_err(|why| format!("url {why}."))?,
        }
        let method = match take("method").as_deref() {
            None | Some("GET") => Method::GET,
            Some("HEAD") => Method::HEAD,
            Some("POST") => Method::POST,
            Some(_) => return Err("method must be GET, HEAD or POST.".to_owned()),
        };
        let statuses = Statuses::parse(take("status").as_deref().unwrap_or("200"))?;
        let json = match (take("json"), take("equals")) {
            (None, None) => None,
            (Some(pointer), Some(value)) if pointer.starts_with('/') => Some((pointer, value)),
            (Some(_), Some(_)) => return Err("json must be a JSON pointer, such as /status.".to_owned()),
            _ => return Err("json and equals must be given together.".to_owned()),
        };
        let expected = Expected { contains: take("contains"), json };
        if method == Method::HEAD && (expected.contains.is_some() || expected.json.is_some()) {
            return Err(
                "method must be GET or POST where the answer must have a text: HEAD has no answer's body.".to_owned()
            );
        }
        let unreachable = match take("unreachable").as_deref() {
            None | Some("none") => Verdict::None,
            Some("fail") => Verdict::Fail,
            Some(_) => return Err("unreachable must be none or fail.".to_owned()),
        };
        let login = take("login").map(|login| Login::parse(&login)).transpose()?;
        if each_instance.is_some() && login.is_some() {
            return Err(
                "login cannot be given with each_instance: the secret is for the server of the URL alone.".to_owned()
            );
        }
        Ok(Self { url, method, statuses, expected, unreachable, each_instance, login })
    }

    pub(crate) fn settings(&self) -> Settings {
        let (pointer, value) = self.expected.json.clone().unzip();
        written([
            ("url", Some(self.url.clone())),
            ("method", Some(self.method.to_string())),
            ("status", Some(self.statuses.to_string())),
            ("contains", self.expected.contains.clone()),
            ("json", pointer),
            ("equals", value),
            ("unreachable", Some(self.unreachable.to_string())),
            (EACH_INSTANCE, self.each_instance.map(|port| port.to_string())),
            ("login", self.login.as_ref().map(Login::to_string)),
        ])
    }

    /// Returns the condition of a pass.
    pub(crate) fn condition(&self) -> String {
        let contains = self.expected.contains.as_deref().map(|text| format!("text {}", quoted(text)));
        let json = self.expected.json.as_ref().map(|(pointer, value)| format!("{pointer} = {}", quoted(value)));
        let status = Some(format!("status {}", self.statuses));
        [status, contains, json].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// Returns the request's URL with its placeholders filled in, and its login without the secret.
    pub(crate) fn request(&self, spec: &MeasureSpec) -> String {
        // Its placeholders were checked with the settings.
        let url = placeholders::url(&self.url, &Values::of(spec)).unwrap_or_else(|_| self.url.clone());
        match self.each_instance {
            Some(port) => format!("{} {}", self.method, instances::shown(&url, port, spec.instances.as_ref())),
            None => format!("{} {url}{}", self.method, login::shown(self.login.as_ref())),
        }
    }

    /// Makes the request, for as long as it takes; of each instance, within the check's time.
    pub(crate) async fn measure(
        &self,
        (addresses, fetch): (&AllowedAddresses, &Fetch),
        instances: &InstanceCalls,
        spec: &MeasureSpec,
    ) -> Found {
        let url = match placeholders::url(&self.url, &Values::of(spec)) {
            Ok(url) => url,
            Err(why) => return Found::none(format!("The url {why}")),
        };
        if self.each_instance.is_some() {
            let unanswered = || Found::new(self.unreachable, "The request was not answered in time.");
            return instances
                .each(spec, unanswered, |address| self.measure_instance(&url, address, &instances.fetch))
                .await;
        }
        // What the operator allows may have changed since the check was set.
        if let Err(why) = addresses.check(fetch, &url) {
            return Found::none(format!("The request was not made: its address {why}."));
        }
        let Ok(mut request) = Request::builder().method(&self.method).uri(&url).body(Vec::new()) else {
            return Found::none("The request was not made: its URL cannot be read.");
        };
        if let Err(why) = login::add(self.login.as_ref(), &mut request, spec.secret.as_ref()) {
            return Found::none(format!("The request was not made: {why}."));
        }
        self.ask(fetch, request, &Hidden::of(spec.secret.as_ref())).await
    }

    /// Makes the request of an instance.
    async fn measure_instance(&self, url: &str, address: SocketAddr, fetch: &Fetch) -> Found {
        match instances::request(&self.method, url, address) {
            Some(request) => self.ask(fetch, request, &Hidden::of(None)).await,
            None => Found::none("The request was not made: its URL cannot be read."),
        }
    }

    /// Makes a request, and returns what its answer means.
    async fn ask(&self, fetch: &Fetch, request: Request<Vec<u8>>, hidden: &Hidden) -> Found {
        match fetch.send_and_read(request).await {
            Ok(answer) => {
                let (head, body) = answer.into_parts();
                let status = head.status.as_u16();
                if !self.statuses.contain(status) && self.login.is_some() && is_refusal(head.status) {
                    let message = format!("The login was refused, with status {status}.");
                    return Found::none(message).of(status.to_string());
                }
                if !self.statuses.contain(status) {
                    let message = format!("Expected status {}, and the answer has {status}.", self.statuses);
                    return Found::new(Verdict::Fail, message).of(status.to_string());
                }
                if self.expected.contains.is_none() && self.expected.json.is_none() {
                    return Found::new(Verdict::Pass, format!("The answer has status {status}."))
                        .of(status.to_string());
                }
                match read(body, hidden).await {
                    Ok(Some(body)) => self.expected.judge(&body, status),
                    Ok(None) => Found::none("The answer repeats the check's secret, and was not read."),
                    Err(error) => self.unanswered(&error).of(status.to_string()),
                }
            }
            Err(error) => self.unanswered(&error),
        }
    }

    /// Returns what a failure of the call means.
    fn unanswered(&self, error: &FetchError) -> Found {
        // A call's error itself names its place, which the request shows.
        let cause = if let FetchError::Call(_, cause) = error {
            rollhook_core::error::chain(&**cause)
        } else {
            rollhook_core::error::chain(error)
        };
        if error.is_refused_here() {
            return Found::none(format!("The request was not made: {cause}."));
        }
        Found::new(self.unreachable, format!("The request was not answered: {cause}."))
    }

    /// Returns the outcome of a request that was not answered in the check's time.
    pub(crate) fn timed_out(&self, spec: &MeasureSpec) -> Found {
        let seconds = spec.check.timeout.as_secs_f64();
        Found::new(self.unreachable, format!("The request was not answered within {seconds} s."))
    }
}

fn parse_port(text: &str) -> Result<u16, String> {
    let port = text.parse().ok().filter(|port| *port > 0);
    port.ok_or_else(|| "each_instance must be the port of the container, from 1 to 65535.".to_owned())
}

/// Returns the port at which a check of these settings asks each instance.
pub(crate) fn instance_port(settings: &Settings) -> Option<u16> {
    let port = settings.get(EACH_INSTANCE)?;
    parse_port(port.as_str().unwrap_or(&port.to_string())).ok()
}

/// Returns whether a status says that a login is not, or no longer, good: that is no verdict on the version.
fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED)
}

/// Reads the start of an answer; `None` if it repeats the check's secret: by searching for parts of it there, or showing them, a
/// check would be a way to read it.
async fn read(body: Body, hidden: &Hidden) -> Result<Option<BodyStart>, FetchError> {
    // A secret that begins in what is judged is known by its end.
    let BodyStart { mut bytes, is_whole } = body.start(BODY_MAX + login::FORM_MAX).await?;
    if hidden.is_in(&bytes) {
        return Ok(None);
    }
    let is_short = bytes.len() <= BODY_MAX;
    bytes.truncate(BODY_MAX);
    Ok(Some(BodyStart { bytes, is_whole: is_whole && is_short }))
}

impl Expected {
    fn judge(&self, body: &BodyStart, status: u16) -> Found {
        let text = self.contains.as_deref().map(|text| has_text(body, text));
        let value = self.json.as_ref().map(|(pointer, value)| has_value(body, pointer, value));
        let of_status = || Found::new(Verdict::Pass, "The answer is as expected.").of(status.to_string());
        let found = [text, value].into_iter().flatten();
        let worst = found.max_by_key(|found| match found.verdict {
            Verdict::Pass => 0,
            Verdict::None => 1,
            Verdict::Fail => 2,
        });
        let worst = worst.unwrap_or_else(of_status);
        if worst.value.is_none() { worst.of(status.to_string()) } else { worst }
    }
}

fn has_text(body: &BodyStart, text: &str) -> Found {
    if memmem::find(&body.bytes, text.as_bytes()).is_some() {
        Found::new(Verdict::Pass, "The answer has the expected text.")
    } else if body.is_whole {
        Found::new(Verdict::Fail, format!("The answer does not have the text {}.", quoted(text)))
    } else {
        Found::none(format!("The first {} KiB of the answer do not have the text {}.", BODY_MAX / 1024, quoted(text)))
    }
}

fn has_value(body: &BodyStart, pointer: &str, expected: &str) -> Found {
    if !body.is_whole {
        return Found::none(format!("The answer is longer than {} KiB, and was not read.", BODY_MAX / 1024));
    }
    if let Err(error) = check_values("the route", &body.bytes) {
        return Found::none(format!("The answer was not read: {error}."));
    }
    let Ok(answer) = serde_json::from_slice::<Value>(&body.bytes) else {
        return Found::new(Verdict::Fail, "The answer is no JSON.");
    };
    // Lists and objects are not for everybody who may set a check.
    let seen = match answer.pointer(pointer) {
        None => return Found::new(Verdict::Fail, format!("The answer has nothing at {pointer}.")),
        Some(Value::Array(_)) => return Found::new(Verdict::Fail, format!("The answer has a list at {pointer}.")),
        Some(Value::Object(_)) => return Found::new(Verdict::Fail, format!("The answer has an object at {pointer}.")),
        Some(Value::String(text)) => text.clone(),
        Some(value @ (Value::Null | Value::Bool(_) | Value::Number(_))) => value.to_string(),
    };
    let found = if seen == expected {
        Found::new(Verdict::Pass, format!("The answer has the expected value at {pointer}."))
    } else {
        let message = format!("Expected {} at {pointer}, and the answer has another value.", quoted(expected));
        Found::new(Verdict::Fail, message)
    };
    found.of(seen)
}
