//! The flags that say how a workload is made.

use clap::Args;
use rollhook_core::image::ImageRef;

use crate::args::value::{KeyValue, NamedCommand};

/// The template of a workload that does not exist yet.
#[derive(Debug, Args)]
#[command(next_help_heading = "Where the workload does not exist yet")]
pub(crate) struct Template {
    /// The image to start with
    #[arg(long)]
    pub(crate) image: Option<ImageRef>,
    /// With Docker: what a container runs in place of its image's command, such as worker='bin/jobs'; quotes are read as by
    /// a shell, and nothing else is. A further --workload with one is made too, like the first without its ports and labels;
    /// repeatable
    #[arg(long = "command", value_name = "NAME=COMMAND")]
    pub(crate) commands: Vec<NamedCommand>,
    /// Number of pods; with Docker always 1
    #[arg(long, value_name = "N")]
    pub(crate) replicas: Option<u32>,
    /// The container's port; with one, a Service is made too on Kubernetes
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) port: Option<u16>,
    /// An environment variable of the container, stored as plain text, and shown by its name; repeatable
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) env: Vec<KeyValue>,
    /// On Kubernetes: name of a Secret whose entries become environment variables of the container; repeatable
    #[arg(long = "env-from-secret", value_name = "SECRET")]
    pub(crate) env_from_secrets: Vec<String>,
    /// On Kubernetes: name of the Secret that the image is pulled with
    #[arg(long, value_name = "SECRET")]
    pub(crate) pull_secret: Option<String>,
    /// Path on --port that answers with 2xx or 3xx once the container is ready; with Docker also of a container that exists
    #[arg(long, value_name = "PATH")]
    pub(crate) readiness_path: Option<String>,
    /// With Docker: a port of the machine that leads into the container, such as 127.0.0.1:8080:80, or two that versions
    /// take in turn, so that the new one starts beside the old one, such as 127.0.0.1:8081-8082:80; repeatable
    #[arg(long, value_name = "[ADDRESS:]PORT[-PORT]:PORT")]
    pub(crate) publish: Vec<String>,
    /// With Docker: a volume or directory of the container, such as data:/var/lib/app; repeatable
    #[arg(long = "volume", value_name = "SOURCE:PATH[:ro]")]
    pub(crate) volumes: Vec<String>,
    /// With Docker: the network that the container joins
    #[arg(long, value_name = "NAME")]
    pub(crate) network: Option<String>,
    /// With Docker: a label of the container, such as those that a proxy reads; repeatable
    #[arg(long = "label", value_name = "NAME=VALUE")]
    pub(crate) labels: Vec<KeyValue>,
    /// The memory that the container may use, such as 512Mi, or 512m with Docker; on Kubernetes it is reserved too
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) memory: Option<String>,
    /// On Kubernetes: the processor time that is reserved for the container, such as 500m
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) cpu: Option<String>,
    /// On Kubernetes: the profile of Pod Security that the pods pass; an image that has to be root needs baseline
    /// [default: restricted]
    #[arg(long, value_name = "PROFILE", value_parser = ["restricted", "baseline"])]
    pub(crate) pod_security: Option<String>,
}
