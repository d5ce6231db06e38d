//! Builds of git apps on the engine itself: the files of the commit are sent to it, and the image stays there.
//!
//! The engine's classic builder is used where it can be, by its API: it gives each step of a Dockerfile memory, processors
//! and a network of its own, which BuildKit inside the engine does not (its steps share the engine's control group); it
//! needs neither Docker's client nor a gRPC session; and a build ends with the connection that asked for it, so that none
//! outlives the server. A Dockerfile that needs BuildKit (`RUN --mount`) is built by it, by the same API, unless the
//! operator has set limits: then it is refused before anything is sent, and `--build-command` builds it.

mod buildkit;
mod context;
mod dockerfile;
mod ignore;
mod limits;
mod listing;
mod output;
mod trace;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use http::{Method, Request, header, request::Builder};
use http_body_util::BodyExt;
use rollhook_command::{Checkout, DiskLimits, ImageBuilder, Log};
use rollhook_core::image::ImageRef;

pub use self::limits::BuildLimits;
use self::{buildkit::Offer, context::Context, dockerfile::Part, output::Output};
use crate::{
    disk,
    engine::{Engine, in_query},
    error::Failure,
    host::Environment,
    logins,
    rules::container::STEP_HOST,
};

/// The time of a period in which a build may use its processors, in microseconds; the kernel's default.
const PERIOD: u64 = 100_000;
/// The weight of a build's processors where others want them too; a container has 1024.
const SHARES: u32 = 256;
/// The first pause before an engine that was away is tried again, and the longest; each is twice the one before.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How often a build may break off with its connection: one that takes the engine down must not do so until its deadline.
const BREAKS_MAX: u32 = 3;

/// Builds images on the engine of this machine.
#[derive(Clone, Debug)]
pub struct EngineBuilder {
    engine: Engine,
    limits: BuildLimits,
    disk: DiskLimits,
    /// The first pause before an engine that went away is tried again.
    pause: Duration,
}

impl EngineBuilder {
    /// Finds the engine's socket, as the driver does. Nothing is sent until the first build.
    ///
    /// # Errors
    /// `Invalid` if `DOCKER_HOST` names something other than a socket of this machine.
    pub fn connect(limits: BuildLimits) -> rollhook_core::Result<Self> {
        Ok(Self::at(Environment::of_process().socket(Path::exists)?, limits))
    }

    /// A builder on the engine with this socket.
    pub fn at(socket: PathBuf, limits: BuildLimits) -> Self {
        Self { engine: Engine::new(socket), limits, disk: DiskLimits::default(), pause: PAUSE }
    }

    /// Lets images be built as long as the disk has room by these limits.
    #[must_use]
    pub fn with_disk_limits(self, disk: DiskLimits) -> Self {
        Self { disk, ..self }
    }

    /// Builds once, and returns the image's id.
    async fn once(&self, checkout: &Checkout<'_>, log: &mut Log) -> Result<String, Ended> {
        if let Some(message) = self.refusal().await {
            return Err(Ended::Failed(message));
        }
        let context = listed(checkout).await?;
        let ended = match context.needs().buildkit.clone() {
            None => self.classic(checkout, context, log).await,
            Some(part) => self.buildkit(checkout, context, &part, log).await,
        };
        match ended {
            Err(Ended::Failed(message)) => Err(self.unless_away(message).await),
            ended => ended,
        }
    }

    /// Builds with the classic builder.
    async fn classic(&self, checkout: &Checkout<'_>, context: Context, log: &mut Log) -> Result<String, Ended> {
        let machine = match self.limits.memory {
            Some(_) => None,
            None => self.engine.get("/info").await?["MemTotal"].as_u64(),
        };
        let path = path(checkout, self.limits.memory_of(machine), self.limits.processors);
        log.say("Docker's classic builder builds it: the engine limits the memory of its steps, and not of BuildKit's");
        let logins = logins::for_build().await;
        logins.missing.iter().for_each(|missing| log.say(missing));
        let request = Request::post(path).header("x-registry-config", logins.header);
        self.run(request, context, Output::default(), log).await
    }

    /// Builds with BuildKit, which this part of the Dockerfile needs.
    async fn buildkit(
        &self,
        checkout: &Checkout<'_>,
        context: Context,
        part: &Part,
        log: &mut Log,
    ) -> Result<String, Ended> {
        let (needs, dockerfile) = (context.needs(), checkout.source.dockerfile.as_str());
        if let Some(message) = buildkit::refusal(&self.limits, part, dockerfile) {
            return Err(Ended::Failed(message));
        }
        if let Some(message) = Offer::of(&self.engine).await?.refusal(needs, part, dockerfile) {
            return Err(Ended::Failed(message));
        }
        log.say(&buildkit::announcement(part, dockerfile));
        let missing = buildkit::pull(&self.engine, &needs.images, log).await?;
        self.run(Request::post(buildkit::path(checkout)), context, Output::of_buildkit(missing), log).await
    }

    /// Sends the context, and reads the output up to the image's id. The connection is this future's own: the engine
    /// ends the build when it is dropped.
    async fn run(
        &self,
        request: Builder,
        context: Context,
        mut output: Output,
        log: &mut Log,
    ) -> Result<String, Ended> {
        log.say(&format!("sending {} to Docker", amount(context.bytes())));
        let request = request
            .header(header::HOST, "docker")
            .header(header::CONTENT_TYPE, "application/x-tar")
            .body(context.into_body())
            .map_err(|error| Ended::Failed(format!("Docker cannot build the image: {error}.")))?;
        let (mut sender, connection) = self.engine.dial().await?;
        let mut connection = std::pin::pin!(connection);
        let exchange = async {
            let answer = sender.send_request(request).await.map_err(broken)?;
            let mut body = Engine::accepted(answer).await?.into_body();
            while let Some(frame) = body.frame().await {
                if let Ok(bytes) = frame.map_err(broken)?.into_data() {
                    output.take(&bytes, log).map_err(Ended::Failed)?;
                }
            }
            let none = || Ended::Failed("Docker ended the build without an image; see the build's log.".to_owned());
            output.image.ok_or_else(none)
        };
        let mut exchange = std::pin::pin!(exchange);
        tokio::select! {
            biased;
            ended = &mut exchange => ended,
            // The rest of the answer may have been read before the connection ended.
            over = &mut connection => match over {
                Err(error) if error.is_user() => Err(broken(error)),
                Ok(()) | Err(_) => exchange.await,
            },
        }
    }

    /// Returns the end of a build that failed. An engine that stops takes no calls any more and kills the steps, which
    /// looks like a failure of theirs.
    async fn unless_away(&self, message: String) -> Ended {
        match self.engine.bytes(Method::GET, "/_ping", None).await.map_err(Ended::from) {
            Err(Ended::Away(failure) | Ended::BrokeOff(failure)) => Ended::BrokeOff(failure),
            Ok(_) | Err(Ended::Failed(_)) => Ended::Failed(message),
        }
    }
}

/// The end of a build without an image.
enum Ended {
    /// The engine cannot be reached.
    Away(Failure),
    /// The connection broke off in the middle.
    BrokeOff(Failure),
    /// The build failed, for what the sentence says.
    Failed(String),
}

impl From<Failure> for Ended {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Connect { ref source, .. } if source.kind() != io::ErrorKind::PermissionDenied => {
                Self::Away(failure)
            }
            Failure::Broken(_) => Self::BrokeOff(failure),
            Failure::Connect { .. }
            | Failure::Unreadable(_)
            | Failure::Large
            | Failure::TooLarge(_)
            | Failure::Status { .. } => Self::failed(&failure),
        }
    }
}

impl Ended {
    fn failed(failure: &Failure) -> Self {
        Self::Failed(format!("Docker cannot build the image: {}.", words(failure)))
    }
}

/// Tells an engine that went away from files that cannot be read, which another try would not change.
fn broken(error: hyper::Error) -> Ended {
    let failure = |error: hyper::Error| Failure::Broken(error.into());
    if error.is_user() { Ended::failed(&failure(error)) } else { Ended::BrokeOff(failure(error)) }
}

/// Tells a thread to stop once this is dropped.
#[derive(Default)]
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Lists the files of a checkout. The listing ends with this future.
async fn listed(checkout: &Checkout<'_>) -> Result<Context, Ended> {
    let stop = Stop::default();
    let (directory, of, told) = (checkout.directory.to_owned(), checkout.source.clone(), stop.0.clone());
    let context = tokio::task::spawn_blocking(move || Context::of(&directory, &of, &told)).await;
    context.unwrap_or_else(|_| Err("The checkout cannot be read.".to_owned())).map_err(Ended::Failed)
}

#[async_trait]
impl ImageBuilder for EngineBuilder {
    /// Builds, and begins anew once an engine that went away is back. The app's deadline, which ends this future, ends
    /// the waiting too.
    async fn build(&self, checkout: Checkout<'_>, log: &mut Log) -> Result<ImageRef, String> {
        let (mut pause, mut breaks) = (self.pause, 0);
        let id = loop {
            let failure = match self.once(&checkout, log).await {
                Ok(id) => break id,
                Err(Ended::Failed(message)) => return Err(message),
                Err(Ended::Away(failure)) => failure,
                Err(Ended::BrokeOff(failure)) => {
                    breaks += 1;
                    if breaks == BREAKS_MAX {
                        return Err(format!("Docker broke off the build {breaks} times: {}.", words(&failure)));
                    }
                    failure
                }
            };
            log.say(&format!("Docker is away ({}); the build begins anew in {pause:?}", words(&failure)));
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        };
        let image = format!("{}@{id}", checkout.source.image_repository);
        image.parse().map_err(|_| format!("Docker named the image {id:?}, which is no digest."))
    }

    async fn refusal(&self) -> Option<String> {
        let message = disk::refusal(&self.engine, self.disk).await?;
        Some(format!("The image was not built: {message}."))
    }
}

/// Returns the call that builds.
fn path(checkout: &Checkout<'_>, memory: Option<u64>, processors: Option<u64>) -> String {
    let mut path = format!(
        "/build?version=1&rm=1&forcerm=1&{}&cpushares={SHARES}&extrahosts={}",
        image_and_dockerfile(checkout),
        in_query(&format!("{STEP_HOST}:0.0.0.0"))
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

/// Returns the part of a build's call that names the image and the Dockerfile.
fn image_and_dockerfile(checkout: &Checkout<'_>) -> String {
    let tag = format!("{}:{}", checkout.source.image_repository, checkout.commit);
    format!("t={}&dockerfile={}", in_query(&tag), in_query(checkout.source.dockerfile.as_str()))
}

/// Returns the words of a failure, to be followed by a full stop.
fn words(failure: &Failure) -> String {
    failure.words().trim().trim_end_matches('.').to_owned()
}

fn amount(bytes: u64) -> String {
    if bytes < 1_000_000 { format!("{} kB", bytes.div_ceil(1000)) } else { format!("{} MB", bytes / 1_000_000) }
}

#[cfg(test)]
mod tests;
