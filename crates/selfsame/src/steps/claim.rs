//! Step 4: exactly one of many rivals runs.

use std::time::Duration;

use selfsame_core::{Ask, Claim, Claimed, Replay, StoreError, StoreErrorKind, Unstarted};

use crate::engine::Engine;
use crate::policy::{OnStoreError, Policy};
use crate::reject::Refusal;
use crate::telemetry;

pub(crate) enum Settled {
    Run(Claim<Unstarted>),
    Replay(Replay),
    /// Somebody runs, and lives this long unless the claim is renewed.
    Busy {
        lease_left: Duration,
    },
    Refused(Refusal),
    /// The store is down, and the route would rather run than wait.
    Bypass,
}

pub(crate) async fn claim(engine: &Engine, ask: &Ask, policy: &Policy) -> Settled {
    if let Err(error) = engine.landing.land_first(&ask.id).await {
        tracing::warn!(%error, record = ask.id.short(), "an answer still waits for the store");
        // Not even a route that would rather run than wait: this work is known to be done.
        return Settled::Refused(Refusal::StoreDown);
    }
    let settled = match ask_store(engine, ask).await {
        Ok(Claimed::Run(grant)) => {
            if grant.took_over {
                telemetry::lease_expired();
            }
            Settled::Run(Claim::new(grant, engine.store.clone(), engine.give_back.clone()))
        }
        Ok(Claimed::Replay(replay)) => Settled::Replay(replay),
        Ok(Claimed::Busy { lease_left }) => Settled::Busy { lease_left },
        Ok(Claimed::Reused) => Settled::Refused(Refusal::Reused),
        Ok(Claimed::Held { newly }) => {
            if newly {
                telemetry::lease_expired();
            }
            Settled::Refused(Refusal::Held)
        }
        Ok(Claimed::Expired) => Settled::Refused(Refusal::Expired),
        Err(error) => store_failed(&error, ask, policy),
    };
    tell(ask, policy, settled.name());
    settled
}

/// The answer to a retry, where it is at hand: nothing is begun that would have to be seen through.
pub(crate) fn answered(engine: &Engine, ask: &Ask, policy: &Policy) -> Option<Replay> {
    let found = engine.store.answered(ask)?;
    tell(ask, policy, "replay");
    Some(found)
}

fn tell(ask: &Ask, policy: &Policy, decision: &'static str) {
    tracing::debug!(
        record = ask.id.short(),
        key = policy.log_keys.then(|| ask.label.key.as_str()),
        route = &*policy.route,
        decision,
        "claimed"
    );
}

async fn ask_store(engine: &Engine, ask: &Ask) -> Result<Claimed, StoreError> {
    let first = engine.store.claim(ask).await;
    let Err(StoreErrorKind::MayHaveLanded) = first.as_ref().map_err(StoreError::kind) else {
        return first;
    };
    // The acknowledgement may be all that was lost: the same attempt id finds its own claim.
    let second = engine.store.claim(ask).await;
    if second.is_err() {
        engine.give_back.unheard(ask.clone());
    }
    second
}

fn store_failed(error: &StoreError, ask: &Ask, policy: &Policy) -> Settled {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let record = ask.id.short();
    if error.is_damaged() {
        telemetry::damaged_record();
        tracing::error!(%error, cause, record, "a record is damaged: neither served nor run");
        return Settled::Refused(Refusal::Damaged);
    }
    tracing::warn!(%error, cause, record, "the store failed at a claim");
    match policy.on_store_error {
        OnStoreError::Reject => Settled::Refused(Refusal::StoreDown),
        OnStoreError::Bypass => Settled::Bypass,
    }
}

impl Settled {
    fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Replay(_) => "replay",
            Self::Busy { .. } => "busy",
            Self::Refused(_) => "refuse",
            Self::Bypass => "bypass",
        }
    }
}
