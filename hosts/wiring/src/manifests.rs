//! What a cluster is given before rollhook runs in it.

use rollhook_core::app::Namespace;

use crate::Error;

/// The namespace of the server's own objects where no other is chosen.
pub const NAMESPACE: &str = "rollhook";

/// Custom resources and permissions as YAML, for apps in these namespaces; with an image also a Deployment of the server.
///
/// # Errors
/// Where the build has no Kubernetes.
#[cfg(feature = "kubernetes")]
pub fn print(namespace: &str, apps: &[Namespace], image: Option<&str>) -> Result<String, Error> {
    use rollhook_kubernetes::manifests;
    let server = image.map(|image| manifests::server(namespace, image));
    Ok([manifests::crds(), manifests::rbac(namespace, apps), server.unwrap_or_default()].concat())
}

/// Custom resources and permissions as YAML, for apps in these namespaces; with an image also a Deployment of the server.
///
/// # Errors
/// Where the build has no Kubernetes.
#[cfg(not(feature = "kubernetes"))]
pub fn print(_namespace: &str, _apps: &[Namespace], _image: Option<&str>) -> Result<String, Error> {
    Err(Error::NotBuilt("kubernetes store"))
}
