//! Takes credentials out of headers. Whether they are any good is the core's to say.

use http::{HeaderMap, header::AUTHORIZATION};
use rollhook_core::{
    request::Refusal,
    service::{Deployer, Operator},
    token::{Credentials, NotAToken, Signature},
};
use zeroize::Zeroizing;

use crate::failure::Failure;

const TOKEN: &str = "x-service-token";
const SIGNATURE: &str = "x-hub-signature-256";
const ACTOR: &str = "x-rollhook-actor";

/// What a webhook's caller presented. A header that is repeated, or not ASCII, is invalid, not absent.
pub(crate) fn credentials(headers: &HeaderMap) -> Credentials {
    let token = once(headers, TOKEN).map(|text| text.map(|text| Zeroizing::new(text.as_bytes().to_vec())));
    let signature = once(headers, SIGNATURE).map(|text| text.and_then(str::parse::<Signature>));
    Credentials { token, signature }
}

/// Whether a webhook's own token is presented, and nothing else.
pub(crate) fn has_service_token(headers: &HeaderMap) -> bool {
    headers.contains_key(TOKEN) && !headers.contains_key(AUTHORIZATION)
}

fn once<'a>(headers: &'a HeaderMap, name: &str) -> Option<Result<&'a str, NotAToken>> {
    let mut lines = headers.get_all(name).iter();
    let first = lines.next()?;
    Some(if lines.next().is_some() { Err(NotAToken) } else { first.to_str().map_err(|_| NotAToken) })
}

/// The manager that the call's bearer token proves; the one place where it is looked at.
///
/// # Errors
/// 401, or 503 while the store is away.
pub(crate) async fn operator(deployer: &Deployer, headers: &HeaderMap) -> Result<Operator, Failure> {
    let presented = once(headers, AUTHORIZATION.as_str()).and_then(Result::ok).and_then(bearer).unwrap_or_default();
    if presented.is_empty() {
        return Err(Refusal::Unauthorized.into());
    }
    let name = headers.get(ACTOR).map(|name| String::from_utf8_lossy(name.as_bytes()));
    let name = name.as_deref().map(str::trim).filter(|name| !name.is_empty()).unwrap_or("operator");
    Ok(deployer.authorize_operator(presented.as_bytes(), name).await?)
}

fn bearer(text: &str) -> Option<&str> {
    let (scheme, token) = text.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn a_repeated_or_unreadable_header_is_invalid() {
        let mut headers = HeaderMap::new();
        assert!(credentials(&headers).token.is_none() && credentials(&headers).signature.is_none());
        headers.append(TOKEN, HeaderValue::from_static("a"));
        assert!(matches!(credentials(&headers).token, Some(Ok(_))));
        headers.append(TOKEN, HeaderValue::from_static("a"));
        assert!(matches!(credentials(&headers).token, Some(Err(_))));
        headers.insert(TOKEN, HeaderValue::from_bytes(b"a\xc3\xbc").unwrap());
        assert!(matches!(credentials(&headers).token, Some(Err(_))));
        headers.insert(SIGNATURE, HeaderValue::from_static("sha1=00"));
        assert!(matches!(credentials(&headers).signature, Some(Err(_))));
    }

    #[test]
    fn the_scheme_is_bearer() {
        assert_eq!(bearer("Bearer rh_x"), Some("rh_x"));
        assert_eq!(bearer("bearer  rh_x"), Some("rh_x"));
        assert_eq!(bearer("Basic rh_x"), None);
        assert_eq!(bearer("rh_x"), None);
    }
}
