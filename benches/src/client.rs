//! The least of an HTTP/1.1 client: bytes made beforehand go out, the status comes back. What a real client does beside
//! that would be taken from the server's share of the machine.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// A kept connection.
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, answer: Vec::with_capacity(2048) })
    }

    /// Sends a request, and returns the answer's status once the whole answer is there.
    pub(crate) async fn call(&mut self, request: &[u8]) -> io::Result<u16> {
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

    /// The last answer's body.
    pub(crate) fn body(&self) -> &[u8] {
        self.answer.windows(4).position(|window| window == b"\r\n\r\n").map_or(&[], |end| &self.answer[end + 4..])
    }
}

/// Status and length of the whole answer, once its head is complete.
fn head(answer: &[u8]) -> io::Result<Option<(u16, usize)>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "not an answer with a status and a length");
    let head = std::str::from_utf8(&answer[..end]).map_err(|_| invalid())?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(invalid)?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().ok())?
    });
    Ok(Some((status, end + 4 + length.ok_or_else(invalid)?)))
}

/// A request's bytes.
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
