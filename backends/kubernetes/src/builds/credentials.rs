//! The operator's credentials, read when a build is resumed, so that it gets their newest version.

use std::{io, path::Path};

use k8s_openapi::api::batch::v1::Job;
use rollhook_core::{deploy::Reason, image::ImageRef};
use rollhook_git::CredentialFiles;

use super::{
    job::{HOSTS_KEY, REGISTRY_KEY, SOURCE_KEY, URLS_KEY, wanted_keys},
    names::StoredSpec,
    outcome::StoredFailure,
    registry,
    settings::Settings,
};

/// The parts of the build's Secret, or the failure of a build whose credentials cannot be read.
pub(super) fn read(
    spec: &StoredSpec,
    job: &Job,
    settings: &Settings,
) -> Result<Vec<(&'static str, Vec<u8>)>, StoredFailure> {
    let wanted = wanted_keys(job);
    let wants = |key: &str| wanted.iter().any(|wanted| wanted == key);
    let mut parts = Vec::new();
    if wants(SOURCE_KEY) {
        let found = CredentialFiles::find(&spec.source, settings.credentials.as_deref());
        let found = found.map_err(|message| StoredFailure::new(Reason::SOURCE_DENIED, message))?;
        let files = found.map(|CredentialFiles { secret, urls }| [(SOURCE_KEY, Some(secret)), (URLS_KEY, urls)]);
        parts.extend(files.into_iter().flatten().filter_map(|(key, bytes)| Some((key, bytes?))));
    }
    if wants(HOSTS_KEY) {
        // Without the file every host is unknown, and ssh says so.
        let hosts = settings.credentials.as_deref().map(|directory| directory.join("known_hosts"));
        let bytes = match hosts.filter(|hosts| hosts.exists()) {
            Some(hosts) => file(&hosts).map_err(|()| {
                let message = "This server cannot read its known_hosts (--build-credentials).";
                StoredFailure::new(Reason::SOURCE_DENIED, message)
            })?,
            None => Vec::new(),
        };
        parts.push((HOSTS_KEY, bytes));
    }
    if wants(REGISTRY_KEY) {
        let refused = |message: &str| StoredFailure::new(Reason::BUILD_REFUSED, message);
        let bytes = registry_logins(spec, settings).map_err(|message| refused(&message))?;
        let repository = spec.source.image_repository.as_str().parse::<ImageRef>();
        let repository = repository
            .map(|image| image.canonical_repository())
            .map_err(|invalid| refused(&format!("The app's image repository cannot be read: {invalid}.")))?;
        let cut = registry::cut(&bytes, &repository).ok_or_else(|| {
            refused("This server's file with the registry's credentials is not a config.json of docker's (--build-registry-config).")
        })?;
        if cut.is_missing {
            tracing::warn!(
                repository,
                "--build-registry-config has no login of its own for the repository; credHelpers and credsStore are not used"
            );
        }
        parts.push((REGISTRY_KEY, cut.config));
    }
    Ok(parts)
}

/// Returns the logins that the app's namespace may push with: those of its own file, if the operator has a directory of
/// such.
fn registry_logins(spec: &StoredSpec, settings: &Settings) -> Result<Vec<u8>, String> {
    let unreadable = "This server cannot read the registry's credentials (--build-registry-config).";
    let config = settings.registry_config.as_deref().ok_or(unreadable)?;
    if !config.is_dir() {
        return file(config).map_err(|()| unreadable.to_owned());
    }
    let namespace = &spec.app.namespace;
    // A namespace is letters, digits and hyphens: it does not lead out of the directory.
    file(&config.join(format!("{namespace}.json"))).map_err(|()| {
        format!("This server has no logins for registries for the namespace {namespace} (--build-registry-config).")
    })
}

/// The largest file; the limit of a whole Secret is a mebibyte.
const LARGEST: usize = 256 << 10;

fn file(path: &Path) -> Result<Vec<u8>, ()> {
    let read = std::fs::read(path).and_then(|bytes| {
        let fits = bytes.len() <= LARGEST;
        fits.then_some(bytes).ok_or_else(|| io::Error::other("the file is too large for credentials"))
    });
    read.map_err(|error| tracing::warn!(file = %path.display(), %error, "reading credentials failed"))
}

#[cfg(test)]
mod tests {
    use rollhook_conformance::samples;
    use serde_json::json;

    use super::*;

    #[test]
    fn missing_credentials_are_reported_without_paths() {
        let directory = std::env::temp_dir().join(format!("rollhook-credentials-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let login = "https://alice:hunter2@git.example.com/shop";
        std::fs::write(directory.join("shop"), login).unwrap();
        let mut source = samples::git_source();
        source.credentials = Some("shop".parse().unwrap());
        let app = samples::app("shop", "test", "api").id;
        let mut spec = StoredSpec { app, source, commit: "0123456".parse().unwrap(), slots: 2 };
        let volume = json!({"name": "c", "secret": {"items": [{"key": "source", "path": "x"}, {"key": "known_hosts", "path": "z"}, {"key": "config.json", "path": "y"}]}});
        let mut job: Job = serde_json::from_value(
            json!({"metadata": {}, "spec": {"template": {"spec": {"containers": [], "volumes": [volume]}}}}),
        )
        .unwrap();
        let image = format!("r.example.com/builder@{}", samples::digest(1)).parse().unwrap();
        let mut settings = Settings::new(image, "rollhook-builds".parse().unwrap());
        let failure = |spec: &StoredSpec, job: &Job, settings: &Settings| read(spec, job, settings).unwrap_err();
        assert_eq!(failure(&spec, &job, &settings).reason.as_str(), Reason::SOURCE_DENIED);
        settings.credentials = Some(directory.clone());
        assert_eq!(failure(&spec, &job, &settings).reason.as_str(), Reason::BUILD_REFUSED);
        settings.registry_config = Some(directory.join("shop"));
        let failed = failure(&spec, &job, &settings);
        assert!(failed.message.contains("config.json") && !failed.message.contains("hunter2"), "{}", failed.message);
        let config = json!({"auths": {"registry.example.com": {"auth": "c2Vj"}, "registry.example.com/prod": {}}});
        std::fs::write(directory.join("config"), config.to_string()).unwrap();
        settings.registry_config = Some(directory.join("config"));
        let parts = read(&spec, &job, &settings).unwrap();
        let cut = br#"{"auths":{"registry.example.com":{"auth":"c2Vj"}}}"#.to_vec();
        assert_eq!(parts, [("source", login.as_bytes().to_vec()), ("known_hosts", Vec::new()), ("config.json", cut)]);
        std::fs::write(directory.join("known_hosts"), "git.example.com ssh-ed25519 AAAA").unwrap();
        assert!(read(&spec, &job, &settings).unwrap()[1].1.starts_with(b"git.example.com"));
        spec.source.credentials = Some("other".parse().unwrap());
        let failed = failure(&spec, &job, &settings);
        assert!(!failed.message.contains(directory.to_str().unwrap()), "{}", failed.message);
        spec.source.credentials = Some("shop".parse().unwrap());
        spec.source.url = "https://evil.example/shop/api.git".parse().unwrap();
        let failed = failure(&spec, &job, &settings);
        assert!(failed.message.contains("not for https://evil.example"), "{}", failed.message);
        job.spec = None;
        assert_eq!(read(&spec, &job, &settings).unwrap(), []);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn namespace_pushes_with_its_own_logins() {
        let directory = tempfile::tempdir().unwrap();
        let login = |auth: &str| json!({"auths": {"registry.example.com": {"auth": auth}}}).to_string();
        std::fs::write(directory.path().join("shop-test.json"), login("dGVzdA==")).unwrap();
        std::fs::write(directory.path().join("shop-prod.json"), login("cHJvZA==")).unwrap();
        let image = format!("r.example.com/builder@{}", samples::digest(1)).parse().unwrap();
        let settings = Settings {
            registry_config: Some(directory.path().to_owned()),
            ..Settings::new(image, "rollhook-builds".parse().unwrap())
        };
        let source = samples::git_source();
        let spec = |environment| {
            let app = samples::app("shop", environment, "api").id;
            StoredSpec { app, source: source.clone(), commit: "0123456".parse().unwrap(), slots: 2 }
        };
        let logins = |environment| registry_logins(&spec(environment), &settings);
        assert_eq!(logins("test").unwrap(), login("dGVzdA==").into_bytes());
        assert_eq!(logins("prod").unwrap(), login("cHJvZA==").into_bytes());
        assert!(logins("staging").unwrap_err().contains("the namespace shop-staging"));
    }
}
