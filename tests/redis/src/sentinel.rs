//! A master, its replica, and a sentinel that makes the one of them master that is there.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use selfsame_test_ports::free_port;

use crate::{SERVER, Server, folder, guardian};

/// What the sentinel calls the master.
const NAME: &str = "main";

/// Two servers and a sentinel. Dropping it stops all.
pub struct Watched {
    servers: [Server; 2],
    port: u16,
    sentinel: Child,
    guardian: Child,
}

impl Watched {
    /// Starts a master, its replica, and a sentinel.
    ///
    /// # Panics
    ///
    /// If Redis is not installed, or does not start.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings of both servers, as [`Server::start_with`].
    ///
    /// # Panics
    ///
    /// As [`Watched::start`].
    pub fn start_with(settings: &[&str]) -> Self {
        let master = Server::start_with(settings);
        let follows = format!("replicaof 127.0.0.1 {}", master.port());
        let mut replica = settings.to_vec();
        replica.push(&follows);
        let servers = [master, Server::start_with(&replica)];
        let (folder, port) = (folder(), free_port());
        let guardian = guardian(&folder);
        let config = folder.join("sentinel.conf");
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {folder}\npidfile {folder}/pid\n\
             logfile {folder}/log\nsentinel monitor {NAME} 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds {NAME} 700\nsentinel failover-timeout {NAME} 5000\n",
            folder = folder.display(),
            master = servers[0].port(),
        );
        fs::write(&config, text).expect("the folder is ours");
        let sentinel = Command::new(SERVER)
            .arg(&config)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        let watched = Self { servers, port, sentinel, guardian };
        watched.wait_until_whole();
        watched
    }

    /// Where the master is found, for a user such as `user:password@`.
    pub fn url_as(&self, user: &str) -> String {
        format!("redis-sentinel://{user}127.0.0.1:{}/{NAME}/0", self.port)
    }

    /// The first master, or the second.
    pub fn server(&self, at: usize) -> &Server {
        &self.servers[at]
    }

    /// The same, to be stopped or started.
    pub fn server_mut(&mut self, at: usize) -> &mut Server {
        &mut self.servers[at]
    }

    /// Whether a server says that it is the master.
    pub fn is_master(&self, at: usize) -> bool {
        let role = self.servers[at].client(0, &["role"]).output().expect("redis-cli runs");
        role.stdout.starts_with(b"master")
    }

    /// Waits until the sentinel knows the replica, and that has all.
    fn wait_until_whole(&self) {
        let ask = ["-p", &self.port.to_string(), "sentinel", "replicas", NAME].map(str::to_owned);
        for _ in 0..600 {
            let said = Command::new(crate::CLIENT).args(&ask).output().expect("redis-cli runs");
            let said = String::from_utf8_lossy(&said.stdout).into_owned();
            let replication = self.servers[0].command(0, &["info", "replication"]);
            if said.contains("master-link-status\nok") && replication.contains("state=online") {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        panic!("the sentinel does not find the replica");
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ended = self.sentinel.wait();
        let _ended = self.guardian.wait();
    }
}
