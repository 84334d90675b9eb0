//! A database, a card processor, and services that can be killed, stopped and started again.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rocket_rides::stops;
use selfsame_test_postgres::{PASSWORD, Server};

/// How long a process may take to say something.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the processor's table and the service's own must say of a rider.
pub const ONCE: &str = "1 finished ride, 1 charge";

pub struct Stage {
    server: Server,
    processor: Process,
}

impl Stage {
    pub fn set() -> Self {
        let server = Server::start();
        server.sql("postgres", &format!("create role rides login password '{PASSWORD}'"));
        for database in ["rides", "cards"] {
            server.sql("postgres", &format!("create database {database} owner rides"));
        }
        let cards = server.url("rides", "cards");
        let listen = ["--listen", "127.0.0.1:0"];
        let processor = Process::start(&["processor", "--database", &cards], &listen, None);
        Self { server, processor }
    }

    /// A service at `address`, which stops itself at a point, if one is named.
    pub fn service(&self, address: &str, stop_at: Option<&str>) -> Process {
        let database = self.server.url("rides", "rides");
        let processor = ["--processor", &self.processor.address, "--listen", address];
        let start = ["serve", "--lease-ms", "1000", "--database", &database];
        Process::start(&start, &processor, stop_at)
    }

    /// What was done for `rider`.
    pub fn done_for(&self, rider: &str) -> String {
        let rides = format!("select count(*), min(state) from rides where rider = '{rider}'");
        let rides = self.rides(&rides).replace('|', " ");
        let charges = self.cards(&format!("select count(*) from charges where rider = '{rider}'"));
        format!("{rides} ride, {charges} charge")
    }

    pub fn rides(&self, sql: &str) -> String {
        self.server.sql("rides", sql)
    }

    pub fn cards(&self, sql: &str) -> String {
        self.server.sql("cards", sql)
    }
}

/// A process of ours. Dropping it kills it.
pub struct Process {
    child: Child,
    lines: Receiver<String>,
    pub address: String,
}

impl Process {
    fn start(command: &[&str], more: &[&str], stop_at: Option<&str>) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_rocket-rides"));
        process.args(command).args(more).stdout(Stdio::piped());
        if let Some(point) = stop_at {
            process.env(stops::VARIABLE, point);
        }
        let mut child = process.spawn().expect("it starts");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        let (said, lines) = channel();
        std::thread::spawn(move || {
            stdout.lines().map_while(Result::ok).try_for_each(|line| said.send(line))
        });
        let mut process = Self { child, lines, address: String::new() };
        let listening = process.next_line();
        process.address = listening.strip_prefix("listening on ").expect("an address").to_owned();
        process
    }

    pub fn next_line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("another line")
    }

    /// Lets it go on that has stopped.
    pub fn go_on(&self) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-CONT", &id]).status().expect("kill is there");
        assert!(sent.success());
    }

    /// As `kill -9` does.
    pub fn kill(mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it is ours");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

/// An address of this machine that nobody uses.
pub fn free_address() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    listener.local_addr().expect("bound").to_string()
}
