//! The forms in which registries keep signatures: pure. Each becomes a [`Candidate`], of which nothing is believed yet.
//!
//! | form | where | what is signed |
//! |---|---|---|
//! | bundle of Sigstore | an artifact that refers to the image | an in-toto statement, in an envelope |
//! | simple signing | the tag `sha256-….sig`, or an artifact that refers to the image | a payload that names the image's digest |
//! | envelope | the tag `sha256-….att` | an in-toto statement |

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rollhook_core::{image::Digest, text::json_values};
use serde::Deserialize;
use sigstore_verify::types::{
    Bundle, CanonicalizedBody, DerCertificate, DsseEnvelope, InclusionPromise, KindVersion, LogId, LogIndex, LogKeyId,
    MediaType, MessageSignature, PublicKeyIdentifier, Rfc3161Timestamp, Sha256Hash, SignatureBytes, SignatureContent,
    SignedTimestamp, Statement, TimestampToken, TimestampVerificationData, TransparencyLogEntry, VerificationMaterial,
    VerificationMaterialContent, X509Certificate,
};

/// The media type of a bundle of Sigstore begins so, of every version.
pub(crate) const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// The media type of a payload of simple signing.
pub(crate) const SIMPLE_SIGNING: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
/// The media type of an envelope.
pub(crate) const ENVELOPE: &str = "application/vnd.dsse.envelope.v1+json";
/// The type of an artifact that holds payloads of simple signing.
pub(crate) const SIMPLE_ARTIFACT: &str = "application/vnd.dev.cosign.artifact.sig.v1+json";
/// The kind that a payload of simple signing names.
const SIMPLE_KIND: &str = "cosign container image signature";
const SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const CERTIFICATE: &str = "dev.sigstore.cosign/certificate";
const CHAIN: &str = "dev.sigstore.cosign/chain";
const LOG_ENTRY: &str = "dev.sigstore.cosign/bundle";
const TIMESTAMP: &str = "dev.sigstore.cosign/rfc3161timestamp";
/// The most JSON values of a document: in memory they take many times its bytes.
const VALUES_MAX: usize = 50_000;
/// The most certificates of a chain.
const CHAIN_MAX: usize = 8;
const IN_TOTO: &str = "application/vnd.in-toto+json";

/// The subject of a signature, as its signed text says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Claim {
    /// An image, by its digest.
    Image(String),
    /// An in-toto statement.
    Statement(Box<Statement>),
}

/// A signature that was found, as it says of itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate {
    /// The subject of the signature.
    pub(crate) claim: Claim,
    /// The bytes that are signed.
    pub(crate) signed: Vec<u8>,
    /// The signature and what vouches for it.
    pub(crate) bundle: Bundle,
    /// Whether it is in a form whose entry in a log is proven by the log's promise alone.
    pub(crate) has_promise_alone: bool,
}

/// The reason why a document is no signature, as the end of a sentence about it.
pub(crate) type Unreadable = String;

/// Reads a bundle.
pub(crate) fn bundle(body: &[u8]) -> Result<Candidate, Unreadable> {
    let bundle: Bundle = document(body, "bundle")?;
    let SignatureContent::DsseEnvelope(envelope) = &bundle.content else {
        return Err("has no statement".to_owned());
    };
    let (claim, signed) = statement(envelope)?;
    Ok(Candidate { claim, signed, bundle, has_promise_alone: false })
}

/// Reads a payload of simple signing with the annotations beside it.
pub(crate) fn simple(payload: &[u8], annotations: &BTreeMap<String, String>) -> Result<Candidate, Unreadable> {
    let read: Simple = document(payload, "payload of simple signing")?;
    if read.critical.kind != SIMPLE_KIND {
        return Err("is of another kind than cosign's signatures".to_owned());
    }
    let signature = annotations.get(SIGNATURE).ok_or("has no signature beside it")?;
    let signature = SignatureBytes::from_base64(signature).map_err(|_| "has a signature that cannot be read")?;
    let content = SignatureContent::MessageSignature(MessageSignature::new(signature));
    Ok(Candidate {
        claim: Claim::Image(read.critical.image.digest),
        signed: payload.to_vec(),
        bundle: annotated(content, annotations)?,
        has_promise_alone: true,
    })
}

/// Reads an envelope with the annotations beside it.
pub(crate) fn envelope(body: &[u8], annotations: &BTreeMap<String, String>) -> Result<Candidate, Unreadable> {
    let envelope: DsseEnvelope = document(body, "envelope")?;
    let (claim, signed) = statement(&envelope)?;
    let bundle = annotated(SignatureContent::DsseEnvelope(envelope), annotations)?;
    Ok(Candidate { claim, signed, bundle, has_promise_alone: true })
}

impl Claim {
    /// Returns whether it is of this digest.
    pub(crate) fn is_of(&self, digest: &Digest) -> bool {
        match self {
            Self::Image(named) => named == digest.as_str(),
            Self::Statement(statement) => sha256(digest).is_some_and(|digest| statement.matches_sha256(&digest)),
        }
    }
}

/// Returns a digest of SHA-256, which statements of cosign name; `None`: it is of another one.
pub(crate) fn sha256(digest: &Digest) -> Option<Sha256Hash> {
    Sha256Hash::from_hex(digest.as_str().strip_prefix("sha256:")?).ok()
}

#[derive(Deserialize)]
struct Simple {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    #[serde(rename = "type")]
    kind: String,
    image: Image,
}

#[derive(Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// The entry of a log, as annotations have it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct LogEntry {
    signed_entry_timestamp: String,
    payload: LogPayload,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LogPayload {
    body: String,
    integrated_time: i64,
    log_index: i64,
    #[serde(rename = "logID")]
    log_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    kind: String,
    api_version: String,
}

#[derive(Deserialize)]
struct Timestamp {
    #[serde(rename = "SignedRFC3161Timestamp")]
    token: String,
}

/// Reads a JSON text; `name` is what it should be.
fn document<'a, T: Deserialize<'a>>(body: &'a [u8], name: &str) -> Result<T, Unreadable> {
    if json_values(body) > VALUES_MAX {
        return Err(format!("has more than {VALUES_MAX} values"));
    }
    serde_json::from_slice(body).map_err(|error| format!("is no {name}: {error}"))
}

/// Returns what the statement in an envelope says, and the bytes that are signed.
fn statement(envelope: &DsseEnvelope) -> Result<(Claim, Vec<u8>), Unreadable> {
    if envelope.payload_type != IN_TOTO {
        return Err("is an envelope of something else than a statement".to_owned());
    }
    let statement: Statement = document(envelope.payload.as_bytes(), "statement")?;
    Ok((Claim::Statement(Box::new(statement)), envelope.pae()))
}

/// Returns the bundle that annotations make with a signature.
fn annotated(content: SignatureContent, annotations: &BTreeMap<String, String>) -> Result<Bundle, Unreadable> {
    let signer = match annotations.get(CERTIFICATE) {
        Some(own) => {
            let chain = annotations.get(CHAIN).map_or("", String::as_str);
            VerificationMaterialContent::X509CertificateChain { certificates: certificates(own, chain)? }
        }
        None => VerificationMaterialContent::PublicKey(PublicKeyIdentifier::new("")),
    };
    let entry = annotations.get(LOG_ENTRY).map(|text| log_entry(text)).transpose()?;
    let timestamp = annotations.get(TIMESTAMP).map(|text| timestamp(text)).transpose()?;
    let timestamps = TimestampVerificationData::new(timestamp.into_iter().collect());
    let material = VerificationMaterial::new(signer).with_tlog_entries(entry.into_iter().collect());
    let material = material.with_timestamp_verification_data(timestamps);
    Ok(Bundle::new(MediaType::Bundle0_2, material, content))
}

/// Returns a signer's certificate, and those behind it.
fn certificates(own: &str, chain: &str) -> Result<Vec<X509Certificate>, Unreadable> {
    const END: &str = "-----END CERTIFICATE-----";
    let read = |text: &str| DerCertificate::from_pem(text).map(X509Certificate::new);
    let each = chain.split_inclusive(END).filter(|part| part.contains(END));
    let all = std::iter::once(own).chain(each.take(CHAIN_MAX)).map(read);
    all.collect::<Result<_, _>>().map_err(|error| format!("has a certificate that cannot be read: {error}"))
}

fn log_entry(text: &str) -> Result<TransparencyLogEntry, Unreadable> {
    let LogEntry { signed_entry_timestamp, payload } = document(text.as_bytes(), "entry of a log")?;
    let unreadable = || "has an entry of a log that cannot be read".to_owned();
    let body = BASE64_STANDARD.decode(&payload.body).map_err(|_| unreadable())?;
    let Kind { kind, api_version } = document(&body, "entry of a log")?;
    let kind: KindVersion = serde_json::from_value(serde_json::json!({"kind": kind, "version": api_version}))
        .map_err(|error| format!("has an entry of a log of a form that is not known: {error}"))?;
    let log = Sha256Hash::from_hex(&payload.log_id).map_err(|_| unreadable())?;
    let index = LogIndex::try_from(payload.log_index).map_err(|_| unreadable())?;
    let promise = SignedTimestamp::from_base64(&signed_entry_timestamp).map_err(|_| unreadable())?;
    let entry = TransparencyLogEntry::new(
        index,
        LogId::new(LogKeyId::from_bytes(log.as_slice())),
        kind,
        CanonicalizedBody::new(body),
    );
    let time = jiff::Timestamp::from_second(payload.integrated_time).map_err(|_| unreadable())?;
    Ok(entry.with_inclusion_promise(InclusionPromise::new(promise)).with_integrated_time(time))
}

fn timestamp(text: &str) -> Result<Rfc3161Timestamp, Unreadable> {
    let Timestamp { token } = document(text.as_bytes(), "timestamp")?;
    let token = TimestampToken::from_base64(&token).map_err(|_| "has a timestamp that cannot be read")?;
    Ok(Rfc3161Timestamp::new(token))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::recorded::Recorded;

    fn payload(kind: &str) -> Vec<u8> {
        let critical = json!({"type": kind, "image": {"docker-manifest-digest": "sha256:x"}, "identity": {}});
        json!({"critical": critical, "optional": null}).to_string().into_bytes()
    }

    fn annotations(extra: &[(&str, &str)]) -> BTreeMap<String, String> {
        let all = [(SIGNATURE, "AQID")].iter().chain(extra);
        all.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn simple_signing_is_what_its_payload_says() {
        let read = simple(&payload(SIMPLE_KIND), &annotations(&[])).unwrap();
        assert_eq!(read.claim, Claim::Image("sha256:x".to_owned()));
        assert!(simple(&payload("atomic container signature"), &annotations(&[])).is_err());
        assert!(simple(&payload(SIMPLE_KIND), &BTreeMap::new()).is_err());
        for (name, value) in [
            (SIGNATURE, "?"),
            (CERTIFICATE, "?"),
            (CERTIFICATE, "-----BEGIN CERTIFICATE-----\n-----END"),
            (LOG_ENTRY, "{}"),
            (
                LOG_ENTRY,
                r#"{"SignedEntryTimestamp": "AQID", "Payload": {"body": "e30=", "integratedTime": 1, "logIndex": 1, "logID": "ab"}}"#,
            ),
            (TIMESTAMP, r#"{"SignedRFC3161Timestamp": "?"}"#),
        ] {
            assert!(simple(&payload(SIMPLE_KIND), &annotations(&[(name, value)])).is_err(), "{name} {value}");
        }
    }

    #[test]
    fn entry_of_a_log_is_read_as_annotations_have_it() {
        let body = BASE64_STANDARD.encode(r#"{"apiVersion": "0.0.1", "kind": "hashedrekord", "spec": {}}"#);
        let entry = |body: &str, time: i64, index: i64| {
            let payload = json!({"body": body, "integratedTime": time, "logIndex": index, "logID": "07".repeat(32)});
            log_entry(&json!({"SignedEntryTimestamp": "AQID", "Payload": payload}).to_string())
        };
        let read = entry(&body, 1_700_000_000, 7).unwrap();
        assert_eq!((read.kind_version, read.log_index.get()), (KindVersion::HashedRekordV001, 7));
        assert_eq!(read.integrated_time.unwrap().as_second(), 1_700_000_000);
        let unknown = BASE64_STANDARD.encode(r#"{"apiVersion": "0.0.1", "kind": "intoto"}"#);
        for (body, time, index) in [(&*unknown, 1, 1), ("?", 1, 1), (&body, i64::MAX, 1), (&body, 1, -1)] {
            assert!(entry(body, time, index).is_err(), "{body} {time} {index}");
        }
    }

    /// Whatever is cut off or changed by a byte is an error, or a signature that is judged; never a panic.
    #[test]
    fn damaged_signatures_are_read_without_a_panic() {
        for recorded in [Recorded::key_3(), Recorded::times_3(), Recorded::log_3(), Recorded::attest_times_3()] {
            let body = recorded.body.as_bytes();
            for end in (0..body.len()).step_by(13) {
                assert!(bundle(&body[..end]).is_err(), "{end}");
            }
            for at in (0..body.len()).step_by(7) {
                let mut changed = body.to_vec();
                changed[at] ^= 4;
                let _is_read = bundle(&changed);
            }
        }
        for text in ["", "null", "[]", "{}", r#"{"mediaType": "x"}"#, &format!("[{}0]", "0,".repeat(VALUES_MAX))] {
            assert!(
                bundle(text.as_bytes()).is_err() && envelope(text.as_bytes(), &BTreeMap::new()).is_err(),
                "{text:.20}"
            );
        }
    }
}
