//! Checks of kind `webhook`: a signed call of a service, which answers with the verdict.

use http::Request;
use rollhook_core::{
    app::Settings,
    check::{CheckSecret, Verdict},
    ports::{CheckSetting, MeasureSpec},
    text::quoted,
    token::shared_signing_key,
};
use rollhook_https::{Fetch, FetchError, SignedCall, check_values};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    found::Found,
    settings::{Texts, written},
    verifier::AllowedAddresses,
};

pub(crate) const ABOUT: &str =
    "A call of a service of yours, signed as Standard Webhooks says, which answers with the verdict.";

pub(crate) const SETTINGS: &[CheckSetting] =
    &[CheckSetting { name: "url", about: "The URL that is posted to, without placeholders.", required: true }];

pub(crate) const SECRET: &str = "The key of the signatures: whsec_ and the base64 of 24 to 64 bytes (Standard Webhooks). The service verifies by it.";

/// The most bytes of an answer.
const ANSWER_MAX: usize = 64 * 1024;

/// The words of an answer's verdict.
const VERDICTS: &str = "pass, fail or pending";

/// A check of kind `webhook`.
#[derive(Clone, Debug)]
pub(crate) struct WebhookCheck {
    url: String,
}

/// The answer of a service.
#[derive(Deserialize)]
struct Answer {
    verdict: String,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    value: Value,
}

impl WebhookCheck {
    pub(crate) fn parse(mut texts: Texts, addresses: &AllowedAddresses, fetch: &Fetch) -> Result<Self, String> {
        let url = texts.remove("url").unwrap_or_default();
        if url.contains("{{") {
            return Err("url must have no placeholders: the call's body says which version is measured.".to_owned());
        }
        addresses.check(fetch, &url).map_err(|why| format!("url {why}."))?;
        Ok(Self { url })
    }

    pub(crate) fn settings(&self) -> Settings {
        written([("url", Some(self.url.clone()))])
    }

    /// Returns `Ok` if this can be the key of the signatures.
    ///
    /// # Errors
    /// What is wrong with it, as the end of a sentence about the secret.
    pub(crate) fn check_secret(secret: &CheckSecret) -> Result<(), String> {
        let key = shared_signing_key(secret.expose());
        key.map(drop).ok_or_else(|| "must be whsec_ and the base64 of 24 to 64 bytes (Standard Webhooks).".to_owned())
    }

    /// Returns the URL, and the body of the call.
    pub(crate) fn request(&self, spec: &MeasureSpec) -> String {
        format!("POST {} {}", self.url, body(spec))
    }

    /// Makes the call, for as long as it takes.
    pub(crate) async fn measure(&self, addresses: &AllowedAddresses, fetch: &Fetch, spec: &MeasureSpec) -> Found {
        // What the operator allows may have changed since the check was set.
        if let Err(why) = addresses.check(fetch, &self.url) {
            return Found::none(format!("The call was not made: its address {why}."));
        }
        let request = match self.signed(spec) {
            Ok(request) => request,
            Err(why) => return Found::none(format!("The call was not made: {why}.")),
        };
        let answer = match fetch.send_and_read(request).await {
            Ok(answer) => answer,
            Err(error) => return unanswered(&error),
        };
        let status = answer.status();
        if !status.is_success() {
            return Found::none(format!("The service answered with status {}, and no verdict.", status.as_u16()));
        }
        match answer.into_body().start(ANSWER_MAX).await {
            Ok(body) if !body.is_whole => {
                Found::none(format!("The answer is longer than {} KiB, and was not read.", ANSWER_MAX / 1024))
            }
            Ok(body) => judge(&body.bytes),
            Err(error) => unanswered(&error),
        }
    }

    fn signed(&self, spec: &MeasureSpec) -> Result<Request<Vec<u8>>, &'static str> {
        let secret = spec.secret.as_ref().ok_or("the check has no secret; set it anew with one")?;
        let key = shared_signing_key(secret.expose()).ok_or("the check's secret is no key of signatures")?;
        let (id, body) = (id(spec), body(spec).to_string());
        let call = SignedCall { id: &id, sent_at: spec.now, content_type: "application/json", body: &body };
        call.request(&self.url, &key).map_err(|_| "its URL cannot be read")
    }

    /// Returns the outcome of a call that was not answered in the check's time.
    pub(crate) fn timed_out(spec: &MeasureSpec) -> Found {
        Found::none(format!("The call was not answered within {} s.", spec.check.timeout.as_secs_f64()))
    }
}

/// The condition of a pass.
pub(crate) const CONDITION: &str = "verdict pass";

/// Returns the id of the call: the same for the same measurement.
fn id(spec: &MeasureSpec) -> String {
    let deploy = &spec.deploy;
    format!("{}-{}-{}-{}", deploy.app, deploy.revision, spec.check.name, spec.now.as_millis())
}

fn body(spec: &MeasureSpec) -> Value {
    let mut body = json!({
        "namespace": spec.app.namespace.as_str(),
        "app": spec.app.name.as_str(),
        "check": spec.check.name.as_str(),
        "revision": spec.deploy.revision,
        "deploy": spec.deploy.to_string(),
        "image": spec.image.to_string(),
        "window": format!("{}s", spec.window.as_secs().max(1)),
    });
    if let Some(commit) = &spec.commit {
        body["commit"] = commit.as_str().into();
    }
    body
}

fn judge(body: &[u8]) -> Found {
    if let Err(error) = check_values("the service", body) {
        return Found::none(format!("The answer was not read: {error}."));
    }
    let Ok(answer) = serde_json::from_slice::<Answer>(body) else {
        return Found::none(format!("The answer cannot be read: it must be JSON with a verdict, {VERDICTS}."));
    };
    let verdict = match answer.verdict.as_str() {
        "pass" => Verdict::Pass,
        "fail" => Verdict::Fail,
        "pending" => Verdict::None,
        other => {
            return Found::none(format!("The answer has the verdict {}, which is not {VERDICTS}.", quoted(other)));
        }
    };
    let value = match answer.value {
        Value::Null => None,
        Value::String(text) => Some(text),
        value @ (Value::Bool(_) | Value::Number(_)) => Some(value.to_string()),
        Value::Array(_) | Value::Object(_) => {
            return Found::none("The answer cannot be read: its value must be a text or a number.");
        }
    };
    let said = answer.message.filter(|message| !message.trim().is_empty());
    let message = match (answer.verdict.as_str(), said) {
        ("pending", Some(said)) => format!("The service cannot say yet: {said}"),
        ("pending", None) => "The service cannot say yet.".to_owned(),
        (_, Some(said)) => said,
        (verdict, None) => format!("The service says {verdict}."),
    };
    Found { value, ..Found::new(verdict, message) }
}

fn unanswered(error: &FetchError) -> Found {
    let cause = if let FetchError::Call(_, cause) = error {
        rollhook_core::error::chain(&**cause)
    } else {
        rollhook_core::error::chain(error)
    };
    let was = if error.is_refused_here() { "made" } else { "answered" };
    Found::none(format!("The call was not {was}: {cause}."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_verdicts_or_none() {
        for (body, verdict, value, message) in [
            (r#"{"verdict":"pass"}"#, Verdict::Pass, None, "The service says pass."),
            (r#"{"verdict":"pass","message":"all well","value":0.5}"#, Verdict::Pass, Some("0.5"), "all well"),
            (r#"{"verdict":"fail","message":" ","value":"p95"}"#, Verdict::Fail, Some("p95"), "The service says fail."),
            (r#"{"verdict":"fail","value":true,"more":[1]}"#, Verdict::Fail, Some("true"), "says fail"),
            (r#"{"verdict":"pending"}"#, Verdict::None, None, "cannot say yet."),
            (r#"{"verdict":"pending","message":"3 of 10 runs"}"#, Verdict::None, None, "yet: 3 of 10 runs"),
            (r#"{"verdict":"PASS"}"#, Verdict::None, None, "which is not pass, fail or pending"),
            (r#"{"verdict":"pass","value":[1]}"#, Verdict::None, None, "value must be"),
            (r#"{"verdict":"pass","message":1}"#, Verdict::None, None, "cannot be read"),
            (r#"{"message":"pass"}"#, Verdict::None, None, "cannot be read"),
            ("pass", Verdict::None, None, "cannot be read"),
            ("", Verdict::None, None, "cannot be read"),
        ] {
            let found = judge(body.as_bytes());
            assert_eq!((found.verdict, found.value.as_deref()), (verdict, value), "{body}: {found:?}");
            assert!(found.message.contains(message), "{body}: {found:?}");
        }
        let many = format!(r#"{{"verdict":"pass","more":[1{}]}}"#, ",1".repeat(30_000));
        assert_eq!(judge(many.as_bytes()).verdict, Verdict::None);
    }
}
