//! Leases of many runs, renewed together.

use std::sync::Arc;

use selfsame::stores::PostgresStore;
use selfsame_core::conformance::Bench;
use selfsame_core::conformance::samples::{LEASE, MARGIN, answer, ask, retry};
use selfsame_core::{Claimed, Fenced, Recorded, Store};

use crate::shared_leases;
use crate::support::{DATABASE, PostgresBench, SERVER, fresh_schema, options, run};

#[tokio::test(flavor = "multi_thread")]
async fn each_of_many_leases_is_told_what_came_of_it() {
    let bench = PostgresBench::new();
    let store = bench.store().await;
    let mut leases = Vec::new();
    for number in 0..20 {
        leases.push(run(&store, &ask(&format!("many-{number}"))).await);
    }
    // One has ended, one was taken over, one is changed by somebody else at the moment.
    let recorded = store.complete(&leases[3], &answer("done")).await;
    assert!(matches!(recorded, Ok(Recorded::Until(_))), "{recorded:?}");
    bench.pass(LEASE + MARGIN).await;
    run(&store, &retry(&ask("many-4"))).await;
    let lock = format!("begin; select 1 from {}.keys where id = $1 for update", bench.schema);
    let id =
        leases[5].id.as_bytes().iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
    let locks = crate::support::owner().await;
    locks.batch_execute(&lock.replace("$1", &format!("'\\x{id}'"))).await.expect("locked");

    let renewed = store.renew_all(&leases).await;
    for (number, outcome) in renewed.iter().enumerate() {
        match number {
            3 | 4 => assert!(matches!(outcome, Ok(Fenced::Lost)), "{number}: {outcome:?}"),
            5 => assert!(outcome.is_err(), "{outcome:?}"),
            _ => assert!(matches!(outcome, Ok(Fenced::Applied)), "{number}: {outcome:?}"),
        }
    }
    locks.batch_execute("rollback").await.expect("unlocked");
    assert!(matches!(store.renew(&leases[5]).await, Ok(Fenced::Applied)));
    for number in [0, 5, 19] {
        let rival = store.claim(&retry(&ask(&format!("many-{number}")))).await;
        assert!(matches!(rival, Ok(Claimed::Busy { .. })), "{rival:?}");
    }
}

/// A role whose commits take five milliseconds each, as they do where the disk is slow.
async fn slow_commits(schema: &str) -> PostgresStore {
    let role = format!("slow_{schema}");
    SERVER.sql(
        "postgres",
        &format!(
            "create role {role} login superuser; alter role {role} set commit_delay = 5000; \
             alter role {role} set commit_siblings = 0"
        ),
    );
    let opened = PostgresStore::open(&SERVER.socket_url(&role, DATABASE), options(schema)).await;
    opened.expect("the role may make its schema")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_lease_is_lost_of_many_runs_where_commits_are_slow() {
    let schema = fresh_schema();
    let here = slow_commits(&schema).await;
    let url = SERVER.socket_url(&format!("slow_{schema}"), DATABASE);
    let there = PostgresStore::open(&url, options(&schema)).await.expect("it is there");
    shared_leases::are_kept(Arc::new(here), Arc::new(there)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_blocks_its_thread_keeps_its_lease() {
    let schema = fresh_schema();
    let _made = slow_commits(&schema).await;
    shared_leases::is_kept_by_who_blocks(move || {
        let schema = schema.clone();
        async move {
            let url = SERVER.socket_url(&format!("slow_{schema}"), DATABASE);
            PostgresStore::open(&url, options(&schema)).await.expect("it is there")
        }
    })
    .await;
}
