use std::thread;

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
    limits.shards.iter().map(|shard| shard.lock().len()).sum()
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
