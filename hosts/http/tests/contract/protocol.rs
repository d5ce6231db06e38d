//! Bodies too large, calls too slow, and HTTP as nobody should speak it, against the real binary.

use std::{collections::BTreeSet, io::Write, net::TcpStream, thread, time::Duration};

use rollhook_testing::{Reply, image, server};
use serde_json::Value;

#[test]
fn a_large_body_is_413_and_its_sender_reads_that() {
    let server = server!().run();
    let app = server.app("api");
    let post = |body: &[u8]| {
        server
            .call("POST", &app.hook)
            .header("x-service-token", &app.token)
            .header("content-type", "application/json")
            .body(body)
            .send()
    };
    let padded = |length: usize| {
        let start = br#"{"image":"r.example.com/api:v2","padding":""#;
        let mut body = start.to_vec();
        body.resize(length - 2, b'x');
        body.extend_from_slice(b"\"}");
        body
    };
    assert_eq!(post(&padded(1024 * 1024)).status, 202);
    for length in [1024 * 1024 + 1, 8 * 1024 * 1024] {
        let reply = post(&padded(length));
        assert_eq!((reply.status, reply.problem().as_str()), (413, "body-too-large"));
    }
    // Without a length, the limit is found out on the way.
    let mut stream = TcpStream::connect(server.address).unwrap();
    let head =
        format!("POST {} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n", app.hook);
    stream.write_all(head.as_bytes()).unwrap();
    for _ in 0..32 {
        stream.write_all(b"10000\r\n").unwrap();
        stream.write_all(&[b'x'; 0x10000]).unwrap();
        stream.write_all(b"\r\n").unwrap();
    }
    stream.write_all(b"0\r\n\r\n").unwrap();
    assert_eq!(Reply::read(stream).status, 413);
}

#[test]
fn a_slow_body_is_408() {
    let server = server!().run();
    let app = server.app("api");
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&server.post(&app, &image("v2")).head(100)).unwrap();
    stream.write_all(b"{").unwrap();
    let reply = Reply::read(stream);
    assert_eq!((reply.status, reply.problem().as_str()), (408, "slow-body"));
}

#[test]
fn large_unauthenticated_bodies_delay_no_caller() {
    let server = server!().run();
    let app = server.app("api");
    let stranger = server.call("POST", &app.hook);
    let started = |_| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(&stranger.head(1024 * 1024)).unwrap();
        stream.write_all(&[b'x'; 100_000]).unwrap();
        stream
    };
    let streams: Vec<TcpStream> = (0..200).map(started).collect();
    thread::sleep(Duration::from_millis(500));
    server.post(&app, &image("v2")).expect(202);
    let waiting = |stream: &TcpStream| {
        stream.set_nonblocking(true).unwrap();
        let answer = stream.peek(&mut [0]);
        stream.set_nonblocking(false).unwrap();
        answer.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
    };
    assert!(streams.iter().any(waiting), "the call was answered only after the bodies");
    let statuses: BTreeSet<u16> = streams.into_iter().map(|stream| Reply::read(stream).status).collect();
    assert_eq!(statuses, BTreeSet::from([408]));
}

#[test]
fn slow_headers_are_hung_up_on() {
    let server = server!().run();
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream.write_all(b"POST /api/v1/webhook/shop-test/api HTTP/1.1\r\nhost: x\r\n").unwrap();
    let mut bytes = Vec::new();
    std::io::Read::read_to_end(&mut stream, &mut bytes).unwrap();
}

#[test]
fn oddities_of_the_protocol_are_no_500() {
    let server = server!().run();
    let app = server.app("api");
    let raw = |bytes: &[u8]| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(12))).unwrap();
        let _ = stream.write_all(bytes);
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut stream, &mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    };
    let hook = &app.hook;
    for odd in [
        format!(
            "POST {hook} HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\nGET /healthz HTTP/1.1\r\n\r\n"
        ),
        format!(
            "POST {hook} HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\ncontent-length: 6\r\nconnection: close\r\n\r\nhello!"
        ),
        format!("POST {hook} HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\nconnection: close\r\n\r\n"),
        format!("POST {hook} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\nzz\r\n"),
        format!("POST {hook} HTTP/1.1\r\nhost: x\r\nx y: z\r\nconnection: close\r\n\r\n"),
        format!("POST {hook} HTTP/1.1\r\nhost: x\r\n{}: z\r\nconnection: close\r\n\r\n", "h".repeat(100_000)),
        format!("POST /{} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n", "p".repeat(100_000)),
        "GET http://evil.example.com/healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
        "OPTIONS * HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
        "CONNECT evil.example.com:443 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}".to_owned(),
    ] {
        let answer = raw(odd.as_bytes());
        assert!(!answer.contains(" 500 ") && !answer.contains(" 202 "), "{odd:.60}: {answer}");
    }
    server.call("GET", "/healthz").expect(200);
}

#[test]
fn a_head_is_a_get_without_a_body() {
    let server = server!().run();
    let reply = server.call("HEAD", "/healthz").expect(200);
    assert!(reply.body.is_empty());
    let reply: Value = server.call("GET", "/api/v1/openapi.json").expect(200).json();
    assert_eq!(reply["openapi"], "3.1.0");
}

#[test]
fn compressed_body_is_415_by_the_name_of_its_encoding() {
    let server = server!().run();
    let app = server.app("api");
    let post = |encoding: &str| server.post(&app, &image("v2")).header("content-encoding", encoding).send();
    for (encoding, name) in [("gzip", "\"gzip\""), ("identity, br", "\"br\"")] {
        let reply = post(encoding);
        assert_eq!((reply.status, reply.problem().as_str()), (415, "unsupported-media-type"));
        assert!(reply.json()["detail"].as_str().unwrap().contains(name), "{}", reply.text());
        assert_eq!(reply.header("accept-encoding"), Some("identity"));
    }
    assert_eq!(post("Identity").status, 202);
}

#[test]
fn body_that_was_compressed_for_its_way_is_501() {
    let server = server!().run();
    let app = server.app("api");
    let body = image("v2").to_string();
    let post = |coding: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        let head = format!(
            "POST {} HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nx-service-token: {}\r\n\
             connection: close\r\ntransfer-encoding: {coding}\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
            app.hook,
            app.token,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        Reply::read(stream)
    };
    for coding in ["gzip, chunked", "GZIP,chunked"] {
        let reply = post(coding);
        assert_eq!((reply.status, reply.problem().as_str()), (501, "unsupported-transfer-coding"), "{coding}");
    }
    assert_eq!(post("chunked").status, 202);
    assert_eq!(post("Chunked").status, 202);
}

#[test]
fn byte_order_mark_before_the_json_is_skipped_and_signed() {
    let server = server!().run();
    let app = server.app("api");
    let body = [b"\xef\xbb\xbf".to_vec(), image("v2").to_string().into_bytes()].concat();
    let call = server.call("POST", &app.hook).header("content-type", "application/json").body(&body);
    assert_eq!(call.clone().sign(&app.token).expect(202).json()["commit"], "v2");
    call.expect(401);
    let create = rollhook_testing::server::registration("web", &serde_json::json!({ "image": "r.example.com/web:1" }));
    let body = [b"\xef\xbb\xbf".to_vec(), create.to_string().into_bytes()].concat();
    server.manage("POST", "/api/v1/apps").header("content-type", "application/json").body(&body).expect(201);
}

#[test]
fn call_without_one_host_is_400() {
    let server = server!().run();
    let status = |head: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(format!("GET /healthz {head}connection: close\r\n\r\n").as_bytes()).unwrap();
        Reply::read(stream).status
    };
    assert_eq!(status("HTTP/1.1\r\n"), 400);
    assert_eq!(status("HTTP/1.1\r\nhost: a\r\nhost: b\r\n"), 400);
    assert_eq!(status("HTTP/1.1\r\nhost: a\r\n"), 200);
    assert_eq!(status("HTTP/1.0\r\n"), 200, "HTTP/1.0 has none");
}
