//! What a record keeps of the request that claimed it first.

use bytes::Bytes;

use super::Trial;
use super::samples::{
    LEASE, MARGIN, REMEMBER, RETENTION, answer, ask, checkpoint, kept, mismatch, retry,
};
use crate::Fenced::Applied;
use crate::{Ask, Find, Keepsake, RecordId, Recover, Release, Resolution, Resolved, Whose};

/// Byte for byte, and nothing where nothing was to be kept.
pub async fn a_keepsake_is_kept_as_it_was_asked(trial: Trial) {
    let whole = kept("whole").keepsake.expect("it keeps something");
    let Keepsake { outline, request, .. } = (*whole).clone();
    let keepsakes = [
        None,
        Some(Box::new(Keepsake { outline: outline.clone(), ..Keepsake::default() })),
        Some(Box::new(Keepsake { request: request.clone(), ..Keepsake::default() })),
        Some(Box::new(Keepsake {
            outline: Some(Bytes::new()),
            request: Some(Bytes::new()),
            ..Keepsake::default()
        })),
        Some(Box::new(Keepsake { line: Some("POST /charges".into()), ..Keepsake::default() })),
        Some(whole),
    ];
    for (at, keepsake) in keepsakes.into_iter().enumerate() {
        let first = Ask { keepsake, ..ask(&format!("k-{at}")) };
        trial.run(&first).await;
        assert_eq!(trial.record(&first.id).await.keepsake, first.keepsake, "{at}");
    }
}

/// It is the same request, whoever asks for it again and with whatever.
pub async fn a_keepsake_is_that_of_the_first_claim(trial: Trial) {
    let first = kept("k");
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.renew(&lease).await, Applied);
    expect_kept(&trial, &first, "renewed").await;
    assert_eq!(trial.checkpoint(&lease, &checkpoint("paid")).await, Applied);
    expect_kept(&trial, &first, "checkpoint").await;
    trial.run(&Ask { keepsake: None, ..first.clone() }).await;
    expect_kept(&trial, &first, "asked again").await;
    assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    expect_kept(&trial, &first, "failed").await;
    let other = kept("other").keepsake;
    trial.run(&Ask { keepsake: other.clone(), ..retry(&first) }).await;
    expect_kept(&trial, &first, "run again").await;
    trial.pass(LEASE + MARGIN).await;
    let lease = trial.run(&Ask { keepsake: None, ..retry(&first) }).await.lease;
    expect_kept(&trial, &first, "taken over").await;
    trial.claim(&Ask { keepsake: other, ..mismatch(&first) }).await;
    expect_kept(&trial, &first, "reused").await;
    assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    expect_kept(&trial, &first, "held").await;
    let seen = trial.record(&first.id).await.fence;
    assert_eq!(trial.resolve(&first.id, seen, &Resolution::free()).await, Resolved::Done);
    expect_kept(&trial, &first, "freed").await;
}

/// Nobody runs it again; what tells other requests apart is still needed.
pub async fn a_kept_request_goes_with_the_outcome(trial: Trial) {
    let (done, by_hand) = (kept("done"), kept("by-hand"));
    let lease = trial.run(&done).await.lease;
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    let lease = trial.run(&by_hand).await.lease;
    assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    let seen = trial.record(&by_hand.id).await.fence;
    let resolution = Resolution::complete(answer("done"));
    assert_eq!(trial.resolve(&by_hand.id, seen, &resolution).await, Resolved::Done);
    for first in [done, by_hand] {
        let outline = first.keepsake.clone().and_then(Keepsake::without_request);
        assert_eq!(trial.record(&first.id).await.keepsake, outline);
        assert_eq!(trial.replay(&retry(&first)).await.answer, answer("done"));
    }
}

/// A used key that is only remembered tells nothing of its request.
pub async fn a_tombstone_keeps_nothing_of_its_request(trial: Trial) {
    let first = Ask { remember: REMEMBER, ..kept("k") };
    let lease = trial.run(&first).await.lease;
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.record(&first.id).await.keepsake, None);
    assert_eq!(trial.sweep_all(10).await.buried, 1);
    assert_eq!(trial.record(&first.id).await.keepsake, None);
}

/// A key in its next life stands for another request, or for one of which nothing is kept.
pub async fn a_key_that_is_new_again_keeps_its_new_request(trial: Trial) {
    let first = kept("k");
    for keepsake in [first.keepsake.clone(), kept("other").keepsake, None, first.keepsake.clone()] {
        let ask = Ask { keepsake, ..retry(&first) };
        trial.run(&ask).await;
        expect_kept(&trial, &ask, "new").await;
        trial.pass(RETENTION + MARGIN).await;
    }
}

/// Pages show many records, and none of their requests.
pub async fn finding_shows_no_kept_requests(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..kept("k") };
    trial.run(&first).await;
    trial.pass(LEASE + MARGIN).await;
    let outline = first.keepsake.clone().and_then(Keepsake::without_request);
    let abandoned = Find::Abandoned { after: None };
    let of_tenant = Find::tenant(Whose::Tag(first.label.tenant), None);
    for find in
        [Find::Held, Find::Key("k".into()), Find::IdPrefix(first.id.short()), abandoned, of_tenant]
    {
        let found = trial.find(&find, 10).await;
        let keepsakes: Vec<_> = found.into_iter().map(|record| record.keepsake).collect();
        assert_eq!(keepsakes, std::slice::from_ref(&outline), "{find:?}");
    }
    expect_kept(&trial, &first, "looked at").await;
}

/// All whose work nobody ends, if their request is there, and nobody else.
pub async fn whatever_was_abandoned_is_found(trial: Trial) {
    let [dead, held, to_be_held] = ["dead", "held", "to-be-held"].map(kept);
    let to_be_held = Ask { recover: Recover::Hold, ..to_be_held };
    let [failed, done] = ["failed", "done"].map(kept);
    let unkept = ask("unkept");
    for first in [&dead, &to_be_held, &unkept] {
        trial.run(first).await;
    }
    trial.pass(LEASE + MARGIN).await;
    let lease = trial.run(&held).await.lease;
    assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    let lease = trial.run(&failed).await.lease;
    assert_eq!(trial.release(&lease, Release::Retry).await, Applied);
    let lease = trial.run(&done).await.lease;
    assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    trial.run(&kept("live")).await;
    let mut ids = [dead.id, held.id, to_be_held.id];
    ids.sort_unstable();
    assert_eq!(abandoned(&trial, None, 10).await, ids);
}

/// In the order of their ids, so that whoever looks at a few at a time comes to all.
pub async fn abandoned_records_are_found_a_few_at_a_time(trial: Trial) {
    let mut ids = Vec::new();
    for at in 0..7 {
        let first = kept(&format!("k-{at}"));
        trial.run(&first).await;
        ids.push(first.id);
    }
    trial.pass(LEASE + MARGIN).await;
    ids.sort_unstable();
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let few = abandoned(&trial, after, 3).await;
        assert!(few.len() <= 3);
        let Some(last) = few.last() else { break };
        after = Some(*last);
        found.extend(few);
    }
    assert_eq!(found, ids);
}

async fn abandoned(trial: &Trial, after: Option<RecordId>, most: usize) -> Vec<RecordId> {
    let found = trial.find(&Find::Abandoned { after }, most).await;
    found.into_iter().map(|record| record.id).collect()
}

async fn expect_kept(trial: &Trial, first: &Ask, when: &str) {
    assert_eq!(trial.record(&first.id).await.keepsake, first.keepsake, "{when}");
}
