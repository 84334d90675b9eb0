//! The thread that makes segments and takes them away, off the path of the commits.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use tokio::time::Instant;

use super::segment::Segment;

/// After a segment could not be made, how long the next claim waits to have it tried again: on a
/// full disk that takes what little room there is, for a while.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// What the writer has of the thread.
pub(super) struct Tender {
    orders: Sender<Order>,
    made: Receiver<io::Result<Segment>>,
    next: Next,
    /// Why the last one could not be made.
    shortage: Option<String>,
}

/// Where the next segment is.
enum Next {
    NotAsked,
    Asked,
    Made(Segment),
    Failed { at: Instant },
}

/// What the thread is asked for.
enum Order {
    Make { number: u32, size: u64 },
    Remove(Arc<Segment>),
}

impl Tender {
    /// The writer's side, and what the thread does until that is gone.
    pub(super) fn new(folder: PathBuf) -> (Self, impl FnOnce() + Send + 'static) {
        let ((orders, asked), (makes, made)) = (channel(), channel());
        let run = move || {
            let mut unneeded = VecDeque::new();
            for order in asked {
                match order {
                    Order::Make { number, size } => {
                        // Nobody takes it if the writer is gone.
                        let _ = makes.send(Segment::create(&folder, number, size));
                    }
                    Order::Remove(segment) => {
                        unneeded.push_back(segment);
                        remove_in_order(&mut unneeded);
                    }
                }
            }
        };
        (Self { orders, made, next: Next::NotAsked, shortage: None }, run)
    }

    /// Has a segment made that is going to be needed.
    pub(super) fn prepare(&mut self, number: u32, size: u64) {
        if let Next::Asked = self.next
            && let Ok(made) = self.made.try_recv()
        {
            // Why it could not be made is told to whoever needs it.
            let _ = self.note(made);
        }
        match self.next {
            Next::NotAsked => self.ask(number, size),
            Next::Failed { at } if at.elapsed() >= RETRY_AFTER => self.ask(number, size),
            _ => {}
        }
    }

    /// Whether the next segment could not be made.
    pub(super) fn is_short(&self) -> bool {
        self.shortage.is_some()
    }

    /// Why it could not be made.
    pub(super) fn shortage(&self) -> Option<&str> {
        self.shortage.as_deref()
    }

    /// The next segment, as soon as it is made.
    pub(super) fn take(&mut self, number: u32, size: u64) -> io::Result<Segment> {
        self.prepare(number, size);
        if let Next::Failed { .. } = self.next {
            // There may be room now.
            self.ask(number, size);
        }
        if let Next::Asked = self.next {
            let made = self.made.recv().unwrap_or_else(|_| Err(gone()));
            self.note(made)?;
        }
        match mem::replace(&mut self.next, Next::NotAsked) {
            Next::Made(segment) => Ok(segment),
            _ => Err(gone()),
        }
    }

    /// Has a segment taken away of which nothing is needed.
    pub(super) fn remove(&self, segment: Arc<Segment>) {
        // Where the thread is gone, the next start finds it unneeded again.
        let _ = self.orders.send(Order::Remove(segment));
    }

    /// Takes a segment away again that was made beforehand: it can be made again.
    pub(super) fn forget_prepared(&mut self) {
        if let Next::Asked = self.next {
            let _ = self.made.recv().map(|made| self.note(made));
        }
        if let Next::Made(unused) = mem::replace(&mut self.next, Next::NotAsked) {
            self.remove(Arc::new(unused));
        }
    }

    fn ask(&mut self, number: u32, size: u64) {
        self.next = match self.orders.send(Order::Make { number, size }) {
            Ok(()) => Next::Asked,
            Err(_) => Next::NotAsked,
        };
    }

    fn note(&mut self, made: io::Result<Segment>) -> io::Result<()> {
        let shortage = |error| format!("the store cannot make its next file: {error}");
        self.shortage = made.as_ref().err().map(shortage);
        match made {
            Ok(segment) => {
                self.next = Next::Made(segment);
                Ok(())
            }
            Err(error) => {
                self.next = Next::Failed { at: Instant::now() };
                Err(error)
            }
        }
    }
}

fn gone() -> io::Error {
    io::Error::other("the store's thread is gone")
}

/// Removes the oldest first. One that cannot be removed keeps the younger ones: without them it would
/// say what is no longer true.
fn remove_in_order(unneeded: &mut VecDeque<Arc<Segment>>) {
    while let Some(oldest) = unneeded.front() {
        if let Err(error) = oldest.remove() {
            let path = oldest.path.display();
            tracing::warn!(%path, %error, "a file of the store that is not needed cannot be removed");
            return;
        }
        unneeded.pop_front();
    }
}
