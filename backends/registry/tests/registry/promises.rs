//! The promises, kept on real registries. A proxy of the test's stands before them, which answers in their place where a
//! registry has failures.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Can, ImageSample, Lack, Registries, RegistryAnswer};
use rollhook_core::{
    image::{Digest, ImageRef, Platform, Tag},
    ports::Registry,
};
use rollhook_testing::fixtures::{
    ImageRegistry, RegistryProgram,
    scripted::{self, Answer, Ends, Reaction, Request, Server, forwarded},
};
use serde_json::{Value, json};

use crate::images::{OCI_CONFIGURATION, OCI_INDEX, OCI_MANIFEST, Reader, named};

struct Real {
    upstream: ImageRegistry,
    proxy: Server,
    answer: Arc<Mutex<RegistryAnswer>>,
    reader: Reader,
    repositories: AtomicUsize,
}

impl Real {
    fn fresh(program: RegistryProgram) -> Can<Self> {
        if let Some(missing) = program.missing() {
            return Err(Lack::Skip(missing));
        }
        let upstream = ImageRegistry::start(program);
        let answer = Arc::new(Mutex::new(RegistryAnswer::Usual));
        let (address, current) = (upstream.address, Arc::clone(&answer));
        let proxy = Server::start(move |asked| react(address, *current.lock().unwrap(), asked));
        Ok(Self { upstream, proxy, answer, reader: Reader::anonymous(), repositories: AtomicUsize::new(0) })
    }
}

fn react(upstream: SocketAddr, answer: RegistryAnswer, asked: &Request) -> Reaction {
    let challenge = |challenge: String| Reaction::Answer(Answer::status(401).header("www-authenticate", challenge));
    let forwarded = || forwarded(upstream, asked);
    let is_document = asked.method == "GET" && (asked.path.contains("/manifests/") || asked.path.contains("/blobs/"));
    match answer {
        RegistryAnswer::Closed => challenge("Basic realm=\"closed\"".to_owned()),
        // As Docker Hub does: it gives a token to anyone, and lets nobody read with it.
        RegistryAnswer::Hidden if asked.path.starts_with("/token") => {
            Reaction::Answer(Answer::status(200).body(r#"{"token": "anonymous"}"#))
        }
        RegistryAnswer::Hidden => challenge(format!("Bearer realm=\"http://{}/token\"", asked.headers["host"])),
        RegistryAnswer::Gone => Reaction::Closes,
        RegistryAnswer::Silence => Reaction::Hangs,
        RegistryAnswer::Failure => Reaction::Answer(Answer::status(500)),
        RegistryAnswer::Busy(time) => {
            let says = Answer::status(429).body(r#"{"errors": [{"code": "TOOMANYREQUESTS", "message": "x"}]}"#);
            let seconds = time.map(|time| time.as_secs().to_string());
            Reaction::Answer(seconds.into_iter().fold(says, |says, seconds| says.header("retry-after", seconds)))
        }
        RegistryAnswer::OtherDigest if is_document => {
            let mut says = forwarded();
            says.body.push(b' ');
            Reaction::Answer(says)
        }
        RegistryAnswer::CutOff if is_document => Reaction::Answer(Answer { ends: Ends::Early, ..forwarded() }),
        RegistryAnswer::Endless => Reaction::Answer(Answer { ends: Ends::Never, ..forwarded() }),
        RegistryAnswer::Usual | RegistryAnswer::OtherDigest | RegistryAnswer::CutOff => Reaction::Answer(forwarded()),
    }
}

impl Real {
    /// Pushes an image for one platform under a tag or its digest, and returns its descriptor.
    fn push_image(
        &self,
        path: &str,
        tag: Option<&str>,
        platform: Option<&Platform>,
        (labels, annotations, number): (Value, Value, u32),
    ) -> Value {
        let mut configuration = json!({
            "rootfs": {"type": "layers", "diff_ids": []},
            "config": {"Labels": labels, "Env": [format!("NUMBER={number}")]},
        });
        for (name, value) in platform.iter().flat_map(|platform| parts(platform)) {
            configuration[name] = json!(value);
        }
        let configuration = configuration.to_string().into_bytes();
        let digest = self.upstream.push_blob(path, &configuration);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST, "layers": [], "annotations": annotations,
            "config": {"mediaType": OCI_CONFIGURATION, "digest": digest, "size": configuration.len()},
        });
        let manifest = manifest.to_string().into_bytes();
        let own = scripted::digest(&manifest);
        self.upstream.push_manifest(path, tag.unwrap_or(&own), OCI_MANIFEST, &manifest);
        json!({"mediaType": OCI_MANIFEST, "digest": own, "size": manifest.len()})
    }

    fn push_index(&self, path: &str, tag: &str, sample: &ImageSample) -> String {
        let mut manifests = Vec::new();
        for (at, platform) in sample.platforms.iter().enumerate() {
            let labels = if at == 0 { Value::Object(named(&sample.labels)) } else { json!({}) };
            let mut descriptor = self.push_image(path, None, Some(platform), (labels, json!({}), sample.number));
            descriptor["platform"] = parts(platform).collect();
            manifests.push(descriptor);
        }
        if sample.is_attested {
            let mut descriptor = self.push_image(path, None, None, (json!({}), json!({}), sample.number));
            descriptor["platform"] = json!({"os": "unknown", "architecture": "unknown"});
            descriptor["annotations"] = json!({"vnd.docker.reference.type": "attestation-manifest"});
            manifests.insert(0, descriptor);
        }
        let index = json!({
            "schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": manifests,
            "annotations": named(&sample.annotations),
        });
        self.upstream.push_manifest(path, tag, OCI_INDEX, index.to_string().as_bytes())
    }
}

fn parts(platform: &Platform) -> impl Iterator<Item = (&'static str, Value)> {
    let variant = platform.variant().map(|variant| ("variant", json!(variant)));
    [("os", json!(platform.os())), ("architecture", json!(platform.architecture()))].into_iter().chain(variant)
}

#[async_trait]
impl Registries for Real {
    fn registry(&self) -> Arc<dyn Registry> {
        self.reader.registry.clone()
    }

    fn repository(&self) -> ImageRef {
        let number = self.repositories.fetch_add(1, Ordering::Relaxed);
        format!("{}/shop/api-{number}", self.proxy.address).parse().unwrap()
    }

    async fn push(&self, repository: &ImageRef, tag: &Tag, sample: &ImageSample) -> Can<(Digest, String)> {
        let (_, path) = repository.repository().split_once('/').unwrap();
        let (digest, media_type) = if sample.platforms.len() > 1 || sample.is_attested {
            (self.push_index(path, tag.as_str(), sample), OCI_INDEX)
        } else {
            let (labels, annotations) = (json!(named(&sample.labels)), json!(named(&sample.annotations)));
            let documents = (labels, annotations, sample.number);
            let descriptor = self.push_image(path, Some(tag.as_str()), sample.platforms.first(), documents);
            (descriptor["digest"].as_str().unwrap().to_owned(), OCI_MANIFEST)
        };
        Ok((digest.parse().unwrap(), media_type.to_owned()))
    }

    async fn answer(&self, answer: RegistryAnswer) -> Can {
        *self.answer.lock().unwrap() = answer;
        Ok(())
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

fn run<T>(case: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(case)
}

mod distribution {
    use super::*;

    rollhook_conformance::registries!(run, Real::fresh(RegistryProgram::Distribution));
}

mod go_containerregistry {
    use super::*;

    rollhook_conformance::registries!(run, Real::fresh(RegistryProgram::GoContainerregistry));
}
