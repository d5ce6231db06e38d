//! Signing people in: the code flow with PKCE (OpenID Connect Core 1.0, RFC 7636).

use std::{
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use openidconnect::{
    AccessTokenHash, AdditionalClaims, AuthorizationCode, Client, ClientId, ClientSecret, CsrfToken,
    EmptyExtraTokenFields, EndpointMaybeSet, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse, IdTokenClaims,
    IdTokenFields, IssuerUrl, Nonce, OAuth2TokenResponse, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl, Scope,
    StandardErrorResponse, StandardTokenResponse, TokenResponse as _, UserInfoClaims,
    core::{
        CoreAuthDisplay, CoreAuthPrompt, CoreAuthenticationFlow, CoreErrorResponseType, CoreGenderClaim,
        CoreJsonWebKey, CoreJweContentEncryptionAlgorithm, CoreJwsSigningAlgorithm, CoreProviderMetadata,
        CoreRevocableToken, CoreRevocationErrorResponse, CoreTokenIntrospectionResponse, CoreTokenType,
    },
};
use rollhook_core::{Error, Result, ports::Clock};
use rollhook_management::ports::{SignInProvider, SignInRequest, SignedIn};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::{Fetch, FetchError, provider_answers};

/// The longest time of a call that a sign-in waits for.
const PROVIDER_TIME: Duration = Duration::from_secs(10);
/// How long the provider's description and keys are used without a look at it.
const FRESH: Duration = Duration::from_secs(600);
/// The least time between two readings of them: a key may be so new that only the next one finds it.
const REFRESH: Duration = Duration::from_secs(30);
/// The most calls to the provider at the same time.
const CALLS: usize = 8;
/// The pause after a failed reading of the description.
const PAUSE: Duration = Duration::from_secs(5);
/// The algorithms of the provider's signatures: those with a public key.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 6] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// The registration of this service at a provider.
#[derive(Clone)]
pub struct SignInClient {
    /// The provider's URL, exactly as it names itself.
    pub issuer: String,
    /// The client's id.
    pub client_id: String,
    /// The client's secret; `None`: a client that proves itself by PKCE alone.
    pub client_secret: Option<Zeroizing<String>>,
    /// The URL to which the provider returns people: exactly as it is registered there.
    pub redirect_url: String,
    /// The scopes that are requested beside `openid`.
    pub scopes: Vec<String>,
    /// The claim that has a person's groups.
    pub groups_claim: String,
    /// The name on the button.
    pub name: String,
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T, FetchError>> + Send>>;

/// Every claim beside the standard ones.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Others(Map<String, Value>);

impl AdditionalClaims for Others {}

type Fields = IdTokenFields<
    Others,
    EmptyExtraTokenFields,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJwsSigningAlgorithm,
>;

/// A client of a provider that was described: it has the URLs of authorization and, perhaps, of tokens and people.
type Described = Client<
    Others,
    CoreAuthDisplay,
    CoreGenderClaim,
    CoreJweContentEncryptionAlgorithm,
    CoreJsonWebKey,
    CoreAuthPrompt,
    StandardErrorResponse<CoreErrorResponseType>,
    StandardTokenResponse<Fields, CoreTokenType>,
    CoreTokenIntrospectionResponse,
    CoreRevocableToken,
    CoreRevocationErrorResponse,
    EndpointSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointNotSet,
    EndpointMaybeSet,
    EndpointMaybeSet,
>;

/// A provider of an organisation.
pub struct OidcSignIn {
    settings: SignInClient,
    issuer: IssuerUrl,
    redirect: RedirectUrl,
    fetch: Fetch,
    clock: Arc<dyn Clock>,
    /// The provider as it was last described, and when.
    described: Mutex<Option<(Arc<Described>, Duration)>>,
    /// Held while the description is read, with the time of the last failure.
    reading: tokio::sync::Mutex<Option<Duration>>,
    calls: Semaphore,
}

impl OidcSignIn {
    /// Returns the provider of these settings, which is not called yet.
    ///
    /// # Errors
    /// `Invalid`, naming the setting.
    pub fn new(settings: SignInClient, fetch: Fetch, clock: Arc<dyn Clock>) -> Result<Self> {
        fetch.check(&settings.issuer).map_err(|error| Error::invalid(format!("issuer: {error}")))?;
        let issuer =
            IssuerUrl::new(settings.issuer.clone()).map_err(|error| Error::invalid(format!("issuer: {error}")))?;
        let redirect = RedirectUrl::new(settings.redirect_url.clone());
        let redirect = redirect.map_err(|error| Error::invalid(format!("--base-url: {error}")))?;
        Ok(Self {
            settings,
            issuer,
            redirect,
            fetch,
            clock,
            described: Mutex::default(),
            reading: Default::default(),
            calls: Semaphore::new(CALLS),
        })
    }

    /// Returns the client as `openidconnect` wants it.
    fn http(&self) -> impl Fn(HttpRequest) -> BoxFuture<HttpResponse> {
        let fetch = self.fetch.clone();
        move |request| {
            let fetch = fetch.clone();
            Box::pin(async move {
                let url = request.uri().to_string();
                let answer = fetch.send(request).await?;
                provider_answers::check(&url, answer.body())?;
                Ok(answer)
            })
        }
    }

    /// Makes calls to the provider, a bounded number of them at a time, and each within a bounded time.
    async fn call<T>(&self, calls: impl Future<Output = Result<T>>) -> Result<T> {
        let bounded = async {
            let _permit = self.calls.acquire().await.map_err(|error| Error::unavailable("the sign-in", error))?;
            calls.await
        };
        let ended = tokio::time::timeout(PROVIDER_TIME, bounded).await;
        ended.unwrap_or_else(|late| Err(Error::unavailable("the provider of sign-ins did not answer", late)))
    }

    fn known(&self, age: Duration) -> Option<Arc<Described>> {
        let known = self.described.lock().unwrap_or_else(PoisonError::into_inner).clone();
        known.filter(|(_, at)| self.clock.elapsed().saturating_sub(*at) < age).map(|(described, _)| described)
    }

    /// Returns the provider as it was described, at most `age` ago.
    async fn described(&self, age: Duration) -> Result<Arc<Described>> {
        if let Some(known) = self.known(age) {
            return Ok(known);
        }
        // One call at a time, and after a failure none for a while: anyone may begin a sign-in.
        let mut failed_at = self.reading.lock().await;
        if let Some(known) = self.known(age) {
            return Ok(known);
        }
        if failed_at.is_some_and(|at| self.clock.elapsed().saturating_sub(at) < PAUSE) {
            let what = "the provider of sign-ins did not answer a moment ago".to_owned();
            return Err(Error::Unavailable { what, cause: None });
        }
        // Also if this call is given up before its answer.
        *failed_at = Some(self.clock.elapsed());
        let http = self.http();
        let metadata = CoreProviderMetadata::discover_async(self.issuer.clone(), &http).await;
        let metadata = metadata.map_err(|error| Error::unavailable("reading the provider's description", error))?;
        *failed_at = None;
        let secret = self.settings.client_secret.as_ref().map(|secret| ClientSecret::new(secret.to_string()));
        let client_id = ClientId::new(self.settings.client_id.clone());
        let described = Client::from_provider_metadata(metadata, client_id, secret);
        let described: Arc<Described> = Arc::new(described.set_redirect_uri(self.redirect.clone()));
        let mut known = self.described.lock().unwrap_or_else(PoisonError::into_inner);
        *known = Some((described.clone(), self.clock.elapsed()));
        Ok(described)
    }

    async fn exchange(&self, code: &str, nonce: &str, verifier: &str) -> Result<SignedIn> {
        let provider = self.described(FRESH).await?;
        let http = self.http();
        let code = AuthorizationCode::new(code.to_owned());
        let verifier = PkceCodeVerifier::new(verifier.to_owned());
        let exchange =
            provider.exchange_code(code).map_err(|error| denied("the provider has no token endpoint", error))?;
        let answer = exchange.set_pkce_verifier(verifier).request_async(&http).await;
        let answer = answer.map_err(|error| {
            // Any other answer than a refusal as OAuth has it is a fault of the provider, and none of the person.
            if matches!(error, openidconnect::RequestTokenError::ServerResponse(_)) {
                return denied("the provider gave no token for the code", error);
            }
            Error::unavailable("asking the provider for the token", error)
        })?;
        let token = answer.id_token().ok_or_else(|| denied("the provider gave no id_token", "openid is missing"))?;
        let nonce = Nonce::new(nonce.to_owned());
        let (provider, claims) = match self.verified(&provider, token, &nonce) {
            Ok(claims) => (provider, claims),
            // The key may be newer than what is known of the provider.
            Err(_) => {
                let newer = self.described(REFRESH).await?;
                let claims = self.verified(&newer, token, &nonce)?;
                (newer, claims)
            }
        };
        if let Some(expected) = claims.access_token_hash() {
            let verifier = provider.id_token_verifier();
            let algorithm = token.signing_alg().map_err(|error| denied("the id_token", error))?;
            let key = token.signing_key(&verifier).map_err(|error| denied("the id_token", error))?;
            let actual = AccessTokenHash::from_token(answer.access_token(), algorithm, key);
            if actual.map_err(|error| denied("the access token", error))? != *expected {
                return Err(denied("the access token is not the one that the id_token names", "at_hash"));
            }
        }
        let stated = Stated::of(&claims, &self.settings.groups_claim);
        let Ok(people) = provider.user_info(answer.access_token().clone(), Some(claims.subject().clone())) else {
            return Ok(stated.person());
        };
        if stated.is_whole() {
            return Ok(stated.person());
        }
        let more: UserInfoClaims<Others, CoreGenderClaim> = people
            .request_async(&http)
            .await
            .map_err(|error| Error::unavailable("asking the provider for the person", error))?;
        Ok(stated.or(Stated::of_user_info(&more, &self.settings.groups_claim)).person())
    }

    fn verified(
        &self,
        provider: &Described,
        token: &openidconnect::IdToken<
            Others,
            CoreGenderClaim,
            CoreJweContentEncryptionAlgorithm,
            CoreJwsSigningAlgorithm,
        >,
        nonce: &Nonce,
    ) -> Result<IdTokenClaims<Others, CoreGenderClaim>> {
        let verifier = provider.id_token_verifier().set_allowed_algs(ALGORITHMS);
        let claims = token.claims(&verifier, nonce).map_err(|error| denied("the provider's id_token", error))?;
        Ok(claims.clone())
    }
}

fn denied(what: &str, cause: impl Into<rollhook_core::error::Cause>) -> Error {
    Error::Denied { what: what.to_owned(), cause: Some(cause.into()) }
}

/// The claims of a person in one of the provider's answers.
struct Stated {
    subject: String,
    email: Option<String>,
    name: Option<String>,
    groups: Option<Vec<String>>,
}

/// Returns the claims of a person in an id_token or in an answer of user info, which share names and no trait.
macro_rules! stated {
    ($claims:expr, $groups:expr) => {{
        let claims = $claims;
        let is_verified = claims.email_verified() == Some(true);
        Stated {
            subject: claims.subject().to_string(),
            email: claims.email().filter(|_| is_verified).map(|email| email.to_string()),
            name: claims.preferred_username().map(|name| name.to_string()),
            groups: texts(&claims.additional_claims().0, $groups),
        }
    }};
}

impl Stated {
    fn of(claims: &IdTokenClaims<Others, CoreGenderClaim>, groups: &str) -> Self {
        stated!(claims, groups)
    }

    fn of_user_info(claims: &UserInfoClaims<Others, CoreGenderClaim>, groups: &str) -> Self {
        stated!(claims, groups)
    }

    const fn is_whole(&self) -> bool {
        self.groups.is_some() && self.email.is_some()
    }

    fn or(self, other: Self) -> Self {
        Self {
            subject: self.subject,
            email: self.email.or(other.email),
            name: self.name.or(other.name),
            groups: self.groups.or(other.groups),
        }
    }

    fn person(self) -> SignedIn {
        // At many providers people choose this name themselves: it must not look like another's verified address.
        let chosen =
            self.name.filter(|name| !name.trim().is_empty()).map(|name| format!("{} (unverified)", name.trim()));
        let verified = self.email.filter(|email| !email.trim().is_empty());
        let name = verified.or(chosen).unwrap_or_else(|| self.subject.clone());
        SignedIn { subject: self.subject, name, groups: self.groups.unwrap_or_default() }
    }
}

/// Returns the texts of a claim: of an array, or of one text.
fn texts(claims: &Map<String, Value>, name: &str) -> Option<Vec<String>> {
    match claims.get(name)? {
        Value::String(one) => Some(vec![one.clone()]),
        Value::Array(all) => Some(all.iter().filter_map(Value::as_str).map(str::to_owned).collect()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => None,
    }
}

#[async_trait]
impl SignInProvider for OidcSignIn {
    fn name(&self) -> &str {
        &self.settings.name
    }

    fn host(&self) -> &str {
        self.issuer.url().host_str().unwrap_or_default()
    }

    async fn begin(&self) -> Result<SignInRequest> {
        let provider = match self.known(FRESH) {
            Some(known) => known,
            None => self.call(self.described(FRESH)).await?,
        };
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let flow = CoreAuthenticationFlow::AuthorizationCode;
        let request = provider.authorize_url(flow, CsrfToken::new_random, Nonce::new_random);
        let scopes = self.settings.scopes.iter().map(|scope| Scope::new(scope.clone()));
        let (url, state, nonce) = request.add_scopes(scopes).set_pkce_challenge(challenge).url();
        Ok(SignInRequest {
            url: url.to_string(),
            state: Zeroizing::new(state.secret().clone()),
            nonce: Zeroizing::new(nonce.secret().clone()),
            verifier: Zeroizing::new(verifier.secret().clone()),
        })
    }

    async fn finish(&self, code: &str, nonce: &str, verifier: &str) -> Result<SignedIn> {
        self.call(self.exchange(code, nonce, verifier)).await
    }
}
