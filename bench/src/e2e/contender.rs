//! Who is compared.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::Result;

use super::Protection;
use super::process::{self, Server};

/// Something that answers requests, and which ones it is asked.
pub(super) struct Contender {
    pub(super) name: &'static str,
    pub(super) role: Role,
    pub(super) keys: Keys,
}

/// What answers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The upstream itself: what the client can do at most.
    Upstream,
    /// A pooled hyper client behind a hyper server, and nothing else.
    HyperProxy,
    /// nginx with kept connections to its upstream.
    NginxProxy,
    /// The gateway with its records on disk, or in memory.
    Gateway { in_memory: bool },
    /// An axum app, alone or behind a layer.
    App(Protection),
}

/// Which keys its requests bear.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    /// A new one each time: every request is a first one.
    New,
    /// So many in turn: every request is a replay.
    Known(u32),
}

const FILE: Role = Role::Gateway { in_memory: false };
const MEMORY: Role = Role::Gateway { in_memory: true };

const fn entry(name: &'static str, role: Role, keys: Keys) -> Contender {
    Contender { name, role, keys }
}

/// All of them, in the order of their turns.
pub(super) const ALL: &[Contender] = &[
    entry("the upstream itself (nginx)", Role::Upstream, Keys::New),
    entry(super::HYPER, Role::HyperProxy, Keys::New),
    entry("nginx proxy", Role::NginxProxy, Keys::New),
    entry("gateway, no key", FILE, Keys::None),
    entry("gateway, replays of one key", FILE, Keys::Known(1)),
    entry("gateway, replays of 1000 keys", FILE, Keys::Known(1000)),
    entry("gateway, first requests", FILE, Keys::New),
    entry("gateway in memory, replays of 1000 keys", MEMORY, Keys::Known(1000)),
    entry("gateway in memory, first requests", MEMORY, Keys::New),
    entry(super::AXUM, Role::App(Protection::None), Keys::New),
    entry("selfsame, first requests", Role::App(Protection::Selfsame), Keys::New),
    entry("selfsame, replays", Role::App(Protection::Selfsame), Keys::Known(1000)),
    entry("idempotent 2.0, first requests", Role::App(Protection::Idempotent), Keys::New),
    entry("idempotent 2.0, replays", Role::App(Protection::Idempotent), Keys::Known(1000)),
];

impl Contender {
    /// Starts it, in front of `upstream` where it is a proxy.
    pub(super) fn start(
        &self,
        upstream: SocketAddr,
        data: &Path,
        gateway: &Path,
    ) -> Result<Server> {
        match self.role {
            Role::Upstream => process::nginx_upstream(data),
            Role::HyperProxy => process::hyper_proxy(upstream),
            Role::NginxProxy => process::nginx_proxy(upstream, data),
            Role::Gateway { in_memory: true } => process::gateway(gateway, upstream, "memory:"),
            Role::Gateway { in_memory: false } => {
                let store = format!("file:{}", data.join("records").display());
                process::gateway(gateway, upstream, &store)
            }
            Role::App(protection) => process::app(protection),
        }
    }

    /// Whether it gives an answer again.
    pub(super) fn replays(&self) -> bool {
        let protects = match self.role {
            Role::Gateway { .. } => true,
            Role::App(protection) => protection != Protection::None,
            _ => false,
        };
        protects && self.keys != Keys::None
    }
}
