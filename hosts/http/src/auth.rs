//! Takes credentials out of headers; the core checks them.

use std::{net::IpAddr, time::SystemTime};

use http::{HeaderMap, header::AUTHORIZATION};
use rollhook_core::{
    request::Refusal,
    time::Timestamp,
    token::{NotAToken, Token},
};
use rollhook_git_hosts::{self as git_hosts, bearer, once};
use rollhook_management::{
    Management,
    access::Principal,
    keyless::{IdToken, Presented},
};

use crate::{error_reply::ErrorReply, target::Target};

/// The header of the webhook's token.
const TOKEN: &str = "x-service-token";
const ACTOR: &str = "x-rollhook-actor";

/// Returns the credentials of a webhook's caller; `now` is the wall clock's time. A header that is repeated, or not
/// ASCII, is invalid, not absent.
pub(crate) fn credentials(headers: &HeaderMap, now: Timestamp) -> Presented {
    Presented { secrets: git_hosts::credentials(headers, now), identity: identity(headers) }
}

/// Returns the id_token of a pipeline. The webhook's own token is one of the secrets. Another scheme than `Bearer` is no
/// credential here: a proxy in front may want it.
fn identity(headers: &HeaderMap) -> Option<Result<IdToken, NotAToken>> {
    match once(headers, AUTHORIZATION.as_str())? {
        Ok(text) => bearer(text).filter(|secret| !secret.starts_with(Token::PREFIX)).map(str::parse),
        Err(repeated) => Some(Err(repeated)),
    }
}

/// Returns the wall clock's time, which is compared with the time that a sender has signed.
#[allow(clippy::disallowed_methods, reason = "a sender's time can be compared with no other clock")]
pub(crate) fn wall_clock() -> Timestamp {
    SystemTime::now().into()
}

/// Returns whether the webhook's token is presented, and no API token.
pub(crate) fn has_service_token(headers: &HeaderMap) -> bool {
    headers.contains_key(TOKEN) && !headers.contains_key(AUTHORIZATION)
}

/// Returns the credentials of a webhook's caller now.
pub(crate) fn presented_by_app(headers: &HeaderMap) -> Presented {
    credentials(headers, wall_clock())
}

/// Returns whether the body is needed to check a webhook's caller.
pub(crate) fn needs_body(headers: &HeaderMap) -> bool {
    credentials(headers, wall_clock()).needs_body()
}

/// Returns whether this process knows the call's credentials as valid ones, without a read of the store.
pub(crate) fn is_recognized(management: &Management, target: &Target, headers: &HeaderMap, body: &[u8]) -> bool {
    match target {
        Target::App(app) => management.recognizes(app, &credentials(headers, wall_clock()), body),
        Target::Management => management.recognizes_api_token(presented(headers).as_bytes()),
        Target::SignIn | Target::ProviderCallback | Target::Login | Target::Nothing => false,
    }
}

/// Returns whether the store is read to authenticate the call.
pub(crate) fn costs_a_read(target: &Target, headers: &HeaderMap) -> bool {
    match target {
        Target::App(_) | Target::SignIn | Target::ProviderCallback | Target::Login => true,
        Target::Management => !presented(headers).is_empty(),
        Target::Nothing => false,
    }
}

/// Returns the bearer token that the call presents; empty if there is none.
pub(crate) fn presented(headers: &HeaderMap) -> &str {
    once(headers, AUTHORIZATION.as_str()).and_then(Result::ok).and_then(bearer).unwrap_or_default()
}

/// Returns the principal that the call's bearer token proves.
///
/// # Errors
/// 401, or 503 while the store is away.
pub(crate) async fn principal(
    management: &Management,
    network: IpAddr,
    headers: &HeaderMap,
) -> Result<Principal, ErrorReply> {
    let presented = presented(headers);
    if presented.is_empty() {
        return Err(Refusal::Unauthorized.into());
    }
    let claimed = headers.get(ACTOR).map(|name| String::from_utf8_lossy(name.as_bytes()));
    let claimed = claimed.as_deref().map(str::trim).filter(|name| !name.is_empty());
    let principal = management.authenticate_from(Some(network), presented.as_bytes(), claimed).await;
    principal.map_err(|refusal| ErrorReply::from(refusal).redacted())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

    fn shown(lines: &[(&'static str, &[u8])]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        format!("{:?}", credentials(&headers, NOW).kinds().collect::<Vec<_>>())
    }

    #[test]
    fn a_repeated_or_unreadable_header_is_invalid() {
        assert_eq!(shown(&[]), "[]");
        let digits = "0".repeat(64);
        let named = format!("sha256={digits}");
        for (name, sound, kind) in [
            ("x-service-token", "a", "token"),
            ("x-gitlab-token", "a", "token"),
            ("x-hub-signature-256", named.as_str(), "signature"),
            ("x-hub-signature", &named, "signature"),
            ("x-gitea-signature", &digits, "signature"),
            ("x-forgejo-signature", &digits, "signature"),
        ] {
            let sound = sound.as_bytes();
            assert_eq!(shown(&[(name, sound)]), format!("[{kind:?}]"), "{name}");
            assert_eq!(shown(&[(name, sound), (name, sound)]), "[\"invalid\"]", "{name}");
            assert_eq!(shown(&[(name, &[sound, b"\xc3\xbc"].concat())]), "[\"invalid\"]", "{name}");
        }
        assert_eq!(shown(&[("x-hub-signature-256", b"sha1=00")]), "[\"invalid\"]");
        assert_eq!(shown(&[("x-hub-signature-256", digits.as_bytes())]), "[\"invalid\"]");
        assert_eq!(shown(&[("x-gitea-signature", named.as_bytes())]), "[\"invalid\"]");
        assert_eq!(shown(&[("x-gitea-signature", b"")]), "[\"invalid\"]");
    }

    #[test]
    fn sha1_is_neither_credential_nor_failure() {
        let named = format!("sha256={}", "0".repeat(64));
        assert_eq!(shown(&[("x-hub-signature", b"sha1=00")]), "[]");
        assert_eq!(shown(&[("x-hub-signature", b"sha1=00"), ("x-hub-signature", named.as_bytes())]), "[\"signature\"]");
        assert_eq!(shown(&[("x-hub-signature", b"sha1=00"), ("x-service-token", b"a")]), "[\"token\"]");
        assert_eq!(shown(&[("x-hub-signature", b"00")]), "[\"invalid\"]");
        assert_eq!(shown(&[("x-hub-signature", b"")]), "[\"invalid\"]");
    }

    #[test]
    fn a_message_is_its_three_headers_and_its_id_alone_is_no_credential() {
        let (id, sent, signature): (_, (_, &[u8]), _) =
            (("webhook-id", &b"a"[..]), ("webhook-timestamp", b"1700000000"), ("webhook-signature", &b"v1,x"[..]));
        assert_eq!(shown(&[id, sent, signature]), "[\"message\"]");
        assert_eq!(shown(&[id]), "[]");
        assert_eq!(shown(&[id, sent]), "[]");
        for lines in [&[signature][..], &[id, signature], &[sent, signature], &[id, id, sent, signature]] {
            assert_eq!(shown(lines), "[\"invalid\"]");
        }
        assert_eq!(shown(&[id, ("webhook-timestamp", b"1700000301"), signature]), "[\"invalid\"]", "stale");
    }

    #[test]
    fn a_bearer_is_the_webhooks_token_or_an_id_token_and_another_scheme_is_no_credential() {
        assert_eq!(shown(&[("authorization", b"Basic YTpi")]), "[]");
        for bearer in [&b"Bearer rh_x"[..], b"bearer  rh_x"] {
            assert_eq!(shown(&[("authorization", bearer)]), "[\"token\"]");
            assert_eq!(shown(&[("x-service-token", b"a"), ("authorization", bearer)]), "[\"token\", \"token\"]");
            let twice = shown(&[("authorization", bearer), ("authorization", b"Basic YTpi")]);
            assert!(twice.contains("invalid") && !twice.contains("token"), "{twice}");
        }
        let not_ascii = shown(&[("authorization", b"Bearer rh_\xc3\xbc")]);
        assert!(not_ascii.contains("invalid") && !not_ascii.contains("token"), "{not_ascii}");
        assert_eq!(shown(&[("authorization", b"Bearer x")]), "[\"invalid\"]");
        assert_eq!(shown(&[("authorization", b"Basic YTpi"), ("authorization", b"Basic YTpi")]), "[\"invalid\"]");
        // {"alg":"RS256","kid":"1"} and {}
        let token = b"bearer eyJhbGciOiJSUzI1NiIsImtpZCI6IjEifQ.e30.AAAA";
        assert_eq!(shown(&[("authorization", token)]), "[\"identity\"]");
        assert_eq!(shown(&[("x-service-token", b"a"), ("authorization", token)]), "[\"token\", \"identity\"]");
        assert_eq!(shown(&[("authorization", token), ("authorization", token)]), "[\"invalid\"]");
    }

    #[test]
    fn the_scheme_is_bearer() {
        assert_eq!(bearer("Bearer rh_x"), Some("rh_x"));
        assert_eq!(bearer("bearer  rh_x"), Some("rh_x"));
        assert_eq!(bearer("Basic rh_x"), None);
        assert_eq!(bearer("rh_x"), None);
    }
}
