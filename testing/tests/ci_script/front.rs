//! A proxy in front of the server, which also answers by itself, as told.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

/// The answer to one call.
#[derive(Clone)]
pub(crate) enum Answer {
    /// The server's.
    Passed(SocketAddr),
    /// This head, from the status on, and this body.
    Told(&'static str, String),
    /// None: the connection is closed once the call was read.
    Closed,
}

/// A proxy that answers so in turn, and by the last answer ever after.
pub(crate) struct Front {
    pub(crate) url: String,
    /// The calls as they came: head and body.
    pub(crate) calls: Arc<Mutex<Vec<String>>>,
}

impl Front {
    pub(crate) fn start(path: &str, answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}{path}", listener.local_addr().unwrap());
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let seen = calls.clone();
        thread::spawn(move || {
            for (index, stream) in listener.incoming().enumerate() {
                let answer = answers[index.min(answers.len() - 1)].clone();
                let call = answered(stream.unwrap(), answer);
                seen.lock().unwrap().push(call);
            }
        });
        Self { url, calls }
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }
}

fn answered(mut stream: TcpStream, answer: Answer) -> String {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut call = String::new();
    while !call.ends_with("\r\n\r\n") {
        if reader.read_line(&mut call).unwrap() == 0 {
            return call;
        }
    }
    let length =
        call.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body).unwrap();
    call.push_str(&String::from_utf8(body).unwrap());
    match answer {
        Answer::Closed => {}
        Answer::Told(head, body) => {
            let head = format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
        }
        Answer::Passed(server) => {
            let mut onward = TcpStream::connect(server).unwrap();
            onward.write_all(call.replacen("\r\n", "\r\nConnection: close\r\n", 1).as_bytes()).unwrap();
            let mut reply = Vec::new();
            onward.read_to_end(&mut reply).unwrap();
            stream.write_all(&reply).unwrap();
        }
    }
    call
}
