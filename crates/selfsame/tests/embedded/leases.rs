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
