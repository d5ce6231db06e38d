//! Connections that outlive a call.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use super::{Call, PATIENCE, Reply};

/// A connection that is kept for many calls.
#[derive(Debug)]
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// If nothing listens.
    pub fn open(address: SocketAddr) -> io::Result<Self> {
        Self::open_for(address, PATIENCE)
    }

    /// Connects; no answer may take longer than this.
    ///
    /// # Errors
    /// If nothing listens.
    pub fn open_for(address: SocketAddr, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self(BufReader::new(stream)))
    }

    /// Sends a call and reads the answer.
    ///
    /// # Errors
    /// If the connection breaks or the answer is late: the call may have had its effect or not.
    pub fn send(&mut self, call: &Call) -> io::Result<Reply> {
        let head = call.head_with(call.body.len(), "");
        self.0.get_mut().write_all(&[head, call.body.clone()].concat())?;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if self.0.read_until(b'\n', &mut head)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let mut reply = Reply::parse(&head).ok_or(io::ErrorKind::InvalidData)?;
        reply.body.resize(reply.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0), 0);
        self.0.read_exact(&mut reply.body)?;
        Ok(reply)
    }
}
