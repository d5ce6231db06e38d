//! What a cluster is given before rollhook runs in it.

use rollhook_core::app::Namespace;

use crate::Error;

/// The namespace of the server's own objects where no other is chosen.
pub const NAMESPACE: &str = "rollhook";

/// What is to be printed.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The namespace that the server runs in.
    pub namespace: &'a str,
    /// The namespaces of apps.
    pub apps: &'a [Namespace],
    /// The server's image, where a Deployment of it is wanted.
    pub image: Option<&'a str>,
    /// The namespace of builds, where there are builds in the cluster.
    pub builds: Option<&'a str>,
    /// The ports of registries and git hosts that are not at 443, 80 or 22.
    pub registry_ports: &'a [u16],
}

/// What a cluster is given, as YAML.
///
/// # Errors
/// Where builds are not alone in their namespace.
#[cfg(feature = "kubernetes")]
pub fn print(wanted: Wanted<'_>) -> Result<String, Error> {
    use rollhook_kubernetes::manifests;
    let Wanted { namespace, apps, image, builds, registry_ports } = wanted;
    if let Some(builds) = builds
        && (builds == namespace || apps.iter().any(|app| app.as_str() == builds))
    {
        return Err(Error::BuildNamespace(builds.to_owned()));
    }
    let server = image.map(|image| manifests::server(namespace, image, builds));
    let builds = builds.map(|builds| manifests::builds(namespace, builds, registry_ports));
    let always = [manifests::crds(), manifests::rbac(namespace, apps)];
    Ok(always.into_iter().chain(builds).chain(server).collect())
}

/// What a cluster is given, as YAML.
///
/// # Errors
/// Where the build has no Kubernetes.
#[cfg(not(feature = "kubernetes"))]
pub fn print(_: Wanted<'_>) -> Result<String, Error> {
    Err(Error::NotBuilt("kubernetes store"))
}
