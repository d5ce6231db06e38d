//! The addresses of a source's host: resolved once, checked, and handed to git, so that no other answer of the name
//! service leads it elsewhere.

use std::{
    io,
    net::{IpAddr, ToSocketAddrs},
    time::Duration,
};

use rollhook_core::source::{AllowedSources, GitUrl, is_local_address};

/// The addresses that git may connect to; by default those that it finds itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses(Vec<IpAddr>);

/// The reason why git is given no address of a host.
#[derive(Debug, thiserror::Error)]
pub enum Unresolved {
    /// The name leads where only the operator may let apps reach.
    #[error("is on a host whose name leads to this machine, a link-local address or a cloud's metadata service")]
    Local,
    /// The name service did not answer, or knows no such name.
    #[error("is on a host whose name cannot be resolved")]
    Unknown(#[source] io::Error),
}

impl Addresses {
    /// Returns the addresses of a URL's host, within this time. A name service may take longer to answer, or not to: its
    /// caller's thread ends only then, and `hold` is kept until it has.
    ///
    /// # Errors
    /// If the name cannot be resolved, or one of its addresses is not allowed.
    pub async fn of(
        url: &GitUrl,
        allowed: &AllowedSources,
        limit: Duration,
        hold: impl Send + 'static,
    ) -> Result<Self, Unresolved> {
        let Some(name) = allowed.name_to_resolve(url) else { return Ok(Self::default()) };
        let host = (name.to_owned(), port(url));
        match resolved(limit, hold, move || Ok(host.to_socket_addrs()?.map(|address| address.ip()).collect())).await {
            Ok(found) => Self::checked(found),
            // The name is the proxy's to resolve, and its network's to bound.
            Err(_) if is_proxied(url) => Ok(Self::default()),
            Err(error) => Err(Unresolved::Unknown(error)),
        }
    }

    fn checked(mut addresses: Vec<IpAddr>) -> Result<Self, Unresolved> {
        addresses.dedup();
        if addresses.is_empty() {
            return Err(Unresolved::Unknown(io::ErrorKind::NotFound.into()));
        }
        if addresses.iter().copied().any(is_local_address) { Err(Unresolved::Local) } else { Ok(Self(addresses)) }
    }

    /// The value of git's `http.curloptResolve`; `None`: git resolves the name.
    pub(crate) fn for_http(&self, url: &GitUrl) -> Option<String> {
        let written = |address: &IpAddr| match address {
            IpAddr::V4(address) => address.to_string(),
            IpAddr::V6(address) => format!("[{address}]"),
        };
        let addresses: Vec<_> = self.0.iter().map(written).collect();
        let host = url.host().filter(|_| !addresses.is_empty())?;
        Some(format!("{host}:{}:{}", port(url), addresses.join(",")))
    }

    /// The options of ssh that name the address, and the host by whose name its key is known; `None`: ssh resolves the
    /// name.
    pub(crate) fn for_ssh(&self, url: &GitUrl) -> Option<String> {
        let (address, host) = (self.0.first()?, url.host()?.to_ascii_lowercase());
        let known = match url.port() {
            None | Some(22) => host,
            Some(port) => format!("[{host}]:{port}"),
        };
        Some(format!(" -o HostName={address} -o 'HostKeyAlias={known}'"))
    }
}

/// Returns the answer of a name service, within this time. `hold` is dropped once its caller's thread has ended.
async fn resolved(
    limit: Duration,
    hold: impl Send + 'static,
    resolve: impl FnOnce() -> io::Result<Vec<IpAddr>> + Send + 'static,
) -> io::Result<Vec<IpAddr>> {
    let thread = tokio::task::spawn_blocking(move || {
        let _hold = hold;
        resolve()
    });
    tokio::time::timeout(limit, thread).await?.map_err(io::Error::other).flatten()
}

fn port(url: &GitUrl) -> u16 {
    url.port().unwrap_or(match url.protocol() {
        "ssh" => 22,
        "http" => 80,
        _ => 443,
    })
}

/// Returns whether git reads this URL through a proxy, as the server's environment says.
fn is_proxied(url: &GitUrl) -> bool {
    let names: &[&str] = match url.protocol() {
        "https" => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
        "http" => &["http_proxy", "all_proxy", "ALL_PROXY"],
        _ => &[],
    };
    names.iter().any(|name| std::env::var_os(name).is_some_and(|proxy| !proxy.is_empty()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use rollhook_testing::{
        fixtures::{GitHost, SshHost},
        skip, test_name,
    };

    use super::*;

    fn addresses(texts: &[&str]) -> Result<Addresses, Unresolved> {
        Addresses::checked(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[test]
    fn name_with_one_local_address_is_refused() {
        assert!(addresses(&["10.0.0.7", "2001:db8::7"]).is_ok());
        for texts in [&["127.0.0.1"][..], &["203.0.113.7", "169.254.169.254"], &["2001:db8::7", "fd00:ec2::254"]] {
            assert!(matches!(addresses(texts), Err(Unresolved::Local)), "{texts:?}");
        }
        assert!(matches!(addresses(&[]), Err(Unresolved::Unknown(_))));
    }

    #[test]
    fn checked_addresses_are_what_git_connects_to() {
        let addresses = addresses(&["203.0.113.7", "2001:db8::7"]).unwrap();
        let http = |url: &str| addresses.for_http(&url.parse().unwrap());
        let https = http("https://git.example.com/shop/api.git");
        assert_eq!(https.as_deref(), Some("git.example.com:443:203.0.113.7,[2001:db8::7]"));
        let https = http("https://git.example.com:8443/shop/api.git");
        assert_eq!(https.as_deref(), Some("git.example.com:8443:203.0.113.7,[2001:db8::7]"));
        let ssh = |url: &str| addresses.for_ssh(&url.parse().unwrap());
        let options = ssh("git@Git.example.com:shop/api.git");
        assert_eq!(options.as_deref(), Some(" -o HostName=203.0.113.7 -o 'HostKeyAlias=git.example.com'"));
        let options = ssh("ssh://git@git.example.com:2222/shop/api.git");
        assert_eq!(options.as_deref(), Some(" -o HostName=203.0.113.7 -o 'HostKeyAlias=[git.example.com]:2222'"));
        assert_eq!(Addresses::default().for_ssh(&"git@git.example.com:api.git".parse().unwrap()), None);
    }

    #[tokio::test]
    async fn unknown_name_and_literal_address_are_told_apart() {
        let of = async |url: &str| {
            let limit = Duration::from_secs(600);
            Addresses::of(&url.parse().unwrap(), &AllowedSources::default(), limit, ()).await
        };
        assert_eq!(of("https://203.0.113.7/api.git").await.unwrap(), Addresses::default(), "git is given the literal");
        let error = of("ssh://git@no-such-host.invalid/api.git").await.unwrap_err();
        assert!(matches!(error, Unresolved::Unknown(_)), "{error}");
    }

    #[tokio::test]
    async fn turn_of_a_name_service_that_does_not_answer_is_kept_until_its_thread_has_ended() {
        let (answer, answered) = std::sync::mpsc::channel::<()>();
        let turn = std::sync::Arc::new(());
        let resolve = move || answered.recv().map(|()| Vec::new()).map_err(io::Error::other);
        let found = resolved(Duration::from_millis(10), turn.clone(), resolve).await;
        assert_eq!(found.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(std::sync::Arc::strong_count(&turn), 2);
        answer.send(()).unwrap();
        rollhook_testing::until_async("the thread ends", async || std::sync::Arc::strong_count(&turn) == 1).await;
    }

    /// Runs git on this source's URL with these addresses of its host, and returns its output.
    async fn ls_remote(url: &str, addresses: &[&str], directory: Option<&std::path::Path>) -> String {
        let mut source = rollhook_conformance::samples::git_source();
        source.url = url.parse().unwrap();
        source.credentials = directory.map(|_| "deploy".parse().unwrap());
        let home = tempfile::tempdir().unwrap();
        let invocation = crate::Invocation {
            source: &source,
            credentials: &crate::Credentials::find(&source, directory).unwrap(),
            addresses: &addresses_unchecked(addresses),
            home: home.path(),
            silence: Duration::from_secs(60),
        };
        let output = invocation.git(home.path()).args(["ls-remote", "--", url]).output().await.unwrap();
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn addresses_unchecked(texts: &[&str]) -> Addresses {
        Addresses(texts.iter().map(|text| text.parse().unwrap()).collect())
    }

    #[tokio::test]
    async fn git_connects_to_the_checked_address_over_http() {
        let host = GitHost::start();
        let commit = host.repository("api").push("main");
        for name in ["git.invalid", "GIT.invalid", "git.invalid."] {
            let url = format!("http://{name}:{}/api/.git", host.address.port());
            let output = ls_remote(&url, &["127.0.0.1"], None).await;
            assert!(output.contains(&commit), "{name}: {output}");
        }
    }

    #[tokio::test]
    async fn ssh_connects_to_the_checked_address_and_knows_the_host_by_its_name() {
        let host = match SshHost::start() {
            Ok(host) => host,
            Err(reason) => return skip(&test_name!(), reason),
        };
        let commit = host.repository("api").push("main");
        let (url, directory) = (host.url("api").replace("127.0.0.1", "git.invalid"), tempfile::tempdir().unwrap());
        let write = |name: &str, text: &str, mode| {
            std::fs::write(directory.path().join(name), text).unwrap();
            std::fs::set_permissions(directory.path().join(name), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        write("known_hosts", &host.known_host().replace("127.0.0.1", "git.invalid"), 0o644);
        write("deploy", &host.key(), 0o600);
        write("deploy.url", &url, 0o644);
        let output = ls_remote(&url, &["127.0.0.1"], Some(directory.path())).await;
        assert!(output.contains(&commit), "{output}");
    }
}
