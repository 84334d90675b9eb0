use std::thread;
use std::time::Duration;

use selfsame::{Mode, NewKeyLimit};

use super::*;

fn limits(connections: usize, requests: usize, abandoned: usize) -> Arc<AddressLimits> {
    AddressLimits::new(&Limits {
        max_connections_per_address: connections,
        max_requests_per_address: requests,
        max_abandoned_requests: abandoned,
        ..Limits::default()
    })
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn known(limits: &AddressLimits) -> usize {
    limits.shards.iter().map(|shard| shard.lock().entries.len()).sum()
}

fn unpaid(limits: &AddressLimits) -> usize {
    limits.shards.iter().map(|shard| shard.lock().unpaid).sum()
}

fn with_new_keys(per_second: Option<u32>) -> Arc<AddressLimits> {
    let max_new_keys_per_address = per_second;
    AddressLimits::new(&Limits { max_new_keys_per_address, ..Limits::default() })
}

/// Begins a new key by a request of its own, unless there is no room.
fn has_begun(limits: &Arc<AddressLimits>, address: IpAddr) -> bool {
    let request = limits.request(address).expect("a permit");
    let has_room = request.usage.new_keys.has_room(Mode::Enforce);
    if has_room {
        request.usage.new_keys.count(Mode::Enforce);
    }
    has_room
}

/// A request whose client leaves while its run goes on.
fn abandoned(limits: &Arc<AddressLimits>, address: &str) -> RunPermit {
    let permit = limits.request(ip(address)).expect("a permit");
    let (client, run) = permit.running();
    drop(client);
    run
}

#[test]
fn addresses_are_told_apart_by_their_networks() {
    let shown = [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("::1", "::/64"),
    ];
    for (address, network) in shown {
        assert_eq!(ClientAddress::from(ip(address)).to_string(), network, "{address}");
    }
    let same = ClientAddress::from(ip("192.0.2.7"));
    assert_eq!(ClientAddress::from(ip("::ffff:192.0.2.7")), same);
    assert_ne!(ClientAddress::from(ip("192.0.2.8")), same);
}

#[test]
fn each_address_has_its_own_share_of_connections() {
    let limits = limits(2, 9, 9);
    let open = ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2", "2001:db8::1"]
        .map(|address| limits.connection(ip(address)).expect("a permit"));
    let excess = limits.connection(ip("192.0.2.1")).err().expect("refused");
    assert_eq!((excess.setting, excess.max), ("max_connections_per_address", 2));
    assert_eq!(excess.address.to_string(), "192.0.2.1");
    assert_eq!(known(&limits), 3);
    drop(open);
    assert_eq!(known(&limits), 0);
    assert!(limits.connection(ip("192.0.2.1")).is_ok());
}

#[test]
fn a_request_counts_for_its_connection_s_peer_and_may_outlive_it() {
    let limits = limits(1, 2, 9);
    let connection = limits.connection(ip("192.0.2.1")).expect("a permit");
    let first = connection.request().expect("a permit");
    let second = limits.request(ip("192.0.2.1")).expect("a permit");
    let excess = connection.request().err().expect("refused");
    assert_eq!((excess.setting, excess.max), ("max_requests_per_address", 2));
    drop((connection, first));
    assert_eq!(known(&limits), 1);
    drop(second);
    assert_eq!(known(&limits), 0);
}

#[test]
fn a_run_counts_until_it_has_ended_whoever_is_first_to_go() {
    let limits = limits(9, 1, 9);
    let address = ip("192.0.2.1");
    let (client, run) = limits.request(address).expect("a permit").running();
    drop(run);
    assert!(limits.request(address).is_err());
    drop(client);
    assert_eq!((limits.abandoned(), known(&limits)), (0, 0));

    let run = abandoned(&limits, "192.0.2.1");
    assert_eq!(limits.abandoned(), 1);
    assert!(limits.request(address).is_err());
    let clone = run.clone();
    drop(run);
    assert_eq!(limits.abandoned(), 1);
    drop(clone);
    assert_eq!((limits.abandoned(), known(&limits)), (0, 0));
    assert!(limits.request(address).is_ok());
}

#[test]
fn too_many_abandoned_runs_refuse_those_who_left_them_and_nobody_else() {
    let limits = limits(9, 9, 2);
    let first = abandoned(&limits, "192.0.2.1");
    assert!(limits.request(ip("192.0.2.1")).is_ok());
    let second = abandoned(&limits, "192.0.2.2");
    for address in ["192.0.2.1", "192.0.2.2"] {
        let excess = limits.request(ip(address)).err().expect("refused");
        assert_eq!((excess.setting, excess.max), ("max_abandoned_requests", 2));
    }
    assert!(limits.request(ip("192.0.2.3")).is_ok());
    drop(second);
    assert!(limits.request(ip("192.0.2.1")).is_ok());
    drop(first);
}

#[test]
fn other_limits_count_at_once() {
    let limits = limits(9, 1, 9);
    let _open = limits.request(ip("192.0.2.1"));
    assert!(limits.request(ip("192.0.2.1")).is_err());
    limits.set(&Limits { max_requests_per_address: 2, ..Limits::default() });
    assert!(limits.request(ip("192.0.2.1")).is_ok());
}

#[test]
fn racing_threads_never_pass_the_limit_and_leave_nothing_behind() {
    const MAX: usize = 3;
    let limits = limits(MAX, MAX, usize::MAX);
    let (open, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let address = ip("192.0.2.1");
    thread::scope(|scope| {
        for number in 0..8 {
            let (limits, open, most) = (&limits, &open, &most);
            scope.spawn(move || {
                for round in 0..300 {
                    let connection = limits.connection(ip("192.0.2.9"));
                    let Ok(permit) = limits.request(address) else { continue };
                    most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    let (client, run) = permit.running();
                    open.fetch_sub(1, Ordering::SeqCst);
                    match (round + number) % 3 {
                        0 => drop((client, run)),
                        1 => drop((run, client)),
                        _ => thread::scope(|inner| {
                            inner.spawn(|| drop(run));
                            drop(client);
                        }),
                    }
                    drop(connection);
                }
            });
        }
    });
    assert!((1..=MAX).contains(&most.into_inner()));
    assert_eq!((limits.abandoned(), known(&limits)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn new_keys_are_remembered_until_they_are_paid_for() {
    let limits = with_new_keys(Some(1));
    let [address, same, other] = ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(ip);
    for _ in 0..5 {
        assert!(has_begun(&limits, address) && has_begun(&limits, same));
    }
    assert!(!has_begun(&limits, address), "nothing was open in between");
    assert!(has_begun(&limits, other));
    assert_eq!((known(&limits), unpaid(&limits)), (2, 2));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(has_begun(&limits, address) && !has_begun(&limits, address));
    let connection = limits.connection(address).expect("a permit");
    assert_eq!((known(&limits), unpaid(&limits)), (2, 1));
    drop(connection);
    tokio::time::advance(Duration::from_secs(10)).await;
    drop((limits.connection(address), limits.connection(other)));
    assert_eq!((known(&limits), unpaid(&limits)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_nothing_is_remembered() {
    let limits = with_new_keys(None);
    let request = limits.request(ip("192.0.2.1")).expect("a permit");
    assert!(request.new_keys().is_none());
    drop(request);
    assert!(has_begun(&limits, ip("192.0.2.1")));
    assert_eq!(known(&limits), 0);
    limits.set(&Limits { max_new_keys_per_address: Some(1), ..Limits::default() });
    assert!(limits.request(ip("192.0.2.1")).is_ok_and(|request| request.new_keys().is_some()));
}

#[tokio::test(start_paused = true)]
async fn so_many_addresses_are_remembered_and_those_that_have_paid_are_forgotten() {
    let limits = with_new_keys(Some(1));
    let max = UNPAID_MAX * SHARDS;
    let addresses = |count: usize| {
        (0..u32::try_from(count).expect("few")).map(|number| IpAddr::from(number.to_be_bytes()))
    };
    // Spread unevenly, so that each part is full only after more than that.
    for address in addresses(max + max / 4) {
        assert!(has_begun(&limits, address));
    }
    assert_eq!((known(&limits), unpaid(&limits)), (max, max));
    tokio::time::advance(Duration::from_secs(2)).await;
    for address in addresses(SHARDS * 64) {
        assert!(has_begun(&limits, address));
    }
    assert!(known(&limits) <= SHARDS * 64 && known(&limits) == unpaid(&limits));
}
