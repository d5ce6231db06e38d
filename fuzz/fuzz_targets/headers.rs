//! Credentials, idempotency keys and preferences in a call's headers. A caller is let in exactly when each credential
//! that is present is valid, by an HMAC computed here from its definition (RFC 2104).

#![no_main]

use std::sync::LazyLock;

use arbitrary::Arbitrary;
use http::{HeaderMap, HeaderName, HeaderValue};
use libfuzzer_sys::fuzz_target;
use rollhook_core::{
    request::{KEY_MAX, KeyHeader},
    time::Timestamp,
    token::Token,
};
use rollhook_fuzz::{TOKEN, assert_clean, server};
use sha2::{Digest, Sha256};

static SECRET: LazyLock<Token> = LazyLock::new(|| TOKEN.parse().expect("a token"));

/// A call's headers and body.
#[derive(Arbitrary, Debug)]
struct Call {
    headers: Vec<Header>,
    body: Vec<u8>,
}

/// One header line.
#[derive(Arbitrary, Debug)]
enum Header {
    Token(Text),
    Signature(Text),
    /// The legacy signature, which is neither a credential nor a failure.
    Sha1(Text),
    Key(Name, Text),
    Prefer(Text),
    /// GitLab's word for the token.
    Gitlab(Text),
    /// Bitbucket's name for what GitHub calls otherwise.
    Hub(Text),
    Gitea(Text),
    Forgejo(Text),
    /// Standard Webhooks: when, and the signature; the id is a key's name too.
    Time(Text),
    Message(Text),
}

/// When the calls are made, in seconds.
const NOW: i64 = 1_700_000_000;
/// How far a message's time may be away, in seconds.
const TOLERANCE: i64 = 300;
/// The name that most messages have.
const ID: &str = "message";

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Name {
    IdempotencyKey,
    WebhookId,
    GithubDelivery,
}

/// A header's text: what is right there, nearly so, or anything.
#[derive(Arbitrary, Debug)]
enum Text {
    Right,
    Upper,
    Cut(u8),
    Longer(u8),
    Flipped { at: u8, bit: u8 },
    OfBody(Vec<u8>),
    Any(Vec<u8>),
}

impl Text {
    fn bytes(&self, right: impl Fn(&[u8]) -> String, body: &[u8]) -> Vec<u8> {
        let mut text = right(body).into_bytes();
        match self {
            Self::Right => {}
            Self::Upper => text.make_ascii_uppercase(),
            Self::Cut(length) => text.truncate((*length).into()),
            Self::Longer(byte) => text.push(*byte),
            Self::Flipped { at, bit } => {
                let at = usize::from(*at) % text.len();
                text[at] ^= 1 << (bit % 8);
            }
            Self::OfBody(other) => text = right(other).into_bytes(),
            Self::Any(bytes) => text.clone_from(bytes),
        }
        text
    }
}

fn hmac(key: &[u8], body: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let inner = Sha256::new().chain_update(block.map(|byte| byte ^ 0x36)).chain_update(body).finalize();
    Sha256::new().chain_update(block.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

fn signature(body: &[u8]) -> String {
    let hex: String = hmac(TOKEN.as_bytes(), body).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

fn base64(bytes: &[u8]) -> String {
    let digits = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits: String = bytes.iter().map(|byte| format!("{byte:08b}")).collect();
    let group = |bits: &[u8]| bits.iter().fold(0, |value, bit| 2 * value + usize::from(bit - b'0')) << (6 - bits.len());
    let mut text: String = bits.as_bytes().chunks(6).map(|bits| char::from(digits[group(bits)])).collect();
    while text.len() % 4 > 0 {
        text.push('=');
    }
    text
}

/// The signature of a message, as the definition of Standard Webhooks has it.
fn message(id: &[u8], sent: &[u8], body: &[u8]) -> String {
    let key = hmac(TOKEN.as_bytes(), b"rollhook: key of Standard Webhooks, 1");
    format!("v1,{}", base64(&hmac(&key, &[id, b".", sent, b".", body].concat())))
}

fuzz_target!(|call: Call| {
    let mut headers = HeaderMap::new();
    for header in call.headers.iter().take(8) {
        let (name, text) = line(header, &call.body);
        // What is no header line does not get past HTTP.
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            headers.append(HeaderName::from_static(name), value);
        }
    }
    let credentials = server::credentials(&headers, Timestamp::from_millis(1000 * NOW));
    assert_eq!(credentials.secrets.fit(&SECRET, &call.body), lets_in(&headers, &call.body), "{call:?}");
    assert_clean(&format!("{credentials:?}"), "");
    keyed(&headers, &call.body);
    let wait = server::wait(&headers);
    assert!(wait.is_none_or(|wait| wait.as_secs() <= 50 && headers.contains_key("prefer")));
    for value in headers.values() {
        is_told(value.as_bytes());
    }
});

fn line(header: &Header, body: &[u8]) -> (&'static str, Vec<u8>) {
    let token = |_: &[u8]| TOKEN.to_owned();
    let bare = |body: &[u8]| signature(body).replace("sha256=", "");
    match header {
        Header::Token(text) => ("x-service-token", text.bytes(token, body)),
        Header::Signature(text) => ("x-hub-signature-256", text.bytes(signature, body)),
        Header::Sha1(text) => ("x-hub-signature", text.bytes(|_| "sha1=00".to_owned(), body)),
        Header::Key(name, text) => {
            let name = match name {
                Name::IdempotencyKey => "idempotency-key",
                Name::WebhookId => "webhook-id",
                Name::GithubDelivery => "x-github-delivery",
            };
            let right =
                |body: &[u8]| if name == "webhook-id" { ID.to_owned() } else { format!("\"run {}\"", body.len()) };
            (name, text.bytes(right, body))
        }
        Header::Gitlab(text) => ("x-gitlab-token", text.bytes(token, body)),
        Header::Hub(text) => ("x-hub-signature", text.bytes(signature, body)),
        Header::Gitea(text) => ("x-gitea-signature", text.bytes(bare, body)),
        Header::Forgejo(text) => ("x-forgejo-signature", text.bytes(bare, body)),
        Header::Time(text) => ("webhook-timestamp", text.bytes(|_| NOW.to_string(), body)),
        Header::Message(text) => {
            let right = |body: &[u8]| message(ID.as_bytes(), NOW.to_string().as_bytes(), body);
            ("webhook-signature", text.bytes(right, body))
        }
        Header::Prefer(text) => ("prefer", text.bytes(|body| format!("wait={}", body.len()), body)),
    }
}

/// Each that is present must be valid, once, and one must be.
fn lets_in(headers: &HeaderMap, body: &[u8]) -> bool {
    let lines = |name: &str| -> Vec<_> { headers.get_all(name).iter().map(HeaderValue::as_bytes).collect() };
    let valid = |name, sound: &dyn Fn(&[u8]) -> bool| {
        let mut lines = lines(name);
        // SHA-1 is not seen at all.
        lines.retain(|line| name != "x-hub-signature" || !line.starts_with(b"sha1="));
        match lines.as_slice() {
            [] => None,
            [line] => Some(sound(line)),
            _ => Some(false),
        }
    };
    let right = signature(body);
    let token = |line: &[u8]| line == TOKEN.as_bytes();
    let named = |line: &[u8]| line.starts_with(b"sha256=") && line.eq_ignore_ascii_case(right.as_bytes());
    let bare = |line: &[u8]| line.eq_ignore_ascii_case(&right.as_bytes()["sha256=".len()..]);
    let signed = |line: &[u8]| {
        let (ids, times) = (lines("webhook-id"), lines("webhook-timestamp"));
        let ([id], [sent]) = (ids.as_slice(), times.as_slice()) else { return false };
        let text = |bytes: &[u8]| bytes.iter().all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
        let digits = !sent.is_empty() && sent.iter().all(u8::is_ascii_digit);
        let seconds = std::str::from_utf8(sent).ok().filter(|_| digits).and_then(|sent| sent.parse::<i64>().ok());
        let fresh = seconds.is_some_and(|seconds| seconds.abs_diff(NOW) <= TOLERANCE.unsigned_abs());
        let right = message(id, sent, body);
        let fits = line.split(|byte| *byte == b' ').any(|entry| entry == right.as_bytes());
        !id.is_empty() && text(id) && text(line) && fresh && fits
    };
    let all = [
        valid("x-service-token", &token),
        valid("x-gitlab-token", &token),
        valid("x-hub-signature-256", &named),
        valid("x-hub-signature", &named),
        valid("x-gitea-signature", &bare),
        valid("x-forgejo-signature", &bare),
        valid("webhook-signature", &signed),
    ];
    all.iter().any(Option::is_some) && !all.contains(&Some(false))
}

fn keyed(headers: &HeaderMap, body: &[u8]) {
    let all = [KeyHeader::IdempotencyKey, KeyHeader::WebhookId, KeyHeader::Delivery];
    let name = |header: &KeyHeader| match header {
        KeyHeader::Delivery => "x-github-delivery",
        KeyHeader::IdempotencyKey | KeyHeader::WebhookId => header.as_str(),
    };
    let present = all.into_iter().find(|header| headers.contains_key(name(header)));
    match server::key(headers, &all, body) {
        Ok(None) => assert_eq!(present, None),
        Ok(Some(key)) => {
            assert_eq!(Some(key.header), present, "the first counts");
            assert!((1..=KEY_MAX).contains(&key.key.len()) && !key.key.contains(|c: char| !(' '..='~').contains(&c)));
            let other = server::key(headers, &all, &[body, b" "].concat()).expect("it was one").expect("it was there");
            assert!(other.request != key.request && other.key == key.key, "another body is another request");
        }
        Err(refused) => {
            assert!(present.is_some());
            assert_eq!(refused.problem.status, 422);
            assert_clean(&refused.problem.detail, "");
        }
    }
}

/// A text is a token exactly when its last six characters are the checksum of the thirty before (CRC-32 of zlib).
fn is_told(text: &[u8]) {
    let Ok(text) = std::str::from_utf8(text) else { return };
    let digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let sound = text.strip_prefix("rh_").filter(|rest| rest.len() == 36 && rest.chars().all(|c| digits.contains(c)));
    let right = sound.is_some_and(|rest| {
        let value = |sum: u64, c| 62 * sum + digits.find(c).unwrap_or(0) as u64;
        rest[30..].chars().fold(0, value) == u64::from(crc32(&rest.as_bytes()[..30]))
    });
    assert_eq!(text.parse::<Token>().is_ok(), right, "{text:?}");
}

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { (sum >> 1) ^ 0xedb8_8320 } else { sum >> 1 })
    })
}
