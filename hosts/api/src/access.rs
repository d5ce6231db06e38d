//! API tokens, the audit, and who a caller is.

use std::{fmt, str::FromStr, time::Duration};

use rollhook_core::{
    app::LABEL_MAX,
    request::{Field, Refusal},
    text::hash_of,
    time::Timestamp,
    token::Token,
};
use rollhook_management::{
    access::{Audited, Grant, NewApiToken, Principal, Realm, Role},
    ports::RecordPlace,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    app::{field, optional},
    duration,
    openapi::schemas,
};

/// The longest time for which a token may be made valid.
const EXPIRES_MAX: Duration = Duration::from_secs(3650 * 24 * 3600);
/// The rule for the text of a token's time.
pub const EXPIRES_RULE: &str = "must be a whole number and a unit, such as 12h or 90d, at most 3650d";

/// A request for an API token: the body of `POST /api/v1/tokens`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(extend("required" = ["name", "role"]))]
pub struct CreateToken {
    /// The name, which the history and the audit show.
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub name: String,
    /// The role: `viewer`, `deployer` or `admin`.
    #[schemars(schema_with = "schemas::role")]
    pub role: String,
    /// The project that the role is on; absent: everything.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub project: Option<String>,
    /// The environment of the project that the role is on; absent: all of them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = schemas::LABEL, "maxLength" = LABEL_MAX))]
    pub environment: Option<String>,
    /// The time for which the token is valid, such as `90d`; absent: until it is revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<String>,
}

impl CreateToken {
    /// Returns the request.
    ///
    /// # Errors
    /// [`Refusal::InvalidField`], naming the field.
    pub fn parse(self) -> Result<NewApiToken, Refusal> {
        let project = optional(Field::Project, self.project.as_deref())?;
        let environment = optional(Field::Environment, self.environment.as_deref())?;
        let grant = Grant {
            role: field(Field::TokenRole, self.role.parse())?,
            realm: field(Field::Environment, Realm::of(project, environment))?,
        };
        let ttl = self.expires.map(|text| expires(&text).ok_or(EXPIRES_RULE)).transpose();
        Ok(NewApiToken { name: field(Field::TokenName, self.name.parse())?, grant, ttl: field(Field::Expires, ttl)? })
    }
}

/// Returns the time of a text, or `None` if the text breaks [`EXPIRES_RULE`].
pub fn expires(text: &str) -> Option<Duration> {
    let time = match text.strip_suffix('d') {
        Some(days) => Duration::from_secs(days.parse::<u64>().ok()?.checked_mul(24 * 3600)?),
        None => duration::parse(text)?,
    };
    (Duration::from_secs(1)..=EXPIRES_MAX).contains(&time).then_some(time)
}

/// A role, and the apps that it is on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct GrantedRole {
    /// The role: `viewer`, `deployer` or `admin`.
    #[schemars(schema_with = "schemas::role")]
    pub role: Role,
    /// The project; absent: everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The environment of the project; absent: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
}

impl GrantedRole {
    fn of(grant: &Grant) -> Self {
        let (project, environment) = names(&grant.realm);
        Self { role: grant.role, project, environment }
    }

    /// Returns the apps that the role is on, in words.
    pub fn realm(&self) -> String {
        match (&self.project, &self.environment) {
            (None, _) => "everything".to_owned(),
            (Some(project), None) => project.clone(),
            (Some(project), Some(environment)) => format!("{project}, {environment}"),
        }
    }
}

fn names(realm: &Realm) -> (Option<String>, Option<String>) {
    (realm.project().map(ToString::to_string), realm.environment().map(ToString::to_string))
}

/// An API token, without its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApiToken {
    /// The name.
    pub name: String,
    /// The role and realm.
    #[serde(flatten)]
    pub grant: GrantedRole,
    /// The party that made the token.
    pub created_by: String,
    /// The time at which it was made.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub created_at: Timestamp,
    /// The end of its time; absent: it is valid until it is revoked.
    #[serde(default, with = "crate::time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub expires_at: Option<Timestamp>,
    /// The time of its last use, with an error of up to an hour; absent: it was never used.
    #[serde(default, with = "crate::time::maybe", skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "schemas::time")]
    pub last_used_at: Option<Timestamp>,
}

impl ApiToken {
    /// Returns the answer for a token.
    pub fn of(token: &rollhook_management::access::ApiToken) -> Self {
        Self {
            name: token.name.to_string(),
            grant: GrantedRole::of(&token.grant),
            created_by: token.created_by.to_string(),
            created_at: token.created_at,
            expires_at: token.expires_at,
            last_used_at: token.last_used_at,
        }
    }
}

/// A token that was just made: the only answer that has its text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CreatedToken {
    /// The token without its text.
    #[serde(flatten)]
    pub api_token: ApiToken,
    /// The text, as `Authorization: Bearer` takes it.
    pub token: String,
}

impl CreatedToken {
    /// Returns the answer for a token that was just made.
    pub fn of(api_token: &rollhook_management::access::ApiToken, token: &Token) -> Self {
        Self { api_token: ApiToken::of(api_token), token: token.expose().to_owned() }
    }
}

impl std::fmt::Debug for CreatedToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CreatedToken").field("api_token", &self.api_token).finish_non_exhaustive()
    }
}

/// The API tokens that a caller may manage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TokenList {
    /// The tokens, newest first.
    pub tokens: Vec<ApiToken>,
}

/// A request to sign a command line in: the body of `POST /api/v1/login`.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Login {
    /// The code that the console has handed out.
    pub code: String,
    /// The secret whose SHA-256 the console was shown.
    pub verifier: String,
}

/// The characters of codes that people compare: no two of them look alike.
const CODE: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Returns the code that terminal and browser show while a command line is signed in, such as `7K3M-QX0D`: who compares
/// them lets in their own terminal, and no other one that has made them open its link.
pub fn login_code(challenge: &str) -> String {
    let hash = hash_of(["rollhook login", challenge]);
    let letter = |byte: &u8| char::from(CODE[usize::from(byte % 32)]);
    let (one, two): (String, String) =
        (hash[..4].iter().map(letter).collect(), hash[4..8].iter().map(letter).collect());
    format!("{one}-{two}")
}

/// A command line that is signed in: the only answer that has its token.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LoggedIn {
    /// The token, as `Authorization: Bearer` takes it, for 12 hours.
    pub token: String,
    /// The name that the history shows.
    pub actor: String,
}

/// An entry of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditEntry {
    /// The time of the entry.
    #[serde(with = "crate::time")]
    #[schemars(schema_with = "schemas::time")]
    pub at: Timestamp,
    /// The party that acted.
    pub actor: String,
    /// The action, in words.
    pub action: String,
    /// The thing that it was done to; with the number of times, and the time of the last one, if the entry stands for
    /// several acts.
    pub subject: String,
    /// The project of the thing; absent: it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The environment of the thing; absent: it is in none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// Whether the caller was allowed to; else nothing was done.
    pub allowed: bool,
}

/// A part of the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AuditList {
    /// The entries, newest first.
    pub entries: Vec<AuditEntry>,
    /// The value of `after` for the next part; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl AuditList {
    /// Returns the answer of these entries, and of the place that the next part begins after.
    pub fn of(entries: &[Audited], next: Option<&RecordPlace>) -> Self {
        Self {
            entries: entries.iter().map(AuditEntry::of).collect(),
            next: next.map(|place| AuditPlace(place.clone()).to_string()),
        }
    }
}

impl AuditEntry {
    fn of(audited: &Audited) -> Self {
        let entry = &audited.entry;
        let (project, environment) = names(&entry.realm);
        Self {
            at: audited.at(),
            actor: entry.actor.to_string(),
            action: entry.action.clone(),
            subject: match entry.until {
                Some(until) if entry.times > 1 => {
                    format!("{}, {} times until {}", entry.subject, entry.times, crate::time::format(until))
                }
                _ => entry.subject.clone(),
            },
            project,
            environment,
            allowed: entry.is_allowed,
        }
    }
}

/// A place in the audit, as `next` of a page names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditPlace(pub RecordPlace);

impl AuditPlace {
    /// The pattern of its text.
    pub const PATTERN: &str = r"^[0-9]{1,15}\.[0-9a-z]([-.0-9a-z]{0,126}[0-9a-z])?$";
}

impl fmt::Display for AuditPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0.created_at.as_millis(), self.0.key)
    }
}

impl FromStr for AuditPlace {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let place = || {
            let (millis, key) = text.split_once('.')?;
            Some(RecordPlace { created_at: Timestamp::from_millis(millis.parse().ok()?), key: key.parse().ok()? })
        };
        place().map(Self).ok_or("is no place in the audit")
    }
}

/// The caller, as its credentials prove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Whoami {
    /// The name that the history and the audit show.
    pub actor: String,
    /// The roles, and what they are on.
    pub roles: Vec<GrantedRole>,
    /// Whether the cluster's roles, and none of these, say what the caller may do: they are asked at each call.
    #[serde(default)]
    pub in_cluster: bool,
}

impl Whoami {
    /// Returns the answer for a principal.
    pub fn of(principal: &Principal) -> Self {
        let roles = principal.grants().iter().map(GrantedRole::of).collect();
        Self { actor: principal.actor().to_string(), roles, in_cluster: principal.is_reviewed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_a_number_and_a_unit() {
        assert_eq!(expires("90d"), Some(Duration::from_secs(90 * 24 * 3600)));
        assert_eq!(expires("12h"), Some(Duration::from_secs(12 * 3600)));
        for text in ["", "d", "0d", "0s", "3651d", "-1d", "1.5d", "90 d", "1y", "99999999999999999999d"] {
            assert_eq!(expires(text), None, "{text}");
        }
    }

    #[test]
    fn a_request_names_its_faulty_field() {
        let request = |role: &str, project: Option<&str>, environment: Option<&str>, expires: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            CreateToken {
                name: "ci".to_owned(),
                role: role.to_owned(),
                project: text(project),
                environment: text(environment),
                expires: text(expires),
            }
            .parse()
        };
        let faulty = |parsed: Result<NewApiToken, Refusal>| match parsed {
            Err(Refusal::InvalidField(field, _)) => field,
            other => panic!("{other:?}"),
        };
        assert!(request("viewer", Some("shop"), Some("test"), Some("90d")).is_ok());
        assert_eq!(faulty(request("owner", None, None, None)), Field::TokenRole);
        assert_eq!(faulty(request("admin", None, Some("test"), None)), Field::Environment);
        assert_eq!(faulty(request("admin", Some("A"), None, None)), Field::Project);
        assert_eq!(faulty(request("admin", None, None, Some("soon"))), Field::Expires);
    }

    #[test]
    fn codes_of_two_logins_differ_and_are_easy_to_read() {
        let code = login_code(&"0".repeat(64));
        assert_eq!(code, login_code(&"0".repeat(64)), "both sides show the same");
        assert_ne!(code, login_code(&"1".repeat(64)));
        assert_eq!((code.len(), &code[4..5]), (9, "-"));
        assert!(code.replace('-', "").bytes().all(|letter| CODE.contains(&letter)), "{code}");
    }

    #[test]
    fn a_cursor_is_read_back() {
        let written = RecordPlace { created_at: Timestamp::from_millis(1_700_000_000_000), key: "0a".parse().unwrap() };
        let written = AuditPlace(written);
        assert_eq!(written.to_string().parse(), Ok(written));
        for text in ["", ".", "1.", "x.0a", "1.A"] {
            assert!(text.parse::<AuditPlace>().is_err(), "{text}");
        }
    }
}
