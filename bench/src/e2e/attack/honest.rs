//! Honest clients: a process with 64 connections from as many addresses, which send at a fixed rate, whether or
//! not the gateway keeps up. Each request is sent twice with the same key, so every other one is a replay.
//!
//! A response's latency counts from the moment at which its request was due. A gateway that answers late delays
//! the requests behind, and that counts too.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};

use super::super::client::Client;
use super::super::process;
use crate::figures::Latencies;
use crate::timing::Stopwatch;

pub(super) const CONNECTIONS: u32 = 64;
/// Pause between two requests of one connection.
const PERIOD: Duration = Duration::from_millis(20);
const BODY: &str = r#"{"amount":2000,"currency":"eur","source":"tok_visa"}"#;

/// Requests of all connections in a second.
pub(super) const PER_SECOND: u32 = CONNECTIONS * (1000 / PERIOD.as_millis() as u32);

/// Latencies of the requests that succeeded, and the number of all others. Those that are not sent in twice the time
/// have failed.
#[derive(Default)]
struct Outcome {
    first: Latencies,
    replays: Latencies,
    failed: u32,
}

/// A load, as it is asked for by a command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Load {
    pub(super) gateway: SocketAddr,
    /// Makes the keys of this load differ from those of any other.
    pub(super) name: String,
    pub(super) seconds: u64,
}

/// Figures of a load: latencies in milliseconds, and the requests that failed.
pub(super) struct Figures {
    pub(super) first_p50: f64,
    pub(super) first_p99: f64,
    pub(super) replay_p50: f64,
    pub(super) replay_p99: f64,
    /// Of first requests and replays together.
    pub(super) p99: f64,
    pub(super) failed: f64,
}

/// Sends requests from a process of their own, which the system prefers to all others.
pub(super) fn measure(load: &Load) -> Result<Figures> {
    let (gateway, seconds) = (load.gateway.to_string(), load.seconds.to_string());
    let mut command = process::preferred(&std::env::current_exe()?);
    command.args(["honest", &gateway, &load.name, &seconds]);
    let output = command.stderr(Stdio::inherit()).output()?;
    let line = String::from_utf8(output.stdout)?;
    let mut figures = line.split_whitespace().map(str::parse::<f64>);
    let mut next = || figures.next().context("honest clients did not say how it went");
    Ok(Figures {
        first_p50: next()??,
        first_p99: next()??,
        replay_p50: next()??,
        replay_p99: next()??,
        p99: next()??,
        failed: next()??,
    })
}

/// Sends requests, and prints their figures.
pub(crate) fn serve(load: &Load) -> Result<()> {
    let mut outcome = send(load)?;
    for latencies in [&mut outcome.first, &mut outcome.replays] {
        let [p50, p99] = [0.5, 0.99].map(|part| latencies.percentile(part));
        println!("{p50} {p99}");
    }
    outcome.first.extend(outcome.replays);
    println!("{} {}", outcome.first.percentile(0.99), outcome.failed);
    Ok(())
}

fn send(load: &Load) -> Result<Outcome> {
    let begun = Stopwatch::start();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS)
            .map(|number| scope.spawn(move || client(load, number, begun)))
            .collect();
        clients.into_iter().try_fold(Outcome::default(), |mut all, client| {
            let outcome = client.join().ok().context("an honest client failed")?;
            all.first.extend(outcome.first);
            all.replays.extend(outcome.replays);
            all.failed += outcome.failed;
            Ok(all)
        })
    })
}

fn client(load: &Load, number: u32, begun: Stopwatch) -> Outcome {
    let address = Ipv4Addr::new(127, 0, 1, u8::try_from(number + 1).expect("64 at most"));
    let mut client = Client::from_address(address, load.gateway);
    let mut outcome = Outcome::default();
    let length = Duration::from_secs(load.seconds);
    let requests = u32::try_from(length.as_millis() / PERIOD.as_millis()).unwrap_or(u32::MAX);
    for at in 0..requests {
        if begun.elapsed() > length * 2 {
            outcome.failed += requests - at;
            break;
        }
        let due = PERIOD * at + PERIOD * number / CONNECTIONS;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        let key = format!("{}-{number}-{}", load.name, at / 2);
        let latencies = match at % 2 {
            0 => &mut outcome.first,
            _ => &mut outcome.replays,
        };
        match client.exchange(&request(&key)) {
            Ok(response) if response.status == 200 => {
                latencies.add(begun.elapsed().saturating_sub(due));
            }
            _ => outcome.failed += 1,
        }
    }
    outcome
}

fn request(key: &str) -> Vec<u8> {
    let length = BODY.len();
    format!(
        "POST /v1/charges HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer honest\r\nIdempotency-Key: {key}\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{BODY}"
    )
    .into_bytes()
}
