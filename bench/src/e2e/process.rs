//! Servers in processes of their own, on free ports of the loopback; stopped by their id.

use std::io::{BufRead, BufReader, Read};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::NamedTempFile;

use super::{Protection, any_port};
use crate::machine;
use crate::timing::Stopwatch;

/// What every upstream and app answers.
pub(super) const ANSWER: &str = r#"{"id":"ch_1MqLxe2eZvKYlo2C","object":"charge","amount":2000,"currency":"eur","status":"succeeded"}"#;

/// How long a server may take to start, and to stop.
const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. Dropping it stops it.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    /// Address of the admin listener, which only the gateway has.
    pub(super) admin: Option<SocketAddr>,
    child: Child,
}

impl Server {
    /// The processor time that it and its children took so far, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        let own = self.child.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let children = children.unwrap_or_default();
        let children = children.split_whitespace().filter_map(|id| id.parse().ok());
        std::iter::once(own).chain(children).map(machine::cpu_seconds).sum()
    }

    /// Largest amount of memory that it ever held.
    pub(super) fn peak_mib(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = resident.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<f64>().ok());
        Ok(kib.context("the system does not tell how much memory is held")? / 1024.0)
    }

    fn is_gone(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Asked first: nginx, when killed, would leave its workers behind.
        let _gone = Command::new("kill").arg(self.child.id().to_string()).status();
        let asked = Stopwatch::start();
        while !self.is_gone() && asked.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

const NGINX: &str = "nginx";
/// Path below which nginx gives a large file.
const LARGE: &str = "v1/large";
const LARGE_BYTES: usize = 1_000_000;

/// nginx that answers by itself.
pub(super) fn nginx_upstream(folder: &Path) -> Result<Server> {
    upstream(Command::new(NGINX), folder)
}

/// nginx that answers by itself, run before all others.
pub(super) fn preferred_nginx_upstream(folder: &Path) -> Result<Server> {
    upstream(preferred(Path::new(NGINX)), folder)
}

fn upstream(command: Command, folder: &Path) -> Result<Server> {
    let large = folder.join(LARGE);
    std::fs::create_dir_all(large.parent().context("it is in a folder")?)?;
    std::fs::write(&large, "x".repeat(LARGE_BYTES))?;
    let root = folder.canonicalize()?;
    // Files are not for POST, so nginx is told to answer its own refusal with the file.
    let server = format!(
        "default_type application/json; location / {{ return 200 '{ANSWER}'; }}
         location = /{LARGE} {{ root {}; error_page 405 =200 /{LARGE}; }}",
        root.display()
    );
    nginx(command, folder, 1, "", &server)
}

/// nginx in front of `upstream`, with connections kept.
pub(super) fn nginx_proxy(upstream: SocketAddr, folder: &Path) -> Result<Server> {
    let pool = format!(
        "upstream behind {{ server {upstream}; keepalive 64; keepalive_requests 1000000000; }}"
    );
    let server = "location / { proxy_pass http://behind; proxy_http_version 1.1; \
                  proxy_set_header Connection ''; }";
    nginx(Command::new(NGINX), folder, 2, &pool, server)
}

fn nginx(
    mut command: Command,
    folder: &Path,
    workers: u32,
    pool: &str,
    server: &str,
) -> Result<Server> {
    // nginx cannot be asked which port it got.
    let address = TcpListener::bind(any_port())?.local_addr()?;
    let folder = folder.canonicalize()?;
    let at = folder.display();
    let config = format!(
        "daemon off; worker_processes {workers}; pid {at}/nginx.pid; error_log {at}/error.log;
         events {{ worker_connections 1024; }}
         http {{
           access_log off; keepalive_requests 1000000000; tcp_nodelay on;
           client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
           fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
           {pool}
           server {{ listen {address} reuseport; {server} }}
         }}"
    );
    let path = folder.join("nginx.conf");
    std::fs::write(&path, config)?;
    command.arg("-p").arg(&folder).arg("-c").arg(&path).arg("-e").arg(folder.join("error.log"));
    let child = command.stdin(Stdio::null()).spawn().context("nginx cannot be started")?;
    let mut server = Server { address, admin: None, child };
    let asked = Stopwatch::start();
    while TcpStream::connect(address).is_err() {
        if server.is_gone() || asked.elapsed() > PATIENCE {
            bail!("nginx does not serve: see {}", folder.join("error.log").display());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(server)
}

/// This program as a bare proxy.
pub(super) fn hyper_proxy(upstream: SocketAddr) -> Result<Server> {
    this_program(&["proxy", &upstream.to_string()])
}

/// This program as an app.
pub(super) fn app(protection: Protection) -> Result<Server> {
    this_program(&["app", protection.word()])
}

fn this_program(args: &[&str]) -> Result<Server> {
    let mut command = Command::new(std::env::current_exe()?);
    let (mut server, line) = first_line(command.args(args))?;
    server.address = line.parse()?;
    Ok(server)
}

/// This program as hostile clients of `gateway`, which have all begun. They run when nobody else does.
pub(super) fn attackers(attack: &str, gateway: SocketAddr) -> Result<Server> {
    let mut command = Command::new("chrt");
    command.args(["--idle", "0"]).arg(std::env::current_exe()?);
    command.args(["attackers", attack, &gateway.to_string()]);
    Ok(first_line(&mut command)?.0)
}

/// Starts a program, and returns the first line that it prints.
fn first_line(command: &mut Command) -> Result<(Server, String)> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut server = Server { address: any_port(), admin: None, child };
    let stdout = server.child.stdout.take().context("it was piped")?;
    let line = BufReader::new(stdout).lines().next().context("it ended before it served")??;
    Ok((server, line))
}

/// A command that runs before all others. The system may refuse it to users who are not root.
pub(super) fn preferred(program: &Path) -> Command {
    let mut command = Command::new("chrt");
    command.args(["--fifo", "1"]).arg(program);
    command
}

/// A command that runs on the first core only.
pub(super) fn on_first_core(program: &Path) -> Command {
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "0"]).arg(program);
    command
}

/// Moves this process, and all that it starts from now on, to the cores after the first.
pub(super) fn leave_first_core() -> Result<()> {
    let last = machine::cores().saturating_sub(1);
    if last == 0 {
        bail!("this benchmark needs two cores: one is for the gateway alone");
    }
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", "--pid", &format!("1-{last}"), &std::process::id().to_string()]);
    let output = command.output().context("taskset cannot be started")?;
    if !output.status.success() {
        bail!("taskset failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// The gateway as it is delivered, but for a limit on what one address may begin: all load comes from one.
pub(super) fn gateway(program: &Path, upstream: SocketAddr, store: &str) -> Result<Server> {
    let config = NamedTempFile::new()?;
    std::fs::write(config.path(), "[limits]\nmax_new_keys_per_address = \"off\"\n")?;
    gateway_with(Command::new(program), upstream, store, config.path())
}

/// The gateway with a configuration file, started by a command.
pub(super) fn gateway_with(
    mut command: Command,
    upstream: SocketAddr,
    store: &str,
    config: &Path,
) -> Result<Server> {
    let upstream = format!("http://{upstream}");
    let local = any_port().to_string();
    command.args(["serve", "--upstream", &upstream, "--listen", &local, "--admin", &local]);
    command.args(["--store", store]).arg("--config").arg(config).env_remove("SELFSAME_LOG");
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn();
    let child = child.context("the gateway cannot be started")?;
    let mut server = Server { address: any_port(), admin: None, child };
    let mut log = BufReader::new(server.child.stderr.take().context("it was piped")?);
    let mut said = String::new();
    loop {
        let mut line = String::new();
        if log.read_line(&mut line)? == 0 {
            bail!("the gateway did not start:\n{said}");
        }
        said.push_str(&line);
        let line: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
        if line["message"] == "serving" {
            server.address = line["listen"].as_str().context("it says where")?.parse()?;
            server.admin = line["admin"].as_str().map(str::parse).transpose()?;
            break;
        }
    }
    // A pipe that nobody reads would stop it.
    std::thread::spawn(move || log.read_to_end(&mut Vec::new()));
    Ok(server)
}
