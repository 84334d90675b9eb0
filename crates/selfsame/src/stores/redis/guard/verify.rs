//! Verification: after a new connection, all processes look whether they miss anything, before an unknown key runs.
//!
//! Whoever has made a connection writes a call beside the guard, at the server it leads to. Every process that sees a call looks
//! whether that server has all it has counted; then it adds its name, else it closes the guard. A bucket is verified once all
//! processes that are known to live have answered the last call. One that does not answer in time is not waited for: it may be
//! gone, and what only it knew with it.

use std::sync::Weak;
use std::sync::atomic::Ordering;
use std::time::Duration;

use selfsame_core::{StoreError, StoreErrorKind};
use tokio::time::{Instant, sleep, timeout_at};

use super::super::buckets::Bucket;
use super::super::routes::Path;
use super::super::scripts::CONFIRM;
use super::super::trouble::{Access, Fault};
use super::{Guard, random_id};

/// Pause between looks for those who have answered.
const POLL: Duration = Duration::from_millis(30);
/// Limit of the wait for others; and by a process that takes no keys yet.
const PATIENCE: Duration = Duration::from_secs(10);
const PATIENCE_AT_START: Duration = Duration::from_secs(3);
/// Age that the list of processes may have.
const LISTED_WITHIN: Duration = Duration::from_millis(500);

/// A count that is never reached, and a time that never comes, as Redis' scripts have numbers.
const NEVER: u64 = u64::MAX >> 12;

/// A call, and who is to answer.
struct Round {
    path: Path,
    /// The call that was there before.
    before: String,
    expected: Vec<String>,
    /// Until when they are waited for.
    until: Instant,
}

/// Verifies a bucket, unless that fails. It is tried again by who watches.
pub(super) async fn run(guard: Weak<Guard>, bucket: Bucket) {
    let mut round = None;
    loop {
        let Some(guard) = guard.upgrade() else { return };
        match guard.verify(bucket, &mut round).await {
            Ok(true) => {
                guard.verified.send_replace(());
                return;
            }
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(%error, "what Redis has is not verified yet");
                return;
            }
        }
        drop(guard);
        sleep(POLL).await;
    }
}

impl Guard {
    /// Takes the next step, and says whether it was the last.
    async fn verify(&self, bucket: Bucket, round: &mut Option<Round>) -> Result<bool, StoreError> {
        let path = self.routes.path(bucket);
        if round.as_ref().is_none_or(|round| path != Some(round.path)) {
            *round = self.call_on_others(bucket).await?;
        }
        let Some(this) = round.as_ref() else { return Ok(false) };
        if !this.expected.is_empty() {
            let seen = self.look(bucket).await?;
            let mut names = seen.call.split(' ');
            let call = names.next().unwrap_or_default();
            if seen.is_lost || call.is_empty() || call == this.before {
                *round = None;
                return Ok(false);
            }
            let (answered, live) = (names.collect::<Vec<_>>(), self.members.live());
            let mut missing = this.expected.iter();
            let missing = missing.find(|name| !answered.contains(&&***name) && live.contains(name));
            if let Some(missing) = missing {
                if Instant::now() < this.until {
                    return Ok(false);
                }
                tracing::warn!(
                    node = missing,
                    "a node has not said in time whether Redis has lost records; if it wrote any that were lost \
                     by a change of the server, they may run again"
                );
            }
        }
        if self.routes.path(bucket) != Some(this.path) {
            return Ok(false);
        }
        self.watched[bucket.at()].state.lock().verified = Some(this.path);
        Ok(true)
    }

    /// Calls on all others to look; none where this process misses something itself.
    async fn call_on_others(&self, bucket: Bucket) -> Result<Option<Round>, StoreError> {
        self.routes.connect(bucket).await;
        let Some(path) = self.routes.path(bucket) else {
            return Err(Fault::not_written("no server has these records now").into());
        };
        if !self.members.is_read_within(LISTED_WITHIN) {
            // Where it cannot be read, those count that were there.
            let _listed = self.refresh_members().await;
        }
        let expected = self.members.live();
        match self.confirm(bucket, &random_id()).await? {
            Some(before) => {
                let patience = match self.is_started.load(Ordering::Relaxed) {
                    true => PATIENCE,
                    false => PATIENCE_AT_START,
                };
                let until = Instant::now() + patience;
                Ok(Some(Round { path, before, expected, until }))
            }
            None => {
                // It is closed by then, or was reopened.
                let _closed = self.find_loss(bucket).await;
                Ok(None)
            }
        }
    }

    /// Something is missed that was not counted: one more than was counted is missed then.
    fn miss(&self, bucket: Bucket) {
        let watched = &self.watched[bucket.at()];
        let known = &mut watched.state.lock().known;
        (known.own, known.own_until) = (NEVER, NEVER);
    }

    /// Says that nothing is missed, under a new call or the one that is there, and tells which was there before; nothing if
    /// something is missed.
    pub(super) async fn confirm(
        &self,
        bucket: Bucket,
        call: &str,
    ) -> Result<Option<String>, Fault> {
        if !self.has_recent(bucket).await? {
            self.miss(bucket);
            return Ok(None);
        }
        let known = self.watched[bucket.at()].state.lock().known.clone();
        let confirm = self.compare(&CONFIRM, bucket, &known).arg(&self.members.own).arg(call);
        let answer = self.call(bucket, confirm).await?;
        if answer == redis::Value::Int(0) {
            return Ok(None);
        }
        let before = redis::from_redis_value(answer);
        before.map(Some).map_err(|_| Fault::strange(Access::Write))
    }

    /// Tells if claims may be made without a look first.
    pub(in super::super) fn is_verified(&self, bucket: Bucket) -> bool {
        if self.options.accept_loss {
            return true;
        }
        let verified = self.watched[bucket.at()].state.lock().verified;
        verified.is_some() && verified == self.routes.path(bucket)
    }

    /// Waits until a bucket is verified, within half of the time-out.
    pub(super) async fn wait_until_verified(&self, bucket: Bucket) -> Result<(), StoreError> {
        let until = Instant::now() + self.options.time_out / 2;
        let mut verified = self.verified.subscribe();
        while !self.is_verified(bucket) {
            self.wake.notify_one();
            if !matches!(timeout_at(until, verified.changed()).await, Ok(Ok(()))) {
                return Err(StoreError::new(
                    StoreErrorKind::RecordsLost,
                    "Redis was connected to anew, and not all nodes have said yet that it has lost no records: no \
                     new key until then",
                ));
            }
        }
        Ok(())
    }
}
