//! The trusts of apps: whose id_tokens open a webhook.

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use rollhook_core::{
    app::InvalidName,
    request::{Field, Refusal},
    text::{checked_text, hash_of, hex},
};

use super::TooWide;

/// The most trusts of an app.
pub const TRUSTS_MAX: usize = 8;
/// The most claims of a trust.
pub const CLAIMS_MAX: usize = 10;
/// The most bytes of the claims of all of an app's trusts: they are one record.
pub const CLAIMS_BYTES_MAX: usize = 8 * 1024;
/// The longest audience, name of a claim and text of a claim, in characters.
pub const TEXT_MAX: usize = 256;
/// The claims that tell a pipeline's repository or project by a number that no other one ever gets: GitHub's and
/// GitLab's. A name, such as GitHub's `repository` or GitLab's `project_path`, is free for others once it was given up.
pub const IDENTIFYING: [&str; 2] = ["repository_id", "project_id"];
/// The claims that every token is judged by, and that no trust names.
const JUDGED: [&str; 6] = ["iss", "aud", "exp", "nbf", "iat", "jti"];
/// The longest issuer, in bytes.
const ISSUER_MAX: usize = 512;

checked_text! {
    /// The URL of a party that issues id_tokens, exactly as its tokens have it (`iss`): `https://HOST[:PORT][/PATH]`.
    /// Also `http://`, which only an operator lets a verifier use.
    Issuer, InvalidName, |text| issuer(text).map_err(|rule| InvalidName::new("issuer", text, rule))
}

fn issuer(text: &str) -> Result<String, &'static str> {
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return Err("must begin with https://");
    };
    if text.len() > ISSUER_MAX {
        return Err("must be at most 512 characters");
    }
    let is_plain = |byte: u8| (b'!'..=b'~').contains(&byte) && !matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'`');
    if !text.bytes().all(is_plain) || text.contains(['@', '?', '#']) {
        return Err("must be printable ASCII without spaces, a user, a query and a fragment");
    }
    let host = rest.split('/').next().unwrap_or_default();
    if host.is_empty() || host.starts_with(':') {
        return Err("must name a host");
    }
    Ok(text.to_owned())
}

impl Issuer {
    /// The issuer of GitHub Actions on github.com.
    pub const GITHUB: &str = "https://token.actions.githubusercontent.com";
    /// The issuer of pipelines on gitlab.com.
    pub const GITLAB: &str = "https://gitlab.com";

    /// Returns whether the issuer is reached by https.
    pub fn is_encrypted(&self) -> bool {
        self.0.starts_with("https://")
    }

    /// The host, with its port if it is written.
    pub fn authority(&self) -> &str {
        let rest = self.0.split_once("://").map_or(self.as_str(), |(_, rest)| rest);
        rest.split('/').next().unwrap_or_default()
    }

    /// Returns the name by which people know the issuer: `github`, `gitlab`, or its host.
    pub fn short_name(&self) -> &str {
        match self.as_str() {
            Self::GITHUB => "github",
            Self::GITLAB => "gitlab",
            _ => self.authority(),
        }
    }
}

checked_text! {
    /// The id of a trust, which follows from its content: 16 hexadecimal digits.
    TrustId, InvalidName, |text| {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() == 16 && text.bytes().all(is_hex) {
            return Ok(text.to_owned());
        }
        Err(InvalidName::new("trust", text, "must be 16 hexadecimal digits, as the list of trusts shows them"))
    }
}

/// A pipeline whose id_tokens open an app's webhook: the issuer, the audience, and claims with their exact texts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trust {
    issuer: Issuer,
    audience: String,
    claims: BTreeMap<String, String>,
}

impl Trust {
    /// Returns the trust in tokens of this issuer for this audience, all of whose claims have these texts.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`] for an empty or too long text, for claims of which none identifies the pipeline's
    /// repository or project, and for a branch or environment that they do not bind.
    pub fn new(issuer: Issuer, audience: &str, claims: BTreeMap<String, String>) -> Result<Self, Refusal> {
        let invalid = |field, rule: String| Err(Refusal::InvalidField(field, rule));
        if !is_audience(audience) {
            let rule = "must be 1 to 256 letters, digits, '.', '_', '-', ':' and '/', such as this server's URL.";
            return invalid(Field::TrustAudience, rule.to_owned());
        }
        if claims.len() > CLAIMS_MAX {
            return invalid(Field::TrustClaims, format!("must be at most {CLAIMS_MAX}."));
        }
        if let Some((name, _)) = claims.iter().find(|(name, text)| !is_text(name) || !is_text(text)) {
            let name = rollhook_core::text::quoted(name);
            return invalid(Field::TrustClaims, format!("{name}: name and text must be {TEXT_RULE}."));
        }
        if let Some(judged) = JUDGED.iter().find(|name| claims.contains_key(**name)) {
            return invalid(Field::TrustClaims, format!("{judged} is judged in every token, and no claim to name."));
        }
        if !IDENTIFYING.iter().any(|name| claims.contains_key(*name)) {
            return invalid(
                Field::TrustClaims,
                "must have repository_id (GitHub) or project_id (GitLab). A name such as repository or project_path \
                 identifies nothing: once it is given up, somebody else may take it."
                    .to_owned(),
            );
        }
        if claims.contains_key("repository_id") && claims.get("ref").is_some_and(|name| !name.starts_with("refs/")) {
            let rule = "ref: GitHub's tokens have the full one, such as refs/heads/main (refs/tags/v1 for a tag).";
            return invalid(Field::TrustClaims, rule.to_owned());
        }
        if let Some(too_wide) = TooWide::of(&claims).filter(|too_wide| too_wide.is_refused()) {
            return invalid(Field::TrustClaims, format!("{too_wide}."));
        }
        Ok(Self { issuer, audience: audience.to_owned(), claims })
    }

    /// The issuer of the tokens.
    pub const fn issuer(&self) -> &Issuer {
        &self.issuer
    }

    /// The audience that the tokens are issued for.
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// The claims and their exact texts.
    pub const fn claims(&self) -> &BTreeMap<String, String> {
        &self.claims
    }

    /// Returns the reason why the trust lets in more than its claims seem to name: one that was stored by an earlier version,
    /// or one of a whole repository.
    pub fn too_wide(&self) -> Option<TooWide> {
        TooWide::of(&self.claims)
    }

    /// Returns the id, which two trusts share only if they are the same.
    pub fn id(&self) -> TrustId {
        let claims = self.claims.iter().flat_map(|(name, text)| [name.as_str(), text.as_str()]);
        let parts = [self.issuer.as_str(), self.audience.as_str()].into_iter().chain(claims);
        TrustId(hex(&hash_of(parts)[..8]))
    }
}

/// Returns whether a text may be an audience. An audience stands in snippets and in the query of GitHub's call: it has
/// nothing that a shell, YAML or a URL reads otherwise.
pub fn is_audience(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b':' | b'/');
    (1..=TEXT_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

const TEXT_RULE: &str = "1 to 256 printable characters without spaces around them";

fn is_text(text: &str) -> bool {
    let is_bounded = !text.is_empty() && text.chars().count() <= TEXT_MAX;
    is_bounded && text.trim() == text && rollhook_core::text::escaped(text) == text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trust(audience: &str, claims: &[(&str, &str)]) -> Result<Trust, Refusal> {
        let claims = claims.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
        Trust::new(Issuer::GITHUB.parse().unwrap(), audience, claims)
    }

    #[test]
    fn a_trust_states_its_audience_and_identifies_a_repository_by_number() {
        for identifying in IDENTIFYING {
            let claims = [(identifying, "74"), ("environment", "prod"), ("environment_protected", "true")];
            assert!(trust("rollhook", &claims).is_ok(), "{identifying}");
        }
        let long = "a".repeat(TEXT_MAX + 1);
        for audience in ["", " a", "a\n", "a b", "a&b", "$(a)", "a\"", "ä", &long] {
            let refused = trust(audience, &[("repository_id", "74")]);
            assert!(matches!(refused, Err(Refusal::InvalidField(Field::TrustAudience, _))), "{audience}");
        }
        for claims in [
            &[][..],
            &[("repository", "shop/api")],
            &[("repository_owner_id", "7"), ("ref", "refs/heads/main")],
            &[("project_path", "shop/api"), ("sub", "x")],
            &[("repository_id", "")],
            &[("repository_id", "74"), ("", "x")],
            &[("repository_id", "74"), ("iss", "x")],
            &[("repository_id", "74"), ("aud", "x")],
            &[("repository_id", "74"), ("ref", &long)],
            &[("repository_id", "74"), ("ref", "a\u{202e}b")],
        ] {
            let refused = trust("rollhook", claims);
            assert!(matches!(refused, Err(Refusal::InvalidField(Field::TrustClaims, _))), "{claims:?}");
        }
    }

    #[test]
    fn a_name_that_others_may_take_is_refused_with_the_reason() {
        let refused = trust("rollhook", &[("repository", "shop/api")]).unwrap_err().to_string();
        assert!(refused.contains("repository_id") && refused.contains("somebody else may take it"), "{refused}");
    }

    #[test]
    fn a_ref_that_is_not_bound_is_refused_with_what_to_add() {
        for (claims, added) in [
            (&[("project_id", "7"), ("ref", "main")][..], "add ref_type=branch and ref_protected=true"),
            (&[("project_id", "7"), ("ref", "main"), ("ref_type", "branch")], "ref_protected=true"),
            (&[("project_id", "7"), ("environment", "prod")], "add ref_protected=true"),
            (&[("repository_id", "74"), ("ref", "refs/heads/main")], "add event_name=push, environment"),
            (&[("repository_id", "74"), ("ref", "main"), ("event_name", "push")], "such as refs/heads/main"),
        ] {
            let refused = trust("rollhook", claims).unwrap_err().to_string();
            assert!(refused.contains(added), "{refused}");
        }
        let whole = trust("rollhook", &[("project_id", "7")]).unwrap();
        assert_eq!(whole.too_wide(), Some(TooWide::AnyRef), "it says that it trusts the whole project");
    }

    #[test]
    fn a_trusts_id_follows_from_all_of_its_content() {
        let id = |audience, claims: &[(&str, &str)]| trust(audience, claims).unwrap().id();
        let first = id("a", &[("repository_id", "74"), ("environment", "main")]);
        assert_eq!(first, id("a", &[("environment", "main"), ("repository_id", "74")]), "the order says nothing");
        assert_eq!(first.as_str().parse::<TrustId>().unwrap(), first);
        for (audience, claims) in [
            ("b", &[("repository_id", "74"), ("environment", "main")][..]),
            ("a", &[("repository_id", "74")]),
            ("a", &[("repository_id", "74"), ("environment", "maim")]),
            ("a", &[("repository_id", "74"), ("sub", "main")]),
        ] {
            assert_ne!(first, id(audience, claims));
        }
    }

    #[test]
    fn an_issuer_is_a_url_without_anything_that_could_lead_elsewhere() {
        for text in [Issuer::GITHUB, Issuer::GITLAB, "https://git.example.com:8443/_services/token", "http://[::1]:80"]
        {
            assert!(text.parse::<Issuer>().is_ok(), "{text}");
        }
        for text in [
            "",
            "gitlab.com",
            "ftp://a",
            "https://",
            "https:///x",
            "https://:1",
            "https://a@b",
            "https://a?b",
            "https://a#b",
            "https://a b",
            "https://ä",
        ] {
            assert!(text.parse::<Issuer>().is_err(), "{text}");
        }
        let short = |text: &str| text.parse::<Issuer>().unwrap().short_name().to_owned();
        assert_eq!(short(Issuer::GITHUB), "github");
        assert_eq!(short("https://git.example.com:8443/x"), "git.example.com:8443");
    }
}
