//! The promises, kept on real registries. A proxy of the test's stands before them, which answers in their place where a
//! registry has failures.

use std::{
    sync::{
        Arc,
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
use rollhook_testing::fixtures::{FailingRegistry, ImageRegistry, RegistryFault, RegistryProgram, scripted};
use serde_json::{Value, json};

use crate::images::{OCI_CONFIGURATION, OCI_INDEX, OCI_MANIFEST, Reader, named};

struct Real {
    upstream: ImageRegistry,
    proxy: FailingRegistry,
    reader: Reader,
    repositories: AtomicUsize,
}

impl Real {
    fn fresh(program: RegistryProgram) -> Can<Self> {
        if let Some(missing) = program.missing() {
            return Err(Lack::Skip(missing));
        }
        let upstream = ImageRegistry::start(program);
        let proxy = FailingRegistry::before(upstream.address, RegistryFault::Sound);
        Ok(Self { upstream, proxy, reader: Reader::anonymous(), repositories: AtomicUsize::new(0) })
    }
}

/// Returns the fault by which a registry answers so.
fn fault(answer: RegistryAnswer) -> RegistryFault {
    match answer {
        RegistryAnswer::Usual => RegistryFault::Sound,
        RegistryAnswer::Closed => RegistryFault::WantsPassword,
        RegistryAnswer::Hidden => RegistryFault::Hidden,
        RegistryAnswer::Gone => RegistryFault::Closes,
        RegistryAnswer::Silence => RegistryFault::Silent,
        RegistryAnswer::Failure => RegistryFault::Fails,
        RegistryAnswer::Busy(time) => RegistryFault::Busy(time),
        RegistryAnswer::OtherDigest => RegistryFault::OtherDigest,
        RegistryAnswer::CutOff => RegistryFault::CutOff,
        RegistryAnswer::Endless => RegistryFault::Endless,
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
        format!("{}/shop/api-{number}", self.proxy.server.address).parse().unwrap()
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
        self.proxy.set(fault(answer));
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
