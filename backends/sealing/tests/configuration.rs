//! A sealed configuration opens for its own app and id, and for no other.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use rollhook_core::{
    Error,
    app::AppUid,
    configuration::{ConfigurationId, SALT_BYTES, Variable, Variables},
};
use rollhook_sealing::{KeyRing, configuration, usage};
use zeroize::Zeroizing;

const APP: AppUid = AppUid::from_bits(7);
const ID: ConfigurationId = ConfigurationId(1);

#[test]
fn configuration_opens_for_its_own_app_and_id_and_is_resealed_once() {
    let ring = |newest: u8| {
        let key = |number: u8| (format!("k{number:04}").parse().unwrap(), Zeroizing::new([number; 32]));
        KeyRing::from_keys((1..=newest).map(key)).unwrap()
    };
    let mut variables = Variables::empty([7; SALT_BYTES]);
    variables.entries.insert("A".parse().unwrap(), Variable::new("secret \u{1} \u{1f600}".to_owned(), false));
    let old = configuration::seal(&ring(1), APP, ID, &variables).unwrap().bytes;
    assert_eq!(configuration::open(&ring(1), APP, ID, &old).unwrap(), variables);
    for (app, id) in [(AppUid::from_bits(8), ID), (APP, ConfigurationId(2))] {
        assert!(matches!(configuration::open(&ring(1), app, id, &old), Err(Error::Corrupt { .. })));
        assert!(matches!(configuration::reseal(&ring(2), app, id, old.clone()), Err(Error::Corrupt { .. })));
    }
    assert_eq!(configuration::reseal(&ring(1), APP, ID, old.clone()).unwrap().bytes, old);
    let new = configuration::reseal(&ring(2), APP, ID, old.clone()).unwrap();
    assert_eq!(new.key.as_str(), "k0002");
    let new = new.bytes;
    assert!(matches!(configuration::open(&ring(1), APP, ID, &new), Err(Error::Denied { .. })));
    assert_eq!(configuration::open(&ring(2), APP, ID, &new).unwrap(), variables);
    let key = |text: &str| text.parse().unwrap();
    let uses = usage::of_sealed([(&old, 1), (&new, 1)]).unwrap();
    assert_eq!(usage::sum([uses, vec![(key("k0002"), 2)]].concat()), [(key("k0001"), 1), (key("k0002"), 3)]);
}
