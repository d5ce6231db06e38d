//! The permission to manage receivers.

use rollhook_core::request::{Field, Refusal as CoreRefusal};
use rollhook_management::{
    Refusal,
    access::{Grant, Principal, Realm, Role},
    notifications::NewReceiver,
    ports::{RecordKind, RecordStore},
};

use crate::{
    notifications::bench::{BAD, Bench, GOOD, app, name, wanted},
    world,
};

#[test]
fn tests_of_one_realms_receivers_are_limited_however_many_come_at_once() {
    let bench = Bench::new();
    let (world, management) = (&bench.world, &bench.management);
    world.idle(async {
        let shop = Realm::Project { project: "shop".parse().unwrap() };
        let admin = Principal::new("ada", [Grant { role: Role::Admin, realm: shop.clone() }]);
        let add = async || management.add_receiver(&admin, wanted("ops", GOOD, &[], shop.clone())).await.unwrap();
        let tested = async || {
            let tests = (0..30).map(|_| async { management.test_receiver(&admin, &name("ops")).await });
            let tested = futures_util::future::join_all(tests).await;
            let refused = Err(Refusal::TooManyTests(shop.clone()));
            assert!(tested.iter().all(|tested| tested.is_ok() || *tested == refused), "{tested:?}");
            tested.iter().filter(|tested| tested.is_ok()).count()
        };
        add().await;
        assert_eq!(tested().await, 10);
        management.remove_receiver(&admin, &name("ops")).await.unwrap();
        add().await;
        assert_eq!(tested().await, 0, "a receiver of the same realm, made anew");
        world.sleep(6).await;
        assert_eq!(tested().await, 1);
    });
}

#[test]
fn receivers_are_an_admins_and_their_secrets_are_sealed() {
    let bench = Bench::new();
    let (world, management) = (&bench.world, &bench.management);
    world.idle(async {
        let shop = Realm::Project { project: "shop".parse().unwrap() };
        let viewer = Principal::new("eve", [Grant { role: Role::Deployer, realm: shop.clone() }]);
        let admin = Principal::new("ada", [Grant { role: Role::Admin, realm: shop.clone() }]);
        let of = |realm: &Realm| wanted("ops", GOOD, &[], realm.clone());
        assert!(matches!(management.add_receiver(&viewer, of(&shop)).await, Err(Refusal::Forbidden(..))));
        assert!(matches!(management.receivers(&viewer).await, Err(Refusal::Forbidden(..))));
        assert!(matches!(management.add_receiver(&admin, of(&Realm::Everything)).await, Err(Refusal::Forbidden(..))));
        let (_, secret) = management.add_receiver(&admin, of(&shop)).await.unwrap();
        let secret = secret.unwrap();
        assert_eq!(secret.signing_key().unwrap().len(), 32);
        assert_eq!(management.add_receiver(&admin, of(&shop)).await, Err(Refusal::ReceiverExists(name("ops"))));
        let stored = world.store.list(RecordKind::Receiver, None, 10).await.unwrap();
        assert!(stored.len() == 1 && !stored[0].document.contains(secret.expose()));
        assert!(management.test_receiver(&admin, &name("ops")).await.unwrap().is_ok());
        assert_eq!(bench.notifier.secrets.lock().unwrap().iter().collect::<Vec<_>>(), [secret.expose()]);
        let local = wanted("local", "https://169.254.169.254/", &[], shop.clone());
        let refused = management.add_receiver(&admin, local).await;
        assert!(matches!(refused, Err(Refusal::Core(CoreRefusal::InvalidField(Field::ReceiverUrl, _)))));
        let weak = NewReceiver { secret: Some("hunter2".parse().unwrap()), ..wanted("weak", GOOD, &[], shop.clone()) };
        let refused = management.add_receiver(&admin, weak).await;
        assert!(matches!(refused, Err(Refusal::Core(CoreRefusal::InvalidField(Field::ReceiverSecret, _)))));
        bench.add("all", BAD, &[]).await;
        assert_eq!(management.receivers(&admin).await.unwrap().len(), 1, "another realm's is not listed");
        let unknown = management.remove_receiver(&admin, &name("all")).await;
        assert_eq!(unknown, Err(Refusal::ReceiverNotFound(name("all"))));
        management.remove_receiver(&admin, &name("ops")).await.unwrap();
        let (entries, _) = management.audited(&world.operator, None, 50).await.unwrap();
        let acts = entries.iter().filter(|entry| entry.entry.subject.starts_with("receiver ops")).count();
        assert!(acts >= 4, "{entries:?}");
    });
}

#[test]
fn replaced_secret_is_used_from_then_on() {
    let bench = Bench::new();
    let (world, management) = (&bench.world, &bench.management);
    let shop = Realm::Project { project: "shop".parse().unwrap() };
    let viewer = Principal::new("eve", [Grant { role: Role::Deployer, realm: shop }]);
    bench.run(async {
        let access = app(world, "api").await;
        world.sleep(1).await;
        bench.add("ops", GOOD, &[]).await;
        world.deployed(&access, &world::api("v2")).await;
        world.sleep(5).await;
        let refused = management.rotate_receiver(&viewer, &name("ops"), None).await;
        assert!(matches!(refused, Err(Refusal::Forbidden(..))));
        let weak = management.rotate_receiver(&world.operator, &name("ops"), Some("hunter2".parse().unwrap())).await;
        assert!(matches!(weak, Err(Refusal::Core(CoreRefusal::InvalidField(Field::ReceiverSecret, _)))));
        let made = management.rotate_receiver(&world.operator, &name("ops"), None).await.unwrap().unwrap();
        world.sleep(1).await;
        bench.notifier.secrets.lock().unwrap().clear();
        world.deployed(&access, &world::api("v3")).await;
        world.sleep(5).await;
        assert_eq!(bench.taken(GOOD).len(), 4, "it goes on where it was");
        assert_eq!(bench.notifier.secrets.lock().unwrap().iter().collect::<Vec<_>>(), [made.expose()]);
    });
}
