//! A minimal HTTP/1.1 client: it sends prepared bytes and returns the status. A full client would take more of the
//! machine from the measured server.

use std::{io, net::SocketAddr, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

/// The longest silence before a call: the server closes connections that are silent for 10 s.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// A kept connection.
pub(crate) struct Connection {
    address: SocketAddr,
    stream: TcpStream,
    used_at: Instant,
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = connect(address).await?;
        Ok(Self { address, stream, used_at: Instant::now(), answer: Vec::with_capacity(2048) })
    }

    /// Sends a request, and returns the status of the complete answer.
    pub(crate) async fn call(&mut self, request: &[u8]) -> io::Result<u16> {
        if self.used_at.elapsed() > SILENCE_MAX {
            self.stream = connect(self.address).await?;
        }
        let answered = self.exchange(request).await;
        self.used_at = Instant::now();
        answered
    }

    async fn exchange(&mut self, request: &[u8]) -> io::Result<u16> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        loop {
            if self.stream.read_buf(&mut self.answer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if let Some((status, length)) = head(&self.answer)? {
                let missing = length.saturating_sub(self.answer.len());
                if missing > 0 {
                    let start = self.answer.len();
                    self.answer.resize(length, 0);
                    self.stream.read_exact(&mut self.answer[start..]).await?;
                }
                return Ok(status);
            }
        }
    }

    /// The body of the last answer.
    pub(crate) fn body(&self) -> &[u8] {
        self.answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(&[], |end| &self.answer[end + 4..])
    }
}

async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Returns the status and the length of the whole answer, or `None` if its head is incomplete.
fn head(answer: &[u8]) -> io::Result<Option<(u16, usize)>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the answer has no status or no length");
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| invalid())?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Ok(Some((status, end + 4 + length.ok_or_else(invalid)?)))
}

/// Returns the bytes of a request.
pub(crate) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    if !body.is_empty() {
        text.push_str(&format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()));
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}
