//! [`Quotas`]: how many keys of one tenant live, and how many of them run.
//!
//! Counted here, not in the store, where all claims of a tenant would have to change one row. So each
//! process counts what it claimed itself, from its start; a process that comes back begins at zero.
//! A key that is there already is never refused: it costs nothing more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::TenantTag;
use tokio::time::Instant;

/// The most tenants that are counted at once. Those that come when all places are taken are not
/// counted, and not refused.
const TENANTS_MAX: usize = 100_000;
/// Into how many parts a retention is cut: keys that end in the same part are counted together.
const PARTS: u64 = 16;

/// How much one tenant may have; what is not set has no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Quota {
    pub(crate) live_keys: Option<u32>,
    pub(crate) claims: Option<u32>,
}

/// What a tenant has too many of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excess {
    LiveKeys,
    Claims,
}

impl Quota {
    fn is_unset(self) -> bool {
        self == Self::default()
    }
}

/// What tenants have, over all routes.
pub(crate) struct Quotas {
    tenants: Mutex<HashMap<TenantTag, Usage>>,
    begun: Instant,
}

#[derive(Default)]
struct Usage {
    claims: u32,
    keys: u32,
    /// How many keys end at which second.
    ends: BTreeMap<u64, u32>,
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
        if tenants.len() >= TENANTS_MAX && !tenants.contains_key(&tenant) {
            tenants.retain(|_, usage| usage.is_at(now));
            if tenants.len() >= TENANTS_MAX {
                return Ok(None);
            }
        }
        let usage = tenants.entry(tenant).or_default();
        usage.forget_until(now);
        if quota.claims.is_some_and(|most| usage.claims >= most) {
            return Err(Excess::Claims);
        }
        if quota.live_keys.is_some_and(|most| usage.keys >= most) {
            return Err(Excess::LiveKeys);
        }
        usage.claims += 1;
        Ok(Some(Box::new(Place { quotas: self.clone(), tenant, new_key: None })))
    }
}

impl Usage {
    /// Whether there is anything to count at this second.
    fn is_at(&mut self, now: u64) -> bool {
        self.forget_until(now);
        self.claims > 0 || self.keys > 0
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
        change(self.quotas.tenants.lock().entry(self.tenant).or_default());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = self.quotas.begun.elapsed().as_secs();
        let mut tenants = self.quotas.tenants.lock();
        if let Some(usage) = tenants.get_mut(&self.tenant) {
            usage.claims -= 1;
            if !usage.is_at(now) {
                tenants.remove(&self.tenant);
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
        let quota = Quota { claims: Some(2), live_keys: None };
        let (first, _second) = (entered(&quotas, quota), entered(&quotas, quota));
        assert_eq!(entered(&quotas, quota).err(), Some(Excess::Claims));
        assert!(quotas.enter(tenant(2), quota).is_ok());
        drop(first);
        assert!(entered(&quotas, quota).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_count_for_as_long_as_they_live() {
        let quotas = Arc::new(Quotas::default());
        let quota = Quota { claims: None, live_keys: Some(2) };
        for _ in 0..2 {
            entered(&quotas, quota).expect("there is room").begin_key(HOUR);
        }
        assert_eq!(entered(&quotas, quota).err(), Some(Excess::LiveKeys));
        tokio::time::advance(HOUR - Duration::from_secs(1)).await;
        assert_eq!(entered(&quotas, quota).err(), Some(Excess::LiveKeys));
        tokio::time::advance(HOUR / 16 + Duration::from_secs(2)).await;
        assert!(entered(&quotas, quota).is_ok());
        assert!(quotas.tenants.lock().is_empty(), "who has nothing takes no room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_without_a_record_does_not_count() {
        let quotas = Arc::new(Quotas::default());
        let quota = Quota { claims: None, live_keys: Some(1) };
        let mut place = entered(&quotas, quota).expect("there is room");
        place.begin_key(HOUR);
        place.forget_key();
        drop(place);
        assert!(entered(&quotas, quota).is_ok());
    }

    #[test]
    fn nothing_is_counted_where_nothing_is_limited() {
        let quotas = Arc::new(Quotas::default());
        assert!(quotas.enter(tenant(1), Quota::default()).is_ok_and(|place| place.is_none()));
        assert!(quotas.tenants.lock().is_empty());
    }
}
