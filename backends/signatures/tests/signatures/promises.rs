//! The promises, kept on a real registry and with real signatures. A proxy of the test's stands before the registry, which
//! answers in its place where a registry has failures.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Can, Lack, RegistryAnswer, SignedSample, Signings};
use rollhook_core::{
    image::ImageRef,
    ports::ImageVerifier,
    requirement::{Signer, TextPattern},
};
use rollhook_signatures::SignatureVerifier;
use rollhook_testing::fixtures::{
    RegistryProgram,
    scripted::{Answer, Ends, Reaction, Request, Server, forwarded},
};

use crate::world::{BUILDER, IDENTITY, World};

/// The forms of one version of cosign.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Forms {
    /// Bundles that refer to the image: version 3.
    Bundles,
    /// Tags beside the image: version 2.
    Tags,
}

struct Real {
    world: World,
    forms: Forms,
    proxy: Server,
    answer: Arc<Mutex<RegistryAnswer>>,
    verifier: Arc<SignatureVerifier>,
    images: AtomicUsize,
}

impl Real {
    fn fresh(forms: Forms) -> Can<Self> {
        let lack = Lack::Skip("there is no registry, no cosign or no authority that signs: .ci/setup installs them");
        let world = World::start("signatures/promises", RegistryProgram::Distribution).ok_or(lack)?;
        if forms == Forms::Tags && !world.knows("signatures/promises", "key-2") {
            return Err(Lack::NotApplicable("the older cosign signs in the long run alone"));
        }
        let answer = Arc::new(Mutex::new(RegistryAnswer::Usual));
        let (address, current) = (world.registry(), Arc::clone(&answer));
        let proxy = Server::start(move |asked| react(address, *current.lock().unwrap(), asked));
        let verifier = Arc::new(world.verifier("root-times.json"));
        Ok(Self { world, forms, proxy, answer, verifier, images: AtomicUsize::new(0) })
    }

    /// Returns the image as its registry knows it, without the proxy.
    fn upstream(&self, image: &ImageRef) -> ImageRef {
        let (proxy, upstream) = (self.proxy.address.to_string(), self.world.registry().to_string());
        image.to_string().replacen(&proxy, &upstream, 1).parse().unwrap()
    }
}

fn react(upstream: SocketAddr, answer: RegistryAnswer, asked: &Request) -> Reaction {
    let forwarded = || forwarded(upstream, asked);
    let is_document = asked.path.contains("/manifests/") || asked.path.contains("/blobs/");
    match answer {
        RegistryAnswer::Closed | RegistryAnswer::Hidden => {
            Reaction::Answer(Answer::status(401).header("www-authenticate", "Basic realm=\"closed\""))
        }
        RegistryAnswer::Gone => Reaction::Closes,
        RegistryAnswer::Silence => Reaction::Hangs,
        RegistryAnswer::Failure => Reaction::Answer(Answer::status(500)),
        RegistryAnswer::Busy(time) => {
            let seconds = time.unwrap_or_default().as_secs().to_string();
            Reaction::Answer(Answer::status(429).header("retry-after", seconds))
        }
        RegistryAnswer::OtherDigest if is_document => {
            let mut says = forwarded();
            says.body.push(b' ');
            Reaction::Answer(says)
        }
        RegistryAnswer::CutOff if is_document => Reaction::Answer(Answer { ends: Ends::Early, ..forwarded() }),
        RegistryAnswer::Endless if is_document => Reaction::Answer(Answer { ends: Ends::Never, ..forwarded() }),
        RegistryAnswer::Usual | RegistryAnswer::OtherDigest | RegistryAnswer::CutOff | RegistryAnswer::Endless => {
            Reaction::Answer(forwarded())
        }
    }
}

#[async_trait]
impl Signings for Real {
    fn verifier(&self) -> Arc<dyn ImageVerifier> {
        self.verifier.clone()
    }

    fn signers(&self) -> Vec<(Signer, Signer)> {
        let key = |file| self.world.key(file).parse().unwrap();
        let keys = (key("cosign.pub"), key("other.pub"));
        let other = "issuer=https://issuer.test,subject=https://git.test/other/*";
        let identities = (IDENTITY.parse().unwrap(), other.parse().unwrap());
        match self.forms {
            Forms::Bundles => vec![keys, identities],
            Forms::Tags => vec![keys],
        }
    }

    fn builders(&self) -> (TextPattern, TextPattern) {
        (BUILDER.parse().unwrap(), "https://ci.test/other/*".parse().unwrap())
    }

    async fn push(&self, repository: &str) -> ImageRef {
        let number = self.images.fetch_add(1, Ordering::Relaxed);
        let pushed = self.world.pushed(&format!("shop/{repository}"), &format!("it-{number}"));
        let (upstream, proxy) = (self.world.registry().to_string(), self.proxy.address.to_string());
        pushed.to_string().replacen(&upstream, &proxy, 1).parse().unwrap()
    }

    async fn sign(&self, signer: &Signer, image: &ImageRef, sample: SignedSample) -> Can {
        let image = self.upstream(image);
        let way = match (self.forms, signer) {
            (Forms::Bundles, Signer::Key(_)) => "key-3",
            (Forms::Bundles, Signer::Identity { .. }) => "times-3",
            (Forms::Tags, _) => "key-2",
        };
        match sample {
            SignedSample::Signature => self.world.sign(way, &image, &[]),
            SignedSample::Provenance => self.world.sign(&format!("attest-{way}"), &image, &[]),
            SignedSample::OtherStatement => self.world.sign(&format!("attest-{way}"), &image, &[("TYPE", "vuln")]),
            SignedSample::Unreadable => self.world.push_unreadable(&image, self.forms == Forms::Bundles),
        }
        Ok(())
    }

    async fn copy(&self, from: &ImageRef, to: &ImageRef) -> Can {
        self.world.copy_signatures(&self.upstream(from), &self.upstream(to));
        Ok(())
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

mod bundles {
    use super::*;

    rollhook_conformance::signatures!(run, Real::fresh(Forms::Bundles));
}

mod tags {
    use super::*;

    rollhook_conformance::signatures!(run, Real::fresh(Forms::Tags));
}
