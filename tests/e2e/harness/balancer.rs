//! nginx: in front of gateways, where it sends a request to the next one if one fails, or as a plain proxy.

use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use selfsame_test_ports::free_port;
use tempfile::TempDir;

use super::{Request, eventually};

/// Where Debian has it, which is not in the path of every user.
const NGINX: &str = "/usr/sbin/nginx";

/// Tries another gateway, and tells which were asked.
const RETRYING: &str = "proxy_set_header Connection ''; proxy_set_header Host $http_host;
    proxy_next_upstream error timeout http_502 http_503 non_idempotent;
    add_header Asked $upstream_addr always;";
/// Time in which a gateway answers, also on a busy machine.
const PATIENT: &str = "30s";
/// Passes each request on once, with its client's address.
const PLAIN: &str = "proxy_set_header Connection ''; proxy_set_header Host $http_host;
    proxy_set_header X-Forwarded-For $remote_addr; proxy_next_upstream off;
    client_header_timeout 2s; client_body_timeout 2s; keepalive_timeout 2s;";

/// A running nginx. Dropping it stops it.
pub(crate) struct Balancer {
    address: SocketAddr,
    child: Child,
    _folder: TempDir,
}

impl Balancer {
    /// In front of gateways that take turns.
    pub(crate) fn before(gateways: &[SocketAddr]) -> Self {
        let servers = gateways.iter().map(|gateway| format!("server {gateway} max_fails=0;"));
        Self::retrying(&servers.collect::<String>(), PATIENT)
    }

    /// In front of one gateway, and of another for what it fails to answer.
    pub(crate) fn before_two(first: SocketAddr, second: SocketAddr) -> Self {
        Self::before_two_within(PATIENT, first, second)
    }

    /// The same, where the first fails that does not answer within `time`.
    pub(crate) fn before_two_within(time: &str, first: SocketAddr, second: SocketAddr) -> Self {
        let servers = format!("server {first} max_fails=0; server {second} max_fails=0 backup;");
        Self::retrying(&servers, time)
    }

    fn retrying(servers: &str, read_timeout: &str) -> Self {
        Self::start(servers, &format!("{RETRYING} proxy_read_timeout {read_timeout};"))
    }

    /// A plain proxy, with time limits of two seconds.
    pub(crate) fn proxy(upstream: SocketAddr) -> Self {
        Self::start(&format!("server {upstream};"), PLAIN)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    fn start(servers: &str, settings: &str) -> Self {
        assert!(Path::new(NGINX).exists(), "{NGINX} is missing: install Debian's nginx-light");
        let folder = TempDir::new().expect("a temporary folder");
        // nginx cannot be asked which port it got.
        let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
        let at = folder.path().display();
        let config = format!(
            "daemon off; master_process off; pid {at}/nginx.pid; error_log {at}/error.log;
             events {{ worker_connections 1024; }}
             http {{
               access_log off;
               client_body_temp_path {at}/body; proxy_temp_path {at}/proxy;
               fastcgi_temp_path {at}/fastcgi; uwsgi_temp_path {at}/uwsgi; scgi_temp_path {at}/scgi;
               upstream gateways {{ {servers} keepalive 16; }}
               server {{
                 listen {address};
                 proxy_http_version 1.1;
                 {settings}
                 location / {{ proxy_pass http://gateways; }}
               }}
             }}"
        );
        let path = folder.path().join("nginx.conf");
        std::fs::write(&path, config).expect("written");
        let child = Command::new(NGINX)
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&path)
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .stdin(Stdio::null())
            .spawn()
            .expect("nginx starts");
        let balancer = Self { address, child, _folder: folder };
        eventually("nginx serves", || TcpStream::connect(address).ok());
        balancer
    }

    pub(crate) fn post(&self, target: &str) -> Request {
        Request::new(self.address, "POST", target)
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
