//! A whole call of an app's webhook: who calls, under which key, and what for.

use http::{HeaderMap, header::CONTENT_TYPE};
use rollhook_core::{
    delivery::Delivery,
    request::{DeployRequest, Field, IdempotencyKey, Refusal},
    time::Timestamp,
    token::Credentials,
};
use serde::Deserialize;

use crate::{
    Error, credentials, delivery,
    field::{NotText, PostedNumber, PostedText},
    key, object,
    registry::{RegistryEvent, registry_event},
};

/// A call of an app's webhook, as its headers and raw body say it.
///
/// First [`Deployer::authorize`](rollhook_core::service::Deployer::authorize) checks the credentials over the raw body;
/// only then the body is read, by [`request`](Self::request): to a stranger, every call is refused alike.
pub struct Call<'a> {
    headers: &'a HeaderMap,
    body: &'a [u8],
    credentials: Credentials,
    is_repeatable: bool,
}

/// The request of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A CI job deploys.
    Deploy(PostedDeploy),
    /// A git host reports an event.
    Push(Delivery),
    /// A registry reports an event.
    RegistryEvent(RegistryEvent),
}

/// The texts of a deploy's body. Unknown fields are ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PostedDeploy {
    /// The image.
    pub image: Option<String>,
    /// The commit.
    pub commit: Option<String>,
    /// The time of the commit, as RFC 3339 writes it.
    pub committed_at: Option<String>,
    /// The place among the deploys of the app's webhook.
    pub sequence: PostedNumber,
}

impl PostedDeploy {
    /// Returns the request for the deployer.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(&self, key: Option<IdempotencyKey>) -> Result<DeployRequest, Refusal> {
        let (image, commit) = (self.image.as_deref(), self.commit.as_deref());
        let request = DeployRequest::parse(image, commit, self.committed_at.as_deref(), key)?;
        request.in_order(match &self.sequence {
            PostedNumber::Absent => None,
            PostedNumber::Text(text) => Some(text),
            // As little a number as any word.
            PostedNumber::Other => Some(""),
        })
    }
}

impl<'a> Call<'a> {
    /// Returns the call of these headers and this raw body, at this time by the wall clock. Only the headers are read.
    pub fn new(headers: &'a HeaderMap, body: &'a [u8], now: Timestamp) -> Self {
        let credentials = credentials(headers, now);
        let is_repeatable = credentials.are_repeatable();
        Self { headers, body, credentials, is_repeatable }
    }

    /// Says that the caller has presented something else as well that is bound to one call, such as an id_token: a
    /// signature over the body alone does not open this call then.
    #[must_use]
    pub fn with_another_credential(self) -> Self {
        Self { is_repeatable: false, ..self }
    }

    /// Returns what the caller has presented, for the deployer to check.
    pub const fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// Returns the request of an authenticated caller, and its idempotency key.
    ///
    /// The key is that of the headers `Idempotency-Key`, `webhook-id` and `X-GitHub-Delivery`, as far as the caller has
    /// proved it. A deploy that a signature over its body alone opens is known by that body. The event of a registry has
    /// no key: it records nothing.
    ///
    /// # Errors
    /// [`Error`], if the body or the key cannot be read.
    pub fn request(&self) -> Result<(Request, Option<IdempotencyKey>), Error> {
        if let Some(event) = registry_event(self.headers, self.body)? {
            return Ok((Request::RegistryEvent(event), None));
        }
        let (operation, request) = match delivery(self.headers, self.body)? {
            Some(delivery) => ("push", Request::Push(delivery)),
            None => ("webhook", Request::Deploy(posted_deploy(self.headers, self.body)?)),
        };
        let given = key::key(self.headers, key::accepted(self.headers), operation, self.body)?;
        let by_body = self.is_repeatable && matches!(request, Request::Deploy(_));
        let key = if by_body { Some(key::of_signed_body(self.body)) } else { given };
        Ok((request, key))
    }
}

/// Returns whether a body is JSON by its type; parameters such as a charset may follow.
pub fn is_json(headers: &HeaderMap) -> bool {
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let given = types.next().and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    let known = ["application/json", "application/merge-patch+json"];
    known.iter().any(|known| essence.eq_ignore_ascii_case(known)) && types.next().is_none()
}

/// Returns the deploy that a body asks for. A field of another type than text is the field's error, not the body's.
///
/// # Errors
/// [`Error`], which names the field, or the place of the fault.
pub fn posted_deploy(headers: &HeaderMap, body: &[u8]) -> Result<PostedDeploy, Error> {
    #[derive(Deserialize)]
    struct Posted {
        #[serde(default)]
        image: PostedText,
        #[serde(default)]
        commit: PostedText,
        #[serde(default)]
        committed_at: PostedText,
        #[serde(default)]
        sequence: PostedNumber,
    }
    let text = |field, posted: PostedText| posted.text().map_err(|NotText| Error::Field(field));
    if !is_json(headers) {
        return Err(Error::ContentType);
    }
    let posted: Posted = object(body)?;
    Ok(PostedDeploy {
        image: text(Field::Image, posted.image)?,
        commit: text(Field::Commit, posted.commit)?,
        committed_at: text(Field::CommittedAt, posted.committed_at)?,
        sequence: posted.sequence,
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use rollhook_core::{deploy::Order, request::KeyHeader};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
    const BODY: &[u8] = br#"{"image": "registry.example.com/api:v2", "commit": "def456a", "extra": [1]}"#;

    fn headers(lines: &[(&'static str, &str)]) -> HeaderMap {
        let json = ("content-type", "application/json");
        lines.iter().chain([&json]).map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn key_of(lines: &[(&'static str, &str)]) -> Option<(KeyHeader, String)> {
        let (_, key) = Call::new(&headers(lines), BODY, NOW).request().unwrap();
        key.map(|key| (key.header, key.key))
    }

    #[test]
    fn call_of_ci_has_its_token_its_key_and_its_deploy() {
        let headers = headers(&[("x-service-token", "rh_x"), ("idempotency-key", "run-7")]);
        let call = Call::new(&headers, BODY, NOW);
        assert_eq!(call.credentials().kinds().collect::<Vec<_>>(), ["token"]);
        let (Request::Deploy(posted), Some(key)) = call.request().unwrap() else { panic!("a deploy with a key") };
        let request = posted.parse(Some(key.clone())).unwrap();
        assert_eq!((request.image.unwrap().tag(), request.commit.unwrap().as_str()), (Some("v2"), "def456a"));
        assert_eq!((key.header, key.key.as_str()), (KeyHeader::IdempotencyKey, "run-7"));
    }

    #[test]
    fn call_of_a_git_host_has_its_signature_its_delivery_and_its_push() {
        let signature = format!("sha256={}", "0".repeat(64));
        let headers = headers(&[
            ("x-hub-signature-256", &signature),
            ("x-github-event", "push"),
            ("x-github-delivery", "72d3162e"),
        ]);
        let body = br#"{"ref": "refs/heads/main", "after": "da1560886d4f094c3e6c9ef40349f7d38b5d27d7"}"#;
        let call = Call::new(&headers, body, NOW);
        assert_eq!(call.credentials().kinds().collect::<Vec<_>>(), ["signature"]);
        let (Request::Push(_), Some(key)) = call.request().unwrap() else { panic!("a push with a key") };
        assert_eq!((key.header, key.key.as_str()), (KeyHeader::Delivery, "72d3162e"));
    }

    #[test]
    fn key_is_one_that_the_caller_has_proved() {
        let signature = format!("sha256={}", "0".repeat(64));
        let signed = ("x-hub-signature-256", signature.as_str());
        let given = ("idempotency-key", "run-7");
        let by_body = key_of(&[signed]).unwrap();
        assert!(by_body.1.starts_with("signed-"), "{by_body:?}");
        assert_eq!(key_of(&[signed, given]), Some(by_body), "whoever observed the call can change its headers");
        let beside_a_token = key_of(&[signed, given, ("x-service-token", "rh_x")]);
        assert_eq!(beside_a_token, Some((KeyHeader::IdempotencyKey, "run-7".to_owned())));
        let message = [("webhook-signature", "v1,x"), ("webhook-id", "m1"), ("webhook-timestamp", "1700000000"), given];
        assert_eq!(key_of(&message), Some((KeyHeader::WebhookId, "m1".to_owned())));
        let headers = headers(&[signed, given]);
        let (_, key) = Call::new(&headers, BODY, NOW).with_another_credential().request().unwrap();
        assert_eq!(key.unwrap().key, "run-7");
    }

    #[test]
    fn sequence_is_a_whole_number_or_its_digits() {
        let posted = |sequence: &str| {
            let body = format!(r#"{{"image": "registry.example.com/api:v2", "sequence": {sequence}}}"#);
            posted_deploy(&headers(&[]), body.as_bytes()).unwrap().parse(None)
        };
        for good in ["42", "\"42\""] {
            assert_eq!(posted(good).unwrap().order.sequence().map(|sequence| sequence.get()), Some(42), "{good}");
        }
        let order = |sequence: &str| posted(sequence).unwrap().order;
        assert_eq!((order("null"), order("\"none\"")), (Order::Unstated, Order::Exempt));
        for bad in ["0", "-1", "1.0", "1.5", "1e3", "9007199254740992", "\"run-7\"", "\"\"", "true", "[1]", "{}"] {
            let Err(Refusal::InvalidField(Field::Sequence, why)) = posted(bad) else { panic!("{bad} is a sequence") };
            assert!(why.contains("must be a whole number from 1 to 9007199254740991"), "{bad}: {why}");
        }
    }

    #[test]
    fn request_that_cannot_be_read_says_why() {
        let said = |headers: HeaderMap, body: &[u8]| Call::new(&headers, body, NOW).request().unwrap_err().to_string();
        assert_eq!(said(HeaderMap::new(), BODY), "Send the body with Content-Type: application/json.");
        assert_eq!(said(headers(&[]), br#"{"image": 7}"#), "image: must be a string.");
        assert_eq!(said(headers(&[]), b"[]"), "The body must be a JSON object.");
        assert_eq!(said(headers(&[("idempotency-key", "")]), b"{}").split(':').next(), Some("idempotency-key"));
        let mut twice = headers(&[]);
        twice.append("content-type", HeaderValue::from_static("application/json"));
        assert_eq!(said(twice, BODY), "Send the body with Content-Type: application/json.");
    }
}
