//! Receivers of notifications.

use rollhook_management::{Refusal, notifications::ReceiverName};

use crate::{
    AddReceiver, AddedReceiver, Local, Operation, Receiver, ReceiverList, RotateReceiver, RotatedReceiver,
    TestedReceiver, endpoint::Endpoint,
};

/// Adds a receiver of notifications.
pub struct RegisterReceiver;

impl Operation for RegisterReceiver {
    type Subject = ();
    type Input = AddReceiver;
    type Answer = AddedReceiver;

    const ENDPOINT: Endpoint = Endpoint::new(
        "POST",
        "/api/v1/receivers",
        201,
        "Add a receiver; a secret that is made here is shown this once",
    )
    .once();

    async fn perform(caller: &Local, _: &(), receiver: AddReceiver) -> Result<AddedReceiver, Refusal> {
        let (added, secret) = caller.management.add_receiver(&caller.principal, receiver.parse()?).await?;
        Ok(AddedReceiver::of(&added, secret.as_ref()))
    }
}

/// Lists the receivers that the caller may manage.
pub struct ListReceivers;

impl Operation for ListReceivers {
    type Subject = ();
    type Input = ();
    type Answer = ReceiverList;

    const ENDPOINT: Endpoint = Endpoint::get("/api/v1/receivers", "List the receivers of notifications");

    async fn perform(caller: &Local, _: &(), (): ()) -> Result<ReceiverList, Refusal> {
        let receivers = caller.management.receivers(&caller.principal).await?;
        Ok(ReceiverList { receivers: receivers.iter().map(|(known, status)| Receiver::of(known, status)).collect() })
    }
}

/// Removes a receiver.
pub struct RemoveReceiver;

impl Operation for RemoveReceiver {
    type Subject = ReceiverName;
    type Input = ();
    type Answer = ();

    const ENDPOINT: Endpoint = Endpoint::delete("/api/v1/receivers/{receiver}", "Remove a receiver");

    async fn perform(caller: &Local, name: &ReceiverName, (): ()) -> Result<(), Refusal> {
        caller.management.remove_receiver(&caller.principal, name).await
    }
}

/// Replaces a receiver's secret.
pub struct ReplaceSecret;

impl Operation for ReplaceSecret {
    type Subject = ReceiverName;
    type Input = RotateReceiver;
    type Answer = RotatedReceiver;

    const ENDPOINT: Endpoint = Endpoint::new(
        "POST",
        "/api/v1/receivers/{receiver}/rotate",
        200,
        "Replace a receiver's secret; one that is made here is shown this once",
    )
    .with_optional_body()
    .once();

    async fn perform(caller: &Local, name: &ReceiverName, rotate: RotateReceiver) -> Result<RotatedReceiver, Refusal> {
        let made = caller.management.rotate_receiver(&caller.principal, name, rotate.parse()?).await?;
        Ok(RotatedReceiver { secret: made.map(|secret| secret.expose().to_owned()) })
    }
}

/// Sends a test to a receiver.
pub struct TestReceiver;

impl Operation for TestReceiver {
    type Subject = ReceiverName;
    type Input = ();
    type Answer = TestedReceiver;

    const ENDPOINT: Endpoint = Endpoint::new(
        "POST",
        "/api/v1/receivers/{receiver}/test",
        200,
        "Send a test to a receiver, and show its answer",
    );

    async fn perform(caller: &Local, name: &ReceiverName, (): ()) -> Result<TestedReceiver, Refusal> {
        let tested = caller.management.test_receiver(&caller.principal, name).await?;
        let (delivered, answer) = match tested {
            Ok(taken) => (true, taken.answer),
            Err(failure) => (false, failure.message),
        };
        Ok(TestedReceiver { delivered, answer })
    }
}
