//! Networks of addresses, as `ADDRESS/BITS`.

use std::{fmt, net::IpAddr, str::FromStr};

/// A network: an address and the number of its leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    address: IpAddr,
    bits: u8,
}

/// The error of a text that is not a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be an address, or ADDRESS/BITS such as 10.0.0.0/8")]
pub struct InvalidCidr;

impl Cidr {
    /// The network of these bits, which are no more than the address has.
    pub(crate) const fn of(address: IpAddr, bits: u8) -> Self {
        Self { address, bits }
    }

    /// Returns whether the address is in the network.
    pub fn contains(&self, address: IpAddr) -> bool {
        let differs = match (self.address, address) {
            (IpAddr::V4(ours), IpAddr::V4(theirs)) => u128::from(ours.to_bits() ^ theirs.to_bits()) << 96,
            (IpAddr::V6(ours), IpAddr::V6(theirs)) => ours.to_bits() ^ theirs.to_bits(),
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return false,
        };
        differs.leading_zeros() >= u32::from(self.bits)
    }

    /// Returns whether the network is one of IPv4 addresses.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

impl FromStr for Cidr {
    type Err = InvalidCidr;

    fn from_str(text: &str) -> Result<Self, InvalidCidr> {
        let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
        let address: IpAddr = address.parse().map_err(|_| InvalidCidr)?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(most), str::parse).map_err(|_| InvalidCidr)?;
        if bits <= most { Ok(Self { address, bits }) } else { Err(InvalidCidr) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_strictly() {
        for text in ["", "10.0.0.0/33", "10.0.0/8", "::/129", "10.0.0.0/", "10.0.0.0/8/8", "host"] {
            assert!(text.parse::<Cidr>().is_err(), "{text}");
        }
        assert!("0.0.0.0/0".parse::<Cidr>().unwrap().contains("1.2.3.4".parse().unwrap()));
        assert!(!"1.2.3.4".parse::<Cidr>().unwrap().contains("1.2.3.5".parse().unwrap()));
        assert!(!"0.0.0.0/0".parse::<Cidr>().unwrap().contains("::1".parse().unwrap()));
    }

    #[test]
    fn network_is_written_as_it_is_read() {
        for (text, written) in
            [("10.0.0.0/8", "10.0.0.0/8"), ("10.0.0.1", "10.0.0.1/32"), ("FD00:0EC2::/32", "fd00:ec2::/32")]
        {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), written);
        }
    }
}
