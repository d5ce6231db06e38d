//! The credentials of a webhook's callers, and their check against the app's token.

use std::{cell::OnceCell, fmt, time::Duration};

use hmac::Hmac;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Fault, NotAToken, Signature, Token, TokenTrace, TraceKey, base64, finished, keyed};
use crate::time::Timestamp;

/// The greatest difference between a signed message's time and ours, as Standard Webhooks advises.
pub const TOLERANCE: Duration = Duration::from_secs(5 * 60);

/// One proof that a caller holds an app's token.
#[derive(Clone)]
#[non_exhaustive]
pub enum Credential {
    /// The token itself, as `X-Service-Token` and `Authorization: Bearer` carry it.
    Token(Zeroizing<Vec<u8>>),
    /// HMAC-SHA256 over the raw body, with the token's bytes as the key (`X-Hub-Signature-256` and its like).
    Signature(Signature),
    /// A signed message of Standard Webhooks (`webhook-signature`), with the key of [`Token::signing_key`].
    Message(SignedMessage),
}

/// All credentials that a caller of a webhook presented; each one must be valid.
///
/// A header that was present but could not be read at all, or was repeated, is `Err(NotAToken)`: it is invalid, which
/// is not the same as absent.
#[derive(Clone, Default)]
pub struct Credentials(Vec<Result<Credential, NotAToken>>);

impl Credentials {
    /// Returns credentials of one token.
    pub fn token(presented: &[u8]) -> Self {
        [Ok(Credential::Token(Zeroizing::new(presented.to_vec())))].into_iter().collect()
    }

    /// Returns whether nothing was presented.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a secret was presented and each one fits this one, over this body. All of them are checked, even
    /// after a mismatch.
    pub fn fit(&self, secret: &Token, body: &[u8]) -> bool {
        let signatures = || keyed(secret.0.as_bytes());
        let messages = || keyed(secret.signing_key().as_bytes());
        self.all_fit(|presented| secret.matches(presented), signatures, messages, body)
    }

    /// Returns whether a secret was presented and each one fits the token of this trace, over this body.
    pub fn fit_trace(&self, trace: &TokenTrace, key: &TraceKey, body: &[u8]) -> bool {
        let matches = |presented: &[u8]| trace.matches(key, presented);
        self.all_fit(matches, || trace.signatures(), || trace.messages(), body)
    }

    /// Returns whether the body is needed to check what was presented: a signature is over it.
    pub fn are_signatures(&self) -> bool {
        self.0.iter().any(|presented| matches!(presented, Ok(Credential::Signature(_) | Credential::Message(_))))
    }

    /// Returns whether something was presented, and all of it are signatures over the body alone: whoever has observed the
    /// call can send it again, without the secret.
    pub fn are_repeatable(&self) -> bool {
        !self.0.is_empty() && self.0.iter().all(|presented| matches!(presented, Ok(Credential::Signature(_))))
    }

    fn all_fit(
        &self,
        matches: impl Fn(&[u8]) -> bool,
        signatures: impl Fn() -> Hmac<Sha256>,
        messages: impl Fn() -> Hmac<Sha256>,
        body: &[u8],
    ) -> bool {
        let fit = self.each_fits(matches, signatures, messages, body);
        !self.0.is_empty() & fit.into_iter().fold(true, |all, one| all & one)
    }

    /// Returns of each secret whether it fits. All of them are checked, even after a mismatch.
    fn each_fits(
        &self,
        matches: impl Fn(&[u8]) -> bool,
        signatures: impl Fn() -> Hmac<Sha256>,
        messages: impl Fn() -> Hmac<Sha256>,
        body: &[u8],
    ) -> Vec<bool> {
        let signed = OnceCell::new();
        let fits = |presented: &Result<Credential, NotAToken>| match presented {
            Ok(Credential::Token(presented)) => matches(presented),
            Ok(Credential::Signature(Signature(presented))) => {
                let expected = signed.get_or_init(|| finished(signatures(), &[body]));
                expected.ct_eq(presented).into()
            }
            Ok(Credential::Message(message)) => message.fits_keyed(messages(), body),
            Err(NotAToken) => false,
        };
        self.0.iter().map(fits).collect()
    }

    /// Returns why credentials that were refused do not fit the token of this trace: the fault of the first that does
    /// not.
    pub(crate) fn fault(&self, trace: &TokenTrace, key: &TraceKey, body: &[u8]) -> Fault {
        let matches = |presented: &[u8]| trace.matches(key, presented);
        let fit = self.each_fits(matches, || trace.signatures(), || trace.messages(), body);
        let wrong = self.0.iter().zip(fit).find(|(_, fits)| !fits).map(|(presented, _)| match presented {
            Ok(Credential::Token(_)) => Fault::WrongToken,
            Ok(Credential::Signature(_)) => Fault::WrongSignature,
            Ok(Credential::Message(_)) => Fault::WrongMessage,
            Err(NotAToken) => Fault::Unreadable,
        });
        // Secrets that fit were refused as those of a token that this process has read since.
        let otherwise = if self.0.is_empty() { Fault::NoCredentials } else { Fault::WrongToken };
        wrong.unwrap_or(otherwise)
    }

    /// Returns the kind of each credential that was presented.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().map(|presented| match presented {
            Ok(Credential::Token(_)) => "token",
            Ok(Credential::Signature(_)) => "signature",
            Ok(Credential::Message(_)) => "message",
            Err(NotAToken) => "invalid",
        })
    }
}

impl FromIterator<Result<Credential, NotAToken>> for Credentials {
    fn from_iter<T: IntoIterator<Item = Result<Credential, NotAToken>>>(presented: T) -> Self {
        Self(presented.into_iter().collect())
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kinds()).finish()
    }
}

/// The `webhook-id`, `webhook-timestamp` and `webhook-signature` of Standard Webhooks.
#[derive(Clone)]
pub struct SignedMessage {
    /// Id and time as they were sent, because that text was signed.
    id: String,
    sent: String,
    /// The signatures of version 1, in base64.
    signatures: Vec<String>,
}

impl SignedMessage {
    /// Returns the message of the three headers, read at `now` by the reader's wall clock.
    ///
    /// # Errors
    /// If the time is missing, or more than [`TOLERANCE`] away from `now`: an observer of the message could replay it.
    pub fn new(id: &str, timestamp: &str, signature: &str, now: Timestamp) -> Result<Self, NotAToken> {
        let digits = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let seconds: i64 = digits.then(|| timestamp.parse().ok()).flatten().ok_or(NotAToken)?;
        let sent = Timestamp::from_millis(seconds.saturating_mul(1000));
        if id.is_empty() || sent.since(now).max(now.since(sent)) > TOLERANCE {
            return Err(NotAToken);
        }
        // A sender that rotates its key signs with both; a signature of another version may stand beside ours.
        let signatures = signature.split(' ').filter_map(|entry| entry.strip_prefix("v1,")).map(str::to_owned);
        Ok(Self { id: id.to_owned(), sent: timestamp.to_owned(), signatures: signatures.collect() })
    }

    /// Returns whether one of the signatures was made with this key, in constant time.
    pub fn fits(&self, key: &[u8], body: &[u8]) -> bool {
        self.fits_keyed(keyed(key), body)
    }

    fn fits_keyed(&self, mac: Hmac<Sha256>, body: &[u8]) -> bool {
        let message = [self.id.as_bytes(), b".", self.sent.as_bytes(), b".", body];
        let expected = base64(&finished(mac, &message));
        let fits = |signature: &String| bool::from(expected.as_bytes().ct_eq(signature.as_bytes()));
        self.signatures.iter().map(fits).fold(false, |any, one| any | one)
    }
}

#[cfg(test)]
mod tests {
    use super::{super::mac, *};
    use crate::text::hex;

    fn token(seed: u8) -> Token {
        let bytes: Vec<u8> = (0..64).map(|index| seed.wrapping_mul(31).wrapping_add(index * 3)).collect();
        Token::from_random(&bytes).unwrap()
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1000)
    }

    #[test]
    fn debug_shows_no_secret() {
        let secret = token(9);
        let credentials = Credentials::token(secret.expose().as_bytes());
        let shown = format!("{secret:?} {credentials:?} {:?}", secret.signing_key());
        assert!(!shown.contains(&secret.expose()[3..12]), "{shown}");
        assert!(!shown.contains(&secret.signing_key().expose()[8..16]), "{shown}");
    }

    #[test]
    fn each_credential_that_is_present_must_fit() {
        let (secret, body) = (token(1), b"{}");
        let digest = mac(secret.expose().as_bytes(), &[body]);
        let stamp = "1700000000";
        let signed = base64(&mac(secret.signing_key().as_bytes(), &[b"id.", stamp.as_bytes(), b".", body]));
        let message = |entry: &str| SignedMessage::new("id", stamp, entry, at(1_700_000_100)).map(Credential::Message);
        let good = [
            Ok(Credential::Token(Zeroizing::new(secret.expose().as_bytes().to_vec()))),
            format!("sha256={}", hex(&digest)).parse().map(Credential::Signature),
            Signature::bare(&hex(&digest)).map(Credential::Signature),
            message(&format!("v1,{signed}")),
        ];
        let bad = [
            Ok(Credential::Token(Zeroizing::new(b"x".to_vec()))),
            Ok(Credential::Token(Zeroizing::new(Vec::new()))),
            Signature::bare(&"0".repeat(64)).map(Credential::Signature),
            message(&format!("v1,{}", base64(&digest))),
            message(""),
            Err(NotAToken),
        ];
        let fits = |all: &[&Result<Credential, NotAToken>]| {
            all.iter().map(|one| (*one).clone()).collect::<Credentials>().fit(&secret, body)
        };
        assert!(!fits(&[]));
        for one in &good {
            assert!(fits(&[one]));
            assert!(good.iter().all(|other| fits(&[one, other])));
            assert!(!bad.iter().any(|other| fits(&[one, other]) || fits(&[other, one])));
        }
        assert!(!bad.iter().any(|one| fits(&[one])));
        assert!(!Credentials::token(secret.expose().as_bytes()).fit(&token(2), body), "a token opens what it is for");
    }

    #[test]
    fn the_fault_is_that_of_the_first_credential_that_does_not_fit() {
        let (key, secret, body) = (TraceKey::from_random([7; 32]), token(1), b"{}");
        let trace = TokenTrace::new(&key, &secret);
        let good = Ok(Credential::Token(Zeroizing::new(secret.expose().as_bytes().to_vec())));
        let wrong = Ok(Credential::Token(Zeroizing::new(b"x".to_vec())));
        let signature = Signature::bare(&"0".repeat(64)).map(Credential::Signature);
        let message = SignedMessage::new("id", "1700000000", "v1,x", at(1_700_000_000)).map(Credential::Message);
        let fault = |all: &[&Result<Credential, NotAToken>]| {
            all.iter().map(|one| (*one).clone()).collect::<Credentials>().fault(&trace, &key, body)
        };
        assert_eq!(fault(&[]), Fault::NoCredentials);
        assert_eq!(fault(&[&wrong]), Fault::WrongToken);
        assert_eq!(fault(&[&good, &signature]), Fault::WrongSignature);
        assert_eq!(fault(&[&good, &message, &wrong]), Fault::WrongMessage);
        assert_eq!(fault(&[&good, &Err(NotAToken)]), Fault::Unreadable);
    }

    /// The example of the Standard Webhooks libraries' own tests; its secret in base64 is the key below.
    #[test]
    fn standard_webhooks_published_vector() {
        let key: Vec<u8> = [0x31f2_90f6_bf06_298a_u64, 0xab4f_08d4_3c3f_082c, 0xf648_a362_da2d_a4b0]
            .into_iter()
            .flat_map(u64::to_be_bytes)
            .collect();
        assert_eq!(base64(&key), "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        let (id, sent, now) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", at(1_614_265_330));
        let message = SignedMessage::new(id, sent, signature, now).unwrap();
        assert!(message.fits(&key, br#"{"test": 2432232314}"#));
        assert!(!message.fits(&key, br#"{"test": 2432232315}"#));
    }

    #[test]
    fn a_message_is_signed_with_its_id_and_time_and_one_of_its_signatures_must_fit() {
        let key = token(3).signing_key();
        let signature = base64(&mac(key.as_bytes(), &[b"a.1700000000.{}"]));
        let fits = |id: &str, sent: &str, entries: &str, body: &[u8]| {
            SignedMessage::new(id, sent, entries, at(1_700_000_000)).is_ok_and(|read| read.fits(key.as_bytes(), body))
        };
        let right = format!("v1,{signature}");
        assert!(fits("a", "1700000000", &right, b"{}"));
        assert!(fits("a", "1700000000", &format!("v1a,x v1,AAAA {right} v2,{signature}"), b"{}"));
        assert!(!fits("b", "1700000000", &right, b"{}"));
        assert!(!fits("a", "1700000001", &right, b"{}"));
        assert!(!fits("a", "1700000000", &right, b"{} "));
        for entries in ["", "v1,", "v1", &signature, &format!("v2,{signature}"), &format!("v1,{signature}x")] {
            assert!(!fits("a", "1700000000", entries, b"{}"), "{entries}");
        }
    }

    #[test]
    fn a_message_of_another_time_is_none() {
        let read = |sent: &str| SignedMessage::new("a", sent, "v1,x", at(1_700_000_000)).is_ok();
        assert!(read("1700000000") && read("1700000300") && read("1699999700"));
        for stale in ["1700000301", "1699999699", "", "-5", "+1700000000", "1700000000.5", "x", &"9".repeat(40)] {
            assert!(!read(stale), "{stale}");
        }
        assert!(SignedMessage::new("", "1700000000", "v1,x", at(1_700_000_000)).is_err());
    }
}
