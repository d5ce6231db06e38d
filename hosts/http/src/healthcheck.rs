//! The health check of a container: asks a server on this machine for `/healthz`.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    time::Duration,
};

/// The deadline of connecting, and of each read and write.
const PATIENCE: Duration = Duration::from_secs(3);
/// The bytes of an answer that are read: its first line is among them.
const HEAD: u64 = 1024;

/// Asks the server that listens on this address.
///
/// # Errors
/// A sentence that says what was answered, if anything was.
pub(crate) fn ask(listens: SocketAddr) -> Result<(), String> {
    let address = reachable(listens);
    let failed = |error: std::io::Error| format!("{address} does not answer: {error}");
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(failed)?;
    stream.set_read_timeout(Some(PATIENCE)).and_then(|()| stream.set_write_timeout(Some(PATIENCE))).map_err(failed)?;
    let request = format!("GET /healthz HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).map_err(failed)?;
    let mut answer = Vec::new();
    stream.take(HEAD).read_to_end(&mut answer).map_err(failed)?;
    judge(&answer).map_err(|line| format!("{address} is not healthy: it answered {line:?}"))
}

/// The address by which this machine reaches a server that listens on all of its addresses.
fn reachable(listens: SocketAddr) -> SocketAddr {
    let loopback = match listens {
        SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
        SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
    };
    let ip = if listens.ip().is_unspecified() { loopback } else { listens.ip() };
    SocketAddr::new(ip, listens.port())
}

/// Returns the first line of an answer that is no success.
fn judge(answer: &[u8]) -> Result<(), String> {
    let line = String::from_utf8_lossy(answer.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    match line.split(' ').nth(1) {
        Some("200") => Ok(()),
        _ => Err(line),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_all_interfaces_is_asked_on_loopback() {
        for (listens, asked) in
            [("0.0.0.0:8080", "127.0.0.1:8080"), ("[::]:8080", "[::1]:8080"), ("192.0.2.1:80", "192.0.2.1:80")]
        {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), asked);
        }
    }

    #[test]
    fn only_a_success_is_healthy() {
        assert_eq!(judge(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n"), Ok(()));
        for answer in [&b"HTTP/1.1 503 Service Unavailable\r\n"[..], b"", b"200", b"\x16\x03\x01"] {
            assert!(judge(answer).is_err(), "{answer:?}");
        }
    }
}
