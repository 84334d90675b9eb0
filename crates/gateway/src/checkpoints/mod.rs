//! Recovery points for upstreams in any language: what they are told of a run, and the listener
//! where they save how far it has come.
//!
//! | file | what it holds |
//! |---|---|
//! | `claims` | the claim of a run, as text that only this installation can write |
//! | `invitation` | the headers that an upstream gets |
//! | `api` | saving a checkpoint, and reading it again |
//! | `refusal` | what is said instead |
//!
//! All decisions are the store's: a claim that reads well may still be one that was lost.

mod api;
mod claims;
mod invitation;
mod refusal;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use selfsame::Idempotency;
use selfsame_core::FullStore;

use crate::config::{self, PublicUrl};
use crate::internal_listener::InternalListener;

use claims::Claims;
pub(crate) use invitation::Invitation;

/// Where upstreams save how far they have come.
pub(crate) struct Checkpoints {
    listener: InternalListener,
    url: Arc<str>,
    claims: Arc<Claims>,
    store: Arc<dyn FullStore>,
}

impl Checkpoints {
    pub(crate) fn new(
        listener: InternalListener,
        settings: &config::Checkpoints,
        idempotency: &Idempotency,
        store: Arc<dyn FullStore>,
    ) -> io::Result<Self> {
        let url = match settings.url.as_ref().map(PublicUrl::as_str) {
            Some(url) => url.into(),
            None => format!("http://{}", listener.listener.local_addr()?).into(),
        };
        let claims = Arc::new(Claims::new(idempotency.secret().clone()));
        Ok(Self { listener, url, claims, store })
    }

    /// Where upstreams connect, with the port that was really bound.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.listener.local_addr()
    }

    /// What upstreams are told of their runs.
    pub(crate) fn invitation(&self) -> Invitation {
        Invitation::new(self.claims.clone(), &self.url)
    }

    /// Serves until the process ends: work that is still under way while we drain can be saved.
    pub(crate) async fn serve(self) {
        let points = api::Points { claims: self.claims, store: self.store };
        self.listener.serve(api::router(points)).await;
    }
}
