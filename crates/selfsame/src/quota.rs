//! [`Quotas`]: how many keys of one tenant live, how many of them run, and how many are held.
//!
//! Counted here, not in the store, where all claims of a tenant would have to change one row. So each
//! process counts what it claimed itself, from its start; a process that comes back begins at zero.
//! Held keys are resolved anywhere, so they are counted in the store before a request is refused because of them.
//! A key that is there already is never refused: it costs nothing more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{Keepsake, Label, RecordId, TenantTag};
use tokio::time::Instant;

use crate::telemetry;

/// The most tenants that are counted at once. Those that come when all places are taken are not
/// counted, and not refused.
const TENANTS_MAX: usize = 100_000;
/// Into how many parts a retention is cut: keys that end in the same part are counted together.
const PARTS: u64 = 16;
/// Shortest time between two counts of a tenant's held keys in the store.
const RECOUNT_PAUSE: Duration = Duration::from_secs(5);
/// Time between two counts, as a multiple of the time that one takes.
const RECOUNT_SHARE: u32 = 20;

/// Limit of what one tenant may have, and of what all callers without a credential may have together. No
/// limit where it is not set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TenantLimit {
    /// Limit for each tenant.
    pub each: Option<u32>,
    /// Limit for [`Tenant::anonymous`](crate::Tenant::anonymous).
    pub anonymous: Option<u32>,
}

impl From<Option<u32>> for TenantLimit {
    /// One limit for all tenants.
    fn from(most: Option<u32>) -> Self {
        Self { each: most, anonymous: most }
    }
}

impl TenantLimit {
    fn of(self, is_anonymous: bool) -> Option<u32> {
        if is_anonymous { self.anonymous } else { self.each }
    }
}

/// Limits of a route's tenants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TenantLimits {
    pub(crate) live_keys: TenantLimit,
    pub(crate) claims: TenantLimit,
    pub(crate) held_keys: TenantLimit,
}

impl TenantLimits {
    /// Limits of one tenant.
    pub(crate) fn of(&self, is_anonymous: bool) -> Quota {
        Quota {
            live_keys: self.live_keys.of(is_anonymous),
            claims: self.claims.of(is_anonymous),
            held_keys: self.held_keys.of(is_anonymous),
        }
    }
}

/// How much one tenant may have; what is not set has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Quota {
    pub(crate) live_keys: Option<u32>,
    pub(crate) claims: Option<u32>,
    pub(crate) held_keys: Option<u32>,
}

/// What a tenant has too many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    LiveKeys,
    Claims,
    HeldKeys,
}

impl Quota {
    fn is_unset(self) -> bool {
        self == Self::default()
    }

    /// Limits of a key that is there already.
    pub(crate) fn of_known_key(self) -> Self {
        Self { live_keys: None, held_keys: None, ..self }
    }
}

/// What tenants have, over all routes.
pub(crate) struct Quotas {
    tenants: Mutex<Tenants>,
    begun: Instant,
}

#[derive(Default)]
struct Tenants {
    usages: HashMap<TenantTag, Usage>,
    /// Second at which those without anything were last looked for in vain.
    full_at: Option<u64>,
}

#[derive(Default)]
struct Usage {
    claims: u32,
    keys: u32,
    /// How many keys end at which second.
    ends: BTreeMap<u64, u32>,
    held: u32,
    /// Time before which held keys are not counted in the store again.
    recount_at: Option<Instant>,
}

/// Counts and logs a key that has become held.
pub(crate) fn note_held(
    quotas: &Quotas,
    id: &RecordId,
    label: &Label,
    keepsake: Option<&Keepsake>,
    cause: &str,
) {
    telemetry::held(id, label, keepsake, cause);
    if !label.is_observed() {
        quotas.hold(label.tenant);
    }
}

/// A tenant's place for a request that may run; given up when it is dropped.
pub(crate) struct Place {
    quotas: Arc<Quotas>,
    tenant: TenantTag,
    /// When the key ends that was claimed for the first time here.
    new_key: Option<u64>,
}

impl Default for Quotas {
    fn default() -> Self {
        Self { tenants: Mutex::default(), begun: Instant::now() }
    }
}

impl Quotas {
    /// A place for one more request of `tenant`, or nothing where nobody counts.
    ///
    /// # Errors
    /// The tenant has too much already for a key that is new, or a run that is.
    pub(crate) fn enter(
        self: &Arc<Self>,
        tenant: TenantTag,
        quota: Quota,
    ) -> Result<Option<Box<Place>>, Excess> {
        if quota.is_unset() {
            return Ok(None);
        }
        let now = self.begun.elapsed().as_secs();
        let mut tenants = self.tenants.lock();
        let Some(usage) = tenants.usage_of(tenant, now) else { return Ok(None) };
        usage.forget_until(now);
        if quota.claims.is_some_and(|most| usage.claims >= most) {
            return Err(Excess::Claims);
        }
        if quota.live_keys.is_some_and(|most| usage.keys >= most) {
            return Err(Excess::LiveKeys);
        }
        if quota.held_keys.is_some_and(|most| usage.held >= most) {
            return Err(Excess::HeldKeys);
        }
        usage.claims += 1;
        Ok(Some(Box::new(Place { quotas: self.clone(), tenant, new_key: None })))
    }

    /// Counts one more held key of `tenant`.
    pub(crate) fn hold(&self, tenant: TenantTag) {
        let now = self.begun.elapsed().as_secs();
        if let Some(usage) = self.tenants.lock().usage_of(tenant, now) {
            usage.held = usage.held.saturating_add(1);
        }
    }

    /// Tells if the held keys of `tenant` are to be counted in the store now. Nobody else is told so until
    /// [`Quotas::recounted`].
    pub(crate) fn is_recount_due(&self, tenant: TenantTag) -> bool {
        let (mut tenants, now) = (self.tenants.lock(), Instant::now());
        let Some(usage) = tenants.usages.get_mut(&tenant) else { return false };
        let is_due = usage.recount_at.is_none_or(|at| at <= now);
        if is_due {
            // Where whoever counts goes away, somebody else does it later.
            usage.recount_at = Some(now + RECOUNT_PAUSE * RECOUNT_SHARE);
        }
        is_due
    }

    /// Notes that the store has `held` keys of `tenant`, or that it could not tell, which took so long.
    pub(crate) fn recounted(&self, tenant: TenantTag, held: Option<u32>, took: Duration) {
        let mut tenants = self.tenants.lock();
        let Some(usage) = tenants.usages.get_mut(&tenant) else { return };
        usage.held = held.unwrap_or(usage.held);
        usage.recount_at = Some(Instant::now() + RECOUNT_PAUSE.max(took * RECOUNT_SHARE));
    }
}

impl Tenants {
    /// What `tenant` has; nothing where all places are taken. Whoever has nothing any more gives up its place, which
    /// is looked for once a second.
    fn usage_of(&mut self, tenant: TenantTag, now: u64) -> Option<&mut Usage> {
        if self.usages.len() >= TENANTS_MAX && !self.usages.contains_key(&tenant) {
            if self.full_at == Some(now) {
                return None;
            }
            self.usages.retain(|_, usage| usage.is_at(now));
            if self.usages.len() >= TENANTS_MAX {
                self.full_at = Some(now);
                return None;
            }
        }
        Some(self.usages.entry(tenant).or_default())
    }
}

impl Usage {
    /// Whether there is anything to count at this second.
    fn is_at(&mut self, now: u64) -> bool {
        self.forget_until(now);
        self.claims > 0 || self.keys > 0 || self.held > 0
    }

    fn forget_until(&mut self, now: u64) {
        while let Some(first) = self.ends.first_entry()
            && *first.key() <= now
        {
            self.keys -= first.remove();
        }
    }
}

impl Place {
    /// Counts the key as one that lives for `retention`.
    pub(crate) fn begin_key(&mut self, retention: Duration) {
        let part = (retention.as_secs() / PARTS).max(1);
        let end = (self.quotas.begun.elapsed() + retention).as_secs();
        // Later rather than sooner: what still lives is still counted.
        let end = (end / part + 1) * part;
        self.change(|usage| {
            usage.keys += 1;
            *usage.ends.entry(end).or_default() += 1;
        });
        self.new_key = Some(end);
    }

    /// No record stays of the key after all.
    pub(crate) fn forget_key(&self) {
        let Some(end) = self.new_key else { return };
        self.change(|usage| {
            if let Some(count) = usage.ends.get_mut(&end).filter(|count| **count > 0) {
                *count -= 1;
                usage.keys -= 1;
            }
        });
    }

    fn change(&self, change: impl FnOnce(&mut Usage)) {
        change(self.quotas.tenants.lock().usages.entry(self.tenant).or_default());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.quotas.begun.elapsed().as_secs();
        let mut tenants = self.quotas.tenants.lock();
        if let Some(usage) = tenants.usages.get_mut(&self.tenant) {
            usage.claims -= 1;
            if !usage.is_at(now) {
                tenants.usages.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(60 * 60);

    fn tenant(byte: u8) -> TenantTag {
        TenantTag::from_bytes([byte; TenantTag::LEN])
    }

    fn entered(quotas: &Arc<Quotas>, quota: Quota) -> Result<Box<Place>, Excess> {
        quotas.enter(tenant(1), quota).map(|place| place.expect("a quota is set"))
    }

    #[tokio::test(start_paused = true)]
    async fn claims_count_while_they_last_and_for_their_tenant() {
        let quotas = Arc::new(Quotas::default());
        let quota = Quota { claims: Some(2), ..Quota::default() };
        let (first, _second) = (entered(&quotas, quota), entered(&quotas, quota));
        assert_eq!(entered(&quotas, quota).err(), Some(Excess::Claims));
        assert!(quotas.enter(tenant(2), quota).is_ok());
        drop(first);
        assert!(entered(&quotas, quota).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_count_for_as_long_as_they_live() {
        let quotas = Arc::new(Quotas::default());
        let quota = Quota { live_keys: Some(2), ..Quota::default() };
        for _ in 0..2 {
            entered(&quotas, quota).expect("there is room").begin_key(HOUR);
        }
        assert_eq!(entered(&quotas, quota).err(), Some(Excess::LiveKeys));
        tokio::time::advance(HOUR - Duration::from_secs(1)).await;
        assert_eq!(entered(&quotas, quota).err(), Some(Excess::LiveKeys));
        tokio::time::advance(HOUR / 16 + Duration::from_secs(2)).await;
        assert!(entered(&quotas, quota).is_ok());
        assert!(quotas.tenants.lock().usages.is_empty(), "who has nothing takes no room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_without_a_record_does_not_count() {
        let quotas = Arc::new(Quotas::default());
        let quota = Quota { live_keys: Some(1), ..Quota::default() };
        let mut place = entered(&quotas, quota).expect("there is room");
        place.begin_key(HOUR);
        place.forget_key();
        drop(place);
        assert!(entered(&quotas, quota).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn held_keys_count_until_the_store_says_otherwise() {
        let quotas = Arc::new(Quotas::default());
        let quota = Quota { held_keys: Some(2), ..Quota::default() };
        quotas.hold(tenant(1));
        assert!(entered(&quotas, quota).is_ok());
        quotas.hold(tenant(1));
        assert_eq!(entered(&quotas, quota).err(), Some(Excess::HeldKeys));
        assert_eq!(quota.of_known_key(), Quota::default());
        assert!(quotas.enter(tenant(2), quota).is_ok());

        // One at a time counts in the store, and not again for a while.
        assert!(quotas.is_recount_due(tenant(1)));
        assert!(!quotas.is_recount_due(tenant(1)));
        quotas.recounted(tenant(1), Some(2), Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(19)).await;
        assert!(!quotas.is_recount_due(tenant(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert!(quotas.is_recount_due(tenant(1)));
        assert_eq!(entered(&quotas, quota).err(), Some(Excess::HeldKeys));
        quotas.recounted(tenant(1), Some(1), Duration::ZERO);
        assert!(entered(&quotas, quota).is_ok());
        quotas.recounted(tenant(1), None, Duration::ZERO);
        assert!(!quotas.tenants.lock().usages.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn more_tenants_than_are_counted_are_let_in() {
        let quotas = Arc::new(Quotas::default());
        let quota = Quota { claims: Some(1), ..Quota::default() };
        let tag = |n: usize| {
            let mut bytes = [0; TenantTag::LEN];
            bytes[..8].copy_from_slice(&n.to_be_bytes());
            TenantTag::from_bytes(bytes)
        };
        let places: Vec<_> = (0..TENANTS_MAX).map(|n| quotas.enter(tag(n), quota)).collect();
        assert!(places.iter().all(|place| matches!(place, Ok(Some(_)))));
        let over = || quotas.enter(tag(TENANTS_MAX), quota);
        assert!(over().is_ok_and(|place| place.is_none()));
        assert_eq!(quotas.enter(tag(1), quota).err(), Some(Excess::Claims), "it is counted still");
        drop(places);
        assert!(over().is_ok_and(|place| place.is_some()));
    }

    #[test]
    fn a_limit_may_be_another_for_callers_without_a_credential() {
        let limits = TenantLimits {
            claims: TenantLimit { each: Some(9), anonymous: Some(1) },
            held_keys: Some(3).into(),
            ..TenantLimits::default()
        };
        let (each, anonymous) = (limits.of(false), limits.of(true));
        assert_eq!((each.claims, each.held_keys, each.live_keys), (Some(9), Some(3), None));
        assert_eq!((anonymous.claims, anonymous.held_keys), (Some(1), Some(3)));
    }

    #[test]
    fn nothing_is_counted_where_nothing_is_limited() {
        let quotas = Arc::new(Quotas::default());
        assert!(quotas.enter(tenant(1), Quota::default()).is_ok_and(|place| place.is_none()));
        assert!(quotas.tenants.lock().usages.is_empty());
    }
}
