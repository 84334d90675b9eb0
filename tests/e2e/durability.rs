//! Rows 11 and 12: what a client saw before the gateway was killed is what every retry gets after,
//! and the store's file is whole.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Mutex;
use std::time::Duration;

use crate::harness::{
    Answer, Gateway, Ledger, Random, Request, Then, assert_whole, within_patience,
};

const ANSWERS: usize = 60;
const ROUNDS: u64 = 4;
const CLIENTS: u64 = 4;
/// Number of answers before a kill, also on a busy machine.
const ANSWERS_PER_ROUND: usize = 15;

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
    let asked = Mutex::new(Asked::new());
    let answered = || answers_in(&asked.lock().expect("no panic holds it"));

    for round in 0..ROUNDS {
        let enough = answered() + ANSWERS_PER_ROUND;
        std::thread::scope(|threads| {
            for client in 0..CLIENTS {
                let (asked, gateway) = (&asked, &gateway);
                threads
                    .spawn(move || ask_until_it_dies(gateway, &format!("{round}-{client}"), asked));
            }
            // Clients go on until the kill. Their answers are counted again at the end.
            let _served = within_patience(|| (answered() >= enough).then_some(()));
            // The kill comes at a moment that nothing announces.
            std::thread::sleep(Duration::from_millis(100 + random.below(500)));
            gateway.signal("KILL");
        });
        let setup = gateway.kill();
        assert_whole(&setup.data());
        gateway = setup.start();
    }

    let asked = asked.into_inner().expect("no panic holds it");
    let answered = answers_in(&asked);
    assert!(answered > 50, "the clients were hardly served: {answered}");
    for (key, seen) in &asked {
        let retry = charge(&gateway, key).send();
        match seen {
            Some(seen) => {
                assert_eq!(retry.header("idempotent-replayed"), Some("true"), "I4: {key}");
                assert_eq!((retry.status, &retry.body), (seen.status, &seen.body), "I3: {key}");
            }
            None => assert!(matches!(retry.status, 201 | 409), "{key}: {retry:?}"),
        }
        assert!(ledger.effects(key) <= 1, "I1: {key}");
    }
}

/// What was asked for, by key, and what its client saw of it.
type Asked = BTreeMap<String, Option<Answer>>;

fn answers_in(asked: &Asked) -> usize {
    asked.values().filter(|seen| seen.is_some()).count()
}

fn charge(gateway: &Gateway, key: &str) -> Request {
    gateway.post("/charges").key(key).json("{}")
}

/// One new key after the other, and each asked for once more, until the gateway is gone.
fn ask_until_it_dies(gateway: &Gateway, client: &str, asked: &Mutex<Asked>) {
    for number in 0.. {
        let key = format!("{client}-{number}");
        let saw = |answer| asked.lock().expect("no panic holds it").insert(key.clone(), answer);
        saw(None);
        let Ok(first) = charge(gateway, &key).try_send() else { return };
        assert_eq!(first.status, 201, "{first:?}");
        saw(Some(first.clone()));
        let Ok(again) = charge(gateway, &key).try_send() else { return };
        assert_eq!((again.status, again.body), (201, first.body), "I3: {key}");
    }
}
