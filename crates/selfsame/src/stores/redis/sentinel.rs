//! [`Sentinels`]: those who know which server is the master, and make another one if it is away.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::{Client, cmd};
use tokio::time::{Instant, timeout};

use super::address::{Dial, Place};
use super::source::call;
use super::trouble::{Access, Fault};
use crate::background;

/// How long one sentinel may take.
const PATIENCE: Duration = Duration::from_millis(500);

/// How often it is asked whether the master is still the same. One that was away and comes back takes writes for as
/// long as nobody has told it that there is another.
const WATCH: Duration = Duration::from_secs(1);

/// For how long whom was refused comes behind others.
const REFUSED_FOR: Duration = Duration::from_secs(5);

/// Sentinels, and whom they last named.
pub(super) struct Sentinels {
    places: Vec<Place>,
    /// How they are called.
    guides: Dial,
    /// How the master is called.
    dial: Dial,
    name: String,
    named: Mutex<Named>,
}

#[derive(Default)]
struct Named {
    master: Option<Place>,
    /// How often it was another one.
    era: u64,
    /// Who was named and was no master, or not there, and when.
    refused: Option<(Place, Instant)>,
}

impl Sentinels {
    /// Asks who is the master of that name from time to time, until it is dropped.
    pub(super) fn start(places: Vec<Place>, guides: Dial, dial: Dial, name: String) -> Arc<Self> {
        let sentinels = Arc::new(Self { places, guides, dial, name, named: Mutex::default() });
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

    /// The named server is no master, or not there. If some say so and others name another one, those are believed.
    pub(super) fn refuse(&self, place: Place) {
        self.named.lock().refused = Some((place, Instant::now()));
    }

    /// Asks all: one that has not heard of a change for a while would keep everybody at the old master.
    async fn ask(&self) -> Result<(Place, u64), Fault> {
        let asked = self.places.iter().map(|place| timeout(PATIENCE, self.ask_one(place)));
        let (mut named, mut faults) = (Vec::<(Place, usize)>::new(), Vec::new());
        for (place, asked) in self.places.iter().zip(join_all(asked).await) {
            let asked = asked.unwrap_or_else(|_| {
                Err(Fault::not_written(format!("no answer within {PATIENCE:?}")))
            });
            match asked {
                Ok(master) => match named.iter_mut().find(|(other, _)| *other == master) {
                    Some((_, votes)) => *votes += 1,
                    None => named.push((master, 1)),
                },
                Err(fault) => faults.push(format!("{place}: {}", fault.message)),
            }
        }
        if let Some(master) = self.most_named(named) {
            return Ok((master.clone(), self.note(master)));
        }
        let faults = faults.join("; ");
        Err(Fault::not_written(format!("no sentinel names the master {}: {faults}", self.name)))
    }

    /// Whom most have named, of those that were not refused lately; if there are two, the one that it was before.
    fn most_named(&self, named: Vec<(Place, usize)>) -> Option<Place> {
        let known = self.named.lock();
        let rank = |(place, votes): &(Place, usize)| {
            let is_refused = known
                .refused
                .as_ref()
                .is_some_and(|(refused, at)| refused == place && at.elapsed() < REFUSED_FOR);
            (!is_refused, *votes, known.master.as_ref() == Some(place))
        };
        named.iter().max_by_key(|named| rank(named)).map(|(place, _)| place.clone())
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
            named.master = Some(master);
            named.era += 1;
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
