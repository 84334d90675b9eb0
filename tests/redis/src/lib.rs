//! A Redis server, a cluster, or a server with a sentinel, of a test's own: in temporary folders, on free ports, with
//! append-only files.
//!
//! A guardian process holds the far end of a pipe. When the test process ends, in whichever way,
//! the pipe closes, and the guardian stops the server by its id and removes the folder.

mod cluster;
mod sentinel;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use selfsame_test_ports::free_port;

pub use cluster::Cluster;
pub use selfsame_test_certificates::{Authority, Signed};
pub use sentinel::Watched;

/// Where Debian has the programs.
const SERVER: &str = "/usr/bin/redis-server";
const CLIENT: &str = "/usr/bin/redis-cli";

/// How many databases a server has; each test that wants one for itself takes one.
pub const DATABASES: usize = 4096;

/// Where Redis has its append-only file, and where we have a copy.
const KEPT: &str = "appendonlydir";
const COPY: &str = "copy";

/// Waits for the pipe to close, then stops the server and removes its folder.
const GUARDIAN: &str = r#"
trap '' INT TERM HUP
read -r _
pid=$(cat "$1/pid" 2>/dev/null) && kill -KILL "$pid"
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
rm -rf "$1"
"#;

/// A running server. Dropping it stops it.
pub struct Server {
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    is_encrypted: bool,
    redis: Child,
    guardian: Child,
}

impl Server {
    /// Starts a server that keeps what it was told.
    ///
    /// # Panics
    ///
    /// If Redis is not installed, or does not start.
    pub fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with settings such as `maxmemory-policy allkeys-lru`; a later one counts.
    ///
    /// # Panics
    ///
    /// As [`Server::start`].
    pub fn start_with(settings: &[&str]) -> Self {
        Self::launch(settings, None, None)
    }

    /// The same, and it shows `own` to whoever connects: nobody is served in plain text.
    ///
    /// # Panics
    ///
    /// As [`Server::start`].
    pub fn start_encrypted(own: &Signed) -> Self {
        Self::launch(&[], Some(own), None)
    }

    /// The same among others that show each other certificates of `authority`, too.
    fn start_among(settings: &[&str], authority: &Authority) -> Self {
        let own = authority.server("localhost");
        Self::launch(settings, Some(&own), Some(authority))
    }

    fn launch(settings: &[&str], own: Option<&Signed>, among: Option<&Authority>) -> Self {
        for program in [SERVER, CLIENT] {
            let is_there = Path::new(program).exists();
            assert!(is_there, "{program} is missing: install Debian's redis-server");
        }
        let folder = folder();
        let write = |name: &str, text: &str| {
            fs::write(folder.join(name), text).expect("the folder is ours");
        };
        if let Some(own) = own {
            write("own.crt", &own.certificate);
            write("own.key", &own.key);
            write("authority.crt", &among.map_or(own.certificate.clone(), Authority::pem));
        }
        if let Some(authority) = among {
            let client = authority.client("server");
            write("client.crt", &client.certificate);
            write("client.key", &client.key);
        }
        let guardian = guardian(&folder);
        let port = free_port();
        let settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
        let redis = serve(&folder, port, &settings, own.is_some());
        let server = Self { folder, port, settings, is_encrypted: own.is_some(), redis, guardian };
        server.wait_until_ready();
        server
    }

    /// The address of one of its databases.
    pub fn url(&self, database: usize) -> String {
        self.url_as("", database)
    }

    /// The same for a user, such as `user:password@`.
    pub fn url_as(&self, user: &str, database: usize) -> String {
        match self.is_encrypted {
            true => format!("rediss://{user}localhost:{}/{database}", self.port),
            false => format!("redis://{user}127.0.0.1:{}/{database}", self.port),
        }
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Sends a command as the default user, and returns what is printed.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub fn command(&self, database: usize, command: &[&str]) -> String {
        let output = self.client(database, command).output().expect("redis-cli runs");
        let said = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        assert!(output.status.success(), "{command:?}: {said}");
        said
    }

    /// A file beside the server's, for a client.
    pub fn keep(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, text).expect("the folder is ours");
        path
    }

    /// Stops it as a crash of the process would.
    pub fn crash(&mut self) {
        self.redis.kill().expect("it runs");
        let _ended = self.redis.wait();
        // Whoever gets its number next is not the guardian's to end.
        fs::remove_file(self.folder.join("pid")).expect("it was written");
    }

    /// Stops it where it is (`STOP`), or lets it go on (`CONT`).
    pub fn signal(&self, name: &str) {
        let id = self.redis.id().to_string();
        let sent = Command::new("kill").arg(format!("-{name}")).arg(id).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Starts it again after a crash.
    pub fn start_again(&mut self) {
        self.redis = serve(&self.folder, self.port, &self.settings, self.is_encrypted);
        self.wait_until_ready();
    }

    /// Forgets what it kept, while it is stopped.
    pub fn lose_everything(&self) {
        let kept = self.folder.join(KEPT);
        fs::remove_dir_all(kept).expect("it has an append-only file");
    }

    /// Copies what it has kept up to now.
    pub fn copy_kept(&self) {
        let copy = self.folder.join(COPY);
        fs::create_dir(&copy).expect("there is one copy");
        for file in fs::read_dir(self.folder.join(KEPT)).expect("it has an append-only file") {
            let file = file.expect("readable");
            fs::copy(file.path(), copy.join(file.file_name())).expect("copied");
        }
    }

    /// Puts the copy in the place of what it kept, while it is stopped.
    pub fn go_back(&self) {
        self.lose_everything();
        fs::rename(self.folder.join(COPY), self.folder.join(KEPT)).expect("there is a copy");
    }

    fn client(&self, database: usize, command: &[&str]) -> Command {
        let mut client = Command::new(CLIENT);
        client.args(["-e", "-p", &self.port.to_string(), "-n", &database.to_string()]);
        if self.is_encrypted {
            client.args(["--tls", "--insecure"]);
        }
        client.args(command).stdin(Stdio::null());
        client
    }

    fn wait_until_ready(&self) {
        for _ in 0..600 {
            let pong = self.client(0, &["ping"]).output().expect("redis-cli runs");
            if pong.stdout.starts_with(b"PONG") {
                return;
            }
            sleep(Duration::from_millis(20));
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("Redis did not start:\n{log}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ended = self.redis.wait();
        let _ended = self.guardian.wait();
    }
}

fn folder() -> PathBuf {
    let folder = tempfile::Builder::new().prefix("selfsame-redis-").tempdir();
    folder.expect("there is a place for temporary folders").keep()
}

fn guardian(folder: &Path) -> Child {
    Command::new("sh")
        .args(["-c", GUARDIAN, "guardian"])
        .arg(folder)
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh runs")
}

fn serve(folder: &Path, port: u16, settings: &[String], is_encrypted: bool) -> Child {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut server = Command::new(SERVER);
    let mut set = |name: &str, value: &str| {
        server.arg(format!("--{name}")).args(value.split(' '));
    };
    for (name, value) in [
        ("bind", "127.0.0.1"),
        ("dir", &folder.display().to_string()),
        ("pidfile", &file("pid")),
        ("logfile", &file("log")),
        ("databases", &DATABASES.to_string()),
        ("save", "3600 1"),
        ("appendonly", "yes"),
        ("appendfsync", "everysec"),
        // Else a replica counts as one a second before it is sent anything.
        ("repl-diskless-sync", "no"),
    ] {
        set(name, value);
    }
    let port = port.to_string();
    if is_encrypted {
        set("port", "0");
        set("tls-port", &port);
        set("tls-cert-file", &file("own.crt"));
        set("tls-key-file", &file("own.key"));
        set("tls-ca-cert-file", &file("authority.crt"));
        set("tls-auth-clients", "no");
        if folder.join("client.crt").exists() {
            set("tls-client-cert-file", &file("client.crt"));
            set("tls-client-key-file", &file("client.key"));
        }
    } else {
        set("port", &port);
    }
    for setting in settings {
        let (name, value) = setting.split_once(' ').expect("a name and a value");
        set(name, value);
    }
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    server.spawn().expect("redis-server starts")
}
