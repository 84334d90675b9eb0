//! The gateway as a process of its own, so that it can be killed.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// How long a gateway may take to start, on a machine that has much else to do.
const START: Duration = Duration::from_secs(10);
/// What the environment's settings begin with; the demo's gateways have their own.
const SETTINGS_PREFIX: &str = "SELFSAME_";

/// What all gateways of one story have in common.
pub(super) struct Installation {
    config: PathBuf,
    store: String,
    upstream: SocketAddr,
}

/// The line that a gateway logs once it is bound.
#[derive(Deserialize)]
struct Serving {
    message: String,
    listen: SocketAddr,
    admin: SocketAddr,
}

impl Installation {
    /// Sets a gateway up in `folder`, in front of `upstream`.
    pub(super) fn new(folder: &Path, upstream: SocketAddr, lease: Duration) -> Result<Self> {
        let config = folder.join("selfsame.toml");
        std::fs::write(&config, format!("[idempotency]\nlease = \"{}s\"\n", lease.as_secs()))?;
        let store = format!("file:{}", folder.join("data").display());
        Ok(Self { config, store, upstream })
    }

    /// Starts a gateway on free ports, and waits until it serves.
    pub(super) async fn start(&self) -> Result<Process> {
        let mut child = selfsame()?
            .args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
            .args(["--store", &self.store, "--upstream", &format!("http://{}", self.upstream)])
            .arg("--config")
            .arg(&self.config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let log = child.stderr.take().expect("standard error is piped");
        // From here on, whatever fails, the child is killed.
        let guard = Guard(child);
        let Serving { listen, admin, .. } = timeout(START, serving(log))
            .await
            .context("the gateway took too long to start")?
            .context("the gateway did not start")?;
        Ok(Process { _guard: guard, address: listen, admin })
    }

    /// Runs `selfsame keys complete`, as an operator would, and gives what it prints.
    pub(super) fn complete(&self, process: &Process, key: &str, body: &str) -> Result<String> {
        let done = selfsame()?
            .args(["keys", "complete", key, "--status", "201", "--body", body])
            .args(["--header", "Content-Type: application/json"])
            .args(["--store", &self.store, "--admin", &format!("http://{}", process.admin)])
            .output()?;
        if !done.status.success() {
            bail!("{}", String::from_utf8_lossy(&done.stderr).trim_end());
        }
        Ok(String::from_utf8_lossy(&done.stdout).trim_end().to_owned())
    }
}

/// This program again, without what the environment would tell it.
fn selfsame() -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(SETTINGS_PREFIX.as_bytes()) {
            command.env_remove(name);
        }
    }
    Ok(command)
}

/// Reads the log up to the line that tells the ports; the rest is drained, because a gateway
/// whose log nobody reads would stand still once the pipe is full.
async fn serving(log: ChildStderr) -> Result<Serving> {
    let (tell, told) = oneshot::channel();
    thread::spawn(move || {
        let mut lines = BufReader::new(log).lines().map_while(Result::ok);
        let mut said = Vec::new();
        let found = lines.by_ref().find_map(|line| {
            let serving = serde_json::from_str(&line).ok();
            said.push(line);
            serving.filter(|serving: &Serving| serving.message == "serving")
        });
        // Nobody listens any more where the start took too long.
        let _unheard = tell.send(found.ok_or_else(|| anyhow!(said.join("\n"))));
        lines.for_each(drop);
    });
    told.await?
}

/// A gateway that runs. Dropped, it is killed with SIGKILL, as by `kill -9`.
pub(super) struct Process {
    _guard: Guard,
    pub(super) address: SocketAddr,
    admin: SocketAddr,
}

impl Process {
    /// Ends it with no time to tidy up, and waits until it is gone.
    pub(super) fn kill(self) {
        drop(self);
    }
}

/// A child that does not outlive us.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        // It fails only for a child that is gone already.
        let _gone = self.0.kill();
        let _gone = self.0.wait();
    }
}
