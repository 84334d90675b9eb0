//! Time limits for what is mostly done at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use pin_project_lite::pin_project;
use tokio::task::coop::{Unconstrained, unconstrained};
use tokio::time::{Instant, Sleep, sleep, sleep_until};

pin_project! {
    /// What `work` comes to, or nothing if that takes too long.
    ///
    /// A timer costs more than most of what it is set for, so it is set when there is something to
    /// wait for; and it is boxed, so that a future that need not wait has no room for one.
    pub(crate) struct Patient<F> {
        #[pin]
        work: F,
        limit: Limit,
        // Its turn comes also where `work` has used up what its task may do at a time.
        timer: Option<Pin<Box<Unconstrained<Sleep>>>>,
    }
}

enum Limit {
    At(Instant),
    After(Duration),
}

/// What `work` comes to before `deadline`.
pub(crate) fn before<F: Future>(deadline: Instant, work: F) -> Patient<F> {
    Patient { work, limit: Limit::At(deadline), timer: None }
}

/// What `work` comes to within `time` from when it has to wait.
pub(crate) fn within<F: Future>(time: Duration, work: F) -> Patient<F> {
    Patient { work, limit: Limit::After(time), timer: None }
}

impl<F: Future> Future for Patient<F> {
    type Output = Option<F::Output>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(done) = this.work.poll(cx) {
            return Poll::Ready(Some(done));
        }
        let limit = &*this.limit;
        let timer = this.timer.get_or_insert_with(|| {
            Box::pin(unconstrained(match limit {
                Limit::At(deadline) => sleep_until(*deadline),
                Limit::After(time) => sleep(*time),
            }))
        });
        timer.as_mut().poll(cx).map(|()| None)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_is_done_in_time_is_had_and_what_is_not_is_given_up() {
        let begun = Instant::now();
        let deadline = begun + Duration::from_secs(3);
        assert_eq!(before(deadline, ready(1)).await, Some(1));
        assert_eq!(before(deadline, sleep(Duration::from_secs(2))).await, Some(()));
        assert_eq!(before(deadline, pending::<()>()).await, None);
        assert_eq!(begun.elapsed(), Duration::from_secs(3));
        assert_eq!(within(Duration::from_secs(1), pending::<()>()).await, None);
        assert_eq!(begun.elapsed(), Duration::from_secs(4));
    }

    #[tokio::test]
    async fn work_that_never_rests_is_given_up_too() {
        let restless = async {
            loop {
                tokio::task::coop::consume_budget().await;
            }
        };
        assert_eq!(within(Duration::from_millis(1), restless).await, None::<()>);
    }
}
