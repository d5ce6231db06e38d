//! The suite of instances' addresses, on the simulated cluster.

use std::net::SocketAddr;

use rollhook_conformance::{Can, block_on};

use crate::simulated::Simulated;

/// A cluster whose pods have addresses: all on this machine, each at a port of its own.
fn fresh() -> Can<Simulated> {
    let simulated = Simulated::fresh()?;
    simulated.cluster.address_pods(|pod, port| {
        assert_eq!(port, 8080);
        let number = pod.as_str().bytes().fold(0_u16, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Some(SocketAddr::from(([127, 0, 0, 1], number)))
    });
    Ok(simulated)
}

rollhook_conformance::addresses!(block_on, fresh());
