//! A gateway in a process of its own, which can be killed, stopped and started again.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tempfile::TempDir;

use super::client::{Answer, Request};
use super::{Ledger, eventually, within_patience};

/// The gateway's binary, built for these tests.
pub(crate) fn binary() -> Command {
    Command::new(env!("CARGO_BIN_EXE_selfsame-under-test"))
}

/// A gateway that is not started yet.
pub(crate) struct Setup {
    scheme: String,
    upstream: String,
    settings: String,
    store: Option<String>,
    spool: Option<PathBuf>,
    store_settings: String,
    folder: TempDir,
}

/// A running gateway. Dropping it kills it.
pub(crate) struct Gateway {
    pub(crate) address: SocketAddr,
    pub(crate) admin: SocketAddr,
    checkpoints: Option<SocketAddr>,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
    log_reader: Option<JoinHandle<()>>,
    setup: Setup,
}

impl Setup {
    /// More TOML, such as `[idempotency]` and its settings.
    pub(crate) fn with(mut self, settings: &str) -> Self {
        self.settings.push_str(settings);
        self
    }

    /// The upstream speaks HTTP/2.
    pub(crate) fn over_http2(self) -> Self {
        self.over("h2c")
    }

    /// The upstream's address begins with this.
    pub(crate) fn over(mut self, scheme: &str) -> Self {
        self.scheme = scheme.into();
        self
    }

    /// Another store than a folder of the test's own.
    pub(crate) fn store(mut self, url: &str) -> Self {
        self.store = Some(url.into());
        self
    }

    /// Another spool than the one in the store's folder.
    pub(crate) fn spool(mut self, folder: &Path) -> Self {
        self.spool = Some(folder.into());
        self
    }

    /// More settings of the store.
    pub(crate) fn store_with(mut self, settings: &str) -> Self {
        self.store_settings.push_str(settings);
        self
    }

    /// Starts it, and waits until it serves.
    pub(crate) fn start(self) -> Gateway {
        let mut command = binary();
        command.arg("serve").arg("--config").arg(self.write_config());
        self.start_as(command)
    }

    /// Starts it by a command of the test's own, which ends in the gateway.
    pub(crate) fn start_as(self, mut command: Command) -> Gateway {
        let mut child = command
            .current_dir(self.folder.path())
            .env("SELFSAME_LOG", "debug,hyper_util=info")
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the gateway starts");
        let stderr = child.stderr.take().expect("piped");
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = log.clone();
        let log_reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().expect("no panic holds it").push(line);
            }
        });
        let Addresses { address, admin, checkpoints } = eventually("the gateway serves", || {
            if let Ok(Some(status)) = child.try_wait() {
                let log = log.lock().expect("no panic holds it").join("\n");
                panic!("the gateway ended with {status}:\n{log}");
            }
            addresses(&log.lock().expect("no panic holds it"))
        });
        let log_reader = Some(log_reader);
        Gateway { address, admin, checkpoints, child, log, log_reader, setup: self }
    }

    /// The configuration file, written.
    pub(crate) fn write_config(&self) -> PathBuf {
        let path = self.folder.path().join("selfsame.toml");
        let store = self.store.clone().unwrap_or(format!("file:{}", self.data().display()));
        let spool = self.spool.as_ref().map(|spool| format!("spool = {spool:?}\n"));
        // The test's settings come first: they may hold names of the top level.
        let text = format!(
            "listen = \"127.0.0.1:0\"\nupstream = \"{}://{}\"\n{}\n[store]\nurl = \"{store}\"\n{}{}\n\
             [admin]\nlisten = \"127.0.0.1:0\"\n",
            self.scheme,
            self.upstream,
            self.settings,
            spool.unwrap_or_default(),
            self.store_settings
        );
        // Never half of it: the gateway may be reading.
        let draft = path.with_extension("draft");
        std::fs::write(&draft, text).and_then(|()| std::fs::rename(draft, &path)).expect("written");
        path
    }

    /// The store's folder, unless the test has named another store.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }
}

impl Gateway {
    pub(crate) fn in_front_of(ledger: &Ledger) -> Setup {
        Self::before(ledger.address())
    }

    /// In front of an address where perhaps nobody listens.
    pub(crate) fn before(upstream: SocketAddr) -> Setup {
        Self::before_host(&upstream.to_string())
    }

    /// In front of a host and port that perhaps cannot be found.
    pub(crate) fn before_host(upstream: &str) -> Setup {
        let folder = TempDir::new().expect("a temporary folder");
        Setup {
            scheme: "http".into(),
            upstream: upstream.into(),
            settings: String::new(),
            store: None,
            spool: None,
            store_settings: String::new(),
            folder,
        }
    }

    pub(crate) fn post(&self, target: &str) -> Request {
        self.request("POST", target)
    }

    pub(crate) fn request(&self, method: &str, target: &str) -> Request {
        Request::new(self.address, method, target)
    }

    /// A request to the admin listener.
    pub(crate) fn admin(&self, method: &str, target: &str) -> Request {
        Request::new(self.admin, method, target)
    }

    /// Writes other settings into the file it was started with.
    pub(crate) fn rewrite(&mut self, settings: &str) {
        self.setup.settings = settings.into();
        self.setup.write_config();
    }

    /// Writes other settings of the store into that file.
    pub(crate) fn rewrite_store(&mut self, settings: &str) {
        self.setup.store_settings = settings.into();
        self.setup.write_config();
    }

    /// Has the file read again, by the admin listener.
    pub(crate) fn reload(&self) -> Answer {
        let token = std::fs::read_to_string(self.token_file()).expect("a token");
        let bearer = format!("Bearer {}", token.trim());
        self.admin("POST", "/api/v1/reload").header("Authorization", &bearer).send()
    }

    /// Where the admin token is: beside the data, or where it is made for a database.
    fn token_file(&self) -> PathBuf {
        let made = match self.setup.store {
            None => self.data(),
            Some(_) => self.folder().join("selfsame-data"),
        };
        made.join("admin-token")
    }

    /// Where upstreams save checkpoints.
    pub(crate) fn checkpoints(&self) -> SocketAddr {
        self.checkpoints.expect("the test's settings have [checkpoints]")
    }

    /// `selfsame keys …` against this gateway.
    pub(crate) fn keys(&self, args: &[&str]) -> Output {
        binary()
            .arg("keys")
            .args(args)
            .args(["--admin", &format!("http://{}", self.admin)])
            .arg("--token-file")
            .arg(self.token_file())
            .output()
            .expect("the command runs")
    }

    /// Waits until a metric, named with its labels, has this value.
    pub(crate) fn expect_metric(&self, name: &str, value: f64) {
        let mut last = f64::NAN;
        let reached = within_patience(|| {
            last = self.metric(name);
            (last == value).then_some(())
        });
        assert!(reached.is_some(), "{name} is {last}, not {value}");
    }

    /// The value of a metric, named with its labels; 0 where it is not there.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.admin("GET", "/metrics").send().text();
        let value =
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        value.unwrap_or_default()
    }

    /// How much memory the process holds.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.memory_kib("VmRSS:")
    }

    /// The most memory that the process held since its start.
    pub(crate) fn peak_resident_kib(&self) -> u64 {
        self.memory_kib("VmHWM:")
    }

    fn memory_kib(&self, name: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("the process lives");
        let resident = status.lines().find_map(|line| line.strip_prefix(name));
        let resident = resident.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok());
        resident.expect("the system tells how much memory is held")
    }

    /// Waits until the log contains `text`.
    pub(crate) fn expect_log(&self, text: &str) {
        let found = within_patience(|| self.log().contains(text).then_some(()));
        assert!(found.is_some(), "the log has no {text:?}:\n{}", self.log());
    }

    /// Stops the gateway, and returns all that it logged.
    pub(crate) fn whole_log(self) -> String {
        self.stopped().0
    }

    /// Stops the gateway, and returns all that it logged, with its folder.
    pub(crate) fn stopped(mut self) -> (String, Setup) {
        self.signal("TERM");
        eventually("the gateway stops", || self.child.try_wait().expect("ours"));
        let reader = self.log_reader.take().expect("joined only here");
        reader.join().expect("it reads to the end");
        (self.log(), self.end())
    }

    /// The log as far as it was read: lines are still on their way.
    pub(crate) fn log(&self) -> String {
        self.log.lock().expect("no panic holds it").join("\n")
    }

    /// The store's folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.setup.data()
    }

    /// The folder of the test, in which the gateway runs.
    pub(crate) fn folder(&self) -> &Path {
        self.setup.folder.path()
    }

    /// SIGKILL: no goodbye.
    pub(crate) fn kill(mut self) -> Setup {
        self.end()
    }

    /// SIGTERM, and the exit status that follows.
    pub(crate) fn terminate(self) -> (ExitStatus, Setup) {
        self.signal("TERM");
        self.wait()
    }

    /// Waits until it has ended by itself.
    pub(crate) fn wait(mut self) -> (ExitStatus, Setup) {
        let status = eventually("the gateway stops", || self.child.try_wait().expect("ours"));
        (status, self.end())
    }

    /// Sends a signal, such as `STOP` or `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let sent =
            Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status();
        assert!(sent.expect("kill runs").success());
    }

    fn end(&mut self) -> Setup {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        let upstream = self.setup.upstream.clone();
        std::mem::replace(&mut self.setup, Self::before_host(&upstream))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

struct Addresses {
    address: SocketAddr,
    admin: SocketAddr,
    checkpoints: Option<SocketAddr>,
}

fn addresses(log: &[String]) -> Option<Addresses> {
    let line = log.iter().find(|line| line.contains(r#""message":"serving""#))?;
    let line: serde_json::Value = serde_json::from_str(line).ok()?;
    let address = |name: &str| line.get(name)?.as_str()?.parse().ok();
    Some(Addresses {
        address: address("listen")?,
        admin: address("admin")?,
        checkpoints: address("checkpoints"),
    })
}
