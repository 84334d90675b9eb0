//! An address that keeps the gateway busy is served after others.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;

use crate::harness::{Gateway, Ledger, connect_from, eventually};

const BUSY: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
const CONNECTIONS: usize = 100;
/// Requests that each connection sends ahead.
const AHEAD: usize = 16;

/// Sends `requests` for as long as they are taken, and reads the responses.
pub(crate) async fn flood(to: SocketAddr, requests: Arc<Vec<u8>>) {
    let (mut from, mut to) = connect_from(BUSY, to).await.into_split();
    let write = async { while to.write_all(&requests).await.is_ok() {} };
    let read = async {
        let mut buffer = vec![0; 16 * 1024];
        while from.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_of_a_busy_address_wait_for_those_of_others() {
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    let charge = gateway.post("/charges").key("k").json("{}");
    let first = charge.send();
    let requests = Arc::new(charge.bytes().repeat(AHEAD));
    let mut flooding = JoinSet::new();
    for _ in 0..CONNECTIONS {
        flooding.spawn(flood(gateway.address, requests.clone()));
    }

    let mut number = 0;
    eventually("the busy address waits for others", || {
        number += 1;
        let new = gateway.post("/charges").key(&format!("new-{number}")).json("{}").send();
        assert_eq!(new.status, first.status);
        charge.send().replays(&first);
        (gateway.metric("selfsame_deferred_tasks_total") >= 1000.0).then_some(())
    });

    // It waits, but it is served.
    let replayed = r#"selfsame_requests_total{route="default",outcome="replayed"}"#;
    let before = gateway.metric(replayed);
    eventually("the busy address is served", || {
        charge.send().replays(&first);
        (gateway.metric(replayed) >= before + 1000.0).then_some(())
    });
    flooding.shutdown().await;
    assert_eq!(ledger.effects("k"), 1);
}
