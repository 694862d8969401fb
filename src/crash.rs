//! Only with feature `crash-test`: lets the operator die at a mutating request, as `RELOCATOR_CRASH` says. For tests.
//!
//! `after:N` dies when the Nth mutating request has been answered, before anything has learned of the answer; `before:N` dies when the
//! Nth would be sent. Those of the lease and of events do not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http::{Method, Request, Response};
use tower::{Layer, Service};

/// When to die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    Before(u32),
    After(u32),
}

/// A layer for the acting client.
#[derive(Clone, Debug)]
pub struct CrashLayer {
    moment: Option<Moment>,
    seen: Arc<AtomicU32>,
}

impl CrashLayer {
    /// As the environment says; a text that is not understood is no crash.
    #[must_use]
    pub fn from_environment() -> Self {
        let text = std::env::var("RELOCATOR_CRASH").unwrap_or_default();
        Self {
            moment: parse(&text),
            seen: Arc::default(),
        }
    }
}

fn parse(text: &str) -> Option<Moment> {
    let (when, number) = text.split_once(':')?;
    let number = number.parse().ok()?;
    match when {
        "before" => Some(Moment::Before(number)),
        "after" => Some(Moment::After(number)),
        _ => None,
    }
}

impl<S> Layer<S> for CrashLayer {
    type Service = Crash<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Crash {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service that dies.
#[derive(Clone, Debug)]
pub struct Crash<S> {
    inner: S,
    layer: CrashLayer,
}

impl<S, B, C> Service<Request<B>> for Crash<S>
where
    S: Service<Request<B>, Response = Response<C>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let path = request.uri().path();
        let counts = request.method() != Method::GET
            && !path.contains("/leases")
            && !path.contains("/events");
        let number = if counts {
            self.layer.seen.fetch_add(1, Ordering::Relaxed) + 1
        } else {
            0
        };
        let what = format!("{} {path}", request.method());
        if counts && self.layer.moment == Some(Moment::Before(number)) {
            die("before", &what);
        }
        let dies = counts && self.layer.moment == Some(Moment::After(number));
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            if dies {
                die("after", &what);
            }
            answer
        })
    }
}

/// As by SIGKILL: nothing is flushed, nothing given up.
fn die(when: &str, what: &str) -> ! {
    eprintln!("crash-test: {when} {what}");
    std::process::abort();
}
