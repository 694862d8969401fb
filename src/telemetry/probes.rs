//! The probes of the kubelet and the figures of Prometheus, over plain HTTP. Read-only: nothing that is sent changes anything.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::metrics::{MEDIA_TYPE, Metrics};

/// Connections at a time. More wait until one ends.
const MOST: usize = 32;

/// How long a request may take to arrive.
const HEADERS: Duration = Duration::from_secs(5);

/// How long a connection may last.
const LONGEST: Duration = Duration::from_mins(1);

/// The address can't be listened on.
#[derive(Debug, thiserror::Error)]
#[error("listening on {address} (--http): {source}")]
pub struct Error {
    address: SocketAddr,
    source: std::io::Error,
}

/// Takes the address, and logs it: with port 0, the system chooses one. Answers come when [`serve`] runs.
pub async fn listen(address: SocketAddr) -> Result<TcpListener, Error> {
    let bound = async {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        tracing::info!(%address, "probes and metrics are served");
        Ok(listener)
    };
    bound.await.map_err(|source| Error { address, source })
}

/// Answers until it is dropped:
///
/// - `/healthz`: 200 while the program runs.
/// - `/readyz`: 200 when it takes part in the election, whether it leads or stands by; 503 before.
/// - `/metrics`: the figures.
pub async fn serve(listener: TcpListener, metrics: Metrics) {
    let slots = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open files, for example: that may pass.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let metrics = metrics.clone();
        tokio::spawn(async move {
            let _ended = tokio::time::timeout(LONGEST, converse(stream, metrics)).await;
            drop(slot);
        });
    }
}

async fn converse(stream: TcpStream, metrics: Metrics) {
    let service = service_fn(move |request: Request<Incoming>| {
        let answer = answer(&metrics, request.method(), request.uri().path());
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEADERS);
    let spoken = server.serve_connection(TokioIo::new(stream), service).await;
    if let Err(error) = spoken {
        tracing::debug!(%error, "connection of a probe");
    }
}

fn answer(metrics: &Metrics, method: &Method, path: &str) -> Response<Full<Bytes>> {
    const TEXT: &str = "text/plain; charset=utf-8";
    let (status, kind, body) = match (path, method) {
        ("/healthz" | "/readyz" | "/metrics", method)
            if *method != Method::GET && *method != Method::HEAD =>
        {
            let body = "only GET and HEAD are answered\n".to_owned();
            (StatusCode::METHOD_NOT_ALLOWED, TEXT, body)
        }
        ("/healthz", _) => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        ("/readyz", _) if metrics.is_ready() => (StatusCode::OK, TEXT, "ok\n".to_owned()),
        ("/readyz", _) => {
            let body = "it does not take part in the election yet\n".to_owned();
            (StatusCode::SERVICE_UNAVAILABLE, TEXT, body)
        }
        ("/metrics", _) => (StatusCode::OK, MEDIA_TYPE, metrics.text()),
        _ => {
            let body = "there are /healthz, /readyz and /metrics\n".to_owned();
            (StatusCode::NOT_FOUND, TEXT, body)
        }
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let kind = http::HeaderValue::from_static(kind);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn ask(address: SocketAddr, line: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn probes_are_answered_and_nothing_else() {
        let listener = listen(([127, 0, 0, 1], 0).into()).await.unwrap();
        let address = listener.local_addr().unwrap();
        let metrics = Metrics::default();
        let server = tokio::spawn(serve(listener, metrics.clone()));
        let begins = async |line: &str, with: &str| {
            let answer = ask(address, line).await;
            assert!(answer.starts_with(with), "{line}: {answer}");
            answer
        };
        begins("GET /healthz", "HTTP/1.1 200").await;
        begins("GET /readyz", "HTTP/1.1 503").await;
        metrics.set_ready(true);
        begins("GET /readyz?verbose", "HTTP/1.1 200").await;
        begins("POST /readyz", "HTTP/1.1 405").await;
        begins("GET /debug/pprof", "HTTP/1.1 404").await;
        let text = begins("GET /metrics", "HTTP/1.1 200").await;
        assert!(text.contains(MEDIA_TYPE), "{text}");
        assert!(text.contains("relocator_leader 0\n"), "{text}");
        assert!(text.trim_end().ends_with("# EOF"), "{text}");
        metrics.set_leader(true);
        let text = begins("GET /metrics", "HTTP/1.1 200").await;
        assert!(text.contains("relocator_leader 1\n"), "{text}");

        let taken = listen(address).await.unwrap_err().to_string();
        assert!(
            taken.contains(&format!("listening on {address}")),
            "{taken}"
        );
        server.abort();
    }
}
