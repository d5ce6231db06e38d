//! Sealed values: what was sealed opens, for its purpose and with a key of the ring; nothing else does, and whatever is
//! wrong with it is told as an error.

#![no_main]

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use rollhook_core::Error as Told;
use rollhook_sealing::{Error, KEY_BYTES, KeyId, KeyRing};
use zeroize::Zeroizing;

#[derive(Arbitrary, Debug)]
struct Sealed {
    text: Vec<u8>,
    purpose: Vec<u8>,
    damage: Damage,
}

/// What became of the stored value, or of what it is opened with.
#[derive(Arbitrary, Debug)]
enum Damage {
    None,
    Changed { at: u16, by: u8 },
    Cut(u16),
    Longer(Vec<u8>),
    Header(Vec<u8>),
    Moved(Vec<u8>),
    Replaced(Vec<u8>),
    NewerKey,
    KeyLost,
}

fn ring(keys: &[(&str, u8)]) -> KeyRing {
    let key = |(id, byte): &(&str, u8)| (id.parse::<KeyId>().expect("an id"), Zeroizing::new([*byte; KEY_BYTES]));
    KeyRing::from_keys(keys.iter().map(key)).expect("it has keys")
}

fuzz_target!(|given: Sealed| {
    let old = ring(&[("k0001", 1)]);
    let sealed = old.seal(&given.text, &given.purpose).expect("there is randomness");
    assert_eq!(KeyRing::key_of(&sealed).expect("it was sealed").as_str(), "k0001");
    let mut stored = sealed.clone();
    match &given.damage {
        Damage::None => {}
        Damage::Changed { at, by } => {
            let at = usize::from(*at) % stored.len();
            stored[at] ^= by;
        }
        Damage::Cut(length) => stored.truncate((*length).into()),
        Damage::Longer(more) => stored.extend_from_slice(more),
        Damage::Header(header) => {
            stored.drain(..stored.len().min(header.len()));
            stored.splice(..0, header.iter().copied());
        }
        Damage::Replaced(other) => stored.clone_from(other),
        Damage::Moved(purpose) => {
            let moved = old.open(&stored, purpose);
            assert_eq!(moved.is_ok(), *purpose == given.purpose, "it opened for another purpose");
        }
        Damage::NewerKey => {
            let both = ring(&[("k0001", 1), ("k0002", 2)]);
            assert_eq!(**both.open(&stored, &given.purpose).expect("every key of the ring opens"), given.text);
            let new = both.seal(&given.text, &given.purpose).expect("there is randomness");
            refused(&old.open(&new, &given.purpose).expect_err("the key is not in the ring"), &new);
        }
        Damage::KeyLost => {
            let other = ring(&[("k0002", 1)]);
            refused(&other.open(&stored, &given.purpose).expect_err("the key is not in the ring"), &stored);
            let same_name = ring(&[("k0001", 2)]);
            refused(&same_name.open(&stored, &given.purpose).expect_err("it is another key"), &stored);
        }
    }
    match old.open(&stored, &given.purpose) {
        Ok(text) => assert!(stored == sealed && *text == given.text, "another value than was sealed opened"),
        Err(error) => {
            assert_ne!(stored, sealed, "what was sealed does not open");
            refused(&error, &stored);
        }
    }
});

/// A lost key is told apart from damage; nothing else goes wrong.
fn refused(error: &Error, stored: &[u8]) {
    let named = KeyRing::key_of(stored);
    match error {
        Error::UnknownKey(id) => {
            assert_eq!(named.expect("it names a key"), *id);
            assert!((1..=KeyId::MAX).contains(&id.as_str().len()));
            assert!(id.as_str().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'));
        }
        Error::Corrupt => assert!(named.is_err() || !stored.is_empty()),
        other => panic!("{other}"),
    }
    let told = match error {
        Error::UnknownKey(id) => Told::from(Error::UnknownKey(id.clone())),
        _ => Told::from(Error::Corrupt),
    };
    assert!(matches!(
        (error, told),
        (Error::Corrupt, Told::Corrupt { .. }) | (Error::UnknownKey(_), Told::Denied { .. })
    ));
}
