//! A pgbouncer of a test's own, in transaction mode.

use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use selfsame_test_ports::free_port;

use crate::Server;

/// Where Debian has it.
const PROGRAM: &str = "/usr/sbin/pgbouncer";

/// Ends it when the pipe closes, in whichever way the test process ends.
const GUARDIAN: &str = r#"
trap '' INT TERM HUP
"$1" -q "$2" &
read -r _
kill "$!"
wait
"#;

/// A pooler in front of a [`Server`]. Dropping it stops it.
pub struct Pooler {
    port: u16,
    guardian: Child,
}

impl Pooler {
    /// Lets each of `users` in without a password, and all transactions of one to a database travel
    /// over `sessions` of the server's.
    ///
    /// # Panics
    ///
    /// If pgbouncer is not installed, or does not start.
    pub fn start(server: &Server, users: &[&str], sessions: usize) -> Self {
        assert!(Path::new(PROGRAM).exists(), "{PROGRAM} is missing: install Debian's pgbouncer");
        let port = free_port();
        let users: String = users.iter().map(|user| format!("\"{user}\" \"\"\n")).collect();
        let users = server.keep(&format!("users-{port}"), &users);
        let settings = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\n\
             pool_mode = transaction\ndefault_pool_size = {sessions}\nmax_client_conn = 900\n\
             logfile = {}\n",
            server.folder.display(),
            server.port,
            users.display(),
            server.folder.join(format!("pooler-{port}.log")).display(),
        );
        let settings = server.keep(&format!("pooler-{port}.ini"), &settings);
        let mut command = Command::new("sh");
        command.args(["-c", GUARDIAN, "guardian", PROGRAM]).arg(&settings).stdin(Stdio::piped());
        command.current_dir("/").stdout(Stdio::null()).stderr(Stdio::null());
        if let Some(owner) = server.owner {
            command.uid(owner.user).gid(owner.group);
        }
        let pooler = Self { port, guardian: command.spawn().expect("sh runs") };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return pooler;
            }
            sleep(Duration::from_millis(50));
        }
        let log = server.folder.join(format!("pooler-{port}.log"));
        panic!("pgbouncer did not start:\n{}", fs::read_to_string(log).unwrap_or_default());
    }

    /// The address of a database behind it.
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}", self.port)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ended = self.guardian.wait();
    }
}
