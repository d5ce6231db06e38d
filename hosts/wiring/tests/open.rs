//! Opening real backends.
#![cfg(feature = "sqlite")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may")]

use std::{fs, path::Path, sync::Arc};

use rollhook_core::{ports::Sealing, service::Deployer};
use rollhook_management::{
    Management,
    ports::{NewRecord, RecordKind},
};
use rollhook_wiring::{BuilderSettings, Error, Opened, Settings, StoreSettings, admin, open};

fn settings(directory: &Path) -> Settings {
    let store = format!("sqlite:{}", directory.join("data/rollhook.db").display());
    Settings {
        store: StoreSettings { store: Some(store), key_dir: Some(directory.join("keys")) },
        driver: Some("simulated:0ms".parse().unwrap()),
        ..Settings::default()
    }
}

async fn opened(settings: &Settings) -> Opened {
    open(settings).await.unwrap_or_else(|error| panic!("{}", error.chain()))
}

fn management(opened: &Opened) -> Management {
    Management::new(Arc::new(Deployer::new(opened.ports.clone(), "test")), opened.management.clone())
}

#[tokio::test]
async fn a_first_start_makes_what_is_missing_and_a_second_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (settings, token) = (settings(directory.path()), directory.path().join("admin-token"));
    let first = opened(&settings).await;
    let created: Vec<&str> = first.created.iter().map(|created| created.what).collect();
    assert_eq!(created, ["key directory", "database"]);
    let service = management(&first);
    assert_eq!(service.deployer().sealing(), Sealing::Sealed);
    assert_eq!(admin::ensure(&service, &first.store, Some(&token)).await.unwrap().unwrap().path, token);
    drop((service, first));

    let second = opened(&settings).await;
    assert_eq!(second.created, []);
    let service = management(&second);
    assert_eq!(admin::ensure(&service, &second.store, Some(&token)).await.unwrap(), None);
    assert_eq!(admin::ensure(&service, &second.store, None).await.unwrap(), None, "the store knows one");
    let presented = fs::read_to_string(&token).unwrap();
    assert!(service.authenticate(presented.trim().as_bytes(), None).await.is_ok());
}

#[tokio::test]
async fn records_are_those_of_the_store() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    let key = "alice".parse().unwrap();
    let record = NewRecord { key, document: "{}".to_owned(), ttl: None };
    let kind = RecordKind::ApiToken;
    let version = opened(&settings).await.management.records.write(kind, record.clone(), None).await.unwrap();
    let stored = opened(&settings).await.management.records.read(kind, &record.key).await.unwrap();
    assert_eq!(stored.map(|stored| stored.version), Some(version));
}

#[tokio::test]
async fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    drop(opened(&settings).await);
    for key in fs::read_dir(directory.path().join("keys")).unwrap() {
        fs::set_permissions(key.unwrap().path(), fs::Permissions::from_mode(0o644)).unwrap();
    }
    match open(&settings).await {
        Err(error @ Error::Backend { .. }) => assert!(error.chain().contains("chmod 600"), "{}", error.chain()),
        Err(error) => panic!("{}", error.chain()),
        Ok(_) => panic!("it was opened"),
    }
}

#[tokio::test]
async fn a_database_without_its_keys_is_refused_and_not_given_new_ones() {
    let directory = tempfile::tempdir().unwrap();
    let settings = settings(directory.path());
    drop(opened(&settings).await);
    fs::rename(directory.path().join("keys"), directory.path().join("lost")).unwrap();
    match open(&settings).await {
        Err(error) => assert!(error.chain().contains("--key-dir"), "{}", error.chain()),
        Ok(_) => panic!("it was opened"),
    }
    assert!(!directory.path().join("keys").exists(), "nothing was made");
    fs::rename(directory.path().join("lost"), directory.path().join("keys")).unwrap();
    drop(opened(&settings).await);
}

#[tokio::test]
async fn a_simulated_driver_needs_no_cluster() {
    let store = StoreSettings { store: Some("memory".to_owned()), key_dir: None };
    let settings = Settings { store, ..Settings::default() };
    let opened = opened(&settings).await;
    assert_eq!(opened.created, []);
    assert_eq!(opened.ports.tokens.sealing(), Sealing::Memory);
}

#[tokio::test]
async fn a_user_of_builds_without_a_build_command_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let builder = BuilderSettings { build_user: Some("builder".to_owned()), ..BuilderSettings::default() };
    let settings = Settings { builder, ..settings(directory.path()) };
    let refused = open(&settings).await.err().unwrap();
    assert!(matches!(&refused, Error::Usage(why) if why.contains("--build-command")), "{}", refused.chain());
}

#[cfg(feature = "docker")]
#[tokio::test]
async fn builder_that_was_asked_for_is_opened_or_refused() {
    let directory = tempfile::tempdir().unwrap();
    let build_dir = directory.path().join("file/builds");
    fs::write(directory.path().join("file"), "").unwrap();
    let asked = |builder| Settings { driver: Some("docker".parse().unwrap()), builder, ..settings(directory.path()) };
    let refused = open(&asked(BuilderSettings { build_dir: Some(build_dir), ..BuilderSettings::default() })).await;
    let refused = refused.err().unwrap().chain();
    assert!(refused.contains("file/builds"), "{refused}");
}
