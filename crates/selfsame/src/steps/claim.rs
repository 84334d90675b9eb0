//! Step 4: exactly one of many rivals runs.

use std::sync::Arc;
use std::time::Duration;

use selfsame_core::{
    Ask, AttemptId, Claim, Claimed, Fence, Fenced, Filter, Find, Grant, Lease, Replay, Sent, State,
    StateName, StoreError, StoreErrorKind, Unstarted, Whose,
};
use tokio::time::Instant;

use crate::engine::Engine;
use crate::new_keys::NewKeyAllowance;
use crate::policy::{Mode, OnStoreError, Policy};
use crate::quota::{Excess, Place, Quota, Quotas, note_held};
use crate::reject::Refusal;
use crate::telemetry;

/// Number of times that a claim is renewed before its work begins, where the store is slow.
const REFRESHES_MAX: u32 = 3;
/// Time after which a store may have sent a claim again by itself.
const RESENT_AFTER: Duration = Duration::from_secs(1);
/// Time after which a claim that was not heard of is cancelled, as a rule.
const CANCELLED_WITHIN: Duration = Duration::from_millis(500);

/// Surroundings of a claim.
#[derive(Clone, Copy)]
pub(crate) struct ClaimContext<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) policy: &'a Policy,
    /// Limit of the client's new keys; none where they are not limited.
    pub(crate) new_keys: Option<&'a NewKeyAllowance>,
}

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

/// Claims the record of `ask` under a new attempt id. The one before may be cancelled yet, if nothing was heard of it, and
/// may belong to another run by now.
///
/// Rare branches are boxed, so that the claim future stays as small as the store's.
pub(crate) async fn claim(context: ClaimContext<'_>, ask: &mut Ask) -> Settled {
    let ClaimContext { engine, policy, new_keys } = context;
    ask.attempt_id = AttemptId::random();
    let ask = &*ask;
    if engine.landing.is_any_waiting()
        && let Err(error) = Box::pin(engine.landing.land_first(&ask.id)).await
    {
        engine.landing.log_failure(&error, &ask.id);
        // Not even a route that would rather run than wait: this work may be known to be done.
        return Settled::Refused(Refusal::StoreDown);
    }
    if engine.landing.is_full() {
        let text = "too many writes wait for the store";
        let error = StoreError::new(StoreErrorKind::NotWritten, text);
        return told(store_failed(&error, engine, ask, policy), ask, policy);
    }
    if engine.store_budget.is_exceeded(ask.label.tenant == engine.anonymous)
        && let Err(refused) = Box::pin(beyond_budget(engine, ask, policy)).await
    {
        return told(refused, ask, policy);
    }
    if let Some(new_keys) = new_keys
        && !new_keys.has_room(mode_of(ask))
        && let Err(refused) = Box::pin(beyond_allowance(context, ask, new_keys)).await
    {
        return told(refused, ask, policy);
    }
    let place = match quotas(engine, ask).enter(ask.label.tenant, quota_of(engine, ask, policy)) {
        Ok(place) => place,
        Err(excess) => match Box::pin(beyond_quota(engine, ask, policy, excess)).await {
            Ok(place) => place,
            Err(refused) => return told(refused, ask, policy),
        },
    };
    let asked_at = Instant::now();
    let claimed = engine.store.claim(ask).await;
    let mut sent = Sent::Once;
    let claimed = match claimed {
        Err(error) if error.kind() == StoreErrorKind::MayHaveLanded => {
            sent = Sent::Repeatedly;
            Box::pin(ask_again(engine, ask)).await
        }
        claimed => claimed,
    };
    let took = asked_at.elapsed();
    if took >= RESENT_AFTER {
        sent = Sent::Repeatedly;
    }
    let claimed = match claimed {
        Ok(Claimed::Held { newly }) if sent == Sent::Repeatedly => {
            Ok(Box::pin(distinguish_hold(engine, ask, newly)).await)
        }
        Ok(Claimed::Run(grant)) if grant.took_over || sent == Sent::Repeatedly => {
            Box::pin(confirm(engine, grant, took)).await
        }
        Ok(Claimed::Run(grant)) if is_late(took, &grant.lease) => {
            Box::pin(refresh(engine, grant)).await
        }
        claimed => claimed,
    };
    told(settled(claimed, sent, place, (context, ask)), ask, policy)
}

fn settled(
    claimed: Result<Claimed, StoreError>,
    sent: Sent,
    mut place: Option<Box<Place>>,
    (context, ask): (ClaimContext<'_>, &Ask),
) -> Settled {
    let ClaimContext { engine, policy, new_keys } = context;
    if claimed.is_ok()
        && let Some(failures) = engine.store_failures.worked()
    {
        tracing::info!(failures, "the store works again");
    }
    match claimed {
        Ok(Claimed::Run(grant)) => {
            if grant.took_over {
                telemetry::lease_expired();
            }
            if grant.lease.fence == Fence::FIRST {
                if let Some(place) = &mut place {
                    place.begin_key(ask.retention);
                }
                if let Some(new_keys) = new_keys {
                    new_keys.count(mode_of(ask));
                }
            }
            let claim = Claim::new(grant, sent, engine.store.clone(), engine.landing.clone());
            Settled::Run(claim, place)
        }
        Ok(Claimed::Replay(replay)) => Settled::Replay(replay),
        Ok(Claimed::Busy { lease_left }) => Settled::Busy { lease_left },
        Ok(Claimed::Reused) => Settled::Refused(Refusal::Reused(None)),
        Ok(Claimed::Held { newly }) => {
            if newly {
                telemetry::lease_expired();
                let cause = "a retry found its lease over";
                note_held(&engine.quotas, &ask.id, &ask.label, ask.keepsake.as_deref(), cause);
            }
            Settled::Refused(Refusal::Held)
        }
        Ok(Claimed::Expired) => Settled::Refused(Refusal::Expired),
        Err(error) => store_failed(&error, engine, ask, policy),
    }
}

/// Quotas that the request counts for. Observed requests have their own, and take nothing from routes that enforce theirs.
fn quotas<'a>(engine: &'a Engine, ask: &Ask) -> &'a Arc<Quotas> {
    match ask.label.is_observed() {
        true => &engine.observed_quotas,
        false => &engine.quotas,
    }
}

/// Where a tenant has too much, only what is there already goes on: a replay costs nothing more.
async fn beyond_quota(
    engine: &Engine,
    ask: &Ask,
    policy: &Policy,
    excess: Excess,
) -> Result<Option<Box<Place>>, Settled> {
    // A store shows no record that expired: such a key is new, and counts.
    let record = match engine.store.get(&ask.id).await {
        Ok(record) => record,
        Err(error) => return Err(store_failed(&error, engine, ask, policy)),
    };
    let (quotas, quota) = (quotas(engine, ask), quota_of(engine, ask, policy));
    let refused = |excess| Settled::Refused(Refusal::TooMany(excess));
    match (excess, record.map(|record| record.state)) {
        (Excess::HeldKeys, None) => {
            recount_held(engine, ask, quota).await;
            quotas.enter(ask.label.tenant, quota).map_err(refused)
        }
        (_, None) | (Excess::Claims, Some(State::Failed)) => Err(refused(excess)),
        (Excess::Claims, Some(_)) => Ok(None),
        (Excess::LiveKeys | Excess::HeldKeys, Some(_)) => {
            quotas.enter(ask.label.tenant, quota.of_known_key()).map_err(refused)
        }
    }
}

/// Where the store is as large as it may be, only what is there already goes on.
async fn beyond_budget(engine: &Engine, ask: &Ask, policy: &Policy) -> Result<(), Settled> {
    match engine.store.get(&ask.id).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            engine.store_budget.log_refusal(&policy.route);
            Err(Settled::Refused(Refusal::StoreFull))
        }
        Err(error) => Err(store_failed(&error, engine, ask, policy)),
    }
}

/// Where the client has no allowance for new keys left, only known keys go on.
async fn beyond_allowance(
    context: ClaimContext<'_>,
    ask: &Ask,
    new_keys: &NewKeyAllowance,
) -> Result<(), Settled> {
    let ClaimContext { engine, policy, .. } = context;
    match engine.store.get(&ask.id).await {
        Ok(Some(_)) => Ok(()),
        Ok(None) => {
            let detail = new_keys.refuse(mode_of(ask));
            Err(Settled::Refused(Refusal::TooManyNewKeys { detail }))
        }
        Err(error) => Err(store_failed(&error, engine, ask, policy)),
    }
}

/// Mode of the route that the request came by.
fn mode_of(ask: &Ask) -> Mode {
    match ask.label.is_observed() {
        true => Mode::Observe,
        false => Mode::Enforce,
    }
}

/// Limits of the request's tenant.
fn quota_of(engine: &Engine, ask: &Ask, policy: &Policy) -> Quota {
    policy.tenant_limits.of(ask.label.tenant == engine.anonymous)
}

/// Counts the tenant's held keys in the store, unless that was done lately: they may have been resolved.
async fn recount_held(engine: &Engine, ask: &Ask, quota: Quota) {
    let (tenant, quotas) = (ask.label.tenant, quotas(engine, ask));
    let Some(most) = quota.held_keys.filter(|_| quotas.is_recount_due(tenant)) else { return };
    let (state, tenant_filter) = (Some(StateName::Held), Some(Whose::Tag(tenant)));
    let filter = Filter { tenant: tenant_filter, state, ..Filter::default() };
    let (most, begun) = (usize::try_from(most).unwrap_or(usize::MAX), Instant::now());
    let found = engine.people.find(&Find::Matching { filter, after: None }, most).await;
    let held = found.ok().map(|found| found.len().try_into().unwrap_or(u32::MAX));
    quotas.recounted(tenant, held, begun.elapsed());
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
    if !matches!(second, Ok(Claimed::Run(_) | Claimed::Held { .. })) {
        engine.landing.cancel(ask.id, ask.attempt_id);
    }
    second
}

/// Distinguishes a key that another claim left held from one that an earlier copy of this claim did. The lease of such a
/// copy is over, and nothing ran: it is cancelled, and a retry runs.
async fn distinguish_hold(engine: &Engine, ask: &Ask, newly: bool) -> Claimed {
    engine.landing.cancel(ask.id, ask.attempt_id);
    match engine.store.get(&ask.id).await {
        Ok(Some(record)) if record.attempt_id != ask.attempt_id => Claimed::Held { newly },
        _ => Claimed::Busy { lease_left: CANCELLED_WITHIN },
    }
}

/// Lets the work of a claim begin that took over another or was acknowledged late, unless the other one is a run
/// of this process: then that run goes on, and has the claim.
async fn confirm(
    engine: &Engine,
    grant: Box<Grant>,
    took: Duration,
) -> Result<Claimed, StoreError> {
    if engine.renewals.adopt(&grant.lease) {
        tracing::warn!(record = grant.lease.id.short(), "a run here got the lease of a retry");
        return Ok(Claimed::Busy { lease_left: grant.lease.length });
    }
    match is_late(took, &grant.lease) {
        true => refresh(engine, grant).await,
        false => Ok(Claimed::Run(grant)),
    }
}

/// Tells if so much of a lease was over when it was acknowledged that it is renewed before its work begins.
fn is_late(took: Duration, lease: &Lease) -> bool {
    took >= lease.length / 3
}

/// Renews a claim whose acknowledgement came late: another node may have taken it over by then.
async fn refresh(engine: &Engine, grant: Box<Grant>) -> Result<Claimed, StoreError> {
    let lease = grant.lease;
    for _ in 0..REFRESHES_MAX {
        let sent = Instant::now();
        match engine.store.renew(&lease).await {
            Ok(Fenced::Applied) if !is_late(sent.elapsed(), &lease) => {
                return Ok(Claimed::Run(grant));
            }
            Ok(Fenced::Applied) => {}
            Ok(Fenced::Lost) => return Ok(Claimed::Busy { lease_left: lease.length }),
            Err(error) => {
                engine.landing.cancel(lease.id, lease.attempt_id);
                return Err(error);
            }
        }
    }
    engine.landing.cancel(lease.id, lease.attempt_id);
    let text = "the store is too slow for the route's lease; make the lease longer";
    Err(StoreError::new(StoreErrorKind::NotWritten, text))
}

fn store_failed(error: &StoreError, engine: &Engine, ask: &Ask, policy: &Policy) -> Settled {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    let record = ask.id.short();
    if error.is_damaged() {
        telemetry::damaged_record();
        tracing::error!(%error, cause, record, "a record is damaged: neither served nor run");
        return Settled::Refused(Refusal::Damaged);
    }
    let route = &*policy.route;
    match engine.store_failures.failed() {
        Some(unlogged) => {
            tracing::warn!(%error, cause, record, route, unlogged, "the store failed at a claim");
        }
        None => tracing::debug!(%error, cause, record, route, "the store failed at a claim"),
    }
    if error.is_of_lost_records() {
        // Not even for a route that would rather run than wait: a loss is no outage, and this may have run.
        return Settled::Refused(Refusal::RecordsLost { retry_after: error.retries_after() });
    }
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
