//! Peer: who is at the other end of a connection, as far as the kernel tells.

use std::net::{IpAddr, Ipv6Addr};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    /// A user of this machine, who may have many processes.
    User(u32),
    /// A machine, or a network that has one owner as a whole.
    Address(IpAddr),
    /// The kernel does not tell.
    Unknown,
}

impl Peer {
    /// The peer at an IP address. In IPv6 one owner has 2^64 addresses, which count as one peer.
    pub fn at(address: IpAddr) -> Peer {
        match address.to_canonical() {
            IpAddr::V4(address) => Peer::Address(address.into()),
            IpAddr::V6(address) => {
                let network = u128::from(address) & !u128::from(u64::MAX);
                Peer::Address(Ipv6Addr::from(network).into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_ipv6_network_are_one_peer() {
        let peer = |text: &str| Peer::at(text.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:2"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:192.0.2.1"), peer("192.0.2.1"));
        assert_ne!(peer("192.0.2.1"), peer("192.0.2.2"));
    }
}
