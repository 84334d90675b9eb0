//! `selfsame serve`: stands in front of an API and protects its keyed requests.

use std::path::PathBuf;

use anyhow::Result;
use tokio::runtime::Runtime;

use crate::config::{Config, Overrides, RedisUrl};
use crate::gateway::Gateway;
use crate::installation::NewIdentity;
use crate::live::Origin;
use crate::shutdown::Shutdown;
use crate::telemetry;

/// Where to listen, what to protect, and where to remember it.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The API behind the gateway, such as http://127.0.0.1:3000, or h2c://127.0.0.1:50051 for
    /// HTTP/2 and gRPC
    #[arg(long, env = "SELFSAME_UPSTREAM", hide_env_values = true)]
    upstream: Option<String>,
    /// Where requests come in [default: 127.0.0.1:8080]
    #[arg(long, env = "SELFSAME_LISTEN")]
    listen: Option<String>,
    /// Where keys are remembered: file:PATH, postgres://…, rediss://… or memory: [default: file:./selfsame-data]
    #[arg(long, env = "SELFSAME_STORE", hide_env_values = true)]
    store: Option<String>,
    /// The same database past a pooler in transaction mode, for wake-ups and migrations
    #[arg(long, env = "SELFSAME_STORE_DIRECT", hide_env_values = true)]
    store_direct: Option<String>,
    /// A Redis before a durable store, for replays: rediss://…
    #[arg(long, env = "SELFSAME_STORE_CACHE", hide_env_values = true)]
    store_cache: Option<String>,
    /// Where metrics, health and the admin API are [default: 127.0.0.1:9090]
    #[arg(long, env = "SELFSAME_ADMIN")]
    admin: Option<String>,
    /// A file with the token that operators act with [default: made beside the data]
    #[arg(long, env = "SELFSAME_ADMIN_TOKEN_FILE")]
    admin_token_file: Option<String>,
    /// A file with the installation's secret [default: kept in the store]
    #[arg(long, env = "SELFSAME_SECRET_FILE")]
    secret_file: Option<String>,
    /// A TOML file with routes and everything else
    #[arg(long, env = "SELFSAME_CONFIG")]
    config: Option<PathBuf>,
    /// Start although secret, scope, tenant or key source changed: known keys become new ones
    #[arg(long)]
    new_identity: bool,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let overrides = Overrides {
        upstream: args.upstream,
        listen: args.listen,
        store: args.store,
        store_direct: args.store_direct,
        store_cache: args.store_cache,
        admin: args.admin,
        admin_token_file: args.admin_token_file,
        secret_file: args.secret_file,
    };
    let config = Config::load(args.config.as_deref(), &overrides)?;
    let new_identity = match args.new_identity {
        true => NewIdentity::Accept,
        false => NewIdentity::Refuse,
    };
    telemetry::log("info");
    Runtime::new()?.block_on(async {
        let shutdown = Shutdown::on_signal()?;
        let upstream = config.upstream.authority.clone();
        let (store, cache) = (config.store.shown(), config.cache.as_ref().map(RedisUrl::shown));
        let origin = Origin { path: args.config, overrides };
        let gateway = Gateway::open(config, origin, new_identity, shutdown).await?;
        tracing::info!(
            listen = %gateway.address()?,
            admin = %gateway.admin_address()?,
            checkpoints = gateway.checkpoints_address()?.map(tracing::field::display),
            %upstream,
            store,
            cache,
            "serving"
        );
        gateway.run().await?;
        tracing::info!("stopped");
        Ok(())
    })
}
