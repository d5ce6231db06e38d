//! Signing in at the provider of an organisation: the file that names it, and the roles of its groups.

use std::{fs, path::Path, sync::Arc};

use rollhook_core::app::{Environment, Project};
use rollhook_management::{
    access::{Grant, GroupGrant, Realm, Role},
    ports::SignInProvider,
};
use rollhook_oidc::{Fetch, OidcSignIn, SignInClient};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::{Error, TokioClock, open::LOCAL_ISSUERS};

/// The path to which the provider returns people, below the server's base URL.
pub const CALLBACK: &str = "/sign-in/callback";

/// A provider, and the roles of its groups.
#[derive(Clone)]
pub struct SignIn {
    /// The provider.
    pub provider: Arc<dyn SignInProvider>,
    /// The roles of groups.
    pub grants: Arc<[GroupGrant]>,
}

/// The file's content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    issuer: String,
    client_id: String,
    client_secret: Option<String>,
    client_secret_file: Option<std::path::PathBuf>,
    name: Option<String>,
    #[serde(default = "groups")]
    groups_claim: String,
    #[serde(default = "scopes")]
    scopes: Vec<String>,
    grants: Vec<GrantOfFile>,
}

/// A role of a group's members.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantOfFile {
    group: String,
    role: String,
    project: Option<String>,
    environment: Option<String>,
}

fn groups() -> String {
    "groups".to_owned()
}

fn scopes() -> Vec<String> {
    ["profile", "email"].map(str::to_owned).into()
}

impl SignIn {
    /// Reads a file in YAML or JSON. The provider is not called yet. `base_url` is how people reach the server.
    ///
    /// # Errors
    /// [`Error::SignIn`], with the place and what to do; if the file, or that of the secret, cannot be read.
    pub fn read(path: &Path, base_url: &str, allows_local: bool) -> Result<Self, Error> {
        let fail = |what: String| Error::SignIn { path: path.to_owned(), what };
        // Without the lines around the fault, which may have the secret.
        let fault = |error: serde_saphyr::Error| fail(error.without_snippet().to_string());
        let file: File = serde_saphyr::from_str(&text(path)?).map_err(fault)?;
        let secret = match (file.client_secret, &file.client_secret_file) {
            (Some(_), Some(_)) => {
                return Err(fail("give client_secret or client_secret_file, not both".to_owned()));
            }
            (Some(secret), None) => Some(Zeroizing::new(secret)),
            (None, Some(secret)) => Some(Zeroizing::new(text(secret)?.trim().to_owned())),
            (None, None) => None,
        };
        if secret.as_ref().is_some_and(|secret| secret.is_empty()) {
            return Err(fail("client_secret: must not be empty; leave it out for a client that has none".to_owned()));
        }
        if file.grants.is_empty() {
            return Err(fail("grants: give at least one group a role, or nobody can sign in".to_owned()));
        }
        let grants = file.grants.into_iter().enumerate();
        let grants =
            grants.map(|(index, grant)| grant.parse().map_err(|what| fail(format!("grants[{index}]: {what}"))));
        let grants = grants.collect::<Result<Vec<_>, _>>()?;
        let host = file.issuer.split_once("://").map_or("", |(_, rest)| rest).split('/').next().unwrap_or_default();
        let client = SignInClient {
            name: file.name.unwrap_or_else(|| host.to_owned()),
            issuer: file.issuer,
            client_id: file.client_id,
            client_secret: secret,
            redirect_url: format!("{}{CALLBACK}", base_url.trim_end_matches('/')),
            scopes: file.scopes,
            groups_claim: file.groups_claim,
        };
        let provider = OidcSignIn::new(client, Fetch::new(allows_local, LOCAL_ISSUERS), Arc::new(TokioClock::start()));
        let provider = provider.map_err(|error| fail(error.chain()))?;
        Ok(Self { provider: Arc::new(provider), grants: grants.into() })
    }
}

fn text(path: &Path) -> Result<Zeroizing<String>, Error> {
    let read = fs::read_to_string(path).map(Zeroizing::new);
    read.map_err(|source| Error::File { doing: "read", path: path.to_owned(), source })
}

impl GrantOfFile {
    fn parse(self) -> Result<GroupGrant, String> {
        if self.group.trim().is_empty() {
            return Err("group: must not be empty".to_owned());
        }
        let role: Role = self.role.parse().map_err(|error| format!("{error}"))?;
        let project =
            self.project.map(|text| text.parse::<Project>()).transpose().map_err(|error| error.to_string())?;
        let environment = self.environment.map(|text| text.parse::<Environment>()).transpose();
        let environment = environment.map_err(|error| error.to_string())?;
        let realm = Realm::of(project, environment).map_err(|error| error.to_string())?;
        Ok(GroupGrant { group: self.group, grant: Grant { role, realm } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "issuer: https://login.example.com\nclient_id: rollhook\nclient_secret: s3cret\ngrants:\n- group: \
                        platform\n  role: admin\n- {group: shop, role: deployer, project: shop, environment: test}\n";

    fn read(text: &str) -> Result<SignIn, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sign-in.yaml");
        fs::write(&path, text).unwrap();
        SignIn::read(&path, "https://deploys.example.com/", false).map_err(|error| error.chain())
    }

    #[test]
    fn groups_have_roles_on_everything_or_on_a_project_and_environment() {
        let sign_in = read(GOOD).unwrap();
        let shown: Vec<_> = sign_in.grants.iter().map(|one| format!("{}: {}", one.group, one.grant)).collect();
        assert_eq!(shown, ["platform: admin of everything", "shop: deployer of project shop, environment test"]);
        assert_eq!((sign_in.provider.name(), sign_in.provider.host()), ("login.example.com", "login.example.com"));
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_the_place() {
        for (from, to, told) in [
            ("role: admin", "role: owner", "grants[0]"),
            ("project: shop, ", "", "grants[1]"),
            ("group: shop", "group: ''", "grants[1]: group"),
            ("https://login", "http://login", "issuer"),
            ("https://login.example.com", "https://localhost:1", "issuer"),
            ("client_id: rollhook\n", "", "client_id"),
            ("client_id", "client_ID", "client_ID"),
            ("client_secret: s3cret", "client_secret: ''", "client_secret"),
            ("client_secret: s3cret", "client_secret: s3cret\nclient_secret_file: /x", "not both"),
            ("client_secret: s3cret", "client_secret_file: /no/such/file", "/no/such/file"),
        ] {
            assert!(GOOD.contains(from), "{from}");
            let error = read(&GOOD.replace(from, to)).err().unwrap_or_else(|| panic!("{to}"));
            assert!(error.contains(told) && !error.contains("s3cret"), "{to}: {error}");
        }
        assert!(read("issuer: https://a.example\nclient_id: a\ngrants: []\n").err().unwrap().contains("grants"));
    }
}
