//! A webhook receiver: the provider delivers each event at least once, and it is handled once.
//!
//! ```text
//! cargo run -p selfsame --example webhook
//! ```

use std::error::Error;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Request, StatusCode};
use axum::routing::post;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use selfsame::stores::MemoryStore;
use selfsame::{Idempotency, Key, OnceError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // In memory here, to leave nothing behind; a real receiver wants `EmbeddedStore`.
    let idempotency = Idempotency::open(Arc::new(MemoryStore::new())).await?;
    let receiver = Router::new().route("/webhooks", post(receive)).with_state(idempotency);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let provider = async {
        let client = Client::builder(TokioExecutor::new()).build_http::<Full<Bytes>>();
        for event in ["evt_1", "evt_1", "evt_2", "evt_1"] {
            let request = Request::post(format!("http://{address}/webhooks"))
                .header("X-Event-Id", event)
                .body(Full::from("payment.succeeded"))?;
            println!("delivered {event}: {}", client.request(request).await?.status());
        }
        Ok(())
    };
    tokio::select! {
        served = axum::serve(listener, receiver).into_future() => Ok(served?),
        delivered = provider => delivered,
    }
}

/// The provider's event id is the key; what it says is the input.
async fn receive(
    State(idempotency): State<Idempotency>,
    headers: HeaderMap,
    body: String,
) -> StatusCode {
    let id = headers.get("x-event-id").map(|id| id.as_bytes()).unwrap_or_default();
    let Ok(key) = Key::parse(id) else { return StatusCode::BAD_REQUEST };
    let name = key.as_str().to_owned();
    let handled = idempotency
        .once("handle_event", key)
        .input(&body)
        .run(|_run| async move {
            println!("  handling {name}");
            Ok::<(), std::io::Error>(())
        })
        .await;
    match handled {
        Ok(()) => StatusCode::OK,
        // The provider comes again.
        Err(OnceError::InProgress | OnceError::Failed(_)) => StatusCode::SERVICE_UNAVAILABLE,
        Err(_) => StatusCode::CONFLICT,
    }
}
