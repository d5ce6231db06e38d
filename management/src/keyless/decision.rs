//! The decision whether an id_token's claims fit a trust: pure, and the same before and after the signature was
//! verified.

use std::{fmt, time::Duration};

use super::{Claims, Trust};
use rollhook_core::time::Timestamp;

/// The greatest difference between the issuer's clock and ours that is forgiven.
pub const LEEWAY: Duration = Duration::from_secs(60);
/// The longest time for which a token may be valid, as its use is remembered until then: an hour, which GitLab's jobs have
/// by default, with what issuers add to it.
pub const LIFE_MAX: Duration = Duration::from_secs(65 * 60);

/// The reason why a token fits no trust: for the operator's log, and never for the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// No trust is in the issuer.
    Issuer,
    /// The token is for another audience.
    Audience,
    /// This claim is missing, or another one than a trust in the issuer names.
    Claim(String),
    /// The token has no `jti`, or an empty one.
    NoId,
    /// The token lacks `exp` or `iat`, or a time cannot be read.
    NoTimes,
    /// The token's time is over.
    Expired,
    /// The token's time has not begun, or it was issued in the future.
    Early,
    /// The token is valid for longer than [`LIFE_MAX`].
    TooLong,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Issuer => "the app trusts nothing that its issuer says",
            Self::Audience => "it is for another audience",
            Self::Claim(name) => return write!(f, "its claim {name} is missing or another one"),
            Self::NoId => "it has no jti",
            Self::NoTimes => "it has no readable iat and exp",
            Self::Expired => "its time is over",
            Self::Early => "its time has not begun",
            Self::TooLong => "it is valid for longer than 65 minutes",
        })
    }
}

/// Returns the trust that these claims fit, at `now` by the store's clock.
///
/// # Errors
/// The reason; of several trusts in the issuer, the one against that which fits furthest.
pub fn fitting<'a>(trusts: &'a [Trust], claims: &Claims, now: Timestamp) -> Result<&'a Trust, Mismatch> {
    let issuer = claims.text("iss");
    let mut of_issuer = trusts.iter().filter(|trust| issuer.as_deref() == Some(trust.issuer().as_str())).peekable();
    if of_issuer.peek().is_none() {
        return Err(Mismatch::Issuer);
    }
    is_timely(claims, now)?;
    if claims.text("jti").is_none_or(|jti| jti.is_empty()) {
        return Err(Mismatch::NoId);
    }
    let mut reason = Mismatch::Audience;
    for trust in of_issuer.filter(|trust| claims.are_for(trust.audience())) {
        let differs = |(name, text): &(&String, &String)| claims.text(name).as_ref() != Some(*text);
        match trust.claims().iter().find(differs) {
            None => return Ok(trust),
            Some((name, _)) => reason = Mismatch::Claim(name.clone()),
        }
    }
    Err(reason)
}

fn is_timely(claims: &Claims, now: Timestamp) -> Result<(), Mismatch> {
    let (Some(issued), Some(end)) = (claims.time("iat"), claims.time("exp")) else { return Err(Mismatch::NoTimes) };
    let begin = match claims.time("nbf") {
        None if claims.has("nbf") => return Err(Mismatch::NoTimes),
        begin => begin.unwrap_or(issued),
    };
    if now >= end.after(LEEWAY) {
        return Err(Mismatch::Expired);
    }
    if issued.max(begin) > now.after(LEEWAY) {
        return Err(Mismatch::Early);
    }
    if end.since(issued.min(begin)) > LIFE_MAX { Err(Mismatch::TooLong) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value, json};

    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn trust(issuer: &str, audience: &str, claims: &[(&str, &str)]) -> Trust {
        let claims = claims.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Trust::new(issuer.parse().unwrap(), audience, claims).unwrap()
    }

    fn main_of_shop() -> Trust {
        let claims = [("repository_id", "74"), ("ref", "refs/heads/main"), ("environment", "prod")];
        trust("https://ci.example.com", "rollhook", &claims)
    }

    fn good() -> Map<String, Value> {
        let claims = json!({
            "jti": "1", "iss": "https://ci.example.com", "aud": "rollhook", "iat": NOW - 10, "nbf": NOW - 10,
            "exp": NOW + 290, "repository_id": "74", "repository": "shop/api", "ref": "refs/heads/main",
            "environment": "prod",
        });
        claims.as_object().unwrap().clone()
    }

    fn judged(claims: Map<String, Value>) -> Result<(), Mismatch> {
        fitting(&[main_of_shop()], &Claims::new(claims), Timestamp::from_millis(NOW * 1000)).map(drop)
    }

    fn with(name: &str, value: Value) -> Result<(), Mismatch> {
        let mut claims = good();
        claims.insert(name.to_owned(), value);
        judged(claims)
    }

    fn without(name: &str) -> Result<(), Mismatch> {
        let mut claims = good();
        claims.remove(name).unwrap();
        judged(claims)
    }

    #[test]
    fn a_token_that_fits_fits_in_any_order_of_its_claims() {
        assert_eq!(judged(good()), Ok(()));
        let text = Value::Object(good()).to_string();
        let mut members: Vec<_> = good().into_iter().collect();
        members.reverse();
        let reversed: Vec<_> = members.iter().map(|(name, value)| format!("{}:{value}", json!(name))).collect();
        let reversed = format!("{{{}}}", reversed.join(","));
        assert_ne!(text, reversed);
        assert_eq!(judged(serde_json::from_str(&reversed).unwrap()), Ok(()));
        assert_eq!(with("aud", json!(["other", "rollhook"])), Ok(()));
        assert_eq!(with("repository_id", json!(74)), Ok(()), "a number is its text");
        assert_eq!(without("nbf"), Ok(()), "nbf is optional (RFC 7519)");
    }

    #[test]
    fn every_claim_must_be_there_with_its_exact_text() {
        for name in ["repository_id", "ref", "environment"] {
            let refused = Err(Mismatch::Claim(name.to_owned()));
            assert_eq!(without(name), refused);
            let text = good()[name].as_str().unwrap().to_owned();
            for other in [
                json!(format!("{text}x")),
                json!(format!(" {text}")),
                json!(text.to_uppercase() + "."),
                json!(&text[1..]),
                json!(""),
                json!("*"),
                json!([text]),
                json!({ "a": text }),
                json!(null),
                json!(74.5),
            ] {
                assert_eq!(with(name, other.clone()), refused, "{name}: {other}");
            }
        }
    }

    #[test]
    fn issuer_and_audience_are_compared_exactly() {
        assert_eq!(without("iss"), Err(Mismatch::Issuer));
        for other in
            ["https://ci.example.com/", "https://CI.example.com", "http://ci.example.com", "ci.example.com", ""]
        {
            assert_eq!(with("iss", json!(other)), Err(Mismatch::Issuer), "{other}");
        }
        assert_eq!(without("aud"), Err(Mismatch::Audience));
        for other in [json!("rollhook2"), json!(""), json!([]), json!(["x"]), json!([["rollhook"]]), json!(null)] {
            assert_eq!(with("aud", other.clone()), Err(Mismatch::Audience), "{other}");
        }
    }

    #[test]
    fn a_token_is_used_in_its_time_with_a_minute_of_leeway() {
        let timely = |iat: i64, nbf: i64, exp: i64| {
            let mut claims = good();
            for (name, at) in [("iat", iat), ("nbf", nbf), ("exp", exp)] {
                claims.insert(name.to_owned(), json!(NOW + at));
            }
            judged(claims)
        };
        assert_eq!(timely(-300, -300, -59), Ok(()));
        assert_eq!(timely(-300, -300, -60), Err(Mismatch::Expired));
        assert_eq!(timely(60, 60, 300), Ok(()));
        assert_eq!(timely(61, 0, 300), Err(Mismatch::Early), "issued in the future");
        assert_eq!(timely(0, 61, 300), Err(Mismatch::Early));
        assert_eq!(timely(0, -5, 3600), Ok(()), "of a GitLab job that may run for an hour");
        assert_eq!(timely(0, 0, 65 * 60), Ok(()));
        assert_eq!(timely(0, 0, 65 * 60 + 1), Err(Mismatch::TooLong));
        assert_eq!(timely(0, -65 * 60, 300), Err(Mismatch::TooLong));
        for name in ["iat", "exp"] {
            assert_eq!(without(name), Err(Mismatch::NoTimes), "{name}");
        }
        for name in ["iat", "exp", "nbf"] {
            for other in [json!("1700000000"), json!(null), json!(-1), json!(1e300)] {
                assert_eq!(with(name, other.clone()), Err(Mismatch::NoTimes), "{name} {other}");
            }
        }
    }

    #[test]
    fn a_token_without_an_id_fits_nothing() {
        assert_eq!(without("jti"), Err(Mismatch::NoId));
        for none in [json!(""), json!(null), json!([])] {
            assert_eq!(with("jti", none), Err(Mismatch::NoId));
        }
    }

    #[test]
    fn one_of_several_trusts_is_enough_and_their_claims_do_not_mix() {
        let other = trust("https://ci.example.com", "rollhook", &[("repository_id", "75"), ("environment", "dev")]);
        let elsewhere = trust("https://gitlab.example.com", "rollhook", &[("project_id", "74")]);
        let trusts = [elsewhere, other.clone(), main_of_shop()];
        let now = Timestamp::from_millis(NOW * 1000);
        assert_eq!(fitting(&trusts, &Claims::new(good()), now), Ok(&main_of_shop()));
        assert_eq!(fitting(&[], &Claims::new(good()), now), Err(Mismatch::Issuer));
        let mut mixed = good();
        mixed.insert("repository_id".to_owned(), json!("75"));
        assert!(fitting(&trusts, &Claims::new(mixed), now).is_err(), "one's repository with the other's branch");
        assert!(fitting(&[other], &Claims::new(good()), now).is_err());
    }
}
