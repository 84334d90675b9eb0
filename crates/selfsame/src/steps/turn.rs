//! Step 4, where somebody else runs: waiting for that run's end, and claiming again.

use std::time::Duration;

use selfsame_core::Ask;
use tokio::time::Instant;

use super::{ClaimContext, Settled, claim};
use crate::outcome::Served;
use crate::policy::OnConflict;
use crate::reject;

/// How a claim was settled.
pub(crate) struct Turn {
    pub(crate) settled: Settled,
    /// How long the request was ready to wait, where it did.
    pub(crate) waited: Option<Duration>,
}

impl Turn {
    /// What becomes of a request that is settled so.
    pub(crate) fn served(&self) -> Served {
        match &self.settled {
            Settled::Run(claim, _) => Served::by_attempt(claim.grant().attempt),
            Settled::Replay(_) if self.waited.is_some() => Served::Waited,
            Settled::Replay(_) => Served::Replayed,
            Settled::Busy { .. } => Served::InProgress,
            Settled::Refused(refusal) => reject::served(refusal),
            Settled::Bypass => Served::Bypassed,
        }
    }
}

/// Claims; and while somebody else runs, waits for as long as client and route allow.
pub(crate) async fn take_turn(
    context: ClaimContext<'_>,
    ask: &mut Ask,
    preferred: Option<Duration>,
) -> Turn {
    let ClaimContext { engine, policy, .. } = context;
    let patience = match (preferred, policy.on_conflict) {
        (Some(preferred), _) => preferred.min(policy.wait_max),
        (None, OnConflict::Wait) => policy.wait_max,
        (None, OnConflict::Reject) => Duration::ZERO,
    };
    let place = {
        let first = claim(context, ask).await;
        let wishes_to_wait = matches!(first, Settled::Busy { .. }) && !patience.is_zero();
        let place = if wishes_to_wait { engine.waiters.join(ask.id) } else { None };
        match place {
            Some(place) => place,
            None => return Turn { settled: first, waited: None },
        }
    };
    let deadline = Instant::now() + patience;
    // Boxed, so that those whose turn it is do not hold room for waiting.
    let settled = Box::pin(async move {
        let mut place = place;
        loop {
            let look = async {
                match claim(context, ask).await {
                    // A lease that nobody renews ends without anyone being told.
                    Settled::Busy { lease_left } => Err(lease_left),
                    settled => Ok(settled),
                }
            };
            match place.look_then_wait(look, deadline).await {
                Some(settled) => return settled,
                None if Instant::now() < deadline => {}
                None => return claim(context, ask).await,
            }
        }
    });
    Turn { settled: settled.await, waited: Some(patience) }
}
