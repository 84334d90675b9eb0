//! Work for a thread of the store: asked for within a bound, awaited within a time.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{StoreError, StoreErrorKind};
use tokio::sync::oneshot;

use super::trouble::{Failure, Refusal, Trouble};

/// The most work that waits for one thread.
const QUEUE_MAX: usize = 16_384;

/// Where callers leave work, and the threads that do it. Dropping it waits until all is done.
pub(super) struct Queue<C> {
    // Dropped first, which tells the threads to come to an end.
    jobs: SyncSender<Job<C>>,
    urgent: Urgent<C>,
    threads: Threads,
    time_out: Duration,
    lost: StoreErrorKind,
}

/// Work that is done before all that waits in the queue.
pub(super) type Urgent<C> = Arc<Mutex<VecDeque<Job<C>>>>;

/// Work of some caller, with what its thread has, `C`.
pub(super) type Job<C> = Box<dyn Pending<C>>;

pub(super) trait Pending<C>: Send {
    /// Does the work. Its outcome is kept back until [`Pending::tell`].
    fn run(&mut self, context: &mut C) -> Result<(), Failure>;

    /// Tells the caller the outcome, or why there is none.
    fn tell(self: Box<Self>, verdict: Result<(), &Refusal>);
}

impl<C: 'static> Queue<C> {
    /// A queue and its far end. `lost` is what a caller must believe that got no answer in time.
    pub(super) fn new(time_out: Duration, lost: StoreErrorKind) -> (Self, Receiver<Job<C>>) {
        let (sender, receiver) = sync_channel(QUEUE_MAX);
        let (urgent, threads) = (Urgent::<C>::default(), Threads::default());
        (Self { jobs: sender, urgent, threads, time_out, lost }, receiver)
    }

    /// Starts a thread that ends with the queue.
    pub(super) fn start(
        &mut self,
        name: &str,
        run: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.threads.running.push(Builder::new().name(name.to_owned()).spawn(run)?);
        Ok(())
    }

    /// The work that goes first, for the thread that does it.
    pub(super) fn urgent(&self) -> Urgent<C> {
        self.urgent.clone()
    }

    /// Has `work` done, and waits for its outcome.
    pub(super) async fn ask<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut C) -> Result<T, Trouble> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Work { work: Some(work), outcome: None, reply });
        self.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(_) => not_written("the store's queue is full"),
            TrySendError::Disconnected(_) => not_written("the store's thread is gone"),
        })?;
        self.heard(answer).await
    }

    /// As [`Queue::ask`], before all that waits in the queue.
    pub(super) async fn ask_first<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut C) -> Result<T, Trouble> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let job = Box::new(Work { work: Some(work), outcome: None, reply });
        {
            let mut urgent = self.urgent.lock();
            if urgent.len() >= QUEUE_MAX {
                return Err(not_written("the store's queue is full"));
            }
            urgent.push_back(job);
        }
        // It wakes the thread. Where the queue is full, the thread is awake.
        let (reply, _) = oneshot::channel();
        let nothing = Work { work: Some(|_: &mut C| Ok(())), outcome: None, reply };
        let _full = self.jobs.try_send(Box::new(nothing));
        self.heard(answer).await
    }

    async fn heard<T>(
        &self,
        answer: oneshot::Receiver<Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.time_out, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(StoreError::new(self.lost, "the store's thread is gone")),
            Err(_) => Err(StoreError::new(
                self.lost,
                format!("the store did not answer within {:?}", self.time_out),
            )),
        }
    }
}

#[derive(Default)]
struct Threads {
    running: Vec<JoinHandle<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        for thread in self.running.drain(..) {
            // One that panicked has said so, and its callers have heard that it is gone.
            let _ = thread.join();
        }
    }
}

fn not_written(message: &str) -> StoreError {
    StoreError::new(StoreErrorKind::NotWritten, message)
}

/// Records were lost, and unknown keys are refused for so long.
fn closed(left: Duration) -> StoreError {
    let text = format!("the store has lost records: no unknown key for {left:?}");
    StoreError::new(StoreErrorKind::RecordsLost, text).retry_after(left)
}

struct Work<T, F> {
    work: Option<F>,
    outcome: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<C, T, F> Pending<C> for Work<T, F>
where
    T: Send,
    F: FnOnce(&mut C) -> Result<T, Trouble> + Send,
{
    fn run(&mut self, context: &mut C) -> Result<(), Failure> {
        let work = self.work.take().expect("work is done once");
        self.outcome = Some(match work(context) {
            Ok(value) => Ok(value),
            Err(Trouble::Damaged(error)) => Err(error),
            Err(Trouble::Full(cause)) => Err(not_written(&format!("no new key is taken: {cause}"))),
            Err(Trouble::Closed(left)) => Err(closed(left)),
            Err(Trouble::Failed(failure)) => return Err(failure),
            Err(Trouble::Moved) => unreachable!("a moved record is looked for again"),
        });
        Ok(())
    }

    fn tell(self: Box<Self>, verdict: Result<(), &Refusal>) {
        let outcome = match verdict {
            Ok(()) => self.outcome.expect("work is done before its outcome is told"),
            Err(refusal) => Err(refusal.error()),
        };
        // Nobody listens any more if the caller's time is over.
        let _ = self.reply.send(outcome);
    }
}
