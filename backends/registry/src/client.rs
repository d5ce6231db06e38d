//! One call of a registry: with the login that it wants, along its redirects, and bounded.

use std::time::Duration;

use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use rollhook_core::{
    app::Namespace,
    error::{Error, Result, RetryAfter},
    image::ImageRef,
};
use rollhook_https::{Fetch, FetchError};
use rollhook_registry_logins::Login;
use tokio::time::timeout;

use crate::{
    challenge::{self, Challenge},
    failure::{corrupt, denied, refused, retry_after, too_long, unanswered},
    settings::RegistrySettings,
    tokens::{self, Authorization, Key, Mark, Memory, Place},
};

/// The setting by which the operator allows local addresses.
const FLAG: &str = "--insecure-registry";
/// The host at which Docker Hub answers, in place of the one that images name.
const HUB: (&str, &str) = ("docker.io", "registry-1.docker.io");
/// The longest time of a call, with the reading of its answer.
const TIME: Duration = Duration::from_secs(10);
/// The most redirects that one call follows.
const REDIRECTS: usize = 3;
/// The longest answer of a server of tokens, and of a failure, in bytes.
const SHORT: usize = 64 << 10;
/// The names that are resolved at once.
const LOOKUPS: usize = 32;

/// Calls registries.
pub(crate) struct Client {
    settings: RegistrySettings,
    strict: Fetch,
    /// For the hosts that the operator has named as insecure ones.
    open: Fetch,
    memory: Memory,
}

/// A repository, and where it is.
#[derive(Clone)]
pub(crate) struct Repository {
    /// The registry's host and port, as images name it.
    pub(crate) registry: String,
    /// The path of the repository at its registry.
    pub(crate) path: String,
    /// Scheme and authority of the registry's URLs.
    origin: String,
    is_insecure: bool,
}

/// A question to a registry.
pub(crate) struct Question {
    pub(crate) environment: Namespace,
    /// The image whose login is used.
    pub(crate) image: ImageRef,
    pub(crate) at: Repository,
    pub(crate) access: Access,
}

/// The way in which a question is asked.
#[derive(Clone)]
pub(crate) enum Access {
    /// With the operator's login, once the registry asks for one; as anyone may, if there is none.
    Own,
    /// With this login of the platform.
    Platform(Login),
    /// With what is kept of a login of the platform, and not with the login itself.
    Kept(Mark),
}

impl Access {
    /// Returns whether there is no login with which what was kept can be renewed: a refusal may mean that it has ended.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }
}

/// A document that is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    pub(crate) method: Method,
    /// The part of the URL behind the repository.
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    /// What it is, for an error.
    pub(crate) name: &'static str,
    /// The longest answer in bytes.
    pub(crate) most: usize,
}

/// An answer.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    is_whole: bool,
    /// Whether the registry itself gave it, and not one that it led to.
    is_own: bool,
}

impl Answer {
    /// Returns the failure that the answer is.
    pub(crate) fn refusal(&self, registry: &str) -> Error {
        refused(registry, self.status, &self.headers, &self.body)
    }
}

impl Repository {
    /// Returns the repository of an image.
    ///
    /// # Errors
    /// If the operator allows no registry on its host.
    pub(crate) fn of(image: &ImageRef, settings: &RegistrySettings) -> Result<Self> {
        let full = image.canonical_repository();
        let Some((registry, path)) = full.split_once('/') else {
            return Err(Error::invalid(format!("{full} has no registry")));
        };
        let authority = if registry == HUB.0 { HUB.1 } else { registry };
        let Some(host) = authority.parse().ok().as_ref().map(http::uri::Authority::host).map(str::to_owned) else {
            return Err(Error::invalid(format!("{registry} is no registry's host")));
        };
        if !settings.allow(&host) && !settings.allow(registry) {
            return Err(Error::invalid(format!(
                "{registry} is none of the registries that the operator allows (--registry-host)"
            )));
        }
        let is_insecure = settings.is_insecure(&host);
        let scheme = if is_insecure { "http" } else { "https" };
        let origin = format!("{scheme}://{authority}");
        Ok(Self { registry: registry.to_owned(), path: path.to_owned(), origin, is_insecure })
    }

    /// Returns whether a host is called without encryption, and on this machine, when the registry leads to it: only an
    /// insecure registry leads to another one.
    fn leads_to_insecure(&self, host: &str, settings: &RegistrySettings) -> bool {
        self.is_insecure && settings.is_insecure(host)
    }

    /// The repository in full.
    pub(crate) fn name(&self) -> String {
        format!("{}/{}", self.registry, self.path)
    }
}

impl Client {
    pub(crate) fn new(settings: RegistrySettings) -> Self {
        let fetch = |local| Fetch::new(local, FLAG).with_own_lookups(LOOKUPS);
        Self { settings, strict: fetch(false), open: fetch(true), memory: Memory::default() }
    }

    pub(crate) fn settings(&self) -> &RegistrySettings {
        &self.settings
    }

    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Makes a call. An answer is one of the registry's whatever its status, but that of one that lets nobody in, or wants to
    /// be left alone, is an error.
    pub(crate) async fn call(&self, question: &Question, document: &Document) -> Result<Answer> {
        let Question { environment, at, .. } = question;
        let registry = (environment.clone(), at.registry.clone());
        if let Some(left) = self.memory.pause(&registry) {
            let what = format!("{} has had too many calls, and asks to be left alone", at.registry);
            return Err(Error::unavailable(what, RetryAfter(left)));
        }
        let answer = self.with_login(question, document).await.inspect_err(|error| {
            // The server of tokens may be the one that is busy.
            error.retry_after().into_iter().for_each(|time| self.memory.leave_alone(registry.clone(), time));
        })?;
        let asks = matches!(answer.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
        if asks {
            retry_after(&answer.headers).into_iter().for_each(|time| self.memory.leave_alone(registry.clone(), time));
            return Err(answer.refusal(&at.registry));
        }
        if matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            return Err(answer.refusal(&at.registry));
        }
        if !answer.is_whole && answer.status.is_success() {
            return Err(too_long(&at.registry, document.name, document.most));
        }
        Ok(answer)
    }

    /// Returns whether the registry lets this server read as anybody may: from such a caller it may hide what it has.
    pub(crate) fn is_anonymous(&self, question: &Question) -> bool {
        self.memory.authorization(&self.key(question)).is_some_and(|authorization| authorization.is_anonymous)
    }

    /// Returns under what the authorization of a question is kept.
    fn key(&self, Question { environment, at, access, .. }: &Question) -> Key {
        let mark = match access {
            Access::Own => None,
            Access::Platform(login) => Some(self.memory.mark(login)),
            Access::Kept(mark) => Some(*mark),
        };
        ((environment.clone(), at.name()), mark)
    }

    async fn with_login(&self, question: &Question, document: &Document) -> Result<Answer> {
        let at = &question.at;
        let key = self.key(question);
        let kept = self.memory.authorization(&key);
        let made = if kept.is_none() { self.expected(question, &key.0).await } else { None };
        let answer = self.follow(at, document, kept.or_else(|| made.clone())).await?;
        if answer.status != StatusCode::UNAUTHORIZED || !answer.is_own {
            match made {
                _ if answer.status == StatusCode::FORBIDDEN && answer.is_own => self.memory.forget(&key),
                Some(made) => self.memory.keep(key, made),
                None => {}
            }
            return Ok(answer);
        }
        // The authorization that was kept, if there was one, has ended.
        self.memory.forget(&key);
        let challenge = challenge::of(&answer.headers).filter(|_| !question.access.is_kept());
        let Some(challenge) = challenge else { return Ok(answer) };
        let authorization = self.authorization(question, &challenge).await?;
        let answer = self.follow(at, document, Some(authorization.clone())).await?;
        if !matches!(answer.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            self.memory.keep_challenge(key.0.clone(), challenge);
            self.memory.keep(key, authorization);
        }
        Ok(answer)
    }

    /// Returns an authorization that meets the challenge which the registry is expected to make, as it made it before; `None`: it has
    /// yet to say what it wants.
    async fn expected(&self, question: &Question, place: &Place) -> Option<Authorization> {
        let challenge = self.memory.challenge(place).filter(|_| !question.access.is_kept())?;
        let authorization = self.authorization(question, &challenge).await.ok();
        if authorization.is_none() {
            // The registry may want something else by now.
            self.memory.forget_challenge(place);
        }
        authorization
    }

    /// Returns the authorization that meets a challenge.
    async fn authorization(&self, question: &Question, challenge: &Challenge) -> Result<Authorization> {
        let Question { environment, image, at, access } = question;
        let registry = at.registry.as_str();
        let login = match access {
            Access::Own => {
                let own = self.settings.logins.login(environment, image).await;
                own.map_err(|failure| denied(registry, failure))?
            }
            Access::Platform(login) => Some(login.clone()),
            Access::Kept(_) => None,
        };
        let login = login.as_ref();
        match challenge {
            Challenge::Basic => {
                let authorization = login.and_then(Authorization::basic);
                authorization
                    .ok_or_else(|| denied(registry, "it wants a name and a password, and this server has none for it"))
            }
            Challenge::Bearer { realm, service } => {
                let request = tokens::request(realm, service.as_deref(), &at.path, login);
                let request = request.map_err(|_| corrupt(registry, "names a server of tokens that has no URL"))?;
                let answer = self.exchange(at, request, SHORT).await.map_err(|error| unanswered(registry, error))?;
                match answer.status {
                    StatusCode::OK if !answer.is_whole => Err(too_long(registry, "the token", SHORT)),
                    StatusCode::OK => Authorization::bearer(&answer.body, login.is_none())
                        .ok_or_else(|| corrupt(registry, "has no token where there should be one")),
                    // Servers of tokens refuse logins in many ways.
                    status if status.is_client_error() => {
                        let refusal = answer.refusal(registry);
                        Err(if refusal.is_unavailable() { refusal } else { denied(registry, refusal) })
                    }
                    _ => Err(answer.refusal(registry)),
                }
            }
        }
    }

    /// Asks for a document, and goes where the registry leads. The authorization goes to the registry alone.
    async fn follow(
        &self,
        at: &Repository,
        document: &Document,
        authorization: Option<Authorization>,
    ) -> Result<Answer> {
        let registry = at.registry.as_str();
        let mut url = format!("{}/v2/{}/{}", at.origin, at.path, document.path);
        let mut authorization = authorization;
        let mut is_own = true;
        for _ in 0..=REDIRECTS {
            let mut request = Request::builder().method(document.method.clone()).uri(&url);
            request = request.header(header::ACCEPT, document.accept);
            if let Some(authorization) = &authorization {
                request = request.header(header::AUTHORIZATION, authorization.header.clone());
            }
            let request = request.body(Vec::new()).map_err(|_| corrupt(registry, "leads to no URL"))?;
            let answer =
                self.exchange(at, request, document.most).await.map_err(|error| unanswered(registry, error))?;
            let location = answer.headers.get(header::LOCATION).filter(|_| is_redirect(answer.status));
            let Some(location) = location else { return Ok(Answer { is_own, ..answer }) };
            let next = location.to_str().ok().and_then(|location| target(&url, location));
            url = next.ok_or_else(|| corrupt(registry, "leads to no URL"))?;
            if origin(&url) != Some(at.origin.to_ascii_lowercase()) {
                authorization = None;
                is_own = false;
            }
        }
        let what = format!("{registry} leads from one place to the next");
        Err(Error::Unavailable { what, cause: None })
    }

    /// Makes one call, and reads its answer as far as it may be long.
    async fn exchange(&self, at: &Repository, request: Request<Vec<u8>>, most: usize) -> Result<Answer, FetchError> {
        let may_be_local = at.leads_to_insecure(request.uri().host().unwrap_or_default(), &self.settings);
        let fetch = if may_be_local { &self.open } else { &self.strict };
        let call = async {
            if request.method() == Method::HEAD {
                let (parts, ()) = fetch.send_for_head(request).await?.into_parts();
                return Ok((parts, Vec::new(), true));
            }
            let (parts, body) = fetch.send_and_read(request).await?.into_parts();
            let most = if parts.status.is_success() { most } else { SHORT };
            let start = body.start(most).await?;
            Ok((parts, start.bytes, start.is_whole))
        };
        let (parts, body, is_whole) = timeout(TIME, call).await.map_err(|_| FetchError::TimedOut)??;
        Ok(Answer { status: parts.status, headers: parts.headers, body, is_whole, is_own: true })
    }
}

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}

/// Returns where a redirect leads: to a URL, or to a path of the same server.
fn target(from: &str, location: &str) -> Option<String> {
    if location.starts_with("//") {
        let (scheme, _) = from.split_once(':')?;
        return Some(format!("{scheme}:{location}"));
    }
    if location.starts_with('/') {
        return Some(format!("{}{location}", origin(from)?));
    }
    location.parse::<Uri>().ok()?.scheme().map(|_| location.to_owned())
}

/// Returns scheme and authority of a URL, in lower case.
fn origin(url: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}", uri.scheme_str()?, uri.authority()?).to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(image: &str, settings: &RegistrySettings) -> Result<Repository> {
        Repository::of(&image.parse().unwrap(), settings)
    }

    #[test]
    fn repository_is_at_its_registry() {
        let settings = RegistrySettings { insecure: vec!["127.0.0.1".parse().unwrap()], ..RegistrySettings::default() };
        for (image, registry, path, origin) in [
            ("nginx", "docker.io", "library/nginx", "https://registry-1.docker.io"),
            ("r.example.com/shop/api:v1", "r.example.com", "shop/api", "https://r.example.com"),
            ("r.example.com:5000/api", "r.example.com:5000", "api", "https://r.example.com:5000"),
            ("localhost:5000/api", "localhost:5000", "api", "https://localhost:5000"),
            ("127.0.0.1:5000/api", "127.0.0.1:5000", "api", "http://127.0.0.1:5000"),
            ("[2001:db8::1]:5000/api", "[2001:db8::1]:5000", "api", "https://[2001:db8::1]:5000"),
        ] {
            let found = repository(image, &settings).unwrap();
            assert_eq!((&*found.registry, &*found.path, &*found.origin), (registry, path, origin), "{image}");
        }
    }

    #[test]
    fn only_registries_that_the_operator_names_are_called() {
        let hosts = |hosts: &[&str]| RegistrySettings {
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            ..RegistrySettings::default()
        };
        assert!(repository("nginx", &hosts(&["docker.io"])).is_ok());
        assert!(repository("r.example.com:5000/a", &hosts(&["*.example.com"])).is_ok());
        for image in ["nginx", "evil.example/a", "r.example.com.evil.example/a"] {
            let refused = repository(image, &hosts(&["r.example.com"])).err().unwrap();
            assert!(matches!(refused, Error::Invalid { .. }), "{image}: {refused}");
        }
    }

    #[test]
    fn only_an_insecure_registry_leads_to_an_insecure_one() {
        let settings = RegistrySettings { insecure: vec!["127.0.0.1".parse().unwrap()], ..RegistrySettings::default() };
        let leads = |image: &str, host: &str| repository(image, &settings).unwrap().leads_to_insecure(host, &settings);
        assert!(leads("127.0.0.1:5000/api", "127.0.0.1"));
        assert!(!leads("127.0.0.1:5000/api", "localhost"));
        assert!(!leads("evil.example/api", "127.0.0.1"));
    }

    #[test]
    fn redirect_leads_to_a_url_or_a_path() {
        let from = "https://R.example.com:5000/v2/a/blobs/x?y";
        for (location, expected) in [
            ("https://cdn.example/x?sig=y", Some("https://cdn.example/x?sig=y")),
            ("/v2/b", Some("https://r.example.com:5000/v2/b")),
            ("//cdn.example/x", Some("https://cdn.example/x")),
            ("blobs/x", None),
            ("", None),
        ] {
            assert_eq!(target(from, location).as_deref(), expected, "{location}");
        }
    }
}
