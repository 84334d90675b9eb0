//! [`Members`]: the processes that use the same store, as far as is known.
//!
//! They keep a list of themselves beside the first guard. What is lost with it is remembered here: a process is given up when
//! it was not seen again in several looks at the list, or when it says that it leaves.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use selfsame_core::Timestamp;
use tokio::time::{Instant, sleep, timeout};

use super::super::buckets::Bucket;
use super::super::scripts::{Call, MEMBERS};
use super::super::trouble::{Access, Fault};
use super::super::value::millis;
use super::{Guard, random_id};

/// Pause between two signs of life of a process.
pub(super) const EVERY: Duration = Duration::from_secs(2);
/// Number of looks in a row that may find no new sign of life.
const MISSED_MAX: u32 = 4;
/// After how many of them it is forgotten: the list names it no longer by then.
const FORGOTTEN_AFTER: u32 = 60;
/// Age of the last sign of life at which one that only just started still counts a process as alive.
const SEEN_WITHIN: Duration = Duration::from_secs(15);
/// For how long the list names it.
const LISTED_FOR: Duration = Duration::from_secs(60);
/// Limit of the time that leaving takes.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Pause between looks for the end of a count that is under way then.
const POLL: Duration = Duration::from_millis(5);
/// Length of the name of a process.
const NAME_LEN: usize = 16;

/// This process, and the others.
pub(super) struct Members {
    pub(super) own: String,
    others: Mutex<Others>,
    has_left: AtomicBool,
    /// Held by whoever writes to the list: nothing is written there after this process has left.
    writing: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Others {
    by_name: HashMap<String, Other>,
    read_at: Option<Instant>,
}

struct Other {
    /// When it was last there, as the list says.
    at: i64,
    /// In how many looks it was not there again.
    missed: u32,
}

impl Members {
    pub(super) fn new() -> Self {
        let mut own = random_id();
        own.truncate(NAME_LEN);
        Self {
            own,
            others: Mutex::default(),
            has_left: AtomicBool::new(false),
            writing: tokio::sync::Mutex::default(),
        }
    }

    pub(super) fn has_left(&self) -> bool {
        self.has_left.load(Ordering::Relaxed)
    }

    /// The others that live, as far as is known.
    pub(super) fn live(&self) -> Vec<String> {
        let others = self.others.lock();
        let live = others.by_name.iter().filter(|(_, other)| other.missed < MISSED_MAX);
        live.map(|(name, _)| name.clone()).collect()
    }

    /// Tells if the list was read within that time.
    pub(super) fn is_read_within(&self, time: Duration) -> bool {
        self.others.lock().read_at.is_some_and(|at| at.elapsed() < time)
    }

    /// This is the list now. Looks that follow each other too fast do not say who is gone.
    fn note(&self, now: Timestamp, list: &str) {
        let mut others = self.others.lock();
        let is_look = others.read_at.is_none_or(|at| at.elapsed() >= EVERY * 3 / 4);
        if is_look {
            others.read_at = Some(Instant::now());
            others.by_name.values_mut().for_each(|other| other.missed += 1);
        }
        let oldest = Timestamp::from_millis(now.as_millis().saturating_sub(millis(SEEN_WITHIN)));
        for (name, at) in list.split(' ').filter_map(|entry| entry.split_once(':')) {
            let Ok(at) = at.parse::<i64>() else { continue };
            if at < 0 {
                others.by_name.remove(name);
                continue;
            }
            let is_old = u64::try_from(at).is_ok_and(|at| at < oldest.as_millis());
            match others.by_name.get_mut(name) {
                // It may be less than before, by a loss: who was there then may still be.
                Some(other) if other.at != at => *other = Other { at, missed: 0 },
                None if name != self.own && !is_old => {
                    others.by_name.insert(name.to_owned(), Other { at, missed: 0 });
                }
                _ => {}
            }
        }
        others.by_name.retain(|_, other| other.missed < FORGOTTEN_AFTER);
    }
}

impl Guard {
    /// Says that this process is there, and reads who else is.
    pub(super) async fn refresh_members(&self) -> Result<(), Fault> {
        let _writing = self.members.writing.lock().await;
        if self.members.has_left() {
            return Ok(());
        }
        let answer = self.call(Bucket::FIRST, self.present("0")).await?;
        let read: Result<(u64, String), _> = redis::from_redis_value(answer);
        let (now, list) = read.map_err(|_| Fault::strange(Access::Write))?;
        self.members.note(Timestamp::from_millis(now), &list);
        Ok(())
    }

    /// Takes this process off the list: others need not wait for it when they look what a server has. Its last writes are
    /// counted first, because nobody else knows of those. It takes no keys from then on. A Redis that is away does not delay
    /// this for long.
    pub(in super::super) async fn leave(&self) {
        if self.options.accept_loss || self.members.has_left.swap(true, Ordering::Relaxed) {
            return;
        }
        let leave = async {
            join_all(self.routes.buckets.all().map(|bucket| self.count_last(bucket))).await;
            let _writing = self.members.writing.lock().await;
            // Others find out by themselves, too.
            let _left = self.call(Bucket::FIRST, self.present("1")).await;
        };
        let _in_time = timeout(LEAVE_MAX, leave).await;
    }

    /// Counts what was written last in a bucket, if that can be done.
    async fn count_last(&self, bucket: Bucket) {
        let watched = &self.watched[bucket.at()];
        while watched.is_counting.swap(true, Ordering::Relaxed) {
            sleep(POLL).await;
        }
        if watched.has_written.swap(false, Ordering::Relaxed) {
            let _counted = self.count(bucket).await;
        }
        watched.is_counting.store(false, Ordering::Relaxed);
    }

    fn present(&self, leaves: &str) -> Call {
        Call::new(&MEMBERS, &self.key(Bucket::FIRST))
            .arg(&self.members.own)
            .number(millis(LISTED_FOR))
            .arg(leaves)
    }
}

impl Drop for Guard {
    /// Nobody need wait for a store that was dropped without [`Guard::leave`]; this is for a process that goes on.
    fn drop(&mut self) {
        let has_runtime = tokio::runtime::Handle::try_current().is_ok();
        if self.options.accept_loss || self.members.has_left() || !has_runtime {
            return;
        }
        let (routes, call) = (self.routes.clone(), Arc::new(self.present("1")));
        crate::background::spawn(async move {
            let ask = super::link::Ask::Script(&call);
            // Others find out by themselves, too.
            let _left = routes.ask(Bucket::FIRST, super::Lane::Guard, Access::Write, ask).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_process_is_given_up_when_it_leaves_or_is_not_seen_again() {
        let members = Members::new();
        let look = async |now: u64, list: &str| {
            members.note(Timestamp::from_millis(now), list);
            tokio::time::advance(EVERY).await;
            let mut live = members.live();
            live.sort();
            live.concat()
        };
        let own = format!("{}:100000", members.own);
        // What was there long ago is not waited for by who only just started.
        assert_eq!(look(100_000, &format!("a:99000 b:80000 c:-99000 {own}")).await, "a");
        // What is lost with the list is remembered for some looks.
        assert_eq!(look(102_000, "").await, "a");
        assert_eq!(look(104_000, "b:103000").await, "ab");
        assert_eq!(look(106_000, "a:99500 b:103000").await, "ab");
        assert_eq!(look(108_000, "a:-107000 b:103000").await, "b");
        for now in [110_000, 112_000] {
            look(now, "b:103000").await;
        }
        assert_eq!(look(114_000, "b:103000").await, "");
        assert_eq!(look(116_000, "b:103000").await, "");
        assert_eq!(look(118_000, "b:117000").await, "b");
    }
}
