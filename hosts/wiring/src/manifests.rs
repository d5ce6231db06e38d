//! The manifests that a cluster needs before rollhook runs in it.

use rollhook_core::app::Namespace;

use crate::{Error, ReviewAudience};

/// The manifests to print.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "clap", derive(clap::Args))]
pub struct Manifests {
    /// The namespace that the server runs in
    #[cfg_attr(feature = "clap", arg(long, default_value = "rollhook", value_name = "NAMESPACE"))]
    pub namespace: Namespace,
    /// A namespace with apps; may be repeated
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAMESPACE", required = true))]
    pub app_namespace: Vec<Namespace>,
    /// Callers may prove themselves by tokens of the cluster for this audience; adds what the server needs for that, and
    /// roles for callers [audience if none is named: rollhook]
    #[cfg_attr(
        feature = "clap",
        arg(long, value_name = "AUDIENCE", num_args = 0..=1, require_equals = true, default_missing_value = "rollhook")
    )]
    pub kubernetes_identity: Option<ReviewAudience>,
    /// The server's image; adds a Deployment of two replicas to start from
    #[cfg_attr(feature = "clap", arg(long, value_name = "IMAGE"))]
    pub image: Option<String>,
    /// The namespace of builds; adds it, with what builds may reach and what the server may do there
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAMESPACE"))]
    pub build_namespace: Option<Namespace>,
    /// The port of a registry or git host that builds reach, beside 443, 80 and 22; may be repeated
    #[cfg_attr(feature = "clap", arg(long, value_name = "PORT", requires = "build_namespace"))]
    pub build_registry_port: Vec<u16>,
}

impl Manifests {
    /// Returns the manifests as YAML.
    ///
    /// # Errors
    /// If builds share their namespace, or this binary lacks Kubernetes.
    #[cfg(feature = "kubernetes")]
    pub fn yaml(&self) -> Result<String, Error> {
        use rollhook_kubernetes::manifests;
        let (namespace, builds) = (self.namespace.as_str(), self.build_namespace.as_ref());
        if let Some(builds) = builds.filter(|builds| **builds == self.namespace || self.app_namespace.contains(builds))
        {
            return Err(Error::BuildNamespace(builds.to_string()));
        }
        let builds = builds.map(Namespace::as_str);
        let ports = self.build_registry_port.as_slice();
        let server = self.image.as_deref();
        let identity = self.kubernetes_identity.as_ref().map(ReviewAudience::as_str);
        let server =
            server.map(|image| manifests::server(namespace, image, builds.map(|builds| (builds, ports)), identity));
        let builds = builds.map(|builds| manifests::builds(namespace, builds, ports));
        let always = [manifests::crds(), manifests::rbac(namespace, &self.app_namespace, identity.is_some())];
        let roles = identity.map(|_| manifests::roles());
        Ok(always.into_iter().chain(roles).chain(builds).chain(server).collect())
    }

    /// Returns the manifests as YAML.
    ///
    /// # Errors
    /// If builds share their namespace, or this binary lacks Kubernetes.
    #[cfg(not(feature = "kubernetes"))]
    pub fn yaml(&self) -> Result<String, Error> {
        Err(Error::NotBuilt("kubernetes store"))
    }
}
