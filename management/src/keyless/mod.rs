//! Identities of pipelines: the trusts of apps, the id_tokens that CI systems issue, and the decision whether one fits.

mod decision;
mod id_token;
mod presented;
mod reach;
mod trust;
mod trusts;
mod used_tokens;

pub use decision::{LEEWAY, LIFE_MAX, Mismatch, fitting};
pub use id_token::{Algorithm, Claims, IdToken, TOKEN_MAX, VALUES_MAX};
pub use presented::{BoundCall, IdentityFault, Presented, WebhookProof};
pub use reach::{TooWide, binding_claims};
pub use trust::{CLAIMS_BYTES_MAX, CLAIMS_MAX, IDENTIFYING, Issuer, TEXT_MAX, TRUSTS_MAX, Trust, TrustId, is_audience};
pub use used_tokens::{APP_TOKENS_MAX, ENVIRONMENT_TOKENS_MAX, PROJECT_TOKENS_MAX};

pub(crate) use trusts::KnownTrusts;
pub(crate) use used_tokens::UsedTokens;
