//! [`Pauses`]: where a seed lets others go first.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use tokio::task::JoinHandle;

/// A seeded source of pauses, shared by all tasks of a trial.
#[derive(Clone)]
pub(super) struct Pauses {
    state: Arc<AtomicU64>,
}

impl Pauses {
    /// The most turns given to others in one place.
    const TURNS_MAX: u64 = 3;

    pub(super) fn new(seed: u64) -> Self {
        Self { state: Arc::new(AtomicU64::new(seed)) }
    }

    /// How many turns others get here. SplitMix64: small, and good enough to mix.
    fn turns(&self) -> u64 {
        let step = 0x9e37_79b9_7f4a_7c15;
        let mut mixed = self.state.fetch_add(step, Ordering::Relaxed).wrapping_add(step);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % (Self::TURNS_MAX + 1)
    }

    pub(super) async fn pause(&self) {
        for _ in 0..self.turns() {
            tokio::task::yield_now().await;
        }
    }

    /// Runs `future` on a task of its own, with a pause before each of its polls.
    #[expect(clippy::disallowed_methods, reason = "rivals meet only on tasks of their own")]
    pub(super) fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send> + Send + 'static,
    {
        tokio::spawn(self.between_polls(future))
    }

    fn between_polls<F: Future>(&self, future: F) -> Paused<F> {
        Paused { future: Box::pin(future), turns: self.turns(), pauses: self.clone() }
    }
}

/// A future that lets others go first whenever it could go on.
struct Paused<F> {
    future: Pin<Box<F>>,
    turns: u64,
    pauses: Pauses,
}

impl<F: Future> Future for Paused<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if self.turns > 0 {
            self.turns -= 1;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.turns = self.pauses.turns();
        self.future.as_mut().poll(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_pauses_again() {
        let turns = |seed| {
            let pauses = Pauses::new(seed);
            (0..50).map(|_| pauses.turns()).collect::<Vec<_>>()
        };
        assert_eq!(turns(3), turns(3));
        assert_ne!(turns(3), turns(4));
        assert!(turns(3).contains(&0) && turns(3).contains(&Pauses::TURNS_MAX));
    }

    #[test]
    fn a_paused_future_lets_others_go_first() {
        let pauses = Pauses::new(0);
        let polls = (0..50).map(|_| {
            let mut paused = pauses.between_polls(std::future::ready(()));
            let mut context = Context::from_waker(Waker::noop());
            let pending = || Pin::new(&mut paused).poll(&mut context).is_pending();
            1 + std::iter::repeat_with(pending).take_while(|pending| *pending).count()
        });
        assert!(polls.sum::<usize>() > 75);
    }
}
