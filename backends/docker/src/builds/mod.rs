//! Builds of git apps on the engine itself: the files of the commit are sent to it, and the image stays there.
//!
//! The engine's classic builder is used, by its API: it gives each step of a Dockerfile memory, processors and a network
//! of its own, which BuildKit inside the engine does not (its steps share the engine's control group); it needs neither
//! Docker's client nor a gRPC session; and a build ends with the connection that asked for it, so that none outlives
//! the server. Dockerfiles that need BuildKit (`RUN --mount`) are built with `--build-command`.

mod context;
mod ignore;
mod output;

use std::path::{Path, PathBuf};

use async_trait::async_trait;
use base64::{Engine as _, prelude::BASE64_URL_SAFE};
use http::{Request, header};
use http_body_util::BodyExt;
use rollhook_command::{Checkout, ImageBuilder, Log};
use rollhook_core::{Error, Result, image::ImageRef};
use serde_json::json;

use self::{context::Context, output::Output};
use crate::{
    engine::{Engine, in_query},
    error::Failure,
    host::Environment,
    logins,
    rules::creation,
};

/// The time of a period in which a build may use its processors, in microseconds; the kernel's default.
const PERIOD: u64 = 100_000;
/// The weight of a build's processors where others want them too; a container has 1024.
const SHARES: u32 = 256;

/// The most that each step of a build may use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildLimits {
    memory: Option<u64>,
    /// In thousandths of a processor.
    processors: Option<u64>,
}

impl BuildLimits {
    /// Reads the limits, such as `2g` or `512Mi` of memory, and `1.5` or `1500m` of processors. Without one, memory is
    /// half of the machine's, and processors are all of it, with a lower weight than the containers that serve.
    ///
    /// # Errors
    /// `Invalid` if one is no amount.
    pub fn parse(memory: Option<&str>, processors: Option<&str>) -> Result<Self> {
        let fail = |flag, given: &str, rule| Error::invalid(format!("{flag} {given:?} must be {rule}"));
        let memory = memory.map(|given| {
            creation::memory(given).ok_or_else(|| fail("--build-memory", given, "an amount such as 512m or 2g"))
        });
        let processors = processors
            .map(|given| thousandths(given).ok_or_else(|| fail("--build-cpu", given, "an amount such as 2 or 500m")));
        Ok(Self { memory: memory.transpose()?, processors: processors.transpose()? })
    }
}

fn thousandths(text: &str) -> Option<u64> {
    let amount = match text.strip_suffix('m') {
        Some(text) => text.parse::<u64>().ok()?,
        None => {
            let (whole, part) = text.split_once('.').unwrap_or((text, "0"));
            let part = part.get(..3).unwrap_or(part);
            let scale = 10_u64.checked_pow(3_u32.checked_sub(u32::try_from(part.len()).ok()?)?)?;
            whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part.parse::<u64>().ok()? * scale)?
        }
    };
    (10..=1_000_000).contains(&amount).then_some(amount)
}

/// Builds images on the engine of this machine.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    engine: Engine,
    limits: BuildLimits,
}

impl EngineBuilder {
    /// Finds the engine's socket, as the driver does. Nothing is sent until the first build.
    ///
    /// # Errors
    /// `Invalid` if `DOCKER_HOST` names something other than a socket of this machine.
    pub fn connect(limits: BuildLimits) -> Result<Self> {
        Ok(Self::at(Environment::of_process().socket(Path::exists)?, limits))
    }

    /// A builder on the engine with this socket.
    pub fn at(socket: PathBuf, limits: BuildLimits) -> Self {
        Self { engine: Engine::new(socket), limits }
    }

    /// Returns the memory of a build; `None` if the engine does not say how much the machine has.
    async fn memory(&self) -> std::result::Result<Option<u64>, Failure> {
        if let Some(memory) = self.limits.memory {
            return Ok(Some(memory));
        }
        let info = self.engine.get("/info").await?;
        Ok(info["MemTotal"].as_u64().map(|all| all / 2).filter(|half| *half > 0))
    }

    /// Sends the context, and reads the output up to the image's id. The connection is this future's own: the engine
    /// ends the build when it is dropped.
    async fn run(&self, path: &str, context: Context, log: &mut Log) -> std::result::Result<String, String> {
        let told = |failure: Failure| format!("Docker cannot build the image: {}.", words(&failure));
        let logins = BASE64_URL_SAFE.encode(json!(logins::all().await).to_string());
        let request = Request::post(path)
            .header(header::HOST, "docker")
            .header(header::CONTENT_TYPE, "application/x-tar")
            .header("x-registry-config", logins)
            .body(context.into_body())
            .map_err(|error| told(Failure::Broken(error.into())))?;
        let (mut sender, connection) = self.engine.dial().await.map_err(told)?;
        let mut connection = std::pin::pin!(connection);
        let exchange = async {
            let broken = |error: hyper::Error| told(Failure::Broken(error.into()));
            let answer = sender.send_request(request).await.map_err(broken)?;
            let mut body = Engine::accepted(answer).await.map_err(told)?.into_body();
            let mut output = Output::default();
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame.map_err(broken)?.into_data() {
                    output.take(&bytes, log)?;
                }
            }
            output.image.ok_or_else(|| "Docker ended the build without an image; see the build's log.".to_owned())
        };
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            biased;
            ended = &mut exchange => ended,
            // The rest of the answer may have been read before the connection ended.
            _ = &mut connection => exchange.await,
        }
    }
}

#[async_trait]
impl ImageBuilder for EngineBuilder {
    async fn build(&self, checkout: Checkout<'_>, log: &mut Log) -> std::result::Result<ImageRef, String> {
        let source = checkout.source;
        let (directory, of) = (checkout.directory.to_owned(), source.clone());
        let context = tokio::task::spawn_blocking(move || Context::of(&directory, &of)).await;
        let context = context.map_err(|_| "The checkout cannot be read.".to_owned())??;
        let memory = self.memory().await;
        let memory = memory.map_err(|failure| format!("Docker cannot build the image: {}.", words(&failure)))?;
        log.say(&format!("sending {} to Docker", amount(context.bytes)));
        let path = path(&checkout, memory, self.limits.processors);
        let id = self.run(&path, context, log).await?;
        let image = format!("{}@{id}", source.image_repository);
        image.parse().map_err(|_| format!("Docker named the image {id:?}, which is no digest."))
    }
}

/// Returns the call that builds.
fn path(checkout: &Checkout<'_>, memory: Option<u64>, processors: Option<u64>) -> String {
    let tag = format!("{}:{}", checkout.source.image_repository, checkout.commit);
    let mut path = format!(
        "/build?version=1&rm=1&forcerm=1&t={}&dockerfile={}&cpushares={SHARES}",
        in_query(&tag),
        in_query(checkout.source.dockerfile.as_str())
    );
    if let Some(memory) = memory {
        // The same limit for both: none of it in swap space.
        path += &format!("&memory={memory}&memswap={memory}");
    }
    if let Some(thousandths) = processors {
        path += &format!("&cpuperiod={PERIOD}&cpuquota={}", thousandths * PERIOD / 1000);
    }
    path
}

/// Returns the engine's own words, or what else failed.
fn words(failure: &Failure) -> String {
    let told = failure.refusal().map_or_else(|| rollhook_core::error::chain(failure), str::to_owned);
    told.trim().trim_end_matches('.').to_owned()
}

fn amount(bytes: u64) -> String {
    if bytes < 1_000_000 { format!("{} kB", bytes.div_ceil(1000)) } else { format!("{} MB", bytes / 1_000_000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_in_dockers_words_and_in_those_of_kubernetes() {
        let limits = |memory, processors| BuildLimits::parse(memory, processors);
        for (memory, expected) in [("2g", 2 << 30), ("512Mi", 512 << 20), ("4Gi", 4 << 30), ("64m", 64 << 20)] {
            assert_eq!(limits(Some(memory), None).unwrap().memory, Some(expected), "{memory}");
        }
        for (processors, expected) in [("2", 2000), ("1.5", 1500), ("500m", 500), ("0.25", 250)] {
            assert_eq!(limits(None, Some(processors)).unwrap().processors, Some(expected), "{processors}");
        }
        for (memory, processors) in [(Some("much"), None), (Some("1k"), None), (None, Some("two")), (None, Some("0"))] {
            let refused = limits(memory, processors).unwrap_err().to_string();
            assert!(refused.contains("--build-") && refused.contains("such as"), "{refused}");
        }
    }

    #[test]
    fn build_is_limited_and_tagged_with_its_commit() {
        let source = rollhook_conformance::samples::git_source();
        let app = rollhook_conformance::samples::app("shop", "test", "api").id;
        let commit = "a".repeat(40);
        let checkout = Checkout { app: &app, source: &source, commit: &commit, directory: Path::new("/nowhere") };
        let path = path(&checkout, Some(64 << 20), Some(1500));
        for part in ["memory=67108864&memswap=67108864", "cpuquota=150000", "cpuperiod=100000", "forcerm=1", &commit] {
            assert!(path.contains(part), "{path}");
        }
        assert!(!super::path(&checkout, None, None).contains("mem"));
    }
}
