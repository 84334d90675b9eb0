//! The demo to try by hand: an API, a gateway before it, and lines to paste.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::bank::Bank;
use super::stage::{Ink, Stage};
use crate::config::{Config, Overrides};
use crate::gateway::Gateway;
use crate::installation::NewIdentity;
use crate::live::Origin;
use crate::shutdown::Shutdown;

/// Long enough to send a second request in the middle of the first.
const CHARGE_TAKES: Duration = Duration::from_millis(150);
const PORT: u16 = 8080;
const ADMIN_PORT: u16 = 9090;

/// Runs an API and a gateway before it until it is told to stop, and says what to try.
pub(super) async fn run(
    stage: &Stage,
    listen: Option<String>,
    data: &Path,
    shutdown: Shutdown,
) -> Result<()> {
    let api = Bank::new(CHARGE_TAKES).open().await?;
    let overrides = Overrides {
        upstream: Some(format!("http://{api}")),
        listen: Some(listen.unwrap_or_else(|| free_address(PORT).to_string())),
        store: Some(format!("file:{}", data.display())),
        admin: Some(free_address(ADMIN_PORT).to_string()),
        ..Overrides::default()
    };
    let config = Config::load(None, &overrides)?;
    let gateway = Gateway::open(config, Origin::default(), NewIdentity::Refuse, shutdown).await?;
    welcome(stage, api, gateway.address()?, gateway.admin_address()?);
    gateway.run().await
}

/// This port on loopback, or any other if it is taken.
fn free_address(port: u16) -> SocketAddr {
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpListener::bind(wanted) {
        Ok(_released) => wanted,
        Err(_taken) => SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
    }
}

fn welcome(stage: &Stage, api: SocketAddr, gateway: SocketAddr, admin: SocketAddr) {
    let place = |name: &str, address: SocketAddr, what: &str| {
        let address = stage.paint(Ink::Cyan, &format!("{:<23}", format!("http://{address}")));
        stage.line(&format!("  {name:<12}  {address}  {what}"));
    };
    let hint = |text: &str, command: &str| {
        stage.line("");
        stage.line(text);
        command.lines().for_each(|line| stage.line(&stage.paint(Ink::Cyan, line)));
    };
    let pay = |key: &str, amount: u64| {
        format!(
            "  curl -i http://{gateway}/charges {key}\\\n       \
             -H 'Content-Type: application/json' -d '{{\"amount\":{amount},\"currency\":\"eur\"}}'"
        )
    };
    let key = "-H 'Idempotency-Key: order-1' ";
    stage.title("Selfsame: the same key gives the same answer, and the work is done once");
    stage.line("");
    place("payments API", api, "charges each time it is asked");
    place("Selfsame", gateway, "stands in front of it");
    place("admin", admin, "metrics, health, keys");
    hint("Pay with a key, then send the same again: one charge, one answer", &pay(key, 20));
    hint("The same key with another amount: 422, and nothing is charged", &pay(key, 99));
    hint("Without a key, twice: charged twice", &pay("", 20));
    let look = format!("  curl http://{gateway}/ledger\n  {}", show_key(admin));
    hint("What was charged, and what is known of the key", &look);
    stage.line("");
    stage.line("Ctrl-C ends it. The story of what can go wrong: selfsame demo --play");
}

/// The command that shows the key, by the name this program was called by.
fn show_key(admin: SocketAddr) -> String {
    let me = std::env::args().next().unwrap_or_else(|| "selfsame".into());
    match admin.port() {
        ADMIN_PORT => format!("{me} keys show order-1"),
        _ => format!("{me} keys show order-1 --admin http://{admin}"),
    }
}
