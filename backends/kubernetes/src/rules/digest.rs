//! The digest of the image that pods run, if the container runtime reports one.

use k8s_openapi::api::core::v1::Pod;
use rollhook_core::image::{Digest, ImageRef};

/// The digest of these containers in all these pods. Returns `None` if one is unknown, or if two differ. An init
/// container has the image of the others, and has ended.
pub(crate) fn common(containers: &[String], pods: &[&Pod]) -> Option<Digest> {
    let mut common: Option<Digest> = None;
    for pod in pods {
        let init = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
        let is_init = |name: &str| init.iter().any(|container| container.name == name);
        for name in containers.iter().filter(|name| !is_init(name)) {
            let digest = of_container(pod, name)?;
            if common.as_ref().is_some_and(|known| *known != digest) {
                return None;
            }
            common = Some(digest);
        }
    }
    common
}

/// The digest of one container's image in its own repository: the one that the pod names, else the one that the runtime
/// reports.
///
/// Runtimes report `repository@sha256:…`, with `docker-pullable://` before it in the case of old ones. Without a
/// repository it is the id of an unpacked image, which no registry knows. A runtime that has the same image from two
/// repositories names whichever came first; as its manifest may be another one there, the digest need not exist in the
/// repository that a rollback would pull from, so that it counts as unknown.
pub(crate) fn of_container(pod: &Pod, name: &str) -> Option<Digest> {
    let statuses = pod.status.as_ref()?.container_statuses.as_deref()?;
    let status = statuses.iter().find(|status| status.name == name)?;
    let container = pod.spec.as_ref()?.containers.iter().find(|container| container.name == name)?;
    let wanted: ImageRef = container.image.as_deref()?.parse().ok()?;
    if let Some(pinned) = wanted.digest() {
        return Some(pinned.clone());
    }
    let running: ImageRef = status.image_id.rsplit("://").next()?.parse().ok()?;
    let same = running.canonical_repository() == wanted.canonical_repository();
    running.digest().filter(|_| same).cloned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONE: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";
    const TWO: &str = "sha256:2222222222222222222222222222222222222222222222222222222222222222";

    fn pod(image: &str, image_id: &str) -> Pod {
        serde_json::from_value(json!({
            "spec": {"containers": [{"name": "app", "image": image}]},
            "status": {"containerStatuses": [
                {"name": "app", "image": image, "imageID": image_id, "ready": true, "restartCount": 0}
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn digest_is_read_from_each_form_that_runtimes_report() {
        let cases = [
            ("nginx:1", format!("docker.io/library/nginx@{ONE}"), Some(ONE)),
            ("r.example.com/a/b:1", format!("r.example.com/a/b@{ONE}"), Some(ONE)),
            ("127.0.0.1:5000/app:1", format!("127.0.0.1:5000/app@{ONE}"), Some(ONE)),
            ("nginx:1", format!("docker-pullable://nginx@{ONE}"), Some(ONE)),
            ("nginx:1", format!("docker://{ONE}"), None),
            ("nginx:1", ONE.to_owned(), None),
            ("nginx:1", String::new(), None),
            ("r.example.com/a:1", format!("mirror.example.com/a@{ONE}"), None),
            (&format!("r.example.com/a:1@{TWO}"), format!("mirror.example.com/a@{ONE}"), Some(TWO)),
        ];
        for (image, id, expected) in cases {
            let pod = pod(image, &id);
            let found = common(&["app".to_owned()], &[&pod]);
            assert_eq!(found.as_ref().map(Digest::as_str), expected, "{image} {id}");
        }
    }

    #[test]
    fn different_digests_have_none_in_common() {
        let [one, two] = [ONE, TWO].map(|digest| pod("nginx:1", &format!("docker.io/library/nginx@{digest}")));
        let names = ["app".to_owned()];
        assert_eq!(common(&names, &[&one, &two]), None);
        assert_eq!(common(&names, &[&one, &one]).as_ref().map(Digest::as_str), Some(ONE));
        assert_eq!(common(&names, &[]), None);
        assert_eq!(common(&["other".to_owned()], &[&one]), None);
    }
}
