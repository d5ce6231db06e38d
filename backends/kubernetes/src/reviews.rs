//! Callers whom the cluster knows: TokenReview says whose a token is, SubjectAccessReview what its holder may do.

use std::{future::Future, sync::Arc, time::Duration};

use async_trait::async_trait;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec, SubjectAccessReviewStatus},
};
use kube::Api;
use rollhook_core::{Error, Result, ports::Clock, text::hex};
use rollhook_management::{
    access::Permission,
    keyless::IdToken,
    ports::{AccessReviewer, BearerToken, ReviewScope, ReviewedCaller, SignatureCheck},
};
use rollhook_oidc::{IssuerKeys, KeySet};
use sha2::{Digest, Sha256};

use crate::{
    bounded_by,
    client::{Cluster, post_parameters},
    error::{classify, shortened},
    store::crd::GROUP,
    turns::{Party, Turns},
};

/// The deadline of one question and of the wait for its turn: a caller asks several.
const ANSWER: Duration = Duration::from_secs(5);
/// The path of the keys that the API server signs tokens of service accounts by.
const KEYS: &str = "/openid/v1/jwks";

/// Asks the API server for callers and their rights. It needs `create` on `tokenreviews` and `subjectaccessreviews`, and
/// `get` on the path of the API server's keys.
pub struct KubernetesReviewer {
    cluster: Cluster,
    audience: String,
    keys: Arc<IssuerKeys>,
    turns: Turns,
}

impl KubernetesReviewer {
    /// Connects as `kubectl` would, or from inside a pod with its service account, for tokens of this audience. Nothing
    /// is sent until the first call.
    ///
    /// # Errors
    /// `Invalid` if there is no configuration, or one that cannot be used.
    pub async fn connect(audience: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        Ok(Self::on(Cluster::connect().await?, audience, clock))
    }

    /// Connects by a given configuration, whose own retries are switched off.
    ///
    /// # Errors
    /// `Invalid` if it cannot be used.
    pub fn with_config(config: kube::Config, audience: &str, clock: Arc<dyn Clock>) -> Result<Self> {
        Ok(Self::on(Cluster::with(config)?, audience, clock))
    }

    fn on(cluster: Cluster, audience: &str, clock: Arc<dyn Clock>) -> Self {
        let keys = Arc::new(IssuerKeys::new(clock));
        Self { cluster, audience: audience.to_owned(), keys, turns: Turns::default() }
    }

    /// Asks once it is the turn of this party.
    async fn ask<T>(&self, party: Party<'_>, question: impl Future<Output = Result<T>> + Send) -> Result<T> {
        let _turn = self.turns.of(party).await;
        question.await
    }

    /// Returns whether a key of the API server made the token's signature.
    async fn check(&self, token: &IdToken) -> SignatureCheck {
        let cluster = self.cluster.clone();
        self.keys.check(token, || published(cluster)).await.unwrap_or(SignatureCheck::Unknown)
    }

    /// Returns the account that a token names, if the API server has signed that: an account that mints tokens is one party.
    async fn signed_account(&self, token: &BearerToken) -> Option<String> {
        let token: IdToken = token.expose().parse().ok()?;
        let account = token.claims().text("sub")?;
        (self.check(&token).await == SignatureCheck::Valid).then_some(account)
    }
}

/// Reads the keys that the API server signs tokens by.
async fn published(cluster: Cluster) -> Result<KeySet> {
    let read = async {
        let request = http::Request::get(KEYS).body(Vec::new());
        let request = request.map_err(|error| Error::corrupt("the path of the API server's keys", error))?;
        KeySet::parse(&cluster.into_client().request_text(request).await.map_err(classify)?)
    };
    read.await.inspect_err(|error| {
        tracing::warn!(error = %error.chain(), "reading the keys of the API server failed: made-up tokens share a rate with new ones");
    })
}

#[async_trait]
impl AccessReviewer for KubernetesReviewer {
    fn authority(&self) -> &str {
        "kubernetes"
    }

    fn audience(&self) -> &str {
        &self.audience
    }

    async fn signature(&self, token: &BearerToken) -> SignatureCheck {
        // Tokens of users may be of other forms and issuers.
        let Ok(token) = token.expose().parse::<IdToken>() else { return SignatureCheck::Unknown };
        self.check(&token).await
    }

    async fn authenticate(&self, token: &BearerToken) -> Result<Option<ReviewedCaller>> {
        let spec =
            TokenReviewSpec { audiences: Some(vec![self.audience.clone()]), token: Some(token.expose().to_owned()) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews = Api::<TokenReview>::all(self.cluster.clone().into_client());
        let question = async { reviews.create(&post_parameters(), &review).await.map_err(classify) };
        let asked = async {
            match self.signed_account(token).await {
                Some(account) => self.ask(Party::Account(&account), question).await,
                None => self.ask(Party::Token(&hex(&Sha256::digest(token.expose()))), question).await,
            }
        };
        let status = bounded_by(ANSWER, asked).await?.status;
        Ok(caller(status.ok_or_else(|| unanswered("TokenReview"))?, &self.audience))
    }

    async fn allows(&self, caller: &ReviewedCaller, permission: Permission, scope: ReviewScope<'_>) -> Result<bool> {
        let review = SubjectAccessReview { spec: question(caller, permission, scope), ..Default::default() };
        let reviews = Api::<SubjectAccessReview>::all(self.cluster.clone().into_client());
        let asked = async { reviews.create(&post_parameters(), &review).await.map_err(classify) };
        let status = bounded_by(ANSWER, self.ask(Party::Account(&caller.name), asked)).await?.status;
        Ok(is_allowed(&status.ok_or_else(|| unanswered("SubjectAccessReview"))?))
    }
}

fn unanswered(what: &str) -> Error {
    Error::corrupt(format!("the API server's answer to a {what}"), "it has no status")
}

/// Returns the caller of a review. An API server that knows nothing of audiences names none, and then a token for any
/// other program would do.
fn caller(status: TokenReviewStatus, audience: &str) -> Option<ReviewedCaller> {
    if status.authenticated != Some(true) {
        tracing::debug!(reason = shortened(&status.error.unwrap_or_default()), "the cluster does not know a token");
        return None;
    }
    if !status.audiences.unwrap_or_default().iter().any(|named| named == audience) {
        tracing::warn!(audience, "the cluster authenticated a token, and not for this audience: it is refused");
        return None;
    }
    let user = status.user.unwrap_or_default();
    Some(ReviewedCaller {
        name: user.username.filter(|name| !name.is_empty())?,
        uid: user.uid,
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
    })
}

/// Returns the question for a permission: with all that the review of the token said of the caller.
fn question(caller: &ReviewedCaller, permission: Permission, scope: ReviewScope<'_>) -> SubjectAccessReviewSpec {
    let (namespace, name) = match scope {
        ReviewScope::Everything => (None, None),
        ReviewScope::Namespace(namespace) => (Some(namespace), None),
        ReviewScope::App(namespace, name) => (Some(namespace), Some(name)),
    };
    let attributes = ResourceAttributes {
        group: Some(GROUP.to_owned()),
        resource: Some(permission.resource.to_string()),
        subresource: permission.subresource.map(str::to_owned),
        verb: Some(permission.verb.to_owned()),
        namespace: namespace.map(ToString::to_string),
        name: name.map(ToString::to_string),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: Some(caller.name.clone()),
        uid: caller.uid.clone(),
        groups: Some(caller.groups.clone()),
        extra: Some(caller.extra.clone()),
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

/// Returns the answer. What could not be evaluated, such as a binding of a role that is missing, allows nothing.
fn is_allowed(status: &SubjectAccessReviewStatus) -> bool {
    if let Some(error) = status.evaluation_error.as_deref().filter(|error| !error.is_empty()) {
        tracing::debug!(error = shortened(error), "the cluster evaluated the rights of a caller in part");
    }
    status.allowed && status.denied != Some(true)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::api::authentication::v1::UserInfo;
    use rollhook_management::access::Action;
    use serde_json::json;

    use super::*;

    const NAME: &str = "system:serviceaccount:ci:deployer";

    fn status(authenticated: bool, audiences: &[&str], name: &str) -> TokenReviewStatus {
        TokenReviewStatus {
            authenticated: Some(authenticated),
            audiences: Some(audiences.iter().map(|&audience| audience.to_owned()).collect()),
            user: Some(UserInfo { username: Some(name.to_owned()), ..UserInfo::default() }),
            ..TokenReviewStatus::default()
        }
    }

    #[test]
    fn a_caller_is_one_whom_the_cluster_authenticated_for_this_audience_by_name() {
        let name = |status| caller(status, "rollhook").map(|caller| caller.name);
        assert_eq!(name(status(true, &["other", "rollhook"], NAME)).as_deref(), Some(NAME));
        assert_eq!(name(status(false, &["rollhook"], NAME)), None);
        assert_eq!(name(status(true, &[], NAME)), None, "a server that knows no audiences");
        assert_eq!(name(status(true, &["rollhook2"], NAME)), None);
        assert_eq!(name(status(true, &["rollhook"], "")), None);
        assert_eq!(name(TokenReviewStatus::default()), None);
    }

    #[test]
    fn a_question_has_all_of_the_caller_and_the_names_of_the_scope() {
        let extra = BTreeMap::from([("authentication.kubernetes.io/pod-name".to_owned(), vec!["ci-1".to_owned()])]);
        let (uid, groups) = (Some("7".to_owned()), vec!["system:serviceaccounts".to_owned()]);
        let caller = ReviewedCaller { name: NAME.to_owned(), uid, groups, extra };
        let (namespace, app) = ("shop-test".parse().unwrap(), "api".parse().unwrap());
        let asked = |scope| serde_json::to_value(question(&caller, Action::Rollback.permission(), scope)).unwrap();
        assert_eq!(
            asked(ReviewScope::App(&namespace, &app)),
            json!({
                "user": NAME, "uid": "7", "groups": ["system:serviceaccounts"],
                "extra": {"authentication.kubernetes.io/pod-name": ["ci-1"]},
                "resourceAttributes": {
                    "group": "rollhook.dev", "resource": "rollhookapps", "subresource": "rollback", "verb": "create",
                    "namespace": "shop-test", "name": "api",
                },
            })
        );
        let attributes = |scope| asked(scope)["resourceAttributes"].clone();
        assert_eq!(attributes(ReviewScope::Namespace(&namespace))["name"], json!(null));
        assert_eq!(attributes(ReviewScope::Everything)["namespace"], json!(null), "the whole cluster");
    }

    #[test]
    fn a_denial_outweighs_and_an_error_allows_nothing() {
        let status = |allowed, denied, error: Option<&str>| SubjectAccessReviewStatus {
            allowed,
            denied,
            evaluation_error: error.map(str::to_owned),
            reason: None,
        };
        assert!(
            is_allowed(&status(true, None, None)) && is_allowed(&status(true, Some(false), Some("a missing role")))
        );
        assert!(!is_allowed(&status(true, Some(true), None)));
        assert!(!is_allowed(&status(false, None, None)) && !is_allowed(&status(false, None, Some("away"))));
    }
}
