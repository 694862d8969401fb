//! Conditions with a deadline. The error of one that was not met says what was awaited and what was seen last.

use std::error::Error;
use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

/// How often a condition is looked at: short beside what it waits for, long beside a request.
const POLL: Duration = Duration::from_millis(100);

/// Why a condition does not hold yet. Made from any error with `?`: an API server that is not there yet is a reason
/// to look again, as any other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotYet(pub String);

impl NotYet {
    /// What was seen instead, for the error message.
    pub fn because(seen: impl Into<String>) -> Self {
        Self(seen.into())
    }
}

impl<E: Error> From<E> for NotYet {
    fn from(error: E) -> Self {
        // kube keeps the cause out of its own message ("ServiceError: client error (Connect)").
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let more = error.to_string();
            if !text.contains(&more) {
                text = format!("{text}: {more}");
            }
            cause = error.source();
        }
        Self(text)
    }
}

/// A condition that did not hold in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("waited {} s in vain for {what}; last seen: {seen}", .deadline.as_secs())]
pub struct WaitError {
    /// What was awaited.
    pub what: String,
    /// How long.
    pub deadline: Duration,
    /// The last [`NotYet`], or that the condition itself took too long.
    pub seen: String,
}

/// Looks at `condition` every 100 ms until it is Ok, for as long as `deadline`.
///
/// `what` completes the sentence "waited in vain for ...". An error inside the condition is not final (see
/// [`NotYet`]); a condition that never answers is cut off at the deadline.
pub async fn wait_until<T, C, F>(
    what: &str,
    deadline: Duration,
    mut condition: C,
) -> Result<T, WaitError>
where
    C: FnMut() -> F,
    F: Future<Output = Result<T, NotYet>>,
{
    let end = Instant::now() + deadline;
    let mut seen = "nothing, the first look has not come back".to_owned();
    loop {
        match timeout_at(end, condition()).await {
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(NotYet(state))) => seen = state,
            Err(_) => {}
        }
        if Instant::now() + POLL >= end {
            return Err(WaitError {
                what: what.to_owned(),
                deadline,
                seen,
            });
        }
        sleep(POLL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_says_what_was_awaited_and_what_was_seen_last() {
        let mut looks = 0;
        let error = wait_until::<(), _, _>("the moon", Duration::from_millis(350), || {
            looks += 1;
            let seen = format!("look {looks}");
            async move { Err(NotYet(seen)) }
        })
        .await
        .unwrap_err();
        let error = error.to_string();
        assert!(
            error.starts_with("waited 0 s in vain for the moon; last seen: look "),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_condition_that_hangs_is_cut_off() {
        let error =
            wait_until::<(), _, _>("an answer", Duration::from_millis(50), std::future::pending)
                .await;
        assert!(error.unwrap_err().seen.contains("first look"));
    }
}
