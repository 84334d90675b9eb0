//! A payments service in axum that charges once per key, and goes on where it stopped.
//!
//! ```text
//! cargo run -p selfsame --example axum
//! curl -i localhost:3000/charges -H 'Idempotency-Key: order-1' -d 20
//! ```
//!
//! Kill it between "charged" and "receipt sent" and send the same again: it does not charge twice.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router};
use selfsame::stores::{EmbeddedOptions, EmbeddedStore};
use selfsame::{Idempotency, KeyMode, Policy, Run, SaveError};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = EmbeddedStore::open("selfsame-data", EmbeddedOptions::default())?;
    let idempotency = Idempotency::open(Arc::new(store)).await?;
    let app = Router::new()
        .route("/charges", post(charge))
        .layer(idempotency.layer(Policy::new().key(KeyMode::Required)));
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:3000".into());
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}

async fn charge(Extension(run): Extension<Run>, amount: String) -> (StatusCode, String) {
    match charge_in_phases(&run, &amount).await {
        Ok(answer) => (StatusCode::CREATED, answer),
        Err(error) => (StatusCode::SERVICE_UNAVAILABLE, format!("{error}\n")),
    }
}

async fn charge_in_phases(run: &Run, amount: &str) -> Result<String, SaveError> {
    if run.recovery_point() != Some("charged") {
        println!("attempt {}: charging {amount}", run.attempt());
        run.save("charged", amount.to_owned()).await?;
    }
    println!("attempt {}: charged; sending the receipt takes a moment", run.attempt());
    tokio::time::sleep(Duration::from_secs(5)).await;
    println!("attempt {}: receipt sent", run.attempt());
    Ok(format!("charged {amount}\n"))
}
