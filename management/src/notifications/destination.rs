//! Destinations: the places that receivers are notified at, and the ways in which they are notified.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::notifications::ReceiverSecret;
use rollhook_core::{
    app::InvalidName,
    ports::Rng,
    text::{checked_text, escaped},
};

/// The longest URL, in bytes.
const URL_MAX: usize = 2048;
/// The longest name of a channel, a repository or a project, in bytes.
const NAME_MAX: usize = 256;

checked_text! {
    /// The URL of a receiver: `https://…`, or `http://…` where the operator allows that; without credentials and
    /// fragment. Whether it may be called is the notifier's to say.
    DestinationUrl, InvalidName, url
}

checked_text! {
    /// A channel of Slack, by its id (`C0123ABCD`) or its name (`#deploys`).
    SlackChannel, InvalidName, |text| {
        let is_plain = |character: char| !character.is_whitespace() && !matches!(character, '#' | '@' | '<' | '>' | '&');
        let name = text.strip_prefix('#').unwrap_or(text);
        let is_channel =
            !name.is_empty() && text.len() <= NAME_MAX && name.chars().all(is_plain) && text == escaped(text);
        checked(is_channel, "channel", text, "must be a channel's id, or # and its name")
    }
}

checked_text! {
    /// A repository of GitHub, `OWNER/REPOSITORY`.
    GitHubRepository, InvalidName, |text| {
        let is_repository = text.split('/').count() == 2 && is_path(text);
        checked(is_repository, "repository", text, "must be OWNER/REPOSITORY")
    }
}

checked_text! {
    /// A project of GitLab, by its number or its path (`GROUP/PROJECT`).
    GitLabProject, InvalidName, |text| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit()) && (1..=18).contains(&text.len());
        let is_project = is_number || (text.contains('/') && is_path(text));
        checked(is_project, "project", text, "must be the project's number, or its path, such as GROUP/PROJECT")
    }
}

fn checked(is_valid: bool, what: &'static str, text: &str, rule: &'static str) -> Result<String, InvalidName> {
    is_valid.then(|| text.to_owned()).ok_or_else(|| InvalidName::new(what, text, rule))
}

/// Returns whether a text is a path of names as git hosts have them, none of which leads elsewhere.
fn is_path(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_name = |name: &str| !name.is_empty() && name.bytes().all(is_plain) && !matches!(name, "." | "..");
    text.len() <= NAME_MAX && text.split('/').all(is_name)
}

fn url(text: &str) -> Result<String, InvalidName> {
    // An error repeats the text, and a URL's user part and query may hold secrets.
    let shown = text.split(['?', '#']).next().unwrap_or_default().rsplit('@').next().unwrap_or_default();
    let fail = |rule| Err(InvalidName::new("receiver's URL", shown, rule));
    if text.len() > URL_MAX
        || text.bytes().any(|byte| !byte.is_ascii_graphic() || matches!(byte, b'"' | b'<' | b'>' | b'\\'))
    {
        return fail("must be at most 2048 printable ASCII characters");
    }
    let Some(rest) = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")) else {
        return fail("must begin with https://");
    };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.is_empty() || authority.starts_with(':') {
        return fail("must have a host");
    }
    if authority.contains('@') || text.contains('#') {
        return fail("must hold no credentials and no fragment");
    }
    Ok(text.to_owned())
}

/// A service's API: the URL that its paths are appended to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "DestinationUrl", into = "DestinationUrl")]
pub struct ApiUrl(DestinationUrl);

impl ApiUrl {
    /// Returns the URL of a path of the API; `path` begins with a slash.
    pub fn join(&self, path: &str) -> String {
        format!("{}{path}", self.0.as_str().trim_end_matches('/'))
    }

    /// The URL's text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

impl TryFrom<DestinationUrl> for ApiUrl {
    type Error = InvalidName;

    fn try_from(url: DestinationUrl) -> Result<Self, InvalidName> {
        match url.as_str().split_once('?') {
            Some((shown, _)) => {
                Err(InvalidName::new("API's URL", shown, "must have no query: paths are appended to it"))
            }
            None => Ok(Self(url)),
        }
    }
}

impl From<ApiUrl> for DestinationUrl {
    fn from(url: ApiUrl) -> Self {
        url.0
    }
}

impl FromStr for ApiUrl {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        text.parse::<DestinationUrl>()?.try_into()
    }
}

impl fmt::Display for ApiUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The place that a receiver is notified at, and the way in which it is notified.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
#[non_exhaustive]
pub enum Destination {
    /// CloudEvents in JSON are posted to a URL, with signatures of Standard Webhooks.
    Webhook {
        /// The URL.
        url: DestinationUrl,
    },
    /// CDEvents, in CloudEvents, are posted to a URL in the same way.
    CdEvents {
        /// The URL.
        url: DestinationUrl,
    },
    /// A channel of Slack has one message per deploy, which is changed as the deploy goes on.
    Slack {
        /// Slack's Web API.
        api: ApiUrl,
        /// The channel.
        channel: SlackChannel,
    },
    /// A repository of GitHub has a deployment per deploy, and its commit a status.
    GitHub {
        /// GitHub's REST API.
        api: ApiUrl,
        /// The repository.
        repository: GitHubRepository,
    },
    /// A project of GitLab has a deployment per deploy.
    GitLab {
        /// GitLab's REST API.
        api: ApiUrl,
        /// The project.
        project: GitLabProject,
    },
}

impl Destination {
    /// The kinds, as people name them.
    pub const KINDS: [&str; 5] = ["webhook", "cdevents", "slack", "github", "gitlab"];
    /// The URL of Slack's Web API.
    pub const SLACK_API: &str = "https://slack.com/api";
    /// The URL of GitHub's REST API.
    pub const GITHUB_API: &str = "https://api.github.com";
    /// The URL of the REST API of gitlab.com.
    pub const GITLAB_API: &str = "https://gitlab.com/api/v4";

    /// The kind, as people name it.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Webhook { .. } => "webhook",
            Self::CdEvents { .. } => "cdevents",
            Self::Slack { .. } => "slack",
            Self::GitHub { .. } => "github",
            Self::GitLab { .. } => "gitlab",
        }
    }

    /// The URL that is called, or that the paths of those calls are appended to.
    pub fn url(&self) -> &str {
        match self {
            Self::Webhook { url } | Self::CdEvents { url } => url.as_str(),
            Self::Slack { api, .. } | Self::GitHub { api, .. } | Self::GitLab { api, .. } => api.as_str(),
        }
    }

    /// The place, for people.
    pub fn place(&self) -> String {
        let at = |what: &str, usual: &str| {
            if self.url() == usual { what.to_owned() } else { format!("{what} at {}", self.url()) }
        };
        match self {
            Self::Webhook { url } | Self::CdEvents { url } => url.to_string(),
            Self::Slack { channel, .. } => at(channel.as_str(), Self::SLACK_API),
            Self::GitHub { repository, .. } => at(repository.as_str(), Self::GITHUB_API),
            Self::GitLab { project, .. } => at(project.as_str(), Self::GITLAB_API),
        }
    }

    /// Returns a new secret, if one can be made for this kind: the others' secrets are given by their services.
    pub fn new_secret(&self, rng: &dyn Rng) -> Option<ReceiverSecret> {
        matches!(self, Self::Webhook { .. } | Self::CdEvents { .. }).then(|| ReceiverSecret::new_signing_key(rng))
    }

    /// Returns `Ok` if this can be the secret of a receiver of this kind.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn check_secret(&self, secret: &ReceiverSecret) -> Result<(), &'static str> {
        match self {
            Self::Webhook { .. } | Self::CdEvents { .. } if secret.signing_key().is_none() => {
                Err("must be whsec_ and the base64 of 24 to 64 bytes (Standard Webhooks).")
            }
            Self::Slack { .. } if !secret.expose().starts_with("xoxb-") => {
                Err("must be the token of a Slack app's bot, which begins with xoxb-.")
            }
            Self::Webhook { .. }
            | Self::CdEvents { .. }
            | Self::Slack { .. }
            | Self::GitHub { .. }
            | Self::GitLab { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_holds_no_credentials() {
        for text in ["https://hooks.example.com/x?y=1", "http://127.0.0.1:9000", "https://[::1]:8443/x"] {
            assert!(text.parse::<DestinationUrl>().is_ok(), "{text}");
        }
        for text in [
            "",
            "hooks.example.com",
            "ftp://x/",
            "https://",
            "https:///x",
            "https://u:hunter2@h/",
            "https://h/#x",
            "https://h/ x",
        ] {
            let refused = text.parse::<DestinationUrl>().unwrap_err().to_string();
            assert!(!refused.contains("hunter2"), "{refused}");
        }
        let refused = "https://h/x?token=hunter2".parse::<ApiUrl>().unwrap_err().to_string();
        assert!(!refused.contains("hunter2"), "{refused}");
        assert_eq!("https://h/api/".parse::<ApiUrl>().unwrap().join("/x"), "https://h/api/x");
    }

    #[test]
    fn names_of_services_lead_nowhere_else() {
        for text in ["C0123ABCD", "#deploys", "#déploiements", "#a.b-c_d"] {
            assert!(text.parse::<SlackChannel>().is_ok(), "{text}");
        }
        for text in ["", "#", "# deploys", "##a", "<!channel>", "#a\u{202e}b"] {
            assert!(text.parse::<SlackChannel>().is_err(), "{text}");
        }
        for text in ["shop/api", "Shop_eu/api.js-2"] {
            assert!(text.parse::<GitHubRepository>().is_ok() && text.parse::<GitLabProject>().is_ok(), "{text}");
        }
        assert!("17".parse::<GitLabProject>().is_ok() && "a/b/c".parse::<GitLabProject>().is_ok());
        for text in ["", "api", "shop/", "/api", "shop/..", "shop/a?b", "shop/a%2f", "shop/a b"] {
            assert!(text.parse::<GitHubRepository>().is_err() && text.parse::<GitLabProject>().is_err(), "{text}");
        }
        assert!("17".parse::<GitHubRepository>().is_err() && "a/b/c".parse::<GitHubRepository>().is_err());
    }

    #[test]
    fn destinations_are_stored_by_their_kinds() {
        let api = |url: &str| url.parse().unwrap();
        let known = [
            Destination::Webhook { url: "https://hooks.example.com/".parse().unwrap() },
            Destination::CdEvents { url: "https://hooks.example.com/cd".parse().unwrap() },
            Destination::Slack { api: api(Destination::SLACK_API), channel: "#deploys".parse().unwrap() },
            Destination::GitHub { api: api("https://ghe.example.com/api/v3"), repository: "a/b".parse().unwrap() },
            Destination::GitLab { api: api(Destination::GITLAB_API), project: "17".parse().unwrap() },
        ];
        for (destination, kind) in known.iter().zip(Destination::KINDS) {
            let stored = serde_json::to_value(destination).unwrap();
            assert_eq!((&stored["kind"], destination.kind()), (&kind.into(), kind));
            assert_eq!(&serde_json::from_value::<Destination>(stored).unwrap(), destination);
        }
        let places = known.map(|destination| destination.place());
        assert_eq!(
            places,
            [
                "https://hooks.example.com/",
                "https://hooks.example.com/cd",
                "#deploys",
                "a/b at https://ghe.example.com/api/v3",
                "17"
            ]
        );
    }
}
