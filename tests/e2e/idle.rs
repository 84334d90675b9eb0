//! Row 42: ten thousand connections that were used and are kept open.

use crate::harness::{Gateway, Ledger, reply};

const CONNECTIONS: usize = 10_000;
const RESIDENT_KIB_MAX: u64 = 256 * 1024;

#[test]
fn ten_thousand_idle_connections_take_bounded_memory_and_can_be_used_again() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| reply(client, 200, &[], "here"));
    let limits = "[limits]\nmax_connections_per_address = 20000\n";
    let gateway = Gateway::in_front_of(&ledger).with(limits).start();
    let request = gateway.request("GET", "/");
    let mut connections: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let mut connection = request.open();
            assert_eq!(request.send_on(&mut connection).expect("an answer").status, 200);
            connection
        })
        .collect();
    let resident = gateway.resident_kib();
    assert!(resident < RESIDENT_KIB_MAX, "{resident} KiB for {CONNECTIONS} connections");
    let charge = gateway.post("/charges").key("order-1").json("{}");
    let last = connections.last_mut().expect("there are some");
    let first = charge.send_on(last).expect("an answer");
    charge.send().replays(&first);
    assert_eq!(ledger.effects("order-1"), 1);
}
