//! A cluster: three masters, and a replica for each.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use selfsame_test_ports::free_port;

use crate::{Authority, CLIENT, Server};

const MASTERS: usize = 3;

/// A running cluster. Dropping it stops it.
pub struct Cluster {
    servers: Vec<Server>,
    is_encrypted: bool,
}

impl Cluster {
    /// Starts three masters that share all slots, and a replica for each.
    ///
    /// # Panics
    ///
    /// If Redis is not installed, or does not start.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings, as [`Server::start_with`].
    ///
    /// # Panics
    ///
    /// As [`Cluster::start`].
    pub fn start_with(settings: &[&str]) -> Self {
        Self::launch(settings, None)
    }

    /// The same, encrypted, by certificates of `authority` for `localhost`.
    ///
    /// # Panics
    ///
    /// As [`Cluster::start`].
    pub fn start_encrypted(authority: &Authority) -> Self {
        Self::launch(&[], Some(authority))
    }

    fn launch(settings: &[&str], authority: Option<&Authority>) -> Self {
        let start = || {
            let bus = free_port();
            let bus = format!("cluster-port {bus}");
            let mut all = vec!["cluster-enabled yes", "cluster-node-timeout 1000", "save ", &bus];
            all.extend(settings);
            match authority {
                None => Server::start_with(&all),
                Some(authority) => {
                    all.extend([
                        "tls-cluster yes",
                        "tls-replication yes",
                        "cluster-announce-hostname localhost",
                        "cluster-preferred-endpoint-type hostname",
                    ]);
                    Server::start_among(&all, authority)
                }
            }
        };
        let servers: Vec<_> = (0..MASTERS * 2).map(|_| start()).collect();
        let cluster = Self { servers, is_encrypted: authority.is_some() };
        let mut create = vec!["create".to_owned()];
        create.extend(cluster.servers.iter().map(|server| format!("127.0.0.1:{}", server.port())));
        create.extend(["--cluster-replicas", "1"].map(str::to_owned));
        cluster.manage(&create);
        cluster.wait_until_whole();
        cluster
    }

    /// Its address: that of one master, and of one replica.
    pub fn url(&self) -> String {
        self.url_as("")
    }

    /// The same for a user, such as `user:password@`.
    pub fn url_as(&self, user: &str) -> String {
        let [first, last] = [0, MASTERS * 2 - 1].map(|at| self.servers[at].port());
        match self.is_encrypted {
            true => format!("rediss-cluster://{user}localhost:{first},localhost:{last}"),
            false => format!("redis-cluster://{user}127.0.0.1:{first},127.0.0.1:{last}"),
        }
    }

    /// One of its servers.
    pub fn server(&self, at: usize) -> &Server {
        &self.servers[at]
    }

    /// The same, to be stopped or started.
    pub fn server_mut(&mut self, at: usize) -> &mut Server {
        &mut self.servers[at]
    }

    /// Which servers are masters now, as they see it themselves. One that does not run is none.
    pub fn masters(&self) -> Vec<usize> {
        let is_master = |at: &usize| {
            let role = self.servers[*at].client(0, &["role"]).output().expect("redis-cli runs");
            role.stdout.starts_with(b"master")
        };
        (0..self.servers.len()).filter(is_master).collect()
    }

    /// Sends a command as the default user to whoever has its key, and returns what is printed.
    ///
    /// # Panics
    ///
    /// If it is refused.
    pub fn command(&self, command: &[&str]) -> String {
        let mut words = vec!["-c"];
        words.extend(command);
        self.servers[self.masters()[0]].command(0, &words)
    }

    /// Forgets everything, as fast as that can be done: without a client's process for each server.
    ///
    /// # Panics
    ///
    /// If a server does not answer.
    pub fn flush(&self) {
        for server in &self.servers {
            let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("it listens");
            stream.write_all(b"FLUSHALL\r\n").expect("it reads");
            // Replicas say that they are that, and are flushed by their masters.
            let mut said = String::new();
            BufReader::new(stream).read_line(&mut said).expect("it answers");
        }
    }

    /// Moves so many slots from one master to another, and returns when they are there.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn reshard(&self, from: usize, to: usize, slots: usize) {
        let id = |at: usize| self.servers[at].command(0, &["cluster", "myid"]);
        let words = [
            "reshard",
            &format!("127.0.0.1:{}", self.servers[from].port()),
            "--cluster-from",
            &id(from),
            "--cluster-to",
            &id(to),
            "--cluster-slots",
            &slots.to_string(),
        ];
        self.wait_until_agreed();
        self.manage(&words.map(str::to_owned));
    }

    /// Waits until all servers say the same of each other: else nothing can be moved.
    fn wait_until_agreed(&self) {
        let check = ["check".to_owned(), format!("127.0.0.1:{}", self.servers[0].port())];
        for _ in 0..100 {
            if self.managed(&check).is_ok() {
                return;
            }
            sleep(Duration::from_millis(100));
        }
        panic!("the cluster does not agree: {}", self.command(&["cluster", "nodes"]));
    }

    /// Waits until each slot has a master, and each master a replica.
    ///
    /// # Panics
    ///
    /// If that does not happen.
    pub fn wait_until_whole(&self) {
        for _ in 0..600 {
            let masters = self.masters();
            let is_whole = |at: &usize| {
                let says = |words: &[&str]| self.servers[*at].command(0, words);
                says(&["cluster", "info"]).contains("cluster_state:ok")
                    && says(&["info", "replication"]).contains("state=online")
            };
            if masters.len() == MASTERS && masters.iter().all(is_whole) {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("the cluster does not come together: {}", self.command(&["cluster", "nodes"]));
    }

    /// A file beside a server's, for a client.
    pub fn keep(&self, name: &str, text: &str) -> PathBuf {
        self.servers[0].keep(name, text)
    }

    fn manage(&self, words: &[String]) {
        if let Err(said) = self.managed(words) {
            panic!("{words:?}: {said}");
        }
    }

    fn managed(&self, words: &[String]) -> Result<(), String> {
        let mut manager = Command::new(CLIENT);
        manager.arg("--cluster").args(words).arg("--cluster-yes").stdin(Stdio::null());
        if self.is_encrypted {
            manager.args(["--tls", "--insecure"]);
        }
        let output = manager.output().expect("redis-cli runs");
        let said = || String::from_utf8_lossy(&output.stdout).into_owned();
        output.status.success().then_some(()).ok_or_else(said)
    }
}
