//! The promises of [`rollhook_core::ports::ImageVerifier`].

use std::time::Duration;

use futures_util::{FutureExt, select_biased};
use rollhook_core::{
    Error, Result,
    image::ImageRef,
    ports::{FOUND_MAX, Verified},
    requirement::{Attestation, AttestationKind, Requirement, Signer, TextPattern},
};

use crate::{
    registries::RegistryAnswer,
    report::Can,
    signings::{SignedSample, Signings},
};

/// The time after which a call counts as one without an end, on a machine that is slow.
const ENDLESS: Duration = Duration::from_secs(120);

fn signed_by(signer: &Signer) -> Requirement {
    Requirement::new(vec![signer.clone()], None).unwrap()
}

fn attested(signer: &Signer, builder: Option<TextPattern>) -> Requirement {
    let kind = AttestationKind::SlsaProvenance;
    Requirement::new(Vec::new(), Some(Attestation { kind, builder, signer: Some(signer.clone()) })).unwrap()
}

async fn call(harness: &dyn Signings, image: &ImageRef, required: &Requirement) -> Result<Verified> {
    let (verifier, environment) = (harness.verifier(), harness.environment());
    assert_eq!(verifier.check(required), Ok(()), "{required}");
    let mut call = verifier.verify(&environment, image, required).fuse();
    select_biased! {
        answer = call => answer,
        () = harness.sleep(ENDLESS).fuse() => panic!("a call ends in time"),
    }
}

/// Returns the lines that name the signers.
async fn signed(harness: &dyn Signings, image: &ImageRef, required: &Requirement) -> Vec<String> {
    match call(harness, image, required).await.unwrap() {
        Verified::Signed { by } => by,
        Verified::NotSigned { found } => panic!("{image} is not {required}: {found:?}"),
    }
}

/// Returns the lines about what was found.
async fn not_signed(harness: &dyn Signings, image: &ImageRef, required: &Requirement) -> Vec<String> {
    match call(harness, image, required).await.unwrap() {
        Verified::Signed { by } => panic!("{image} is {required}: {by:?}"),
        Verified::NotSigned { found } => {
            let (lines, characters) = FOUND_MAX;
            let is_short = |line: &String| line.chars().count() <= characters + 1 && !line.contains('\n');
            assert!(found.len() <= lines && found.iter().all(is_short), "{found:?}");
            found
        }
    }
}

/// Each signer's signature is found, by the requirement of it alone and by that of several.
pub async fn signed_image_is_signed(harness: &dyn Signings) -> Can {
    for (signer, other) in harness.signers() {
        let image = harness.push("signed").await;
        harness.sign(&signer, &image, SignedSample::Signature).await?;
        let by = signed(harness, &image, &signed_by(&signer)).await;
        assert!(by.len() == 1 && by[0].contains(&signer.to_string()), "{by:?} names {signer}");
        signed(harness, &image, &Requirement::new(vec![other, signer], None).unwrap()).await;
    }
    Ok(())
}

/// A signature by another one is no signature, and is named.
pub async fn signature_of_another_counts_for_nothing(harness: &dyn Signings) -> Can {
    for (signer, other) in harness.signers() {
        let image = harness.push("another").await;
        harness.sign(&signer, &image, SignedSample::Signature).await?;
        let found = not_signed(harness, &image, &signed_by(&other)).await;
        let is_named = |line: &String| matches!(signer, Signer::Key(_)) || line.contains(&signer.to_string());
        assert!(found.len() == 1 && is_named(&found[0]), "{found:?} names {signer}");
    }
    Ok(())
}

/// A signature counts for the digest that it was made for.
pub async fn signature_of_another_image_counts_for_nothing(harness: &dyn Signings) -> Can {
    for (signer, _) in harness.signers() {
        let (image, other) = (harness.push("moved").await, harness.push("moved").await);
        harness.sign(&signer, &image, SignedSample::Signature).await?;
        harness.copy(&image, &other).await?;
        assert!(!not_signed(harness, &other, &signed_by(&signer)).await.is_empty(), "it is found");
        signed(harness, &image, &signed_by(&signer)).await;
    }
    Ok(())
}

/// Of an image that nobody signed nothing is found.
pub async fn image_without_signatures_is_not_signed(harness: &dyn Signings) -> Can {
    let image = harness.push("unsigned").await;
    for (signer, _) in harness.signers() {
        for required in [signed_by(&signer), attested(&signer, None)] {
            assert_eq!(not_signed(harness, &image, &required).await, Vec::<String>::new(), "{required}");
        }
    }
    Ok(())
}

/// A signature that cannot be read stands in nobody's way.
pub async fn unreadable_signature_counts_for_nothing(harness: &dyn Signings) -> Can {
    for (signer, _) in harness.signers() {
        let image = harness.push("unreadable").await;
        harness.sign(&signer, &image, SignedSample::Unreadable).await?;
        assert_eq!(not_signed(harness, &image, &signed_by(&signer)).await.len(), 1, "it is found");
        harness.sign(&signer, &image, SignedSample::Signature).await?;
        signed(harness, &image, &signed_by(&signer)).await;
    }
    Ok(())
}

/// Provenance counts if it names the builder that is demanded, and if its signer has signed it.
pub async fn attestation_is_that_of_its_builder(harness: &dyn Signings) -> Can {
    let (builder, other_builder) = harness.builders();
    for (signer, other) in harness.signers() {
        let image = harness.push("attested").await;
        harness.sign(&signer, &image, SignedSample::OtherStatement).await?;
        not_signed(harness, &image, &attested(&signer, Some(builder.clone()))).await;
        harness.sign(&signer, &image, SignedSample::Provenance).await?;
        let by = signed(harness, &image, &attested(&signer, Some(builder.clone()))).await;
        assert!(by.len() == 1 && by[0].contains(builder.as_str()), "{by:?} names {builder}");
        signed(harness, &image, &attested(&signer, None)).await;
        let found = not_signed(harness, &image, &attested(&signer, Some(other_builder.clone()))).await;
        assert!(found.iter().any(|line| line.contains(builder.as_str())), "{found:?} names {builder}");
        not_signed(harness, &image, &attested(&other, Some(builder.clone()))).await;
    }
    Ok(())
}

/// A requirement of both is met by both alone.
pub async fn attestation_is_no_signature(harness: &dyn Signings) -> Can {
    for (signer, _) in harness.signers() {
        let attestation = attested(&signer, None).attestation().cloned();
        let both = Requirement::new(vec![signer.clone()], attestation).unwrap();
        for (first, second) in
            [(SignedSample::Provenance, SignedSample::Signature), (SignedSample::Signature, SignedSample::Provenance)]
        {
            let image = harness.push("both").await;
            harness.sign(&signer, &image, first).await?;
            let other = if first == SignedSample::Signature { attested(&signer, None) } else { signed_by(&signer) };
            not_signed(harness, &image, &other).await;
            not_signed(harness, &image, &both).await;
            harness.sign(&signer, &image, second).await?;
            assert_eq!(signed(harness, &image, &both).await.len(), 2);
        }
    }
    Ok(())
}

/// A tag alone is verified by nobody.
pub async fn image_has_a_digest(harness: &dyn Signings) -> Can {
    let image = harness.push("tagged").await;
    let tagged = image.tagged("v1".parse().unwrap());
    let answer = call(harness, &tagged, &signed_by(&harness.signers()[0].0)).await;
    assert!(matches!(answer, Err(Error::Invalid { .. })), "{answer:?}");
    Ok(())
}

/// A registry that is away makes no verdict.
pub async fn away_is_unavailable(harness: &dyn Signings) -> Can {
    for answer in [RegistryAnswer::Gone, RegistryAnswer::Failure, RegistryAnswer::Silence] {
        failing(harness, answer, |error| assert!(error.is_unavailable(), "{answer:?}: {}", error.chain())).await?;
    }
    Ok(())
}

/// A registry that is busy is asked again after its time.
pub async fn busy_is_unavailable_with_its_time(harness: &dyn Signings) -> Can {
    let time = Duration::from_secs(1);
    failing(harness, RegistryAnswer::Busy(Some(time)), |error| {
        assert!(error.is_unavailable() && error.retry_after() == Some(time), "{}", error.chain());
    })
    .await
}

/// A login that is missing or wrong is a denial.
pub async fn closed_repository_is_denied(harness: &dyn Signings) -> Can {
    failing(harness, RegistryAnswer::Closed, |error| {
        assert!(matches!(error, Error::Denied { .. }), "{}", error.chain());
    })
    .await
}

/// Whatever is answered, the call ends, and no signature is made of it.
pub async fn answers_are_bounded(harness: &dyn Signings) -> Can {
    for answer in [RegistryAnswer::Endless, RegistryAnswer::OtherDigest, RegistryAnswer::CutOff] {
        let (signer, _) = harness.signers().swap_remove(0);
        let image = harness.push("bounded").await;
        harness.sign(&signer, &image, SignedSample::Signature).await?;
        harness.answer(answer).await?;
        let verified = call(harness, &image, &signed_by(&signer)).await;
        assert!(!matches!(verified, Ok(Verified::Signed { .. })), "{answer:?}: {verified:?}");
        harness.answer(RegistryAnswer::Usual).await?;
        signed(harness, &image, &signed_by(&signer)).await;
    }
    Ok(())
}

/// Judges the error of a call while a registry answers so, and sees that it ends with it.
async fn failing(harness: &dyn Signings, answer: RegistryAnswer, judge: impl Fn(&Error)) -> Can {
    let (signer, _) = harness.signers().swap_remove(0);
    let image = harness.push("failing").await;
    harness.sign(&signer, &image, SignedSample::Signature).await?;
    harness.answer(answer).await?;
    match call(harness, &image, &signed_by(&signer)).await {
        Err(error) => judge(&error),
        Ok(verified) => panic!("{answer:?} is a failure: {verified:?}"),
    }
    harness.answer(RegistryAnswer::Usual).await?;
    if let RegistryAnswer::Busy(Some(time)) = answer {
        harness.sleep(time).await;
    }
    signed(harness, &image, &signed_by(&signer)).await;
    Ok(())
}
