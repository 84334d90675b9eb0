//! An app: alone, behind our layer, or behind another's.

use std::sync::Arc;

use anyhow::Result;
use axum::Router;
use axum::routing::post;
use axum::serve::ListenerExt;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use selfsame::{Idempotency, Policy};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;

use super::any_port;
use super::process::ANSWER;

/// What stands before the handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protection {
    None,
    Selfsame,
    Idempotent,
}

impl Protection {
    /// As it is written in a command.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Selfsame => "selfsame",
            Self::Idempotent => "idempotent",
        }
    }
}

/// Serves for ever, and says first where.
pub(crate) fn serve(protection: Protection) -> Result<()> {
    Runtime::new()?.block_on(async {
        let listener = TcpListener::bind(any_port()).await?;
        println!("{}", listener.local_addr()?);
        let listener = listener.tap_io(|stream| {
            stream.set_nodelay(true).expect("a connection that was just accepted");
        });
        let charge = post(async |_body: Bytes| ([(CONTENT_TYPE, "application/json")], ANSWER));
        let app = Router::new().route("/v1/charges", charge);
        Ok(axum::serve(listener, protected(app, protection).await?).await?)
    })
}

/// Both layers keep records in memory and tell callers apart by their credential.
async fn protected(app: Router, protection: Protection) -> Result<Router> {
    Ok(match protection {
        Protection::None => app,
        Protection::Selfsame => {
            let store = Arc::new(selfsame::stores::MemoryStore::new());
            app.layer(Idempotency::open(store).await?.layer(Policy::new()))
        }
        Protection::Idempotent => {
            let store = idempotent::memory::MemoryStore::builder().try_build()?;
            let layer = idempotent::middleware::IdempotencyLayer::new(store);
            app.layer(
                layer.scope(|parts| {
                    parts.headers.get(AUTHORIZATION)?.to_str().ok().map(str::to_owned)
                }),
            )
        }
    })
}
