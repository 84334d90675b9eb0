//! `bench/run heads`: a search for the request that costs the gateway the most processor time.
//!
//! Random shapes of requests first, then variations of the costliest ones. Every shape keeps to the default
//! limits of a head, and its body is small: what costs much must not be cheap to send.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::client::Client;
use super::process::{self, Server, nginx_upstream};
use crate::Options;
use crate::report::{self, Sample, Table};
use crate::timing::Stopwatch;

const FIRST_SHAPES: usize = 40;
const GENERATIONS: usize = 8;
const VARIATIONS: usize = 16;
const BEST: usize = 4;
/// Processor time that a measurement takes at least, of which the system counts hundredths of a second.
const LEAST_CPU_SECONDS: f64 = 0.2;
const REQUESTS_MAX: usize = 4000;
/// Time that a measurement takes at most.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Default limits of a head.
const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 100;

const CPU: &str = "CPU µs";
const BYTES: &str = "bytes";
const CPU_BYTE: &str = "CPU ns a byte";
const REFUSED: &str = "refused %";
const COLUMNS: &[&str] = &[CPU, BYTES, CPU_BYTE, REFUSED];

/// Headers that hold lists, in the forms in which somebody reads them.
const LISTS: [(&str, &str); 8] = [
    ("Accept", "text/a;q=0.5"),
    ("Cookie", "a=b; c"),
    ("Prefer", "wait=1"),
    ("Forwarded", "for=\"[::1]\";proto=http"),
    ("X-Forwarded-For", "10.0.0.1"),
    ("Cache-Control", "no-cache"),
    ("TE", "trailers"),
    ("Via", "1.1 a"),
];

/// A request, by what may make it costly.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Shape {
    is_keyed: bool,
    headers: usize,
    value_bytes: usize,
    has_underscores: bool,
    nominations: usize,
    list: usize,
    list_items: usize,
    path_escapes: usize,
    query_pairs: usize,
    body: usize,
}

/// Searches, and publishes what was found.
pub(crate) fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.data)?;
    let folder = tempfile::Builder::new().prefix("heads-").tempdir_in(&options.data)?;
    let upstream = nginx_upstream(folder.path())?;
    let data = TempDir::new_in(folder.path())?;
    let store = format!("file:{}", data.path().join("records").display());
    let server = process::gateway(&options.gateway, upstream.address, &store)?;
    let client = Client::new(server.address);
    let mut search = Search { server, client, bodies: bodies()?, random: Random(42), number: 0 };
    let mut found: Vec<(Shape, Sample)> = Vec::new();
    for generation in 0..=GENERATIONS {
        eprintln!("generation {generation} of {GENERATIONS}");
        let shapes: Vec<Shape> = match generation {
            0 => (0..FIRST_SHAPES).map(|_| search.random.shape()).collect(),
            _ => (0..VARIATIONS).map(|at| search.random.vary(&found[at % BEST].0)).collect(),
        };
        for shape in shapes {
            if found.iter().all(|(known, _)| *known != shape) {
                let sample = search.measure(&shape)?;
                found.push((shape, sample));
            }
        }
        found.sort_by(|(_, a), (_, b)| cpu(b).total_cmp(&cpu(a)));
    }
    let plain = [
        ("a plain request without a key".to_owned(), Shape::plain()),
        ("a plain request with a new key".to_owned(), Shape { is_keyed: true, ..Shape::plain() }),
    ];
    let costliest = found.iter().take(BEST);
    let costliest = costliest.map(|(shape, _)| (format!("{shape:?}"), shape.clone()));
    let compared: Vec<_> = plain.into_iter().chain(costliest).collect();
    let mut table = Table::new("The costliest requests", None, COLUMNS);
    for round in 1..=options.rounds() {
        eprintln!("round {round} of {}", options.rounds());
        for (name, shape) in &compared {
            table.add(name, search.measure(shape)?);
        }
    }
    let notes = [format!(
        "{} shapes were measured once each, over {LEAST_CPU_SECONDS} s of processor time; the costliest and two plain ones again in each round. Seconds do not count here.",
        found.len()
    )];
    report::publish(options, &notes, &[table], &[])
}

fn cpu(sample: &Sample) -> f64 {
    sample.iter().find(|(column, _)| *column == CPU).map_or(0.0, |(_, cpu)| *cpu)
}

/// Bodies with their content types and codings, all smaller than 4 KiB on the wire.
fn bodies() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let json = "Content-Type: application/json\r\n";
    let packed = "Content-Type: application/json\r\nContent-Encoding: gzip\r\n";
    let members: Vec<String> = (0..250).rev().map(|at| format!("\"m{at}\":1.50e1")).collect();
    Ok(vec![
        (json, b"{}".to_vec()),
        (json, format!("{{{}}}", members.join(",")).into_bytes()),
        (json, [b"[".repeat(100), b"]".repeat(100)].concat()),
        ("Content-Type: application/x-www-form-urlencoded\r\n", b"a=%41&".repeat(600)),
        (packed, gzip(format!("[{}0]", "0,".repeat(500_000)).as_bytes())?),
        (packed, gzip(format!("{{\"a\":\"{}\"}}", "x".repeat(1_000_000)).as_bytes())?),
        (packed, gzip(&[b"[".repeat(5000), b"]".repeat(5000)].concat())?),
    ])
}

/// Packs bytes as tightly as gzip can.
pub(super) fn gzip(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut gzip =
        Command::new("gzip").arg("-9").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    gzip.stdin.take().context("it was piped")?.write_all(bytes)?;
    Ok(gzip.wait_with_output()?.stdout)
}

struct Search {
    server: Server,
    client: Client,
    bodies: Vec<(&'static str, Vec<u8>)>,
    random: Random,
    number: u64,
}

impl Search {
    /// Sends requests of this shape until their processor time is known.
    fn measure(&mut self, shape: &Shape) -> Result<Sample> {
        let (mut requests, mut bytes, mut refused) = (0, 0, 0);
        let before = self.server.cpu_seconds();
        let waited = Stopwatch::start();
        while requests < REQUESTS_MAX && waited.elapsed() < MAX_TIME {
            for _ in 0..20 {
                self.number += 1;
                let request = self.render(shape);
                bytes = request.len();
                requests += 1;
                refused += usize::from(self.client.exchange(&request)?.status != 200);
            }
            if self.server.cpu_seconds() - before >= LEAST_CPU_SECONDS {
                break;
            }
        }
        let micros = (self.server.cpu_seconds() - before) / requests as f64 * 1e6;
        let of_a_byte = micros * 1e3 / bytes as f64;
        let refused = refused as f64 / requests as f64 * 100.0;
        Ok(vec![(CPU, micros), (BYTES, bytes as f64), (CPU_BYTE, of_a_byte), (REFUSED, refused)])
    }

    fn render(&self, shape: &Shape) -> Vec<u8> {
        let (about, body) = &self.bodies[shape.body];
        let method = if shape.is_keyed { "POST" } else { "GET" };
        let path = "/%63".repeat(shape.path_escapes);
        let query = "a=%41&".repeat(shape.query_pairs);
        let mut head = format!("{method} /v1{path}?{query} HTTP/1.1\r\nHost: a\r\n");
        if shape.is_keyed {
            let number = self.number;
            head += &format!(
                "Idempotency-Key: heads-{number}\r\n{about}Content-Length: {}\r\n",
                body.len()
            );
        }
        if shape.nominations > 0 {
            let names: Vec<_> = (0..shape.nominations).map(|at| format!("x-{at}")).collect();
            head += &format!("Connection: {}\r\n", names.join(","));
        }
        if shape.list_items > 0 {
            let (name, item) = LISTS[shape.list];
            head += &format!("{name}: {}\r\n", vec![item; shape.list_items].join(","));
        }
        let separator = if shape.has_underscores { '_' } else { '-' };
        for at in 0..shape.headers {
            let line = format!("X{separator}{at}: {}\r\n", "x".repeat(shape.value_bytes));
            if head.len() + line.len() + 2 > HEAD_BYTES_MAX {
                break;
            }
            head += &line;
        }
        head += "\r\n";
        let mut request = head.into_bytes();
        if shape.is_keyed {
            request.extend(body);
        }
        request
    }
}

impl Shape {
    fn plain() -> Self {
        Self {
            is_keyed: false,
            headers: 0,
            value_bytes: 1,
            has_underscores: false,
            nominations: 0,
            list: 0,
            list_items: 0,
            path_escapes: 0,
            query_pairs: 0,
            body: 0,
        }
    }
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    fn shape(&mut self) -> Shape {
        let mut shape = Shape::plain();
        for part in 0..10 {
            self.change(&mut shape, part);
        }
        shape
    }

    /// A shape that differs from `shape` in two parts.
    fn vary(&mut self, shape: &Shape) -> Shape {
        let mut shape = shape.clone();
        for _ in 0..2 {
            let part = self.below(10);
            self.change(&mut shape, part);
        }
        shape
    }

    fn change(&mut self, shape: &mut Shape, part: usize) {
        match part {
            0 => shape.is_keyed = self.below(3) > 0,
            1 => shape.headers = self.below(HEADERS_MAX - 8),
            2 => shape.value_bytes = 1 << self.below(10),
            3 => shape.has_underscores = self.below(2) == 0,
            4 => shape.nominations = self.below(11),
            5 => shape.list = self.below(LISTS.len()),
            6 => shape.list_items = self.below(300),
            7 => shape.path_escapes = self.below(400),
            8 => shape.query_pairs = self.below(400),
            _ => shape.body = self.below(7),
        }
    }
}
