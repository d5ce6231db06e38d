//! Traces of tokens: what a process keeps of a token that it has read, to recognise its holders later.

use std::fmt;

use hmac::Hmac;
use sha2::Sha256;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::{Token, keyed, mac};

/// The key of a process's traces, which it makes at its start and writes nowhere.
pub struct TraceKey(Zeroizing<[u8; 32]>);

impl TraceKey {
    /// The number of random bytes of a key.
    pub const RANDOM_BYTES: usize = 32;

    /// Returns the key of these random bytes.
    pub fn from_random(bytes: [u8; Self::RANDOM_BYTES]) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

/// The trace of a token: credentials can be checked against it, and the token cannot be told from it.
///
/// The token's text is kept as its HMAC under the process's key. A signature needs the token as a key: of that, the
/// trace has the hash's state after the key went in.
#[derive(Clone)]
pub struct TokenTrace {
    digest: [u8; 32],
    signatures: Hmac<Sha256>,
    messages: Hmac<Sha256>,
}

impl TokenTrace {
    /// Returns the trace of a token.
    pub fn new(key: &TraceKey, token: &Token) -> Self {
        Self {
            digest: digest(key, token.0.as_bytes()),
            signatures: keyed(token.0.as_bytes()),
            messages: keyed(token.signing_key().as_bytes()),
        }
    }

    /// Returns whether this is the trace of the presented text, in constant time.
    pub fn matches(&self, key: &TraceKey, presented: &[u8]) -> bool {
        self.digest.ct_eq(&digest(key, presented)).into()
    }

    pub(super) fn signatures(&self) -> Hmac<Sha256> {
        self.signatures.clone()
    }

    pub(super) fn messages(&self) -> Hmac<Sha256> {
        self.messages.clone()
    }
}

fn digest(TraceKey(key): &TraceKey, text: &[u8]) -> [u8; 32] {
    mac(key.as_slice(), &[text])
}

impl fmt::Debug for TraceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceKey(…)")
    }
}

impl fmt::Debug for TokenTrace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenTrace(…)")
    }
}

#[cfg(test)]
mod tests {
    use std::slice;

    use super::*;
    use crate::text::hex;
    use crate::time::Timestamp;
    use crate::token::{Credential, Credentials, NotAToken, Signature, SignedMessage, base64};

    fn token(seed: u8) -> Token {
        let bytes: Vec<u8> = (0..64).map(|index| seed.wrapping_mul(31).wrapping_add(index * 3)).collect();
        Token::from_random(&bytes).unwrap()
    }

    #[test]
    fn a_trace_recognises_the_credentials_that_fit_its_token_and_no_others() {
        let key = TraceKey::from_random([7; 32]);
        let (ours, other, body) = (token(1), token(2), b"{}");
        let trace = TokenTrace::new(&key, &ours);
        let of = |secret: &Token| {
            let hex = hex(&mac(secret.0.as_bytes(), &[body]));
            let signed = base64(&mac(secret.signing_key().as_bytes(), &[b"id.1700000000.", body]));
            let now = Timestamp::from_millis(1_700_000_000_000);
            [
                Ok(Credential::Token(Zeroizing::new(secret.0.as_bytes().to_vec()))),
                Signature::bare(&hex).map(Credential::Signature),
                SignedMessage::new("id", "1700000000", &format!("v1,{signed}"), now).map(Credential::Message),
            ]
        };
        let fits = |all: &[Result<Credential, NotAToken>], body: &[u8]| {
            let credentials: Credentials = all.iter().cloned().collect();
            assert_eq!(credentials.fit_trace(&trace, &key, body), credentials.fit(&ours, body));
            credentials.fit_trace(&trace, &key, body)
        };
        assert!(!fits(&[], body));
        assert!(fits(&of(&ours), body) && !fits(&of(&ours), b"{} "));
        for (good, bad) in of(&ours).into_iter().zip(of(&other)) {
            assert!(fits(slice::from_ref(&good), body) && !fits(slice::from_ref(&bad), body));
            assert!(!fits(&[good, bad], body), "a good credential never rescues a bad one");
        }
        assert!(!fits(&[Err(NotAToken)], body));
        assert!(!trace.matches(&TraceKey::from_random([8; 32]), ours.0.as_bytes()), "each process has its own traces");
    }

    #[test]
    fn a_trace_shows_no_token() {
        let key = TraceKey::from_random([7; 32]);
        let shown = format!("{key:?} {:?}", TokenTrace::new(&key, &token(1)));
        assert_eq!(shown, "TraceKey(…) TokenTrace(…)");
    }
}
