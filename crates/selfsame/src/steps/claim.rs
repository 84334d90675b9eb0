//! Step 4: exactly one of many rivals runs.

use std::time::Duration;

use selfsame_core::{
    Ask, Claim, Claimed, Fence, Replay, State, StoreError, StoreErrorKind, Unstarted,
};

use crate::engine::Engine;
use crate::policy::{OnStoreError, Policy};
use crate::quota::{Excess, Place, Quota};
use crate::reject::Refusal;
use crate::telemetry;

pub(crate) enum Settled {
    /// With its place among the tenant's, where those are counted.
    Run(Claim<Unstarted>, Option<Box<Place>>),
    Replay(Box<Replay>),
    /// Somebody runs, and lives this long unless the claim is renewed.
    Busy {
        lease_left: Duration,
    },
    Refused(Refusal),
    /// The store is down, and the route would rather run than wait.
    Bypass,
}

/// Boxed is what hardly anyone comes to: a claim holds room for nothing but the store's own.
pub(crate) async fn claim(engine: &Engine, ask: &Ask, policy: &Policy) -> Settled {
    if engine.landing.is_any_waiting()
        && let Err(error) = Box::pin(engine.landing.land_first(&ask.id)).await
    {
        tracing::warn!(%error, record = ask.id.short(), "an answer still waits for the store");
        // Not even a route that would rather run than wait: this work is known to be done.
        return Settled::Refused(Refusal::StoreDown);
    }
    let place = match engine.quotas.enter(ask.label.tenant, policy.quota) {
        Ok(place) => place,
        Err(excess) => match Box::pin(beyond_quota(engine, ask, policy, excess)).await {
            Ok(place) => place,
            Err(refused) => return told(refused, ask, policy),
        },
    };
    {
        let claimed = engine.store.claim(ask).await;
        if !matches!(&claimed, Err(error) if error.kind() == StoreErrorKind::MayHaveLanded) {
            return told(settled(claimed, place, engine, ask, policy), ask, policy);
        }
    }
    let claimed = Box::pin(ask_again(engine, ask)).await;
    told(settled(claimed, place, engine, ask, policy), ask, policy)
}

fn settled(
    claimed: Result<Claimed, StoreError>,
    mut place: Option<Box<Place>>,
    engine: &Engine,
    ask: &Ask,
    policy: &Policy,
) -> Settled {
    match claimed {
        Ok(Claimed::Run(grant)) => {
            if grant.took_over {
                telemetry::lease_expired();
            }
            if let Some(place) = place.as_mut().filter(|_| grant.lease.fence == Fence::FIRST) {
                place.begin_key(ask.retention);
            }
            let claim = Claim::new(grant, engine.store.clone(), engine.give_back.clone());
            Settled::Run(claim, place)
        }
        Ok(Claimed::Replay(replay)) => Settled::Replay(replay),
        Ok(Claimed::Busy { lease_left }) => Settled::Busy { lease_left },
        Ok(Claimed::Reused) => Settled::Refused(Refusal::Reused(None)),
        Ok(Claimed::Held { newly }) => {
            if newly {
                telemetry::lease_expired();
            }
            Settled::Refused(Refusal::Held)
        }
        Ok(Claimed::Expired) => Settled::Refused(Refusal::Expired),
        Err(error) => store_failed(&error, ask, policy),
    }
}

/// Where a tenant has too much, only what is there already goes on: a replay costs nothing more.
async fn beyond_quota(
    engine: &Engine,
    ask: &Ask,
    policy: &Policy,
    excess: Excess,
) -> Result<Option<Box<Place>>, Settled> {
    let record = match engine.store.get(&ask.id).await {
        Ok(record) => record,
        Err(error) => return Err(store_failed(&error, ask, policy)),
    };
    let refused = Settled::Refused(Refusal::TooMany(excess));
    match (excess, record.map(|record| record.state)) {
        (_, None) | (Excess::Claims, Some(State::Failed)) => Err(refused),
        (Excess::Claims, Some(_)) => Ok(None),
        (Excess::LiveKeys, Some(_)) => {
            let claims_only = Quota { live_keys: None, ..policy.quota };
            engine.quotas.enter(ask.label.tenant, claims_only).map_err(|_| refused)
        }
    }
}

/// The answer to a retry, where it is at hand: nothing is begun that would have to be seen through.
pub(crate) fn answered(engine: &Engine, ask: &Ask, policy: &Policy) -> Option<Replay> {
    let found = engine.store.answered(ask)?;
    tell(ask, policy, "replay");
    Some(found)
}

fn told(settled: Settled, ask: &Ask, policy: &Policy) -> Settled {
    tell(ask, policy, settled.name());
    settled
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

/// The acknowledgement may be all that was lost: the same attempt id finds its own claim.
async fn ask_again(engine: &Engine, ask: &Ask) -> Result<Claimed, StoreError> {
    let second = engine.store.claim(ask).await;
    if second.is_err() {
        // Whatever it keeps of its request is of no use to who gives it back, and may be large.
        engine.give_back.unheard(Ask { keepsake: None, ..ask.clone() });
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
            Self::Run(..) => "run",
            Self::Replay(_) => "replay",
            Self::Busy { .. } => "busy",
            Self::Refused(_) => "refuse",
            Self::Bypass => "bypass",
        }
    }
}
