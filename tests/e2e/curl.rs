//! curl as it is, with its own retries: over a bad network, past a busy API, and where it cannot
//! know better.

use std::io::Write;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use crate::harness::{Ended, Gateway, Ledger, Then, reply, run_to_end};

/// A payment by curl, which tries again up to five times, and what it got in the end.
fn pay(to: SocketAddr, key: &str, flags: &[&str]) -> (Ended, String) {
    let folder = TempDir::new().expect("a temporary folder");
    let last_answer = folder.path().join("answer");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "-i", "--retry", "5", "--retry-delay", "1", "--max-time", "20"])
        .args(flags)
        .args(["-H", &format!("Idempotency-Key: {key}"), "--json", r#"{"amount":10}"#])
        .arg("-o")
        .arg(&last_answer)
        .arg(format!("http://{to}/charges"));
    let ended = run_to_end(curl);
    (ended, std::fs::read_to_string(last_answer).unwrap_or_default().replace('\r', ""))
}

#[test]
fn a_payment_arrives_once_over_a_network_that_loses_answers() {
    let ledger = Ledger::start();
    let receipt = "0123456789".repeat(100);
    let body = receipt.clone();
    ledger.behave(move |_, client| reply(client, 201, &[], &body));
    let gateway = Gateway::in_front_of(&ledger).start();
    let network = Ledger::start();
    let (at, tries) = (gateway.address, AtomicUsize::new(0));
    network.behave(move |effect, client| {
        // Nothing comes through, then a quarter, and so on until all of it does.
        let quarters = tries.fetch_add(1, Ordering::SeqCst).min(4);
        effect.onwards(at).send().deliver(quarters, client)
    });

    let (ended, answer) = pay(network.address(), "lossy", &["--retry-all-errors"]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    assert!(answer.contains("\nidempotent-replayed: true\n"), "{answer}");
    assert!(answer.ends_with(&format!("\n\n{receipt}")), "{answer}");
    assert_eq!((network.effects("lossy"), ledger.effects("lossy")), (5, 1));
}

#[test]
fn an_api_that_is_busy_is_asked_again() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| match effect.header("selfsame-attempt") {
        Some("1") => reply(client, 503, &["Retry-After: 1"], "too much to do"),
        _ => reply(client, 201, &[], "charged"),
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let (ended, answer) = pay(gateway.address, "busy", &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(answer.starts_with("HTTP/1.1 201") && answer.ends_with("\n\ncharged"), "{answer}");
    assert_eq!(ledger.effects("busy"), 2);
}

#[test]
fn a_payment_of_which_nobody_knows_the_end_is_not_made_again() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| {
        client
            .write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nchar")
            .expect("written");
        Then::Close
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    // It is told not to (`X-Should-Retry`), and does not listen.
    let (ended, answer) = pay(gateway.address, "unknown", &[]);
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(answer.starts_with("HTTP/1.1 409") && answer.contains("#outcome-unknown"), "{answer}");
    assert_eq!(ledger.effects("unknown"), 1);
}
