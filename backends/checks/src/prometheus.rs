//! Checks of kind `prometheus`: an instant query of Prometheus' HTTP API, which others have as well.

use http::{Request, Response, header::CONTENT_TYPE};
use rollhook_core::{
    app::Settings,
    check::{PastValue, Verdict},
    ports::{CheckSetting, MeasureSpec, TimesBefore},
    time::Timestamp,
};
use rollhook_https::{Fetch, FetchError, check_values};

use crate::{
    answer,
    condition::{Bound, Condition},
    found::Found,
    login::{self, Login},
    placeholders::{self, Values},
    settings::{Texts, written},
    verifier::AllowedAddresses,
};

pub(crate) const ABOUT: &str =
    "A query of Prometheus, Thanos, Mimir or VictoriaMetrics, and the condition that its number must meet.";

pub(crate) const SETTINGS: &[CheckSetting] = &[
    CheckSetting {
        name: "url",
        about: "The URL of the API without /api/v1/query, such as https://prometheus.example.com.",
        required: true,
    },
    CheckSetting {
        name: "query",
        about: "A query in PromQL that gives one number, with {{namespace}}, {{app}}, {{revision}} and {{workload}} in quotes, and \
                {{window}} as a length.",
        required: true,
    },
    CheckSetting {
        name: "condition",
        about: "The condition of a pass, such as < 0.01: <, <=, >, >=, == or != and a number; without the number if than is given.",
        required: true,
    },
    CheckSetting {
        name: "samples_query",
        about: "A query that gives the number of samples, such as of requests; it has the same placeholders.",
        required: false,
    },
    CheckSetting {
        name: "minimum",
        about: "The least number of samples: with fewer there is no verdict.",
        required: false,
    },
    CheckSetting {
        name: "than",
        about: "before: compares with the value of the same query before the deploy.",
        required: false,
    },
    CheckSetting { name: "factor", about: "The factor of the value before the deploy; by default 1.", required: false },
    login::SETTING,
];

/// The place of an instant query below the URL of the API.
const PATH: &str = "/api/v1/query";
/// The place of a query over a range of time.
const RANGE_PATH: &str = "/api/v1/query_range";

/// A check of kind `prometheus`.
#[derive(Clone, Debug)]
pub(crate) struct PrometheusCheck {
    url: String,
    query: String,
    condition: Condition,
    /// A query of the number of samples, and the least that is needed.
    samples: Option<(String, u64)>,
    pub(crate) login: Option<Login>,
}

impl PrometheusCheck {
    pub(crate) fn parse(mut texts: Texts, addresses: &AllowedAddresses, fetch: &Fetch) -> Result<Self, String> {
        let mut take = |name| texts.remove(name);
        let url = take("url").unwrap_or_default().trim_end_matches('/').to_owned();
        if url.contains(['?', '#']) || url.contains("{{") {
            return Err("url must have no query and no placeholders.".to_owned());
        }
        addresses.check(fetch, &url).map_err(|why| format!("url {why}."))?;
        let checked = |name: &str, query: String| match placeholders::promql(&query, &Values::sample()) {
            Ok(_) => Ok(query),
            Err(why) => Err(format!("{name} {why}")),
        };
        let query = checked("query", take("query").unwrap_or_default())?;
        let condition = take("condition").unwrap_or_default();
        let condition = Condition::parse(&condition, take("than").as_deref(), take("factor").as_deref())?;
        let samples = match (take("samples_query"), take("minimum")) {
            (None, None) => None,
            (Some(query), Some(minimum)) => {
                let minimum = minimum.parse().ok().filter(|minimum| *minimum > 0);
                let minimum = minimum.ok_or("minimum must be a whole number above 0.")?;
                Some((checked("samples_query", query)?, minimum))
            }
            _ => return Err("samples_query and minimum must be given together.".to_owned()),
        };
        let login = take("login").map(|login| Login::parse(&login)).transpose()?;
        Ok(Self { url, query, condition, samples, login })
    }

    pub(crate) fn settings(&self) -> Settings {
        let (samples_query, minimum) = self.samples.clone().unzip();
        let factor = match self.condition.bound {
            Bound::Number(_) => None,
            Bound::Before(factor) => Some(factor.to_string()),
        };
        written([
            ("url", Some(self.url.clone())),
            ("query", Some(self.query.clone())),
            ("condition", Some(self.condition.written())),
            ("samples_query", samples_query),
            ("minimum", minimum.map(|minimum| minimum.to_string())),
            ("than", factor.is_some().then(|| "before".to_owned())),
            ("factor", factor),
            ("login", self.login.as_ref().map(Login::to_string)),
        ])
    }

    /// Returns the condition of a pass.
    pub(crate) fn condition(&self) -> String {
        match &self.samples {
            Some((_, minimum)) => format!("{}, of {minimum} samples or more", self.condition),
            None => self.condition.to_string(),
        }
    }

    /// Returns the API's URL, its login without the secret, and the query with its placeholders filled in.
    pub(crate) fn request(&self, spec: &MeasureSpec) -> String {
        // Its placeholders were checked with the settings.
        let query = placeholders::promql(&self.query, &Values::of(spec)).unwrap_or_else(|_| self.query.clone());
        match &self.login {
            Some(_) => format!("{}{PATH}{}: {query}", self.url, login::shown(self.login.as_ref())),
            None => format!("{}{PATH} {query}", self.url),
        }
    }

    /// Makes the queries, for as long as they take.
    pub(crate) async fn measure(&self, addresses: &AllowedAddresses, fetch: &Fetch, spec: &MeasureSpec) -> Found {
        // What the operator allows may have changed since the check was set.
        if let Err(why) = addresses.check(fetch, &self.url) {
            return Found::none(format!("The query was not made: its address {why}."));
        }
        let (text, value) = match self.query(fetch, spec, &self.query, None).await {
            Ok(number) => number,
            Err(why) => return Found::none(format!("The query {why}.")),
        };
        let found = match &self.samples {
            Some((query, minimum)) => match self.query(fetch, spec, query, None).await {
                Err(why) => Err(Found::none(format!("The query of samples {why}."))),
                Ok((_, samples)) => {
                    // Rates of whole events have fractions.
                    let samples = samples.max(0.0).round() as u64;
                    let few = format!("There are {samples} samples, and {minimum} are needed.");
                    let samples = Some(samples);
                    if samples < Some(*minimum) { Err(Found { samples, ..Found::none(few) }) } else { Ok(samples) }
                }
            },
            None => Ok(None),
        };
        let samples = match found {
            Ok(samples) => samples,
            Err(found) => return found.of(text),
        };
        let bound = match self.condition.bound {
            Bound::Number(number) => number,
            Bound::Before(factor) => match self.query(fetch, spec, &self.query, Some(spec.rollout_began)).await {
                Ok((_, before)) => before * factor,
                Err(why) => {
                    let message = format!("Of the time before the deploy, the query {why}.");
                    return Found { samples, ..Found::none(message).of(text) };
                }
            },
        };
        let operator = self.condition.operator;
        let (verdict, message) = if operator.holds(value, bound) {
            (Verdict::Pass, format!("{text} is {operator} {bound}."))
        } else {
            (Verdict::Fail, format!("Expected {operator} {bound}, and the query found {text}."))
        };
        Found { samples, ..Found::new(verdict, message).of(text) }
    }

    /// Returns the outcome of queries that were not answered in the check's time.
    pub(crate) fn timed_out(spec: &MeasureSpec) -> Found {
        Found::none(format!("The query was not answered within {} s.", spec.check.timeout.as_secs_f64()))
    }

    /// Returns the number that a query gives, now or at a time before.
    async fn query(
        &self,
        fetch: &Fetch,
        spec: &MeasureSpec,
        query: &str,
        at: Option<Timestamp>,
    ) -> Result<(String, f64), String> {
        let at = at.map(|at| ("time", seconds(at.as_millis())));
        let answer = self.call(fetch, spec, PATH, query, at).await?;
        answer::number(answer.status().as_u16(), answer.body())
    }

    /// Returns the numbers that the query gave at times before the deploy, the oldest first.
    ///
    /// # Errors
    /// Why there are none, as the end of a sentence about the query.
    pub(crate) async fn values_before(
        &self,
        addresses: &AllowedAddresses,
        fetch: &Fetch,
        spec: &MeasureSpec,
        times: &TimesBefore,
    ) -> Result<Vec<PastValue>, String> {
        addresses.check(fetch, &self.url)?;
        let all: Vec<Timestamp> = times.all().collect();
        let start = all.first().map_or(times.last, |first| *first);
        let step = i64::try_from(times.every.as_millis()).unwrap_or(i64::MAX);
        let range = [("start", start.as_millis()), ("end", times.last.as_millis()), ("step", step)];
        let range = range.map(|(name, millis)| (name, seconds(millis)));
        let answer = self.call(fetch, spec, RANGE_PATH, &self.query, range).await?;
        answer::numbers(answer.status().as_u16(), answer.body(), &all, times.every)
    }

    /// Makes a query of the API at `path`; `more` are its parameters beside the query.
    ///
    /// # Errors
    /// Why it was not answered, as the end of a sentence about the query.
    async fn call(
        &self,
        fetch: &Fetch,
        spec: &MeasureSpec,
        path: &str,
        query: &str,
        more: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Result<Response<Vec<u8>>, String> {
        let query = placeholders::promql(query, &Values::of(spec))?;
        let request = Request::post(format!("{}{path}", self.url))
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(form(&query, spec, more).into_bytes());
        let mut request = request.map_err(|_| "was not made: the URL cannot be read")?;
        login::add(self.login.as_ref(), &mut request, spec.secret.as_ref())
            .map_err(|why| format!("was not made: {why}"))?;
        let answer = fetch.send(request).await.map_err(|error| unanswered(&error))?;
        check_values("Prometheus", answer.body()).map_err(|error| format!("was answered, but {error}"))?;
        Ok(answer)
    }
}

/// Returns the form of a query with these parameters beside it.
fn form(query: &str, spec: &MeasureSpec, more: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("query", query);
    // The server need not go on when nobody waits any more.
    form.append_pair("timeout", &format!("{}s", spec.check.timeout.as_secs().max(1)));
    form.extend_pairs(more);
    form.finish()
}

/// Returns milliseconds as seconds with a fraction.
fn seconds(millis: i64) -> String {
    let millis = millis.max(0);
    format!("{}.{:03}", millis / 1000, millis % 1000)
}

/// Returns what a failed call means, as the end of a sentence about the query.
fn unanswered(error: &FetchError) -> String {
    let cause = if let FetchError::Call(_, cause) = error {
        rollhook_core::error::chain(&**cause)
    } else {
        rollhook_core::error::chain(error)
    };
    if error.is_refused_here() { format!("was not made: {cause}") } else { format!("was not answered: {cause}") }
}
