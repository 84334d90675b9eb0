//! Cleaning takes away what expired, in small bites, and never anything else.

use super::Trial;
use super::samples::{LEASE, MARGIN, RETENTION, answer, ask, checkpoint, retry};
use crate::Fenced::Applied;
use crate::{Ask, Claimed, Count, Lease, Recover, Release, State, Swept};

/// Number of claims after which a key that is still busy counts as lost.
const CLAIMS_MAX: usize = 10_000;

/// There is an end where there is nothing.
pub async fn a_sweep_of_nothing_is_finished(trial: Trial) {
    assert_eq!(trial.sweep(10).await, Swept { finished: true, ..Swept::default() });
}

/// What expired is gone, whatever it was.
pub async fn a_sweep_removes_what_expired(trial: Trial) {
    let completed = trial.run(&ask("completed")).await.lease;
    assert_eq!(trial.complete(&completed, &answer("done")).await, Applied);
    let failed = trial.run(&ask("failed")).await.lease;
    assert_eq!(trial.release(&failed, Release::Retry).await, Applied);
    trial.run(&ask("dead")).await;
    trial.pass(RETENTION + MARGIN).await;
    let fresh = ask("fresh");
    trial.run(&fresh).await;
    assert_eq!(trial.sweep_all(10).await, Swept { removed: 3, finished: true, ..Swept::default() });
    assert_eq!(trial.count().await, Count { claimed: 1, ..Count::default() });
    assert!(matches!(trial.claim(&retry(&fresh)).await, Claimed::Busy { .. }));
}

/// What has not expired stays as it is.
pub async fn a_sweep_leaves_the_unexpired_alone(trial: Trial) {
    let asks = ["live", "held", "completed", "failed", "resumable"].map(ask);
    let [live, held, completed, failed, resumable] = &asks;
    trial.run(resumable).await;
    trial.pass(LEASE + MARGIN).await;
    trial.run(live).await;
    let held = trial.run(held).await.lease;
    assert_eq!(trial.release(&held, Release::Hold).await, Applied);
    let completed = trial.run(completed).await.lease;
    assert_eq!(trial.complete(&completed, &answer("done")).await, Applied);
    let failed = trial.run(failed).await.lease;
    assert_eq!(trial.release(&failed, Release::Retry).await, Applied);

    let mut before = Vec::new();
    for ask in &asks {
        before.push(trial.record(&ask.id).await);
    }
    assert_eq!(trial.sweep_all(2).await, Swept { finished: true, ..Swept::default() });
    for (ask, before) in asks.iter().zip(before) {
        assert_eq!(trial.record(&ask.id).await, before);
    }
}

/// A hold never ends by cleaning.
pub async fn a_sweep_leaves_the_held_alone_for_ever(trial: Trial) {
    let lease = trial.run(&ask("k")).await.lease;
    assert_eq!(trial.release(&lease, Release::Hold).await, Applied);
    trial.pass(RETENTION * 30).await;
    assert_eq!(trial.sweep_all(10).await, Swept { finished: true, ..Swept::default() });
    assert!(matches!(trial.record(&lease.id).await.state, State::Held { .. }));
}

/// No sweep does more than it was allowed, and the next one goes on behind it.
pub async fn a_sweep_is_bounded_and_goes_on_where_it_stopped(trial: Trial) {
    for at in 0..20 {
        trial.run(&ask(&format!("expired-{at}"))).await;
    }
    trial.pass(RETENTION + MARGIN).await;
    for at in 0..20 {
        trial.run(&ask(&format!("live-{at}"))).await;
    }
    let mut removed = 0;
    for _ in 0..100 {
        let swept = trial.sweep(3).await;
        assert!(swept.removed + swept.buried + swept.held.len() <= 3, "{swept:?}");
        removed += swept.removed;
        if swept.finished {
            break;
        }
    }
    assert_eq!(removed, 20);
    assert_eq!(trial.count().await, Count { claimed: 20, ..Count::default() });
}

/// Come to its end, a sweep begins anew: what expires later is found too.
pub async fn a_finished_sweep_begins_anew(trial: Trial) {
    for at in 0..5 {
        trial.run(&ask(&format!("early-{at}"))).await;
    }
    assert_eq!(trial.sweep_all(2).await.removed, 0);
    trial.pass(RETENTION + MARGIN).await;
    assert_eq!(trial.sweep_all(2).await.removed, 5);
    assert_eq!(trial.sweep_all(2).await.removed, 0);
}

/// People find out about a dead claim without anybody retrying it.
pub async fn a_sweep_holds_dead_claims_that_nothing_may_resume(trial: Trial) {
    let first = Ask { recover: Recover::Hold, ..ask("hold") };
    trial.run(&first).await;
    trial.run(&Ask { recover: Recover::Auto, ..ask("auto") }).await;
    let resumable = trial.run(&Ask { recover: Recover::Auto, ..ask("saved") }).await.lease;
    assert_eq!(trial.checkpoint(&resumable, &checkpoint("paid")).await, Applied);
    assert_eq!(trial.sweep_all(10).await.held, []);
    trial.pass(LEASE + MARGIN).await;
    let swept = trial.sweep_all(10).await;
    let mut held: Vec<_> = swept.held.iter().map(|record| record.label.key.as_str()).collect();
    held.sort_unstable();
    assert_eq!(held, ["auto", "hold"]);
    assert_eq!(Swept { held: Vec::new(), ..swept }, Swept { finished: true, ..Swept::default() });
    assert_eq!(trial.sweep_all(10).await.held, []);
    assert!(matches!(trial.record(&first.id).await.state, State::Held { .. }));
    assert_eq!(trial.claim(&retry(&first)).await, Claimed::Held { newly: false });
    assert_eq!(trial.count().await, Count { claimed: 1, held: 2, ..Count::default() });
}

/// A sweep that comes late finds the key's next life, and leaves it.
pub async fn a_late_sweep_brings_nothing_back_and_takes_nothing_new(trial: Trial) {
    let first = ask("k");
    let old = trial.run(&first).await.lease;
    assert_eq!(trial.complete(&old, &answer("old")).await, Applied);
    trial.pass(RETENTION + MARGIN).await;
    let fresh = trial.run(&retry(&first)).await.lease;
    assert_eq!(trial.sweep_all(10).await.removed, 0);
    assert_eq!(trial.complete(&fresh, &answer("new")).await, Applied);
    assert_eq!(trial.sweep_all(10).await.removed, 0);
    assert_eq!(trial.replay(&retry(&first)).await.answer, answer("new"));
}

/// A key is claimed anew while the sweep takes its earlier life away: the claim stands.
pub async fn a_sweep_beside_a_claim_takes_only_the_expired(trial: Trial) {
    let asks: Vec<_> = (0..8).map(|at| ask(&format!("k-{at}"))).collect();
    for ask in &asks {
        trial.run(ask).await;
    }
    trial.pass(RETENTION + MARGIN).await;
    let rivals = asks.iter().map(|ask| {
        let (trial, ask) = (trial.clone(), retry(ask));
        async move {
            let lease = claim_when_free(&trial, &ask).await;
            trial.sweep(4).await;
            lease
        }
    });
    for lease in trial.race(rivals).await {
        assert_eq!(trial.complete(&lease, &answer("done")).await, Applied);
    }
}

/// Claims an expired key. It may be busy while a sweep removes its record.
async fn claim_when_free(trial: &Trial, ask: &Ask) -> Lease {
    for _ in 0..CLAIMS_MAX {
        match trial.claim(ask).await {
            Claimed::Run(grant) => return grant.lease,
            Claimed::Busy { .. } => tokio::task::yield_now().await,
            other => panic!("an expired key is new, not {other:?}"),
        }
    }
    panic!("the key is busy for ever")
}
