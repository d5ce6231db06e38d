//! The rate at which an authority is asked about tokens that have proved nothing here yet.
//!
//! Tokens that the authority's own key signed are asked about at a rate of each account, whatever others send. Those of
//! which that cannot be said share a rate, of which a client's network has a part: a flood from one network leaves the rest
//! to the others.

use std::{
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use crate::{ports::RecordKey, rate::Rate, recent::Recent};

/// The rate of all tokens of unknown origin together.
const ALL: Rate = Rate { every: Duration::from_millis(50), burst: 100 };
/// The rate of one network, and of one account.
const ONE: Rate = Rate { every: Duration::from_millis(250), burst: 20 };
/// The most networks and accounts that are counted: one more makes the one forgotten that called least lately.
const COUNTED: usize = 10_000;

/// The party that a review is counted for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Share {
    /// The account of a token that the authority has signed.
    Signed(RecordKey),
    /// The network of a client, where it is known.
    Network(Option<IpAddr>),
}

/// The times at which the reviews of unknown tokens are paid off.
pub(crate) struct UnknownTokens(Mutex<Counts>);

struct Counts {
    all: Duration,
    each: Recent<Share, Duration>,
}

impl Default for UnknownTokens {
    fn default() -> Self {
        Self(Mutex::new(Counts { all: Duration::ZERO, each: Recent::new(COUNTED) }))
    }
}

impl UnknownTokens {
    /// Counts a review, and returns whether it may be made.
    pub(crate) fn take(&self, share: &Share, now: Duration) -> bool {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let all = match share {
            Share::Signed(_) => counts.all,
            // What a network may not ask is not taken from the others either.
            Share::Network(_) => match ALL.take(counts.all, now) {
                Some(all) => all,
                None => return false,
            },
        };
        let is_within = counts.each.used(
            share,
            || Duration::ZERO,
            |paid| match ONE.take(*paid, now) {
                Some(next) => {
                    *paid = next;
                    true
                }
                None => false,
            },
        );
        if is_within {
            counts.all = all;
        }
        is_within
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::api_tokens::key_of;

    const START: Duration = Duration::from_secs(1000);

    fn network(number: u32) -> Share {
        Share::Network(Some(IpAddr::V4(number.into())))
    }

    #[test]
    fn networks_share_a_burst_and_a_rate_of_which_each_has_a_part() {
        let tokens = UnknownTokens::default();
        let taken = |share: &Share, at| (0..1000).filter(|_| tokens.take(share, at)).count();
        assert_eq!(taken(&network(1), START), 20);
        assert_eq!(taken(&network(2), START), 20, "a flood leaves the others theirs");
        assert_eq!((3..100).map(|number| taken(&network(number), START)).sum::<usize>(), 60, "100 of all together");
        let later = START + Duration::from_secs(1);
        assert_eq!((1..100).map(|number| taken(&network(number), later)).sum::<usize>(), 20);
    }

    #[test]
    fn accounts_of_signed_tokens_have_a_rate_each_whatever_strangers_send() {
        let tokens = UnknownTokens::default();
        for number in 0..1000 {
            tokens.take(&network(number), START);
        }
        for name in ["a", "b"] {
            let share = Share::Signed(key_of(name.as_bytes()));
            assert_eq!((0..1000).filter(|_| tokens.take(&share, START)).count(), 20, "{name}");
        }
        assert!(!tokens.take(&network(7), START));
    }
}
