//! Leases of many runs, renewed before all that waits for the disk.

use super::*;
use crate::shared_leases;

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_is_lost_of_many_runs() {
    let folder = folder();
    let store = Arc::new(open(&folder));
    shared_leases::are_kept(store.clone(), store).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_renewals_at_once_is_answered() {
    let folder = folder();
    let store = open(&folder);
    let mut leases = Vec::new();
    for number in 0..300 {
        match store.claim(&ask(&format!("many-{number}"))).await.expect("the store works") {
            Claimed::Run(grant) => leases.push(grant.lease),
            other => panic!("the key is new, not {other:?}"),
        }
    }
    for _ in 0..20 {
        for renewed in store.renew_all(&leases).await {
            assert_eq!(renewed.expect("the store works"), Fenced::Applied);
        }
    }
}

/// Its owner would run beside whoever takes over.
#[tokio::test]
async fn a_claim_that_is_over_when_it_is_written_is_not_granted() {
    let folder = folder();
    let store = open(&folder);
    let none = Ask { lease: Duration::ZERO, ..ask("none") };
    let error = store.claim(&none).await.expect_err("no disk is so fast");
    assert_eq!(error.kind(), StoreErrorKind::MayHaveLanded);
    let cancelled = store.cancel(&none.id, none.attempt_id).await;
    assert_eq!(cancelled.expect("the store works"), Fenced::Applied);
    run(&store, &Ask { lease: LEASE, ..retry(&none) }).await;
}
