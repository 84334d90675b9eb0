//! A queue consumer: a message whose acknowledgement is lost comes again, and is not done again.
//!
//! ```text
//! cargo run -p selfsame --example queue
//! ```

use std::collections::VecDeque;
use std::error::Error;
use std::sync::Arc;

use selfsame::stores::MemoryStore;
use selfsame::{Idempotency, Key, OnceError};

/// A message of a queue that delivers at least once.
struct Message {
    id: &'static str,
    amount: u32,
    deliveries: u32,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    // In memory here, to leave nothing behind; a real consumer wants `EmbeddedStore`.
    let idempotency = Idempotency::open(Arc::new(MemoryStore::new())).await?;
    let mut queue = VecDeque::from([
        Message { id: "msg-1", amount: 20, deliveries: 0 },
        Message { id: "msg-2", amount: 35, deliveries: 0 },
    ]);
    while let Some(mut message) = queue.pop_front() {
        message.deliveries += 1;
        let balance = consume(&idempotency, &message).await?;
        println!("{}, delivery {}: booked as {balance}", message.id, message.deliveries);
        // The acknowledgement of every first delivery gets lost.
        if message.deliveries == 1 {
            queue.push_back(message);
        }
    }
    Ok(())
}

async fn consume(
    idempotency: &Idempotency,
    message: &Message,
) -> Result<String, OnceError<std::io::Error>> {
    let (id, amount) = (message.id, message.amount);
    idempotency
        .once("book", Key::parse(id.as_bytes()).expect("the queue's ids are keys"))
        .input(&amount)
        .run(move |_run| async move {
            println!("  booking {amount} for {id}");
            Ok(format!("entry-{id}"))
        })
        .await
}
