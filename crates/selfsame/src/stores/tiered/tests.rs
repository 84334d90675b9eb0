//! What a late write can put back: nothing.

use std::sync::Arc;
use std::time::Duration;

use selfsame_core::conformance::samples::{LEASE, answer, ask, mismatch, retry};
use selfsame_core::{Ask, Claimed, Fence, Inspect, Lease, Replay, Secret, Timestamp};
use selfsame_test_redis::Server;

use super::cache::Cache;
use super::entry::{self, Entry, Found, Mark};
use super::{Aside, LIFE_MAX};
use crate::stores::heard::HeardClock;
use crate::stores::redis::Rank;
use crate::stores::{MemoryStore, SystemClock};

const NOW: Timestamp = Timestamp::from_millis(1_000_000);

fn lease(ask: &Ask, fence: u64) -> Lease {
    let fence = Fence::from_number(fence);
    Lease { id: ask.id, fence, attempt_id: ask.attempt_id, length: LEASE }
}

fn replay(expires_at: Timestamp) -> Replay {
    Replay { answer: answer("done"), expires_at }
}

#[test]
fn an_entry_is_read_as_it_was_written_and_only_under_its_own_key() {
    let (ask, other) = (ask("k"), ask("other"));
    let (secret, another) = (Secret::random(), Secret::random());
    let running = Entry::running(&lease(&ask, 7), ask.fingerprint, NOW);
    let done = Entry::done(replay(NOW + LEASE), ask.fingerprint, NOW);
    for entry in [running, done] {
        let mut value = entry.write(&ask.id, &secret);
        assert_eq!(entry::read(&ask.id, &value, &secret), Ok(Found::Entry(entry)));
        assert!(entry::read(&other.id, &value, &secret).is_err());
        assert!(entry::read(&ask.id, &value, &another).is_err(), "it is forged");
        for at in 0..value.len() {
            value[at] ^= 1;
            assert!(entry::read(&ask.id, &value, &secret).is_err(), "{at}");
            assert!(entry::read(&ask.id, &value[..at], &secret).is_err(), "{at}");
            value[at] ^= 1;
        }
    }
    for rank in [Rank::Ended, Rank::Erased] {
        let value = Mark { rank, fence: Fence::FIRST }.write(&ask.id, &secret);
        assert_eq!(entry::read(&ask.id, &value, &secret), Ok(Found::Mark));
    }
}

#[test]
fn an_entry_settles_what_it_knows_for_as_long_as_it_lives() {
    let first = ask("k");
    let again = retry(&first);
    let just_before = |end: Timestamp| Timestamp::from_millis(end.as_millis() - 1);
    let running = || Entry::running(&lease(&first, 1), first.fingerprint, NOW);
    let busy = running().settles(&again, just_before(NOW + LEASE));
    assert_eq!(busy, Some(Claimed::Busy { lease_left: Duration::from_millis(1) }));
    assert_eq!(running().settles(&again, NOW + LEASE), None);
    assert_eq!(running().settles(&first, NOW), None, "it is its own");
    assert_eq!(running().settles(&mismatch(&first), NOW), None, "it may be gone");

    for expires_at in [NOW + LEASE, NOW + LIFE_MAX * 2] {
        let done = || Entry::done(replay(expires_at), first.fingerprint, NOW);
        let end = expires_at.min(NOW + LIFE_MAX);
        let told = done().settles(&again, just_before(end));
        assert_eq!(told, Some(Claimed::Replay(Box::new(replay(expires_at)))));
        assert_eq!(done().settles(&mismatch(&first), NOW), Some(Claimed::Reused));
        assert_eq!(done().settles(&again, end), None);
    }
}

/// A step of those who write into a cache.
#[derive(Debug, Clone, Copy)]
enum Step {
    Runs(u64),
    Ends(u64),
    Done,
    Erased,
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_comes_late_puts_back_what_is_over() {
    use Step::{Done, Ends, Erased, Runs};
    let redis = Server::start_with(&["appendonly no"]);
    let durable = MemoryStore::new();
    let clock = HeardClock::new(Arc::new(SystemClock::new()));
    clock.ask(&durable).await.expect("it is in memory");
    let aside = Aside::new(&redis.url(0), Duration::from_secs(5)).expect("an address");
    let cache = Cache::new(aside, Secret::random(), clock);
    let now = durable.now().await.expect("it is in memory");
    let table: &[(&[Step], Option<Step>)] = &[
        (&[Runs(1)], Some(Runs(1))),
        (&[Runs(1), Runs(1)], Some(Runs(1))),
        (&[Runs(2), Runs(1)], Some(Runs(2))),
        (&[Runs(1), Ends(1)], None),
        (&[Ends(1), Runs(1)], None),
        (&[Ends(2), Runs(1)], None),
        (&[Ends(1), Runs(2)], Some(Runs(2))),
        (&[Runs(2), Ends(1)], Some(Runs(2))),
        (&[Runs(1), Done], Some(Done)),
        (&[Done, Runs(1)], Some(Done)),
        (&[Done, Runs(9)], Some(Done)),
        (&[Done, Ends(9)], Some(Done)),
        (&[Ends(9), Done], Some(Done)),
        (&[Done, Erased], None),
        (&[Erased, Done], None),
        (&[Erased, Runs(9)], None),
        (&[Erased, Ends(9), Done], None),
        (&[Erased, Erased, Done], None),
    ];
    for (at, (steps, last)) in table.iter().enumerate() {
        let first = ask(&format!("k-{at}"));
        for step in *steps {
            match *step {
                Runs(fence) => {
                    let entry = Entry::running(&lease(&first, fence), first.fingerprint, now);
                    assert!(cache.put(&first.id, &entry).await);
                }
                Done => {
                    let entry = Entry::done(replay(now + LEASE), first.fingerprint, now);
                    assert!(cache.put(&first.id, &entry).await);
                }
                Ends(fence) => cache.end(&lease(&first, fence)).await,
                Erased => {
                    let mark = Mark { rank: Rank::Erased, fence: Fence::FIRST };
                    cache.mark(&first.id, mark).await;
                }
            }
        }
        let told = cache.settle(&retry(&first)).await;
        let is_right = match last {
            Some(Runs(_)) => matches!(told, Some(Claimed::Busy { .. })),
            Some(Done) => matches!(told, Some(Claimed::Replay(_))),
            _ => told.is_none(),
        };
        assert!(is_right, "{steps:?}: {told:?}");
    }
}
