//! What sealing promises.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    sync::Barrier,
};

use proptest::prelude::*;
use rollhook_sealing::{Error, KEY_BYTES, KeyId, KeyRing};
use zeroize::Zeroizing;

fn key(id: &str, fill: u8) -> (KeyId, Zeroizing<[u8; KEY_BYTES]>) {
    (id.parse().unwrap(), Zeroizing::new([fill; KEY_BYTES]))
}

fn ring(keys: impl IntoIterator<Item = (KeyId, Zeroizing<[u8; KEY_BYTES]>)>) -> KeyRing {
    KeyRing::from_keys(keys).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn the_newest_key_seals_and_every_key_opens() {
    let old = ring([key("k0001", 1)]);
    let both = ring([key("k0002", 2), key("k0001", 1)]);
    let from_old = old.seal(b"secret", b"app").unwrap();
    let from_both = both.seal(b"secret", b"app").unwrap();
    assert_eq!(both.primary().as_str(), "k0002");
    assert_eq!(KeyRing::key_of(&from_old).unwrap().as_str(), "k0001");
    assert_eq!(KeyRing::key_of(&from_both).unwrap().as_str(), "k0002");
    assert_eq!(*both.open(&from_old, b"app").unwrap(), b"secret");
    assert_eq!(*both.open(&from_both, b"app").unwrap(), b"secret");
    assert!(matches!(old.open(&from_both, b"app"), Err(Error::UnknownKey(id)) if id.as_str() == "k0002"));
}

#[test]
fn another_key_of_the_same_name_is_corrupt() {
    let sealed = ring([key("k0001", 1)]).seal(b"secret", b"app").unwrap();
    assert!(matches!(ring([key("k0001", 2)]).open(&sealed, b"app"), Err(Error::Corrupt)));
}

#[test]
fn a_key_that_was_added_while_the_process_runs_opens_and_then_seals() {
    let place = tempfile::tempdir().unwrap();
    let running = KeyRing::load_or_create(place.path()).unwrap();
    let added = KeyRing::create_key(place.path()).unwrap();
    let sealed = KeyRing::load(place.path()).unwrap().seal(b"secret", b"app").unwrap();
    assert_eq!(running.primary().as_str(), "k0001");
    assert_eq!(*running.open(&sealed, b"app").unwrap(), b"secret");
    assert_eq!(running.primary(), added);
}

#[test]
fn the_same_text_never_seals_to_the_same_bytes() {
    let ring = ring([key("k0001", 1)]);
    assert_ne!(ring.seal(b"secret", b"app").unwrap(), ring.seal(b"secret", b"app").unwrap());
}

#[test]
fn debug_shows_no_key() {
    let shown = format!("{:?}", ring([key("k0001", 0xab)]));
    assert!(shown.contains("k0001"));
    assert!(!shown.contains("171") && !shown.to_lowercase().contains("abab"), "{shown}");
}

#[test]
fn failures_tell_the_core_what_to_do() {
    use rollhook_core::Error as Core;
    assert!(matches!(Core::from(Error::Corrupt), Core::Corrupt { .. }));
    assert!(matches!(Core::from(Error::UnknownKey("k0009".parse().unwrap())), Core::Denied { .. }));
    assert!(matches!(Core::from(Error::NoRandomness), Core::Unavailable { .. }));
}

proptest! {
    #[test]
    fn what_was_sealed_opens(text in prop::collection::vec(any::<u8>(), 0..200), purpose in prop::collection::vec(any::<u8>(), 0..50)) {
        let ring = ring([key("k0001", 1)]);
        let sealed = ring.seal(&text, &purpose).unwrap();
        prop_assert_eq!(&*ring.open(&sealed, &purpose).unwrap(), &text);
    }

    #[test]
    fn another_purpose_is_corrupt(one in "[a-z:0-9]{0,20}", other in "[a-z:0-9]{0,20}") {
        prop_assume!(one != other);
        let ring = ring([key("k0001", 1)]);
        let sealed = ring.seal(b"secret", one.as_bytes()).unwrap();
        prop_assert!(matches!(ring.open(&sealed, other.as_bytes()), Err(Error::Corrupt)));
    }

    #[test]
    fn any_flipped_bit_is_noticed(position in any::<prop::sample::Index>(), bit in 0..8_u32) {
        let ring = ring([key("k0001", 1), key("k0000", 0)]);
        let mut sealed = ring.seal(b"secret", b"app").unwrap();
        let position = position.index(sealed.len());
        sealed[position] ^= 1_u8 << bit;
        prop_assert!(matches!(ring.open(&sealed, b"app"), Err(Error::Corrupt | Error::UnknownKey(_))));
    }

    #[test]
    fn any_cut_is_noticed(length in any::<prop::sample::Index>()) {
        let ring = ring([key("k0001", 1)]);
        let sealed = ring.seal(b"secret", b"app").unwrap();
        prop_assert!(matches!(ring.open(&sealed[..length.index(sealed.len())], b"app"), Err(Error::Corrupt)));
    }

    #[test]
    fn arbitrary_bytes_never_open(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        let ring = ring([key("k0001", 1)]);
        prop_assert!(ring.open(&bytes, b"").is_err());
    }
}

#[test]
fn load_without_a_key_says_how_to_make_one() {
    let place = tempfile::tempdir().unwrap();
    for directory in [place.path().to_owned(), place.path().join("missing")] {
        let error = KeyRing::load(&directory).unwrap_err();
        let expected = format!("rollhook-server keys new {}", directory.display());
        assert!(error.to_string().contains(&expected), "{error}");
    }
}

#[test]
fn load_or_create_makes_a_private_key_once() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("state/keys");
    let sealed = KeyRing::load_or_create(&directory).unwrap().seal(b"secret", b"app").unwrap();
    assert_eq!(mode(&directory), 0o700);
    assert_eq!(mode(&directory.join("k0001.key")), 0o600);
    assert_eq!(*KeyRing::load_or_create(&directory).unwrap().open(&sealed, b"app").unwrap(), b"secret");
    assert_eq!(*KeyRing::load(&directory).unwrap().open(&sealed, b"app").unwrap(), b"secret");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left behind");
}

#[test]
fn create_key_adds_a_new_primary() {
    let place = tempfile::tempdir().unwrap();
    let sealed = KeyRing::load_or_create(place.path()).unwrap().seal(b"secret", b"app").unwrap();
    let added = KeyRing::create_key(place.path()).unwrap();
    assert!(added.as_str().starts_with("k0002-"), "{added}");
    let ring = KeyRing::load(place.path()).unwrap();
    assert_eq!(ring.primary(), added);
    assert_eq!(*ring.open(&sealed, b"app").unwrap(), b"secret");
}

#[test]
fn keys_of_two_directories_are_never_taken_for_each_other() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let ids = [&one, &other].map(|place| KeyRing::create_key(place.path()).unwrap());
    let sealed = KeyRing::load(one.path()).unwrap().seal(b"secret", b"app").unwrap();
    let opened = KeyRing::load(other.path()).unwrap().open(&sealed, b"app");
    assert!(matches!(opened, Err(Error::UnknownKey(id)) if id == ids[0]));
}

#[test]
fn create_key_sorts_after_names_that_people_gave() {
    let place = tempfile::tempdir().unwrap();
    let made = KeyRing::create_key(place.path()).unwrap();
    fs::rename(place.path().join(format!("{made}.key")), place.path().join("prod.key")).unwrap();
    assert_eq!(KeyRing::create_key(place.path()).unwrap().as_str(), "prod-1");
    assert_eq!(KeyRing::load(place.path()).unwrap().primary().as_str(), "prod-1");
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    let place = tempfile::tempdir().unwrap();
    KeyRing::load_or_create(place.path()).unwrap();
    let file = place.path().join("k0001.key");
    for bits in [0o640, 0o604] {
        fs::set_permissions(&file, fs::Permissions::from_mode(bits)).unwrap();
        let error = KeyRing::load(place.path()).unwrap_err();
        assert!(matches!(error, Error::Exposed { mode, .. } if mode == bits));
        assert!(error.to_string().contains(&format!("chmod 600 {}", file.display())), "{error}");
    }
}

#[test]
fn a_file_that_is_no_key_is_refused() {
    let place = tempfile::tempdir().unwrap();
    KeyRing::load_or_create(place.path()).unwrap();
    let file = place.path().join("k0001.key");
    for text in [String::new(), "00".repeat(31), "00".repeat(33), "zz".repeat(32), "00".repeat(5000)] {
        fs::write(&file, text).unwrap();
        assert!(matches!(KeyRing::load(place.path()), Err(Error::NotAKey { .. })));
    }
    fs::write(&file, "AB".repeat(32)).unwrap();
    assert!(KeyRing::load(place.path()).is_ok(), "upper case and a missing line feed are fine");
}

#[test]
fn concurrent_first_starts_agree_on_one_key() {
    let place = tempfile::tempdir().unwrap();
    let directory = place.path().join("keys");
    let start = Barrier::new(8);
    let rings: Vec<KeyRing> = std::thread::scope(|scope| {
        let load = || {
            start.wait();
            KeyRing::load_or_create(&directory).unwrap()
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let sealed = rings[0].seal(b"secret", b"app").unwrap();
    for ring in &rings {
        assert_eq!(*ring.open(&sealed, b"app").unwrap(), b"secret");
    }
}
