use super::*;
use crate::conformance::samples::{HOUR, LEASE, RETENTION, answer, ask, checkpoint};

const NOW: Timestamp = Timestamp::from_millis(1_000_000_000);
const RELEASES: [Release; 6] = [
    Release::NeverRan,
    Release::Retry,
    Release::Forget,
    Release::Crashed,
    Release::Unheard,
    Release::Hold,
];

fn claimed(recover: Recover) -> (Record, Lease) {
    let record = Record::first(&Ask { recover, ..ask("k") }, NOW);
    let Record { id, fence, attempt_id, .. } = record;
    (record, Lease { id, fence, attempt_id, length: LEASE })
}

fn before(moment: Timestamp) -> Timestamp {
    Timestamp::from_millis(moment.as_millis() - 1)
}

fn held() -> State {
    State::Held { since: NOW }
}

#[test]
fn a_lease_is_over_at_its_very_end() {
    let (record, _) = claimed(Recover::Hold);
    let end = NOW + LEASE;
    assert!(record.is_leased(before(end)) && !record.is_held(before(end)));
    assert!(!record.is_leased(end) && record.is_held(end));
}

#[test]
fn a_record_expires_at_the_very_end_of_its_retention() {
    let (mut record, _) = claimed(Recover::Resume);
    let end = NOW + RETENTION;
    assert!(!record.is_expired(before(end)) && record.is_expired(end));
    record.state = State::Tombstone;
    assert!(!record.is_expired(before(end)) && record.is_expired(end));
}

#[test]
fn neither_a_live_lease_nor_a_hold_expires() {
    let long_after = NOW + RETENTION * 30;
    let (mut live, lease) = claimed(Recover::Resume);
    assert_eq!(live.renew(&lease, long_after), Fenced::Applied);
    assert!(!live.is_expired(long_after) && live.is_expired(long_after + LEASE));
    let (unresumable, _) = claimed(Recover::Hold);
    assert!(!unresumable.is_expired(long_after));
    let (resumable, _) = claimed(Recover::Resume);
    assert!(!Record { state: held(), ..resumable }.is_expired(long_after));
}

fn completed(remember: Duration) -> Record {
    let (mut record, lease) = claimed(Recover::Resume);
    record.remember = remember;
    assert_eq!(record.checkpoint(&lease, checkpoint("paid")), Fenced::Applied);
    assert_ne!(record.complete(&lease, answer("done"), NOW), Recorded::Lost);
    record
}

#[test]
fn a_completed_record_is_a_tombstone_from_its_expiry_until_it_is_forgotten() {
    let (record, end) = (completed(HOUR), NOW + RETENTION);
    assert!(!record.is_tombstone(before(end)) && record.due(before(end)).is_none());
    for moment in [end, before(end + HOUR)] {
        assert!(record.is_tombstone(moment) && !record.is_expired(moment));
        assert_eq!(record.due(moment), Some(Due::Burial));
    }
    assert!(!record.is_tombstone(end + HOUR) && record.is_expired(end + HOUR));
    assert_eq!(record.due(end + HOUR), Some(Due::Removal));
}

#[test]
fn a_tombstone_is_seen_without_what_it_was() {
    let (record, end) = (completed(HOUR), NOW + RETENTION);
    assert_eq!(record.clone().seen_at(before(end)), Some(record.clone()));
    let tombstone = Record { state: State::Tombstone, checkpoint: None, ..record.clone() };
    assert_eq!(record.clone().seen_at(end), Some(tombstone.clone()));
    assert_eq!(tombstone.due(end), None, "buried once");
    for record in [record, tombstone] {
        assert_eq!(record.seen_at(end + HOUR), None);
    }
}

#[test]
fn nothing_becomes_of_a_settled_record_and_something_does_when_that_is_over() {
    let (resumable, _) = claimed(Recover::Resume);
    let (unresumable, _) = claimed(Recover::Hold);
    let failed = Record { state: State::Failed, ..resumable.clone() };
    let buried = Record { state: State::Tombstone, ..completed(HOUR) };
    let records =
        [resumable, unresumable, failed, buried, completed(Duration::ZERO), completed(HOUR)];
    for record in records {
        let end = record.settled_until();
        assert_eq!(record.due(before(end)), None, "{record:?}");
        assert_eq!(record.clone().seen_at(before(end)), Some(record.clone()));
        assert!(record.due(end).is_some(), "{record:?}");
    }
    let held = Record { state: held(), ..completed(HOUR) };
    assert_eq!(held.due(before(held.settled_until())), None);
}

#[test]
fn what_is_not_remembered_is_never_a_tombstone() {
    let (record, end) = (completed(Duration::ZERO), NOW + RETENTION);
    assert!(!record.is_tombstone(end) && record.is_expired(end));
    assert_eq!(record.due(end), Some(Due::Removal));
}

#[test]
fn what_is_remembered_for_ever_is_never_new() {
    let record = completed(Duration::MAX);
    assert!(record.is_tombstone(NOW + RETENTION * 1000));
}

#[test]
fn only_completed_records_are_remembered() {
    let (record, _) = claimed(Recover::Resume);
    let record = Record { remember: HOUR, ..record };
    let end = NOW + RETENTION;
    for state in [record.state.clone(), State::Failed] {
        let record = Record { state, ..record.clone() };
        assert!(record.is_expired(end) && !record.is_tombstone(end));
        assert_eq!(record.due(end), Some(Due::Removal));
    }
    let held = Record { state: held(), ..record };
    assert!(!held.is_tombstone(end) && held.due(end).is_none());
}

#[test]
fn an_outcome_prolongs_a_record_and_never_shortens_it() {
    let late = before(NOW + RETENTION);
    let short = Duration::from_secs(1);
    let table = [
        (RETENTION, NOW, NOW + RETENTION),
        (RETENTION, late, late + HOUR),
        (short, NOW + HOUR, NOW + HOUR + short),
    ];
    for (retention, at, expires_at) in table {
        let (record, lease) = claimed(Recover::Resume);
        let mut record = Record { retention, expires_at: NOW + retention, ..record };
        let recorded = record.complete(&lease, answer("done"), at);
        assert_eq!(recorded, Recorded::Until(expires_at));
        assert_eq!(record.expires_at, expires_at);
    }
}

#[test]
fn each_release_leads_where_recover_says() {
    use Release::*;
    let claim = State::Claimed { lease_until: NOW + LEASE };
    let table = [
        (
            Recover::Resume,
            [State::Failed, State::Failed, State::Failed, State::Failed, claim, held()],
        ),
        (Recover::Hold, [State::Failed, State::Failed, State::Failed, held(), held(), held()]),
        (Recover::Auto, [State::Failed, State::Failed, State::Failed, held(), held(), held()]),
    ];
    for (recover, states) in table {
        for (release, state) in
            [NeverRan, Retry, Forget, Crashed, Unheard, Hold].into_iter().zip(states)
        {
            let (mut record, lease) = claimed(recover);
            let attempt = u32::from(release != NeverRan);
            let is_held = matches!(state, State::Held { .. });
            let fence = if is_held { record.fence.next() } else { record.fence };
            let expected = Record { state, attempt, fence, ..record.clone() };
            assert_eq!(record.release(&lease, release, NOW), Fenced::Applied);
            assert_eq!(record, expected, "{release:?} under {recover:?}");
        }
    }
}

#[test]
fn completing_again_what_became_a_tombstone_is_too_late() {
    let record = completed(HOUR);
    let Record { id, fence, attempt_id, .. } = record;
    let lease = Lease { id, fence, attempt_id, length: LEASE };
    let mut after = record.clone();
    let recorded = after.complete(&lease, answer("late"), NOW + RETENTION);
    assert_eq!((recorded, after), (Recorded::Lost, record));
}

#[test]
fn a_checkpoint_lets_an_automatic_recovery_resume() {
    let (mut record, lease) = claimed(Recover::Auto);
    assert!(!record.is_resumable());
    assert_eq!(record.checkpoint(&lease, checkpoint("paid")), Fenced::Applied);
    assert!(record.is_resumable());
    assert_eq!(record.release(&lease, Release::Crashed, NOW), Fenced::Applied);
    assert_eq!((record.state, record.checkpoint), (State::Failed, Some(checkpoint("paid"))));
}

#[test]
fn only_a_first_attempt_that_reached_nothing_is_forgotten() {
    let (record, lease) = claimed(Recover::Resume);
    for release in RELEASES {
        assert_eq!(record.is_forgotten_by(&lease, release), release == Release::Forget);
    }
    let stranger = Lease { attempt_id: AttemptId::random(), ..lease };
    assert!(!record.is_forgotten_by(&stranger, Release::Forget));
    let kept = [
        Record { attempt: 2, ..record.clone() },
        Record { checkpoint: Some(checkpoint("paid")), ..record.clone() },
        Record { state: State::Failed, ..record.clone() },
        Record { state: State::Tombstone, ..record },
    ];
    for record in kept {
        assert!(!record.is_forgotten_by(&lease, Release::Forget), "{record:?}");
    }
}

#[test]
fn its_own_claim_writes_only_while_claimed_or_held() {
    let (claimed, lease) = claimed(Recover::Resume);
    for (state, fenced) in [
        (claimed.state.clone(), Fenced::Applied),
        (held(), Fenced::Applied),
        (State::Failed, Fenced::Lost),
        (State::Tombstone, Fenced::Lost),
    ] {
        let record = Record { state, ..claimed.clone() };
        assert_eq!(record.clone().renew(&lease, NOW), fenced);
        assert_eq!(record.clone().checkpoint(&lease, checkpoint("paid")), fenced);
        let recorded = record.clone().complete(&lease, answer("done"), NOW);
        assert_eq!(recorded != Recorded::Lost, fenced == Fenced::Applied);
        for release in RELEASES {
            assert_eq!(record.clone().release(&lease, release, NOW), fenced, "{record:?}");
        }
    }
}

#[test]
fn a_write_shows_both_fence_and_attempt_id_or_changes_nothing() {
    let (record, lease) = claimed(Recover::Resume);
    let strangers = [
        Lease { fence: lease.fence.next(), ..lease },
        Lease { attempt_id: AttemptId::random(), ..lease },
    ];
    for stranger in strangers {
        let mut after = record.clone();
        assert_eq!(after.renew(&stranger, NOW + LEASE), Fenced::Lost);
        assert_eq!(after.checkpoint(&stranger, checkpoint("late")), Fenced::Lost);
        assert_eq!(after.complete(&stranger, answer("late"), NOW), Recorded::Lost);
        assert_eq!(after.release(&stranger, Release::Retry, NOW), Fenced::Lost);
        assert_eq!(after, record);
    }
}

#[test]
fn completing_again_keeps_the_first_answer() {
    let (mut record, lease) = claimed(Recover::Resume);
    let recorded = record.complete(&lease, answer("first"), NOW);
    let first = record.clone();
    assert_eq!(recorded, Recorded::Until(first.expires_at));
    assert_eq!(record.complete(&lease, answer("second"), NOW + HOUR), recorded);
    assert_eq!(record, first);
}

#[test]
fn settling_holds_only_what_died_and_may_not_resume() {
    let end = NOW + LEASE;
    let (mut record, _) = claimed(Recover::Hold);
    record.settle(before(end));
    assert_eq!(record.state, State::Claimed { lease_until: end });
    record.settle(end);
    assert_eq!(record.state, State::Held { since: end });
    record.settle(end + HOUR);
    assert_eq!(record.state, State::Held { since: end });
    let (mut resumable, _) = claimed(Recover::Resume);
    resumable.settle(end);
    assert_eq!(resumable.state, State::Claimed { lease_until: end });
}

#[test]
fn a_decision_grows_the_fence_and_is_kept_for_an_hour() {
    let late = NOW + RETENTION;
    let done = State::Completed { at: late, answer: answer("by hand") };
    for (resolution, state) in
        [(Resolution::free(), State::Failed), (Resolution::complete(answer("by hand")), done)]
    {
        let (record, _) = claimed(Recover::Hold);
        let mut resolved = record.clone();
        assert_eq!(resolved.resolve(record.fence, resolution, late), Resolved::Done);
        let (fence, expires_at) = (record.fence.next(), late + HOUR);
        assert_eq!(resolved, Record { state, fence, expires_at, ..record });
    }
}

#[test]
fn nothing_but_a_held_record_as_it_was_seen_is_resolved() {
    let (live, _) = claimed(Recover::Hold);
    let records = [
        live.clone(),
        Record { state: State::Failed, ..live.clone() },
        Record { state: State::Tombstone, ..live.clone() },
        Record { state: State::Completed { at: NOW, answer: answer("done") }, ..live.clone() },
        Record { state: held(), fence: Fence::FIRST.next(), ..live },
    ];
    for record in records {
        let mut after = record.clone();
        assert_eq!(after.resolve(Fence::FIRST, Resolution::free(), NOW), Resolved::NotHeld);
        assert_eq!(after, record);
    }
}
