//! [`Lane`]: calls of many callers, sent together over one connection.
//!
//! What waits goes out as one batch. Callers that were just answered come back while the next
//! batch is under way, so what waits is half of them: a batch gathers until it is as large as
//! usual, but not for long. Where callers come one by one, each makes its call itself, over a
//! connection that all lanes share: that spares it two ways between tasks.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use selfsame_core::{RecordId, StoreError, StoreErrorKind};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::Instant;

use super::link::Link;
use super::session::{Session, Target};
use super::trouble::Fault;
use crate::background;

/// The most calls that wait for one connection.
const QUEUE_MAX: usize = 16_384;
/// The most calls that travel together, and the most bytes of answers.
const BATCH_MAX: usize = 256;
const BATCH_BYTES_MAX: usize = 4 * 1024 * 1024;
/// How long a batch waits, at most, for callers that are about to come back.
const GATHER_MAX: Duration = Duration::from_micros(200);
/// How much of the usual batch size is made up by the last batch.
const LAST_BATCH_WEIGHT: f32 = 0.125;

/// A call that can travel with others of its kind.
pub(super) trait Call: Send + Sync + Sized + 'static {
    type Outcome: Send + 'static;

    /// About how many bytes it sends.
    fn bytes(&self) -> usize;

    /// Makes the calls, and returns what each came to, in their order. Where the whole batch
    /// fails, no outcome of it stands.
    fn make(
        session: &Session,
        calls: &[Self],
    ) -> impl Future<Output = Result<Vec<Result<Self::Outcome, StoreError>>, Fault>> + Send;
}

/// One call for each key, in the order of their ids: two would be two rows for one.
pub(super) fn one_for_each<C>(calls: &[C], id: impl Fn(&C) -> RecordId) -> Vec<&C> {
    let mut sorted: Vec<_> = calls.iter().collect();
    sorted.sort_by_key(|call| id(call));
    sorted.dedup_by_key(|call| id(call));
    sorted
}

/// Whether it is this call that was sent, and not another one of its key.
pub(super) fn is_sent<C>(sent: &[&C], call: &C) -> bool {
    sent.iter().any(|sent| std::ptr::eq(*sent, call))
}

/// Where callers leave their calls. The connection ends when the lane is dropped.
pub(super) struct Lane<C: Call> {
    waiting: mpsc::Sender<Ticket<C>>,
    alone: Arc<Alone>,
    /// Whoever sends, a batch or a call alone: two would find each other's rows locked.
    turn: Arc<Semaphore>,
    /// Whether callers come one by one.
    is_quiet: Arc<AtomicBool>,
    time_out: Duration,
}

/// The connection of those who make their calls themselves, one at a time.
pub(super) struct Alone {
    link: Arc<Link>,
    turn: Semaphore,
}

impl Alone {
    pub(super) fn new(link: Arc<Link>) -> Self {
        Self { link, turn: Semaphore::new(1) }
    }
}

struct Ticket<C: Call> {
    call: C,
    /// Whoever sets this first decides: sent, or given up unsent.
    is_decided: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<C::Outcome, StoreError>>,
}

impl<C: Call> Lane<C> {
    pub(super) fn start(target: &Target, alone: Arc<Alone>) -> Self {
        let (sender, waiting) = mpsc::channel(QUEUE_MAX);
        let (turn, is_quiet) = (Arc::new(Semaphore::new(1)), Arc::new(AtomicBool::new(true)));
        let sending = Sending {
            waiting,
            link: Link::new(target.clone()),
            usual_batch: 1.0,
            turn: turn.clone(),
            is_quiet: is_quiet.clone(),
        };
        background::spawn(sending.run());
        Self { waiting: sender, alone, turn, is_quiet, time_out: target.time_out }
    }

    /// What `call` comes to.
    pub(super) async fn ask(&self, call: C) -> Result<C::Outcome, StoreError> {
        if self.is_quiet.load(Ordering::Relaxed)
            && !self.alone.link.has_just_failed()
            && let Ok(_turn_here) = self.turn.try_acquire()
            && let Ok(_turn) = self.alone.turn.try_acquire()
        {
            return self.make_alone(call).await;
        }
        let (reply, answer) = oneshot::channel();
        let is_decided = Arc::new(AtomicBool::new(false));
        let ticket = Ticket { call, is_decided: is_decided.clone(), reply };
        self.waiting
            .try_send(ticket)
            .map_err(|_| Fault::not_written("too many calls wait for the database").error())?;
        match tokio::time::timeout(self.time_out, answer).await {
            Ok(Ok(outcome)) => outcome,
            Ok(Err(_)) => Err(unheard("the connection's task is gone".to_owned())),
            Err(_) if !is_decided.swap(true, Ordering::AcqRel) => Err(self.no_connection()),
            Err(_) => Err(self.no_answer()),
        }
    }

    async fn make_alone(&self, call: C) -> Result<C::Outcome, StoreError> {
        let mut sent_over = None;
        let made = tokio::time::timeout(self.time_out, async {
            let session = sent_over.insert(self.alone.link.session().await?);
            make(session, &[call]).await.pop().expect("one call has one outcome")
        });
        match (made.await, sent_over) {
            (Ok(outcome), _) => outcome,
            (Err(_), None) => Err(self.no_connection()),
            (Err(_), Some(session)) => {
                session.give_up();
                Err(self.no_answer())
            }
        }
    }

    fn no_connection(&self) -> StoreError {
        Fault::not_written(format!("no connection was free within {:?}", self.time_out)).error()
    }

    fn no_answer(&self) -> StoreError {
        unheard(format!("no answer within {:?}", self.time_out))
    }
}

fn unheard(message: String) -> StoreError {
    StoreError::new(StoreErrorKind::MayHaveLanded, message)
}

/// The far end of a lane.
struct Sending<C: Call> {
    waiting: mpsc::Receiver<Ticket<C>>,
    link: Link,
    usual_batch: f32,
    turn: Arc<Semaphore>,
    is_quiet: Arc<AtomicBool>,
}

impl<C: Call> Sending<C> {
    async fn run(mut self) {
        let turn = self.turn.clone();
        while let Some(first) = self.waiting.recv().await {
            let _turn = turn.acquire().await.expect("it is never closed");
            let batch = self.gather(first).await;
            self.send(batch).await;
        }
    }

    async fn gather(&mut self, first: Ticket<C>) -> Vec<Ticket<C>> {
        let mut bytes = first.call.bytes();
        let mut batch = vec![first];
        let until = Instant::now() + GATHER_MAX;
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            match self.waiting.try_recv() {
                Ok(ticket) => {
                    bytes += ticket.call.bytes();
                    batch.push(ticket);
                }
                // The timer counts in milliseconds: too coarse for this.
                Err(_) if (batch.len() as f32) < self.usual_batch.round() => {
                    if Instant::now() >= until {
                        break;
                    }
                    tokio::task::yield_now().await;
                }
                Err(_) => break,
            }
        }
        self.usual_batch += (batch.len() as f32 - self.usual_batch) * LAST_BATCH_WEIGHT;
        self.is_quiet.store(self.usual_batch.round() <= 1.0, Ordering::Relaxed);
        batch
    }

    async fn send(&self, batch: Vec<Ticket<C>>) {
        let session = self.link.session().await;
        let wanted = batch.into_iter().filter(|t| !t.is_decided.swap(true, Ordering::AcqRel));
        let (calls, replies): (Vec<_>, Vec<_>) = wanted.map(|t| (t.call, t.reply)).unzip();
        let outcomes = match session {
            Ok(session) => make(&session, &calls).await,
            Err(fault) => calls.iter().map(|_| Err(fault.error())).collect(),
        };
        for (reply, outcome) in replies.into_iter().zip(outcomes) {
            // Nobody listens any more if the caller's time is over.
            let _ = reply.send(outcome);
        }
    }
}

/// Makes the calls together; if the database refuses that, each alone, so that nobody suffers for
/// another's call.
pub(super) async fn make<C: Call>(
    session: &Session,
    calls: &[C],
) -> Vec<Result<C::Outcome, StoreError>> {
    if calls.is_empty() {
        return Vec::new();
    }
    let fault = match C::make(session, calls).await {
        Ok(outcomes) => return outcomes,
        Err(fault) => fault,
    };
    if !fault.is_local || calls.len() == 1 {
        return calls.iter().map(|_| Err(fault.error())).collect();
    }
    let mut outcomes = Vec::with_capacity(calls.len());
    for call in calls {
        match C::make(session, std::slice::from_ref(call)).await {
            Ok(alone) => outcomes.extend(alone),
            Err(fault) => outcomes.push(Err(fault.error())),
        }
    }
    outcomes
}
