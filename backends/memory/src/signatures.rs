//! A simulated verifier of signatures: images that a test signs, and an outage that it sets.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use rollhook_core::{
    app::Namespace,
    error::{Error, Result},
    image::{Digest, ImageRef},
    ports::{ImageVerifier, Verified},
    requirement::{Requirement, Signer},
};

/// A verifier in memory, for all registries. It knows no attestations.
#[derive(Default)]
pub struct SimulatedImageVerifier(Mutex<State>);

#[derive(Default)]
struct State {
    signed: BTreeMap<Digest, Vec<Signer>>,
    failure: Option<Error>,
    asked: Vec<ImageRef>,
}

impl SimulatedImageVerifier {
    /// Signs an image.
    pub fn sign(&self, image: &Digest, signer: Signer) {
        self.lock().signed.entry(image.clone()).or_default().push(signer);
    }

    /// Fails all calls from now on; `None`: they are answered again.
    pub fn fails(&self, failure: Option<Error>) {
        self.lock().failure = failure;
    }

    /// The images that were verified, in order.
    pub fn asked(&self) -> Vec<ImageRef> {
        self.lock().asked.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ImageVerifier for SimulatedImageVerifier {
    fn check(&self, requirement: &Requirement) -> std::result::Result<(), String> {
        match requirement.attestation() {
            Some(_) => Err("the simulated verifier knows no attestations.".to_owned()),
            None => Ok(()),
        }
    }

    async fn verify(&self, _: &Namespace, image: &ImageRef, requirement: &Requirement) -> Result<Verified> {
        let mut state = self.lock();
        state.asked.push(image.clone());
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let digest = image.digest().ok_or_else(|| Error::invalid("an image without a digest cannot be verified"))?;
        let signers = state.signed.get(digest).map(Vec::as_slice).unwrap_or_default();
        let by: Vec<String> =
            signers.iter().filter(|signer| requirement.signers().contains(signer)).map(ToString::to_string).collect();
        let found = || signers.iter().map(|signer| format!("a signature by {signer}, who is not named")).collect();
        Ok(if by.is_empty() { Verified::NotSigned { found: found() } } else { Verified::Signed { by } })
    }
}
