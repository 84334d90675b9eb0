//! An e-mail sender: run the job as often as you like, the mail goes out once.
//!
//! ```text
//! cargo run -p selfsame --example email
//! cargo run -p selfsame --example email
//! ```
//!
//! Keys are remembered in `./selfsame-data`, so the second run finds what the first one did.

use std::error::Error;
use std::sync::Arc;

use selfsame::stores::{EmbeddedOptions, EmbeddedStore};
use selfsame::{Idempotency, Key, Policy, Recover};
use serde::Serialize;

#[derive(Serialize)]
struct Mail {
    to: &'static str,
    subject: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = EmbeddedStore::open("selfsame-data", EmbeddedOptions::default())?;
    let idempotency = Idempotency::open(Arc::new(store)).await?;
    for order in ["order-1", "order-2"] {
        let mail = Mail { to: "ann@example.com", subject: format!("Your receipt for {order}") };
        let id: String = idempotency
            .once("send_receipt", Key::parse(order.as_bytes())?)
            .input(&mail)
            // A mail server cannot be asked whether it sent a mail: after a crash, a person looks.
            .policy(Policy::new().recover(Recover::Hold))
            .run(move |_run| async move {
                println!("sending to {}: {}", mail.to, mail.subject);
                Ok::<_, std::io::Error>(format!("mail-for-{order}"))
            })
            .await?;
        println!("{order}: {id}");
    }
    Ok(())
}
