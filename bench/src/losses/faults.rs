//! What goes wrong, and the servers that it happens to.

use std::time::Duration;

use anyhow::Result;
use selfsame_test_redis::Server;
use tokio::time::sleep;

use super::relay::Relay;
use super::set_ups::SetUp;

/// For how long the replica gets nothing, while answers are recorded.
const STALLED: Duration = Duration::from_secs(1);

/// What happens while answers are recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    Kill,
    Forget,
    Flush,
    FailOver,
}

impl Fault {
    pub(super) const ALL: [Self; 4] = [Self::Kill, Self::Forget, Self::Flush, Self::FailOver];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Kill => "`kill -9`, restart",
            Self::Forget => "restart without the append-only file",
            Self::Flush => "`FLUSHALL`",
            Self::FailOver => "a replica takes over that was stalled for a second",
        }
    }

    /// Whether there is what it takes away.
    pub(super) fn fits(self, set_up: &SetUp) -> bool {
        self != Self::Forget || set_up.has_file
    }
}

/// A master behind a relay, perhaps with a replica, which hears of it through another relay.
pub(super) struct Scene {
    master: Server,
    front: Relay,
    replica: Option<Replica>,
}

struct Replica {
    server: Server,
    link: Relay,
}

impl Scene {
    pub(super) async fn start(set_up: &SetUp, fault: Fault) -> Result<Self> {
        let quick = ["repl-diskless-sync-delay 0"];
        let settings: Vec<_> = set_up.settings.iter().chain(&quick).copied().collect();
        let master = Server::start_with(&settings);
        let mut replica = None;
        if set_up.has_replica || fault == Fault::FailOver {
            let link = Relay::start(master.port()).await?;
            let follow = format!("replicaof 127.0.0.1 {}", link.port());
            let settings: Vec<_> = settings.iter().copied().chain([&follow[..]]).collect();
            let server = Server::start_with(&settings);
            while !server.command(0, &["role"]).contains("connected") {
                sleep(Duration::from_millis(50)).await;
            }
            replica = Some(Replica { server, link });
        }
        let front = Relay::start(master.port()).await?;
        Ok(Self { master, front, replica })
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.front.port())
    }

    /// Lets it happen, beside those who call.
    pub(super) async fn strike(&mut self, fault: Fault) {
        match fault {
            Fault::Kill | Fault::Forget => self.master.crash(),
            Fault::Flush => {
                self.master.command(0, &["flushall"]);
            }
            Fault::FailOver => {
                if let Some(replica) = &self.replica {
                    replica.link.pause();
                }
                sleep(STALLED).await;
                self.master.crash();
            }
        }
    }

    /// Serves again, as an operator or a sentinel would see to.
    pub(super) async fn recover(&mut self, fault: Fault) {
        match (fault, &self.replica) {
            (Fault::Kill, _) => self.master.start_again(),
            (Fault::Forget, _) => {
                self.master.lose_everything();
                self.master.start_again();
            }
            (Fault::Flush, _) | (Fault::FailOver, None) => {}
            (Fault::FailOver, Some(Replica { server, link })) => {
                // What was on its way is gone with the master.
                link.lead_to(self.master.port());
                server.command(0, &["replicaof", "no", "one"]);
                self.front.lead_to(server.port());
            }
        }
    }
}
