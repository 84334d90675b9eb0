//! Row 4: many requests with one key at the same time, on one node.

use std::sync::mpsc;
use std::sync::{Arc, Barrier};
use std::thread;

use crate::harness::{Answer, Gateway, Ledger, PATIENCE, Request, reply};

/// Sends `count` copies at once; the answers come as they come.
fn all_at_once(request: &Request, count: usize) -> mpsc::Receiver<Answer> {
    let (answers, answered) = mpsc::channel();
    let start = Arc::new(Barrier::new(count));
    for _ in 0..count {
        let (request, answers, start) = (request.clone(), answers.clone(), start.clone());
        thread::spawn(move || {
            let mut connection = request.open();
            start.wait();
            let answer = request.send_on(&mut connection).expect("an answer");
            answers.send(answer).expect("the test waits");
        });
    }
    answered
}

#[test]
fn one_of_two_hundred_runs_and_the_rest_are_told_to_come_back() {
    const RIVALS: usize = 200;
    let (ledger, gate) = Ledger::gated(|_| "the one charge".to_owned());
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("popular").json(r#"{"amount":10}"#);

    let answers = all_at_once(&request, RIVALS);
    for _ in 1..RIVALS {
        answers.recv_timeout(PATIENCE).expect("a rival's answer").refused("in-progress");
    }
    gate.open();
    let winner = answers.recv_timeout(PATIENCE).expect("the winner's answer");

    assert_eq!((winner.status, winner.text().as_str()), (201, "the one charge"));
    assert_eq!(winner.header("idempotent-replayed"), None);
    request.send().replays(&winner);
    assert_eq!(ledger.effects("popular"), 1);
    let claims = r#"selfsame_store_seconds_count{store="file",op="claim"}"#;
    // One store call for each.
    gateway.expect_metric(claims, (RIVALS + 1) as f64);
}

#[test]
fn fifty_rivals_agree_on_one_answer_whenever_they_come() {
    const RIVALS: usize = 50;
    let ledger = Ledger::start();
    let gateway = Gateway::in_front_of(&ledger).start();
    for round in 0..5 {
        let key = format!("round-{round}");
        let request = gateway.post("/charges").key(&key).json(r#"{"amount":10}"#);

        let answers = all_at_once(&request, RIVALS);
        let answers: Vec<_> =
            (0..RIVALS).map(|_| answers.recv_timeout(PATIENCE).expect("an answer")).collect();

        Answer::of_the_one_that_ran(answers);
        assert_eq!(ledger.effects(&key), 1);
    }
}

#[test]
fn rivals_for_a_freed_key_run_one_at_a_time() {
    const RIVALS: usize = 50;
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("selfsame-attempt") {
        Some("1") => reply(client, 503, &[], "come back"),
        _ => reply(client, 201, &[], "second time lucky"),
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let request = gateway.post("/charges").key("freed").json(r#"{"amount":10}"#);
    assert_eq!(request.send().status, 503);

    let answers = all_at_once(&request, RIVALS);
    for _ in 0..RIVALS {
        let answer = answers.recv_timeout(PATIENCE).expect("an answer");
        match answer.status {
            201 => assert_eq!(answer.text(), "second time lucky"),
            _ => drop(answer.refused("in-progress")),
        }
    }
    assert_eq!(ledger.effects("freed"), 2);
}
