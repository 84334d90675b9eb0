//! How long things take, for metrics. Nothing is ever decided by these clocks.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::Response;
use pin_project_lite::pin_project;

use crate::layer::Route;
use crate::outcome::Served;

pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "durations for metrics decide nothing")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// How much of a response's time was the inner service's.
#[derive(Clone, Copy)]
pub(crate) struct RanFor(pub(crate) Duration);

/// A request from when it came.
pub(crate) struct Clocked {
    route: Arc<Route>,
    stopwatch: Stopwatch,
}

pin_project! {
    /// A request until it is answered, and counted as what it was.
    struct Clocking<F> {
        #[pin]
        handling: F,
        clocked: Clocked,
    }
}

impl Clocked {
    pub(crate) fn begin(route: Arc<Route>) -> Self {
        Self { route, stopwatch: Stopwatch::start() }
    }

    /// Counts the response that `handling` comes to.
    pub(crate) fn around<F, B, E>(
        self,
        handling: F,
    ) -> Pin<Box<dyn Future<Output = F::Output> + Send>>
    where
        F: Future<Output = Result<Response<B>, E>> + Send + 'static,
    {
        Box::pin(Clocking { handling, clocked: self })
    }

    fn end<B>(&self, response: &mut Response<B>) {
        let served = response.extensions().get().copied().unwrap_or(Served::Passed);
        let ran = response.extensions_mut().remove::<RanFor>().map(|ran| ran.0);
        self.route.meter.served(served, self.stopwatch.elapsed(), ran);
    }
}

impl<F, B, E> Future for Clocking<F>
where
    F: Future<Output = Result<Response<B>, E>>,
{
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let mut answered = ready!(this.handling.poll(cx));
        if let Ok(response) = &mut answered {
            this.clocked.end(response);
        }
        Poll::Ready(answered)
    }
}
