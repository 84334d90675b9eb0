//! Rivals that are held at one gate, after each has seen the same, and let go together.

use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, join, join_all};
use selfsame::stores::PostgresStore;
use selfsame_core::conformance::samples::{LEASE, MARGIN, answer, ask, retry};
use selfsame_core::{Ask, Claimed, Fence, Lease, Recorded, Store};
use selfsame_test_postgres::{pass, settable_clock};
use tokio_postgres::Client;

use crate::support::{DATABASE, OWNER, SERVER, fresh_schema, options, owner, run};

const NODES: usize = 8;

/// A schema whose clock is read behind a gate. Each statement reads it after its snapshot was
/// taken: whoever stands there has seen what was, and decides about it when the gate opens.
struct Gated {
    schema: String,
    owner: Client,
    nodes: Vec<PostgresStore>,
}

impl Gated {
    async fn new() -> Self {
        let schema = fresh_schema();
        let url = SERVER.socket_url(OWNER, DATABASE);
        let open = || PostgresStore::open(&url, options(&schema));
        let nodes = join_all((0..NODES).map(|_| open())).await;
        let nodes = nodes.into_iter().map(|node| node.expect("the owner may open it")).collect();
        let owner = owner().await;
        let gate = format!(
            "{}; alter function {schema}.clock() rename to open_clock;
             create function {schema}.clock() returns bigint language plpgsql volatile as $$ begin
               perform pg_advisory_lock_shared(hashtext('{schema}. gate'));
               perform pg_advisory_unlock_shared(hashtext('{schema}. gate'));
               return {schema}.open_clock();
             end $$",
            settable_clock(&schema, OWNER)
        );
        owner.batch_execute(&gate).await.expect("the owner may change its schema");
        Self { schema, owner, nodes }
    }

    /// Lets all calls come to the gate before any may pass it.
    async fn together<T>(&self, calls: Vec<BoxFuture<'_, T>>) -> Vec<T> {
        let gate = format!("hashtext('{}. gate')", self.schema);
        let sql = |sql: String| async move { self.owner.query(&sql, &[]).await.expect("it works") };
        sql(format!("select pg_advisory_lock({gate})")).await;
        let all = i64::try_from(calls.len()).expect("they are few");
        let opening = async {
            let waiting = format!(
                "select count(*) from pg_locks where locktype = 'advisory' and not granted \
                 and mode = 'ShareLock' and ((classid::bigint << 32) | objid::bigint) = {gate}::bigint"
            );
            while sql(waiting.clone()).await[0].get::<_, i64>(0) < all {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            sql(format!("select pg_advisory_unlock({gate})")).await;
        };
        join(join_all(calls), opening).await.0
    }

    /// The lease of the one node that runs, of all that ask at the same moment.
    async fn race(&self, ask: &Ask) -> Lease {
        let claims = self.nodes.iter().map(|node| {
            let ask = retry(ask);
            async move { node.claim(&ask).await.expect("the store works") }.boxed()
        });
        let mut leases = Vec::new();
        for claimed in self.together(claims.collect()).await {
            match claimed {
                Claimed::Run(grant) => leases.push(grant.lease),
                Claimed::Busy { .. } => {}
                other => panic!("a rival runs or is told to come back, not {other:?}"),
            }
        }
        assert_eq!(leases.len(), 1, "{:?}", ask.label.key);
        leases[0]
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_rivals_that_all_saw_a_free_key_one_runs() {
    let gated = Gated::new().await;
    for at in 0..5 {
        assert_eq!(gated.race(&ask(&format!("new-{at}"))).await.fence, Fence::FIRST);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_rivals_that_all_saw_a_dead_claim_one_takes_it_over() {
    let gated = Gated::new().await;
    for at in 0..5 {
        let ask = ask(&format!("dead-{at}"));
        let dead = run(&gated.nodes[0], &ask).await;
        let later = pass(&gated.schema, LEASE + MARGIN);
        gated.owner.batch_execute(&later).await.expect("the owner has the clock");
        assert_eq!(gated.race(&ask).await.fence, dead.fence.next());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_and_a_rival_that_saw_its_claim_dead_agree_on_one() {
    let gated = Gated::new().await;
    for at in 0..5 {
        let ask = ask(&format!("late-{at}"));
        let lease = run(&gated.nodes[0], &ask).await;
        let later = pass(&gated.schema, LEASE + MARGIN);
        gated.owner.batch_execute(&later).await.expect("the owner has the clock");
        let (late, rival) = (answer("late"), retry(&ask));
        let recording = async {
            let recorded = gated.nodes[0].complete(&lease, &late).await;
            matches!(recorded.expect("the store works"), Recorded::Until(_))
        };
        let claiming = async {
            let claimed = gated.nodes[1].claim(&rival).await;
            matches!(claimed.expect("the store works"), Claimed::Run(_))
        };
        let ended = gated.together(vec![recording.boxed(), claiming.boxed()]).await;
        assert!(ended[0] != ended[1], "either it is recorded, or it runs again");
    }
}
