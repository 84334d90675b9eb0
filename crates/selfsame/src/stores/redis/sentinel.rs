//! [`Sentinels`]: those who know which server is the master, and make another one if it is away.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Client, cmd};
use tokio::time::timeout;

use super::address::{Dial, Place};
use super::source::call;
use super::trouble::{Access, Fault};
use crate::background;

/// How long one sentinel may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often it is asked whether the master is still the same. One that was away and comes back takes writes for as
/// long as nobody has told it that there is another.
const WATCH: Duration = Duration::from_secs(1);

/// Sentinels, and whom they last named.
pub(super) struct Sentinels {
    places: Vec<Place>,
    /// How they are called.
    guides: Dial,
    /// How the master is called.
    dial: Dial,
    name: String,
    /// Who answered last.
    next: AtomicUsize,
    named: Mutex<Named>,
}

#[derive(Default)]
struct Named {
    master: Option<Place>,
    /// How often it was another one.
    era: u64,
}

impl Sentinels {
    /// Asks who is the master of that name from time to time, until it is dropped.
    pub(super) fn start(places: Vec<Place>, guides: Dial, dial: Dial, name: String) -> Arc<Self> {
        let (next, named) = (AtomicUsize::new(0), Mutex::default());
        let sentinels = Arc::new(Self { places, guides, dial, name, next, named });
        background::spawn(watch(Arc::downgrade(&sentinels)));
        sentinels
    }

    /// Where they are.
    pub(super) fn place(&self) -> String {
        self.dial.place(&self.places)
    }

    pub(super) fn era(&self) -> u64 {
        self.named.lock().era
    }

    /// The master, and the era in which it is that.
    pub(super) async fn master(&self) -> Result<(Client, u64), Fault> {
        let (master, era) = self.ask().await?;
        Ok((call(&self.dial, &master)?, era))
    }

    async fn ask(&self) -> Result<(Place, u64), Fault> {
        let first = self.next.load(Ordering::Relaxed);
        let mut faults = Vec::new();
        for at in (0..self.places.len()).map(|more| (first + more) % self.places.len()) {
            let place = &self.places[at];
            let asked = match timeout(PATIENCE, self.ask_one(place)).await {
                Ok(asked) => asked,
                Err(_) => Err(Fault::not_written(format!("no answer within {PATIENCE:?}"))),
            };
            match asked {
                Ok(master) => {
                    self.next.store(at, Ordering::Relaxed);
                    return Ok((master.clone(), self.note(master)));
                }
                Err(fault) => faults.push(format!("{place}: {}", fault.message)),
            }
        }
        let faults = faults.join("; ");
        Err(Fault::not_written(format!("no sentinel names the master {}: {faults}", self.name)))
    }

    async fn ask_one(&self, place: &Place) -> Result<Place, Fault> {
        let failed = |error| Fault::of(&error, Access::Read);
        let client = call(&self.guides, place)?;
        let mut sentinel = client.get_multiplexed_async_connection().await.map_err(failed)?;
        let mut ask = cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.name);
        let named: Option<(String, u16)> = ask.query_async(&mut sentinel).await.map_err(failed)?;
        let (host, port) = named.ok_or_else(|| Fault::not_written("it does not know that name"))?;
        Ok(Place { host, port })
    }

    fn note(&self, master: Place) -> u64 {
        let mut named = self.named.lock();
        if named.master.as_ref() != Some(&master) {
            *named = Named { master: Some(master), era: named.era + 1 };
        }
        named.era
    }
}

async fn watch(sentinels: Weak<Sentinels>) {
    loop {
        tokio::time::sleep(WATCH).await;
        let Some(sentinels) = sentinels.upgrade() else { return };
        // Whoever needs the master asks, too, and says what is wrong.
        let _asked = sentinels.ask().await;
    }
}
