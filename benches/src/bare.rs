//! The baseline server: the same HTTP library, which reads the body, computes one HMAC and answers.

use std::{convert::Infallible, time::Duration};

use bytes::Bytes;
use hmac::{Hmac, KeyInit, Mac};
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use sha2::Sha256;
use tokio::net::TcpListener;

use crate::Failure;

const BODY_MAX: usize = 1024 * 1024;
/// An answer with the length of a real one.
const ANSWER: &str = r#"{"namespace":"load-test","app":"app-00000","revision":1,"image":"registry.example.com/shop/api:4f2a9c1","commit":"4f2a9c1","trigger":"webhook","status":"queued","url":"http://127.0.0.1:8080/api/v1/apps/load-test/app-00000/deploys/1"}"#;

/// Serves on a free port, which is printed on stdout, until the process is stopped.
pub(crate) async fn serve() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("listening on http://{}", listener.local_addr()?);
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        tokio::spawn(async move {
            // The settings are rollhook-server's.
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .max_buf_size(64 * 1024)
                .serve_connection(TokioIo::new(stream), service_fn(answer));
            // An error means that the client has gone away.
            let _ = connection.await;
        });
    }
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_MAX).collect().await else {
        return Ok(reply(StatusCode::PAYLOAD_TOO_LARGE, ""));
    };
    let key = head.headers.get("x-service-token").map_or(&b""[..], HeaderValue::as_bytes);
    let computed = Hmac::<Sha256>::new_from_slice(key).map(|mut mac| {
        mac.update(&body.to_bytes());
        mac.finalize().into_bytes()
    });
    // The result is used, or the compiler would leave the computation out.
    let zero = computed.is_ok_and(|bytes| bytes.iter().all(|byte| *byte == 0));
    Ok(if zero { reply(StatusCode::UNAUTHORIZED, "") } else { reply(StatusCode::ACCEPTED, ANSWER) })
}

fn reply(status: StatusCode, body: &'static str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from_static(body.as_bytes())));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(
        header::LOCATION,
        HeaderValue::from_static("http://127.0.0.1/api/v1/apps/load-test/app-00000/deploys/1"),
    );
    response
}
