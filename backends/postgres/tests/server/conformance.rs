//! The stores keep what the ports promise.

use crate::bed::fresh::{Fresh, block_on};

rollhook_conformance::stores!(block_on, Fresh::direct().await);

/// On a server that is killed and started again.
mod abrupt_end {
    use super::{Fresh, block_on};

    rollhook_conformance::cases! { block_on, Fresh::on_own_server().await, history: commit_outlives_an_abrupt_end }
    rollhook_conformance::cases! { block_on, Fresh::on_own_server().await, tokens: put_outlives_an_abrupt_end }
    rollhook_conformance::cases! { block_on, Fresh::on_own_server().await, configurations: put_outlives_an_abrupt_end }
    rollhook_conformance::cases! { block_on, Fresh::on_own_server().await, records: write_outlives_an_abrupt_end }
}
