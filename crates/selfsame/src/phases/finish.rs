//! The end of a run in phases: its answer.

use bytes::Bytes;
use http::Response;
use http_body::Body;
use selfsame_core::headers::{IDEMPOTENCY_EXPIRES, IDEMPOTENCY_OUTCOME};
use selfsame_core::{AnswerBody, Recorded, Replay};
use tokio::time::Instant;

use super::{PhaseError, Phases, Transaction};
use crate::body::BoxError;
use crate::buffer_limit::HeldBytes;
use crate::collect::{Collected, collect};
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::steps::{answer_to_keep, is_stream};

/// What the code has where the journal may have a phase.
const FINISH: &str = "finish";

impl Phases {
    /// Ends the run with this answer, which is kept whatever its status is.
    pub fn finish<B>(self, mut response: Response<B>) -> Result<Response<B>, PhaseError> {
        self.is_at_end()?;
        if !response.headers().contains_key(IDEMPOTENCY_OUTCOME) {
            response.extensions_mut().get_or_insert_with(|| Outcome::Final);
        }
        Ok(response)
    }

    /// Ends the run: commits `transaction`, and with it this answer, which is kept whatever its status
    /// is. The response that is returned is the handler's to return; what is between it and the layer
    /// can no longer change what the client gets.
    ///
    /// If another run has taken over, nothing is committed. If the connection is lost before the
    /// commit is acknowledged, the key's record tells what became of it.
    pub async fn finish_with<B>(
        self,
        mut transaction: impl Transaction,
        mut response: Response<B>,
    ) -> Result<Response<B>, PhaseError>
    where
        B: Body<Data = Bytes> + From<Bytes>,
        B::Error: Into<BoxError>,
    {
        self.is_at_end()?;
        let (run, journal, lease) = (&self.ledger.run, &self.ledger.journal, self.ledger.lease());
        let policy = &*run.state.route.as_deref().ok_or(PhaseError::NoRequest)?.policy;
        let _word = Outcome::take_from(response.headers_mut());
        if policy.expires_header {
            response.headers_mut().remove(IDEMPOTENCY_EXPIRES);
        }
        let (parts, body) = response.into_parts();
        let not_kept = || PhaseError::NotKept { max: policy.answer_bytes_max };
        if is_stream(&parts, policy) {
            return Err(not_kept());
        }
        let (data, trailers) = match whole(body, policy).await {
            Collected::Whole { data, trailers, .. } => (data, trailers),
            Collected::Over { .. } => return Err(not_kept()),
            Collected::Panicked(payload) => std::panic::resume_unwind(payload),
            Collected::Broken => {
                let source = "the answer's body ended in the middle".into();
                return Err(PhaseError::Failed { phase: FINISH.to_owned(), source });
            }
        };
        let answer = answer_to_keep(&parts, AnswerBody::Kept(data.clone()), trailers, policy);

        journal.make_room(&lease.id).await?;
        let recorded = match journal.complete_in(&mut transaction, lease, &answer).await {
            Ok(Recorded::Until(expires_at)) => match transaction.commit().await {
                Ok(()) => Recorded::Until(expires_at),
                Err(source) => self.settle(source).await?,
            },
            Ok(Recorded::Lost) => Recorded::Lost,
            Err(source) => return Err(not_committed(source)),
        };
        match recorded {
            Recorded::Until(expires_at) => {
                journal.ended(lease).await;
                // Only this run has phases, and only once.
                let _first = run.state.finished.set(Box::new(Replay { answer, expires_at }));
            }
            Recorded::Lost => return Err(run.fenced()),
        }
        Ok(Response::from_parts(parts, B::from(data)))
    }

    /// What became of an answer whose commit was not acknowledged.
    async fn settle(&self, source: BoxError) -> Result<Recorded, PhaseError> {
        tracing::warn!(error = %source, "the commit of an answer was not acknowledged");
        match self.ledger.journal.settle_answer(self.ledger.lease()).await {
            Ok(Some(recorded)) => Ok(recorded),
            Ok(None) => Err(not_committed(source)),
            Err(_) => Err(PhaseError::Unsettled { phase: FINISH.to_owned(), source }),
        }
    }

    /// Whether the journal ends where the code does.
    fn is_at_end(&self) -> Result<(), PhaseError> {
        match self.ledger.known.phases.get(self.finished.len()) {
            Some(more) => Err(PhaseError::other_code(more, FINISH)),
            None => Ok(()),
        }
    }
}

fn not_committed(source: BoxError) -> PhaseError {
    PhaseError::NotCommitted { phase: FINISH.to_owned(), source }
}

async fn whole<B: Body<Data = Bytes>>(body: B, policy: &Policy) -> Collected<B> {
    let deadline = Instant::now() + policy.run_timeout;
    collect(body, policy.answer_bytes_max, HeldBytes::default(), deadline).await
}
