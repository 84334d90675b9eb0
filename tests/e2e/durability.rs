//! Rows 11 and 12: what a client saw before the gateway was killed is what every retry gets after,
//! and the store's file is whole.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::harness::{Answer, Gateway, Ledger, Random, Then, assert_whole};

const ANSWERS: usize = 60;
const ROUNDS: u64 = 4;
const CLIENTS: u64 = 4;

#[test]
fn answers_of_every_size_and_kind_survive_a_kill_byte_for_byte() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| {
        let body = body(effect.number);
        let head = format!(
            "HTTP/1.1 {} Status\r\nContent-Length: {}\r\nContent-Type: application/x-{}\r\n\
             X-Twice: a\r\nX-Other: between\r\nX-Twice: b\r\nX-Empty:\r\n\r\n",
            [200, 201, 202, 303, 404, 422][effect.number % 6],
            body.len(),
            effect.number,
        );
        match client.write_all(&[head.as_bytes(), &body].concat()) {
            Ok(()) => Then::KeepOpen,
            Err(_) => Then::Close,
        }
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let send = |gateway: &Gateway, number: usize| {
        gateway.post("/charges").key(&format!("key-{number}")).body(b"x").send()
    };
    let first: Vec<_> = (1..=ANSWERS).map(|number| send(&gateway, number)).collect();
    let setup = gateway.kill();
    assert_whole(&setup.data());
    let gateway = setup.start();

    for (number, first) in (1..=ANSWERS).zip(first) {
        let retry = send(&gateway, number);
        assert_eq!(first.body, body(number), "what the upstream said, {number}");
        assert_eq!(retry.header("idempotent-replayed"), Some("true"), "{number}");
        assert_eq!(retry.status, first.status, "{number}");
        assert!(retry.body == first.body, "the body of {number}");
        assert_eq!(kept(&retry), kept(&first), "{number}");
        assert_eq!(ledger.effects(&format!("key-{number}")), 1, "{number}");
    }
}

/// Empty, then small and binary, then up to the limit of what is kept.
fn body(number: usize) -> Vec<u8> {
    let size = match number {
        ANSWERS => 1 << 20,
        number if number % 10 == 0 => 0,
        number => number * number * 60,
    };
    Random::seeded(number as u64).bytes(size)
}

/// The headers that belong to the answer and not to the moment, in their order for each name.
fn kept(answer: &Answer) -> Vec<(&str, &str)> {
    let of_the_moment = ["date", "idempotent-replayed"];
    let headers = answer.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut kept: Vec<_> = headers.filter(|(name, _)| !of_the_moment.contains(name)).collect();
    kept.sort_by_key(|(name, _)| *name);
    kept
}

#[test]
fn what_clients_saw_before_a_kill_under_load_is_what_retries_get_after_it() {
    let seed = Random::seed();
    println!("seed {seed}");
    let mut random = Random::seeded(seed);
    let ledger = Ledger::start();
    let mut gateway = Gateway::in_front_of(&ledger).with("[idempotency]\nlease = \"1s\"\n").start();
    let mut asked: BTreeMap<String, Option<Answer>> = BTreeMap::new();

    for round in 0..ROUNDS {
        let load = Load { round, seen: Mutex::default(), over: AtomicBool::new(false) };
        let moment = Duration::from_millis(100 + random.below(500));
        gateway = std::thread::scope(|threads| {
            for client in 0..CLIENTS {
                let (load, gateway) = (&load, &gateway);
                threads.spawn(move || load.run(client, gateway));
            }
            // The fault comes at a moment that nothing announces.
            std::thread::sleep(moment);
            gateway.signal("KILL");
            load.over.store(true, Ordering::Relaxed);
        })
        .restart(gateway);
        asked.extend(load.seen.into_inner().expect("no panic holds it"));
    }
    let seen = asked.values().filter(|answer| answer.is_some()).count();
    assert!(seen > 100, "the clients were hardly served: {seen}");

    for (key, seen) in &asked {
        let retry = gateway.post("/charges").key(key).json("{}").send();
        match seen {
            Some(seen) => {
                assert_eq!(retry.header("idempotent-replayed"), Some("true"), "I4: {key}");
                assert_eq!((retry.status, &retry.body), (seen.status, &seen.body), "I3: {key}");
            }
            None => assert!(
                retry.status == 201 || retry.problem().as_deref() == Some("outcome-unknown"),
                "{key}: {retry:?}"
            ),
        }
        assert!(ledger.effects(key) <= 1, "I1: {key}");
    }
}
