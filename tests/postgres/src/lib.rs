//! A PostgreSQL server of a test's own: in a temporary folder, on a free port, with `fsync` on.
//!
//! A guardian process holds the far end of a pipe. When the test process ends, in whichever way,
//! the pipe closes, and the guardian stops the server by its id and removes the folder.

mod certificates;
mod pooler;

use std::fs;
use std::io::Write;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use selfsame_test_ports::free_port;

pub use pooler::Pooler;
pub use selfsame_test_certificates::{Authority, Signed};

/// Where Debian has the programs of PostgreSQL 15.
const PROGRAMS: &str = "/usr/lib/postgresql/15/bin";

/// The password of every role that may have one.
pub const PASSWORD: &str = "correct-horse";

/// Waits for the pipe to close, then stops the server and removes its folder.
const GUARDIAN: &str = r#"
trap '' INT TERM HUP
read -r _
pid=$(head -n 1 "$1/data/postmaster.pid" 2>/dev/null) && kill -QUIT "$pid"
while [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
rm -rf "$1"
"#;

/// A running server. Dropping it stops it.
pub struct Server {
    folder: PathBuf,
    port: u16,
    settings: Vec<String>,
    owner: Option<Owner>,
    postgres: Child,
    guardian: Child,
}

/// PostgreSQL does not run as root.
#[derive(Clone, Copy)]
struct Owner {
    user: u32,
    group: u32,
}

impl Server {
    /// Makes and starts a server with the database `postgres` of its superuser `postgres`, to whom
    /// the socket is open, and everybody else needs the [`PASSWORD`] over TCP.
    ///
    /// # Panics
    ///
    /// If PostgreSQL 15 is not installed, or does not start.
    pub fn start() -> Self {
        Self::start_in(&std::env::temp_dir(), &["shared_buffers=64MB"])
    }

    /// The same, in a folder of its own in `place`, with settings such as `shared_buffers=64MB`.
    ///
    /// # Panics
    ///
    /// As [`Server::start`].
    pub fn start_in(place: &Path, settings: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("selfsame-pg-").tempdir_in(place);
        let folder = folder.expect("there is a place for temporary folders").keep();
        let settings: Vec<_> = settings.iter().map(ToString::to_string).collect();
        let owner = owner();
        if let Some(owner) = owner {
            chown(&folder, Some(owner.user), Some(owner.group)).expect("root may give it away");
        }
        fs::write(folder.join("password"), PASSWORD).expect("written");
        let guardian = Command::new("sh")
            .args(["-c", GUARDIAN, "guardian"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .spawn()
            .expect("sh runs");
        let made = program("initdb", owner)
            .args(["--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync"])
            .args(["--auth-local=trust", "--auth-host=scram-sha-256"])
            .arg(format!("--pwfile={}", folder.join("password").display()))
            .arg(format!("--pgdata={}", folder.join("data").display()))
            .output()
            .expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let port = free_port();
        let postgres = serve(&folder, port, owner, &settings);
        let server = Self { folder, port, settings, owner, postgres, guardian };
        server.wait_until_ready();
        server
    }

    /// The address over the socket, which asks no password.
    pub fn socket_url(&self, user: &str, database: &str) -> String {
        let folder = self.folder.display().to_string().replace('/', "%2F");
        format!("postgres://{user}@{folder}:{}/{database}", self.port)
    }

    /// The address over TCP, with the [`PASSWORD`].
    pub fn url(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}:{PASSWORD}@127.0.0.1:{}/{database}", self.port)
    }

    /// Runs SQL as the superuser, and returns what it prints, one row a line.
    ///
    /// # Panics
    ///
    /// If the server refuses it.
    pub fn sql(&self, database: &str, sql: &str) -> String {
        let mut psql = self.psql(database, sql);
        let output = psql.output().expect("psql runs");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// Runs SQL in a session that stays open, such as one that holds a lock, until it is dropped.
    pub fn session(&self, database: &str, sql: &str) -> OpenSession {
        let mut psql = self.psql(database, "");
        let mut psql = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("psql runs");
        let stdin = psql.stdin.as_mut().expect("piped");
        writeln!(stdin, "{sql};").expect("psql reads");
        OpenSession { psql }
    }

    /// PostgreSQL's own benchmark, over TCP as the superuser.
    pub fn pgbench(&self, database: &str) -> Command {
        let mut pgbench = Command::new(Path::new(PROGRAMS).join("pgbench"));
        pgbench.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres", database]);
        pgbench.env("PGPASSWORD", PASSWORD);
        pgbench
    }

    /// Stops it as a crash would: no goodbye, and recovery at the next start.
    pub fn crash(&mut self) {
        signal("QUIT", self.postgres.id());
        let _ended = self.postgres.wait();
    }

    /// Stops all its processes where they are, or lets them go on.
    pub fn signal_all(&self, name: &str) {
        let children = Command::new("ps")
            .args(["-o", "pid=", "--ppid", &self.postgres.id().to_string()])
            .output()
            .expect("ps runs");
        signal(name, self.postgres.id());
        for child in String::from_utf8_lossy(&children.stdout).split_whitespace() {
            signal(name, child.parse().expect("a number"));
        }
    }

    /// Starts it again.
    pub fn start_again(&mut self) {
        self.postgres = serve(&self.folder, self.port, self.owner, &self.settings);
        self.wait_until_ready();
    }

    /// Starts it again as the standby of nobody: it can only be read.
    pub fn start_as_standby(&mut self) {
        fs::write(self.folder.join("data/standby.signal"), "").expect("written");
        self.start_again();
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = Command::new(Path::new(PROGRAMS).join("psql"));
        psql.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-U", "postgres"])
            .args(["-d", database, "-p", &self.port.to_string()])
            .arg("-h")
            .arg(&self.folder);
        if !sql.is_empty() {
            psql.args(["-c", sql]);
        }
        psql
    }

    fn wait_until_ready(&self) {
        for _ in 0..600 {
            let mut psql = self.psql("postgres", "select 1");
            if psql.output().expect("psql runs").status.success() {
                return;
            }
            sleep(Duration::from_millis(50));
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("PostgreSQL did not start:\n{log}");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.guardian.stdin.take());
        let _ended = self.postgres.wait();
        let _ended = self.guardian.wait();
    }
}

/// A session that stays open. Dropping it ends it.
pub struct OpenSession {
    psql: Child,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        let _gone = self.psql.kill();
        let _gone = self.psql.wait();
    }
}

/// Gives the store in `schema` a clock that [`pass`] can set, which `readers` may read.
pub fn settable_clock(schema: &str, readers: &str) -> String {
    format!(
        "create table {schema}.shift as select 0::bigint as ms;
         grant select on {schema}.shift to {readers};
         create or replace function {schema}.clock() returns bigint language sql volatile
         as $$ select floor(extract(epoch from clock_timestamp()) * 1000)::bigint
               + (select ms from {schema}.shift) $$"
    )
}

/// Lets that much time pass by such a clock.
pub fn pass(schema: &str, time: Duration) -> String {
    format!("update {schema}.shift set ms = ms + {}", time.as_millis())
}

fn serve(folder: &Path, port: u16, owner: Option<Owner>, settings: &[String]) -> Child {
    let log = fs::OpenOptions::new().append(true).create(true).open(folder.join("log"));
    let log = log.expect("the folder is ours");
    program("postgres", owner)
        .arg("-D")
        .arg(folder.join("data"))
        .arg("-k")
        .arg(folder)
        .args(["-h", "127.0.0.1", "-p", &port.to_string()])
        .args(["-c", "max_connections=300", "-c", "fsync=on"])
        .args(settings.iter().flat_map(|setting| ["-c", setting]))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("postgres starts")
}

fn program(name: &str, owner: Option<Owner>) -> Command {
    let path = Path::new(PROGRAMS).join(name);
    assert!(path.exists(), "{} is missing: install Debian's postgresql-15", path.display());
    let mut command = Command::new(path);
    command.current_dir("/").env("LC_ALL", "C");
    if let Some(Owner { user, group }) = owner {
        command.uid(user).gid(group);
    }
    command
}

/// Whoever the server runs as, if we are root.
fn owner() -> Option<Owner> {
    let id = |args: &[&str]| {
        let output = Command::new("id").args(args).output().expect("id runs");
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        text.parse().expect("Debian's postgresql-15 makes the user postgres")
    };
    (id(&["-u"]) == 0)
        .then(|| Owner { user: id(&["-u", "postgres"]), group: id(&["-g", "postgres"]) })
}

fn signal(name: &str, id: u32) {
    let sent = Command::new("kill").arg(format!("-{name}")).arg(id.to_string()).status();
    assert!(sent.expect("kill runs").success());
}
