//! A sealed token opens its own app, and no other.

use rollhook_core::{Error, app::AppUid, ports::WebhookSecret, time::Timestamp, token::Token};
use rollhook_sealing::{KeyRing, token, usage};
use zeroize::Zeroizing;

const APP: AppUid = AppUid::from_bits(7);

#[test]
fn token_opens_its_own_app_and_is_resealed_once() {
    let ring = |newest: u8| {
        let key = |number: u8| (format!("k{number:04}").parse().unwrap(), Zeroizing::new([number; 32]));
        KeyRing::from_keys((1..=newest).map(key)).unwrap()
    };
    let secret = Token::from_random(&[5; Token::RANDOM_BYTES]).unwrap();
    let old = token::seal(&ring(1), &WebhookSecret::new(APP, secret.clone(), Timestamp::default())).unwrap();
    assert_eq!(token::open(&ring(1), APP, &old, 3).unwrap().token.expose(), secret.expose());
    assert!(matches!(token::open(&ring(1), AppUid::from_bits(8), &old, 3), Err(Error::Corrupt { .. })));
    assert!(token::reseal(&ring(1), APP, &old).unwrap().is_none());
    let new = token::reseal(&ring(2), APP, &old).unwrap().unwrap();
    assert!(matches!(token::open(&ring(1), APP, &new, 3), Err(Error::Denied { .. })));
    assert_eq!(token::open(&ring(2), APP, &new, 3).unwrap().token.expose(), secret.expose());
    let uses = usage::of_sealed([(&old, 2), (&new, 1), (&old, 1)]).unwrap();
    assert_eq!(uses, [("k0001".parse().unwrap(), 3), ("k0002".parse().unwrap(), 1)]);
    assert!(matches!(usage::of_sealed([(b"", 1)]), Err(Error::Corrupt { .. })));
}

#[test]
fn ring_of_one_key_opens_what_a_ring_with_its_id_sealed() {
    let secret = Token::from_random(&[5; Token::RANDOM_BYTES]).unwrap();
    let sealed =
        token::seal(&KeyRing::of_key([1; 32]), &WebhookSecret::new(APP, secret.clone(), Timestamp::default())).unwrap();
    let keys = [1_u8, 2].map(|number| (format!("k{number:04}").parse().unwrap(), Zeroizing::new([number; 32])));
    let opened = token::open(&KeyRing::from_keys(keys).unwrap(), APP, &sealed, 3).unwrap();
    assert_eq!(opened.token.expose(), secret.expose());
    assert!(token::open(&KeyRing::of_key([2; 32]), APP, &sealed, 3).is_err());
}
