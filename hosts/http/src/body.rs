//! Request bodies: bounded in size and time, and parsed once the caller is authenticated.

use std::{
    mem,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName,
    header::{ACCEPT_ENCODING, CONTENT_ENCODING, EXPECT, TRANSFER_ENCODING},
};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rollhook_api::{DeployPost, Kind, openapi};
use rollhook_core::{
    configuration::VARIABLES_MAX,
    deploy::Revision,
    request::{Field, Refusal},
    text::{json_values, quoted},
};
use rollhook_git_hosts::{self as git_hosts, NotText, PostedDeploy, PostedText};
use serde::{Deserialize, de::DeserializeOwned};
use tokio::time::Instant;

use crate::{
    budget::{Budget, Holder, Room},
    error_reply::ErrorReply,
};

/// The largest body.
pub(crate) const BODY_MAX: usize = openapi::BODY_MAX;
/// The largest body of a git host's push, which is GitHub's own limit.
pub(crate) const PUSH_MAX: usize = 25 * 1024 * 1024;
/// The most JSON values of a body of the API: in memory, each takes many times its two or three bytes.
const VALUES_MAX: usize = 1_500;
/// The same of a change of variables: as many as an app may have, each with its value and a flag, and as many names to remove.
const CONFIGURATION_VALUES_MAX: usize = 4 * VARIABLES_MAX + 10;
/// The longest time of reading a body.
const BODY_TIME: Duration = Duration::from_secs(10);
/// The time in which a body that takes of the budget must bring one [`PARTS`]th of its length: in time, it would bring
/// four.
const PART_TIME: Duration = Duration::from_secs(2);
const PARTS: usize = 20;
/// The most bytes that are read of a refused body, so that its sender gets to read the answer.
const DRAINED_MAX: usize = 32 * 1024 * 1024;

/// The size beyond which a body takes of the budget: as much as a connection's own buffer.
const FREE: usize = 8 * 1024;
/// How large a body may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    /// At most 1 MiB.
    Usual,
    /// A git host's push, at most 25 MiB.
    Push,
}

impl Size {
    /// Returns how large the body of a webhook's call may be. A form's payload is copied to be read: it has the usual
    /// size.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let is_push = git_hosts::is_delivery(headers) && require_json(headers).is_ok();
        if is_push { Self::Push } else { Self::Usual }
    }

    fn bytes(self) -> usize {
        match self {
            Self::Usual => BODY_MAX,
            Self::Push => PUSH_MAX,
        }
    }

    fn exceeded(self) -> ErrorReply {
        ErrorReply::new(Kind::BodyTooLarge, format!("The body must be at most {} MiB.", self.bytes() >> 20))
    }
}

/// Returns whether a body of this size is larger than usual.
pub(crate) fn is_large(body: &Incoming) -> bool {
    body.size_hint().exact().is_none_or(|length| length > BODY_MAX as u64)
}

/// A whole body.
#[derive(Default)]
pub(crate) struct Whole {
    pub(crate) bytes: Bytes,
    /// What the body takes of the budget, for as long as the bytes are held.
    room: Room,
}

/// The body of a call, which takes its room until it is released: a call may last long after its body was read.
pub(crate) struct Held(Mutex<Whole>);

impl Held {
    pub(crate) fn new(whole: Whole) -> Self {
        Self(Mutex::new(whole))
    }

    /// Returns the bytes; none once the body was released.
    pub(crate) fn bytes(&self) -> Bytes {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes.clone()
    }

    /// Frees the bytes and their room, once everything was read of them.
    pub(crate) fn release(&self) {
        let held = mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        drop(held);
    }
}

/// Reads the whole body.
///
/// # Errors
/// 413 if it is larger than `size`, 408 if it takes longer than 10 s or stalls, 400 if it breaks off.
pub(crate) async fn read(
    mut body: Incoming,
    headers: &HeaderMap,
    budget: &Budget,
    holder: Holder,
    size: Size,
) -> Result<Whole, ErrorReply> {
    if body.size_hint().lower() > size.bytes() as u64 {
        discard(body, headers);
        return Err(size.exceeded());
    }
    match tokio::time::timeout(BODY_TIME, collect(&mut body, budget, holder, size)).await {
        Ok(Ok(whole)) => Ok(whole),
        // The rest of a slow body would come as slowly.
        Ok(Err(failure)) if failure.kind() == Kind::SlowBody => Err(failure),
        Ok(Err(failure)) => {
            discard(body, headers);
            Err(failure)
        }
        Err(_) => Err(slow()),
    }
}

fn slow() -> ErrorReply {
    ErrorReply::new(Kind::SlowBody, "The body came too slowly: send it within 10 seconds, and without pauses.")
}

async fn collect(body: &mut Incoming, budget: &Budget, holder: Holder, size: Size) -> Result<Whole, ErrorReply> {
    let mut whole = Whole::default();
    // Without a length, the body may be of any length that is allowed.
    let length = body.size_hint().exact().and_then(|length| usize::try_from(length).ok()).unwrap_or(size.bytes());
    let mut pieces = BytesMut::new();
    let mut pace = None;
    while let Some(frame) = next_frame(body, pace.as_ref()).await? {
        let frame = frame.map_err(|_| ErrorReply::new(Kind::Malformed, "The body broke off."))?;
        let Ok(data) = frame.into_data() else { continue };
        let read = whole.bytes.len().max(pieces.len()) + data.len();
        if read > size.bytes() {
            return Err(size.exceeded());
        }
        // All at once: bodies that hold a part and wait for more would wait for each other.
        if read > FREE && whole.room.is_none() {
            whole.room = budget.take(holder, length).await;
            pace = Some(Pace::new(length));
            if length > BODY_MAX {
                // Growing by doubling would take twice as much as the budget has given.
                pieces.reserve(length);
            }
        }
        if let Some(pace) = &mut pace {
            pace.brought(data.len());
        }
        // Most bodies are one piece, which needs no copy.
        if whole.bytes.is_empty() && pieces.is_empty() {
            whole.bytes = data;
            continue;
        }
        if pieces.is_empty() {
            pieces.extend_from_slice(&whole.bytes);
        }
        pieces.extend_from_slice(&data);
    }
    if !pieces.is_empty() {
        whole.bytes = pieces.freeze();
    }
    Ok(whole)
}

/// Returns the next frame; 408 if the body falls behind the pace.
async fn next_frame(
    body: &mut Incoming,
    pace: Option<&Pace>,
) -> Result<Option<hyper::Result<Frame<Bytes>>>, ErrorReply> {
    match pace {
        Some(pace) => tokio::time::timeout_at(pace.due, body.frame()).await.map_err(|_| slow()),
        None => Ok(body.frame().await),
    }
}

/// The pace of a body that takes of the budget: others may wait for its room.
struct Pace {
    /// The bytes of one part.
    part: usize,
    /// The time at which the next part must have come.
    due: Instant,
    /// The bytes of it that have come.
    brought: usize,
}

impl Pace {
    fn new(length: usize) -> Self {
        Self { part: length / PARTS, due: Instant::now() + PART_TIME, brought: 0 }
    }

    fn brought(&mut self, bytes: usize) {
        self.brought += bytes;
        if self.brought >= self.part {
            *self = Self { due: Instant::now() + PART_TIME, brought: 0, ..*self };
        }
    }
}

/// Reads a refused body and drops it: closing a connection with unread data resets it, and the answer would be lost.
pub(crate) fn discard(mut body: Incoming, headers: &HeaderMap) {
    // A caller that waits for "100 Continue" has not sent the body.
    if body.is_end_stream() || headers.contains_key(EXPECT) {
        return;
    }
    tokio::spawn(async move {
        let discarded = async {
            let mut left = DRAINED_MAX;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                left = left.saturating_sub(length);
                if left == 0 {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(BODY_TIME, discarded).await;
    });
}

/// Refuses a compressed body, by the name of its encoding: the HTTP library takes `chunked` off, and nothing else.
///
/// # Errors
/// 415, or 501 if it was compressed for its way.
pub(crate) fn require_identity(headers: &HeaderMap) -> Result<(), ErrorReply> {
    if let Some(name) = other_coding(headers, &TRANSFER_ENCODING, "chunked") {
        let detail = format!("Send the body as it is: Transfer-Encoding {} is not understood.", quoted(name));
        return Err(ErrorReply::new(Kind::UnsupportedTransferCoding, detail));
    }
    let Some(name) = other_coding(headers, &CONTENT_ENCODING, "identity") else { return Ok(()) };
    let detail = format!("Send the body as it is: Content-Encoding {} is not understood.", quoted(name));
    Err(ErrorReply::new(Kind::UnsupportedMediaType, detail).header(ACCEPT_ENCODING, "identity"))
}

/// Returns the first coding of a list of them that is another one than the one that is known.
fn other_coding<'a>(headers: &'a HeaderMap, list: &HeaderName, known: &str) -> Option<&'a str> {
    let lines = headers.get_all(list).iter().map(|line| line.to_str().unwrap_or("?"));
    let mut names = lines.flat_map(|line| line.split(',')).map(str::trim).filter(|name| !name.is_empty());
    names.find(|name| !name.eq_ignore_ascii_case(known))
}

/// Refuses a body that is not JSON by its type; parameters such as a charset may follow.
///
/// # Errors
/// 415.
pub(crate) fn require_json(headers: &HeaderMap) -> Result<(), ErrorReply> {
    if git_hosts::is_json(headers) {
        return Ok(());
    }
    Err(git_hosts::Error::ContentType.into())
}

/// Reads a JSON object whose members' names may be secrets as well, by mistake. A failure names its place alone.
///
/// # Errors
/// 415; as [`object`].
pub(crate) fn confidential<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, ErrorReply> {
    require_json(headers)?;
    let mut json = serde_json::Deserializer::from_slice(checked_object(body, CONFIGURATION_VALUES_MAX)?);
    let read = T::deserialize(&mut json).map_err(|error| unreadable(&error))?;
    json.end().map_err(|error| unreadable(&error))?;
    Ok(read)
}

/// Reads a JSON object. A failure names the member that is at fault and its place, and repeats no value.
///
/// # Errors
/// 413 if it has more than 1,500 values, 400 if it is not such an object.
pub(crate) fn object<T: DeserializeOwned>(body: &[u8]) -> Result<T, ErrorReply> {
    let mut json = serde_json::Deserializer::from_slice(checked_object(body, VALUES_MAX)?);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let path = error.path().to_string();
        malformed(&if path == "." { String::new() } else { member(&path) }, error.inner())
    })?;
    json.end().map_err(|error| unreadable(&error))?;
    Ok(read)
}

/// Returns a body that may be an object of not too many values.
fn checked_object(body: &[u8], most: usize) -> Result<&[u8], ErrorReply> {
    if json_values(body) > most {
        let detail = format!("The body must have at most {most} values: members of objects and elements of lists.");
        return Err(ErrorReply::new(Kind::BodyTooLarge, detail));
    }
    let body = git_hosts::without_bom(body);
    if body.trim_ascii_start().first().is_some_and(|byte| *byte != b'{') {
        return Err(ErrorReply::new(Kind::Malformed, "The body must be a JSON object."));
    }
    Ok(body)
}

/// The beginnings of tokens and signing keys.
const SECRETS: [&str; 2] = ["rh_", "whsec_"];

/// Returns the name of a member or parameter as a detail shows it: in quotation marks, unless it is a plain one. A part of a
/// secret in place of a name is not shown.
pub(crate) fn member(name: &str) -> String {
    if SECRETS.iter().any(|start| name.contains(start)) {
        return quoted("…");
    }
    let (plain, quoted) = (|byte: u8| byte.is_ascii_alphanumeric() || b"_.[]".contains(&byte), quoted(name));
    if name.bytes().all(plain) { quoted.trim_matches('"').to_owned() } else { quoted }
}

/// Returns the deploy that a person's body asks for. A field of another type than text is the field's error, not the body's.
///
/// # Errors
/// 415, 400 or 422.
pub(crate) fn deploy_post(headers: &HeaderMap, body: &[u8]) -> Result<DeployPost, ErrorReply> {
    // A person's deploy is in order whenever it comes.
    let PostedDeploy { image, commit, committed_at, sequence: _ } = git_hosts::posted_deploy(headers, body)?;
    let Personal { same, if_current, break_glass } = object(body)?;
    let reason = break_glass.text();
    let break_glass =
        reason.map_err(|NotText| Refusal::InvalidField(Field::BreakGlass, "must be a string.".to_owned()))?;
    Ok(DeployPost {
        image,
        commit,
        committed_at,
        sequence: None,
        same: same.unwrap_or_default(),
        if_current,
        break_glass,
    })
}

/// The fields of a person's deploy that CI has not.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Personal {
    same: Option<bool>,
    if_current: Option<Revision>,
    break_glass: PostedText,
}

/// Returns the refusal of a body that is not the expected JSON.
pub(crate) fn unreadable(error: &serde_json::Error) -> ErrorReply {
    malformed("", error)
}

fn malformed(member: &str, error: &serde_json::Error) -> ErrorReply {
    let (colon, why) = (if member.is_empty() { "" } else { ": " }, explained(error));
    let (line, column) = (error.line(), error.column());
    ErrorReply::new(Kind::Malformed, format!("The body: {member}{colon}{why} (line {line}, column {column})."))
}

/// Returns the fault without any value: a value may be a secret.
fn explained(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = text.rfind(" at line ").map_or(text.as_str(), |end| &text[..end]);
    match (error.is_data(), text.rfind(", expected ")) {
        (false, _) => text.to_owned(),
        (true, Some(start)) => text[start + 2..].to_owned(),
        (true, None) if text.starts_with("missing field ") || text.starts_with("duplicate field ") => text.to_owned(),
        (true, None) => "it is JSON of another form than this call takes".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, header::CONTENT_TYPE};
    use rollhook_api::CreateApp;

    use super::*;

    #[test]
    fn json_is_told_by_its_type() {
        for (given, sound) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("application/jsonp", false),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(given));
            assert_eq!(require_json(&headers).is_ok(), sound, "{given}");
        }
        assert!(require_json(&HeaderMap::new()).is_err());
    }

    #[test]
    fn a_failure_says_where_and_never_what() {
        let told = |body: &str| {
            let failure = object::<CreateApp>(body.as_bytes()).unwrap_err();
            String::from_utf8(format!("{failure:?}").into_bytes()).unwrap()
        };
        assert!(told("{\"app\": ").contains("line 1, column 8"));
        assert!(told("[\"shop\"]").contains("must be a JSON object"));
        assert!(told("").contains("EOF"));
        assert!(told("{\"a\\nb\"}").contains(r"a\\u{a}b"), "{}", told("{\"a\\nb\"}"));
        assert!(!told(r#"{"imrh_0123456789ABCDEFGHIJKLMNOPQRST4PMh_x": 1}"#).contains("0123"));
        assert!(told(r#"{"policy": {"settle": 10}}"#).contains("policy.settle: expected a string"));
        assert!(told(r#"{"policy": []}"#).contains("policy: expected an object"));
        for body in [
            r#"{"app": {"hunter2": 1}}"#,
            r#"{"take_over": "hunter2"}"#,
            r#"{"template": "hunter2, expected hunter2"}"#,
            r#"{"app": hunter2}"#,
        ] {
            assert!(!told(body).contains("hunter2"), "{}", told(body));
        }
    }

    #[test]
    fn failure_of_a_confidential_body_repeats_no_text_of_it() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for body in [
            r#"{"hunter2": 1}"#,
            r#"{"set": "hunter2"}"#,
            r#"{"set": ["A=hunter2"]}"#,
            r#"{"unset": {"A": "hunter2"}}"#,
            r#"{"unset": ["A", 7, "hunter2"]}"#,
            r#"{"staged": "hunter2"}"#,
            r#"{"if_current": "hunter2"}"#,
            r#"{"set": {"A": hunter2}}"#,
            r#"{"set": {"A": "hunter2}"#,
            r#"{"set": {"A": "hunter2"}} hunter2"#,
            r#""hunter2""#,
            "A=hunter2",
        ] {
            let refused = confidential::<rollhook_api::ConfigPatch>(&headers, body.as_bytes()).unwrap_err();
            assert_eq!(refused.kind(), Kind::Malformed, "{body}");
            assert!(!format!("{refused:?}").contains("hunter2"), "{refused:?}");
        }
    }

    #[test]
    fn body_of_very_many_values_is_refused_before_it_is_read() {
        let of = |members: usize| format!("{{\"take_over\":false{}", ",\"a\":1".repeat(members));
        let kind = |body: String| object::<CreateApp>(body.as_bytes()).unwrap_err().kind();
        assert_eq!(kind(of(VALUES_MAX - 2)), Kind::Malformed, "it is read, and has no end");
        for body in [of(VALUES_MAX - 1), "[".repeat(BODY_MAX), format!("{{\"target\":{}", "{\"a\":".repeat(VALUES_MAX))]
        {
            assert_eq!(kind(body), Kind::BodyTooLarge);
        }
        assert_eq!(kind(format!("{{\"template\": \"{}\"}}", ",[{".repeat(VALUES_MAX))), Kind::Malformed, "one text");
        let glass = format!("{{\"break_glass\": [{}]}}", "[],".repeat(VALUES_MAX));
        assert_eq!(object::<Personal>(glass.as_bytes()).map(drop).unwrap_err().kind(), Kind::BodyTooLarge);
    }

    #[test]
    fn unknown_fields_are_ignored_and_others_must_be_text() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let parse = |body: &[u8]| deploy_post(&headers, body);
        let post = parse(br#"{"image":"r.example.com/a:1","commit":null,"pusher":{"name":[1]}}"#).unwrap();
        assert_eq!(post, DeployPost { image: Some("r.example.com/a:1".to_owned()), ..DeployPost::default() });
        let same = parse(br#"{"same":true,"if_current":5,"break_glass":"a"}"#).unwrap();
        let break_glass = Some("a".to_owned());
        assert_eq!(same, DeployPost { same: true, if_current: Revision::new(5), break_glass, ..DeployPost::default() });
        let absent = parse(br#"{"same":null,"if_current":null,"break_glass":null}"#).unwrap();
        assert_eq!(absent, DeployPost::default());
        let ignored = format!(r#"{{"more":{{{}"a":[[]]}},"image":"a"}}"#, r#""a":[{"b":1}],"#.repeat(10_000));
        let of_ci = |body: &[u8]| git_hosts::posted_deploy(&headers, body).map_err(ErrorReply::from);
        assert_eq!(of_ci(ignored.as_bytes()).unwrap().image.as_deref(), Some("a"), "however many there are");
        let many = format!(r#"{{"image":[{}0]}}"#, "[],".repeat(10_000));
        assert_eq!(of_ci(many.as_bytes()).unwrap_err().kind(), Kind::InvalidImage);
        for (body, kind) in [
            (r#"{"image":7}"#, Kind::InvalidImage),
            (r#"{"image":["a"]}"#, Kind::InvalidImage),
            (r#"{"commit":{}}"#, Kind::InvalidCommit),
            (r#"{"break_glass":7}"#, Kind::InvalidField),
            (r#"{"same":"yes"}"#, Kind::Malformed),
            (r#"{"same":true,"if_current":0}"#, Kind::Malformed),
            (r#"{"image":"a","image":"b"}"#, Kind::Malformed),
            (r#"["a","b"]"#, Kind::Malformed),
            (r#""a""#, Kind::Malformed),
            ("", Kind::Malformed),
            ("{", Kind::Malformed),
            ("{} {}", Kind::Malformed),
        ] {
            assert_eq!(parse(body.as_bytes()).unwrap_err().kind(), kind, "{body}");
        }
    }
}
