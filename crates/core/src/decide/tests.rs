use std::time::Duration;

use super::*;
use crate::conformance::samples::{
    HOUR, LEASE, RETENTION, answer, ask, checkpoint, mismatch, retry,
};
use crate::{Birth, Fence, Fingerprint, Recover};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const MILLI: Duration = Duration::from_millis(1);

/// A record that was first claimed by `ask`, now.
fn record(ask: &Ask, state: State) -> Record {
    Record { state, ..Record::first(ask, NOW) }
}

fn live() -> State {
    State::Claimed { lease_until: NOW + MILLI }
}

/// A lease ends with its last moment: it is over now.
fn dead() -> State {
    State::Claimed { lease_until: NOW }
}

fn completed() -> State {
    State::Completed { at: NOW, answer: answer("done") }
}

fn held() -> State {
    State::Held { since: NOW }
}

fn expired(record: Record) -> Record {
    Record { expires_at: NOW, ..record }
}

fn decided(record: &Record, ask: &Ask) -> Decision {
    decide(Some(record), ask, NOW)
}

#[test]
fn a_key_that_is_not_there_runs() {
    assert_eq!(decide(None::<&Record>, &ask("k"), NOW), Decision::Run(Start::First));
}

#[test]
fn an_expired_key_runs_whatever_it_was() {
    let first = ask("k");
    for state in [State::Tombstone, completed(), dead(), State::Failed] {
        let record = expired(record(&first, state));
        for ask in [&first, &retry(&first), &mismatch(&first)] {
            assert_eq!(decided(&record, ask), Decision::Run(Start::First), "{record:?}");
        }
    }
}

#[test]
fn a_key_expires_at_the_very_end_of_its_retention() {
    let first = ask("k");
    let record = record(&first, completed());
    let end = NOW + RETENTION;
    let before = Timestamp::from_millis(end.as_millis() - 1);
    assert_eq!(decide(Some(&record), &first, before), Decision::Replay);
    assert_eq!(decide(Some(&record), &first, end), Decision::Run(Start::First));
}

#[test]
fn a_live_lease_and_a_hold_do_not_expire() {
    let hold = Ask { recover: Recover::Hold, ..ask("k") };
    let rival = retry(&hold);
    assert_eq!(decided(&expired(record(&hold, live())), &rival), Decision::Busy);
    assert_eq!(decided(&expired(record(&hold, held())), &rival), Decision::Held);
    assert_eq!(decided(&expired(record(&hold, dead())), &rival), Decision::Held);
}

#[test]
fn a_tombstone_says_expired_to_everyone_whether_or_not_it_is_buried() {
    let first = Ask { remember: HOUR, ..ask("k") };
    for state in [State::Tombstone, completed()] {
        let record = expired(record(&first, state));
        for ask in [&first, &retry(&first), &mismatch(&first)] {
            assert_eq!(decided(&record, ask), Decision::Expired);
            assert_eq!(claim(Some(&record), ask, NOW), (Claimed::Expired, None));
            let end = decide(Some(&record), ask, NOW + HOUR);
            assert_eq!(end, Decision::Run(Start::First));
        }
    }
}

#[test]
fn another_request_is_told_so_before_anything_else_is_said() {
    for recover in [Recover::Resume, Recover::Hold] {
        let first = Ask { recover, ..ask("k") };
        let own = Ask { attempt_id: first.attempt_id, ..mismatch(&first) };
        for state in [completed(), live(), dead(), State::Failed, held()] {
            let record = record(&first, state);
            for ask in [&mismatch(&first), &own] {
                assert_eq!(decided(&record, ask), Decision::Reused, "{record:?}");
                assert_eq!(claim(Some(&record), ask, NOW), (Claimed::Reused, None));
            }
        }
    }
}

#[test]
fn a_fingerprint_of_other_rules_or_another_secret_runs_nothing_and_gives_nothing() {
    let first = ask("k");
    for (byte, what) in [(0, "version"), (1, "secret"), (4, "secret")] {
        let mut bytes = first.fingerprint.to_bytes();
        bytes[byte] ^= 1;
        let fingerprint = Fingerprint::from_bytes(bytes);
        for state in [live(), dead(), completed(), State::Failed, held()] {
            let record = Record { fingerprint, ..record(&first, state) };
            let told = claim(Some(&record), &retry(&first), NOW);
            assert_eq!(told, (Claimed::Reused, None), "{what}: {record:?}");
        }
    }
}

#[test]
fn a_completed_key_replays_also_to_its_own_claim() {
    let first = ask("k");
    let record = record(&first, completed());
    let replay = Replay { answer: answer("done"), expires_at: record.expires_at };
    for ask in [&first, &retry(&first)] {
        assert_eq!(decided(&record, ask), Decision::Replay);
        assert_eq!(
            claim(Some(&record), ask, NOW),
            (Claimed::Replay(Box::new(replay.clone())), None)
        );
    }
}

#[test]
fn a_live_claim_is_busy_for_all_but_itself() {
    let first = ask("k");
    let record = record(&first, live());
    assert_eq!(decided(&record, &retry(&first)), Decision::Busy);
    assert_eq!(decided(&record, &first), Decision::Run(Start::Mine));
    let busy = Claimed::Busy { lease_left: MILLI };
    assert_eq!(claim(Some(&record), &retry(&first), NOW), (busy, None));
}

#[test]
fn a_dead_claim_is_recovered_as_its_record_says() {
    let table = [
        (Recover::Resume, None, Decision::Run(Start::TakeOver)),
        (Recover::Resume, Some(checkpoint("paid")), Decision::Run(Start::TakeOver)),
        (Recover::Hold, None, Decision::Held),
        (Recover::Hold, Some(checkpoint("paid")), Decision::Held),
        (Recover::Auto, None, Decision::Held),
        (Recover::Auto, Some(checkpoint("paid")), Decision::Run(Start::TakeOver)),
    ];
    for (recover, checkpoint, expected) in table {
        let first = Ask { recover, ..ask("k") };
        let record = Record { checkpoint, ..record(&first, dead()) };
        assert_eq!(decided(&record, &retry(&first)), expected, "{record:?}");
        assert_eq!(decided(&record, &first), Decision::Run(Start::Mine));
    }
}

#[test]
fn a_failed_key_runs_again() {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let record = record(&first, State::Failed);
    for ask in [&first, &retry(&first)] {
        assert_eq!(decided(&record, ask), Decision::Run(Start::Again));
    }
}

#[test]
fn a_held_key_is_held_also_for_its_own_claim() {
    let first = ask("k");
    let record = record(&first, held());
    for ask in [&first, &retry(&first)] {
        assert_eq!(decided(&record, ask), Decision::Held);
        assert_eq!(claim(Some(&record), ask, NOW), (Claimed::Held { newly: false }, None));
    }
}

#[test]
fn the_first_to_find_a_dead_claim_writes_the_hold() {
    let first = Ask { recover: Recover::Hold, ..ask("k") };
    let record = record(&first, dead());
    let (claimed, next) = claim(Some(&record), &retry(&first), NOW);
    assert_eq!(claimed, Claimed::Held { newly: true });
    assert_eq!(next, Some(Record { state: held(), ..record }));
}

#[test]
fn a_first_run_writes_a_record_of_its_own() {
    let (old, new) = (ask("k"), mismatch(&ask("k")));
    let old = Record { fence: Fence::from_number(7), ..expired(record(&old, completed())) };
    for found in [None, Some(&old)] {
        let (claimed, next) = claim(found, &new, NOW);
        assert_eq!(next, Some(Record::first(&new, NOW)));
        let Claimed::Run(grant) = claimed else { panic!("it runs") };
        assert_eq!((grant.attempt, grant.lease.fence), (1, Fence::FIRST));
        assert_eq!((grant.checkpoint, grant.took_over), (None, false));
    }
}

#[test]
fn a_further_run_keeps_all_but_the_claim() {
    let first = ask("k");
    let next_ask = Ask { lease: LEASE * 2, recover: Recover::Auto, ..retry(&first) };
    for (state, took_over) in [(dead(), true), (State::Failed, false)] {
        let saved = Some(checkpoint("paid"));
        let record = Record { checkpoint: saved.clone(), ..record(&first, state) };
        let (claimed, next) = claim(Some(&record), &next_ask, NOW);
        let expected = Record {
            state: State::Claimed { lease_until: NOW + LEASE * 2 },
            fence: record.fence.next(),
            attempt: 2,
            attempt_id: next_ask.attempt_id,
            recover: Recover::Auto,
            ..record
        };
        let lease = Lease {
            id: first.id,
            fence: expected.fence,
            attempt_id: next_ask.attempt_id,
            length: LEASE * 2,
        };
        let Record { birth, expires_at, .. } = expected;
        assert_eq!(birth, Birth::by(first.attempt_id));
        let grant = Grant { lease, attempt: 2, birth, checkpoint: saved, took_over, expires_at };
        assert_eq!((claimed, next), (Claimed::Run(Box::new(grant)), Some(expected)));
    }
}

#[test]
fn ones_own_claim_is_renewed_and_otherwise_unchanged() {
    let first = ask("k");
    let record = Record { attempt: 3, fence: Fence::from_number(5), ..record(&first, live()) };
    let later = NOW + HOUR;
    let (claimed, next) = claim(Some(&record), &first, later);
    let renewed = Record { state: State::Claimed { lease_until: later + LEASE }, ..record };
    assert_eq!(next.as_ref(), Some(&renewed));
    let Claimed::Run(grant) = claimed else { panic!("it runs") };
    assert_eq!((grant.attempt, grant.lease.fence), (3, renewed.fence));
    assert!(!grant.took_over);
}
