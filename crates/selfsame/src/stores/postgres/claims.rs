//! Claims of many callers: one look at all keys, then one write for those that change.
//!
//! A key that is new is inserted by the same statement that looks; one whose record needs no
//! change has its answer there, and nothing is locked. What is left is changed where it is still
//! as it was seen; a key that was lost to a rival is looked at again. Where most keys were new of
//! late, as they are unless many retry, all are inserted first, without a look, which is cheaper.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use selfsame_core::{Ask, Claimed, Record, RecordId, StoreError, Timestamp};

use super::lane::{Call, Lane};
use super::look::{Found, bear, look};
use super::rows;
use super::session::Session;
use super::trouble::Fault;
use super::writes::{Write, write};

/// How often a batch looks at a key whose row others change or have locked.
const LOOKS_MAX: usize = 2;
/// How long the caller of such a key waits before it comes again, with another batch: whoever
/// sweeps has a row locked until its commit is on disk. Then the key is busy.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(3)];
/// How long such a row is left alone.
const LOCKED_FOR: Duration = Duration::from_millis(100);

/// A change that the first caller of a key waits for.
struct Change {
    claimed: Claimed,
    write: Write,
}

impl Lane<Ask> {
    /// What the claim comes to. One whose row is locked waits here, where it delays nobody else.
    pub(super) async fn claim(&self, ask: &Ask) -> Result<Claimed, StoreError> {
        for pause in PAUSES {
            if let Some(claimed) = self.ask(rows::fit(ask)).await? {
                return Ok(claimed);
            }
            tokio::time::sleep(pause).await;
        }
        let last = self.ask(rows::fit(ask)).await?;
        Ok(last.unwrap_or(Claimed::Busy { lease_left: LOCKED_FOR }))
    }
}

impl Call for Ask {
    /// Nothing where others had the row.
    type Outcome = Option<Claimed>;

    fn bytes(&self) -> usize {
        self.keepsake.as_ref().map_or(0, |keepsake| keepsake.bytes())
    }

    async fn make(
        session: &Session,
        asks: &[Self],
    ) -> Result<Vec<Result<Option<Claimed>, StoreError>>, Fault> {
        let mut round = Round::new(asks);
        let keys = round.open.len();
        if session.meets_new_keys() {
            round.bear(session).await?;
        }
        for _ in 0..LOOKS_MAX {
            if round.open.is_empty() {
                break;
            }
            match round.go(session).await {
                Ok(()) => {}
                Err(fault) if fault.is_local => return Err(fault),
                // What was claimed before the connection was lost stays claimed.
                Err(fault) => return Ok(round.outcomes(|| Err(fault.error()))),
            }
        }
        session.set_meets_new_keys(round.born * 2 >= keys);
        Ok(round.outcomes(|| Ok(None)))
    }
}

/// A batch on its way to an outcome for each of its callers.
struct Round<'a> {
    asks: &'a [Ask],
    /// Who still waits, by key, in the order they came. Sorted, so that no two batches can wait for
    /// each other's keys.
    open: BTreeMap<RecordId, VecDeque<usize>>,
    done: Vec<Option<Result<Claimed, StoreError>>>,
    now: Timestamp,
    /// How many keys were new.
    born: usize,
}

impl<'a> Round<'a> {
    fn new(asks: &'a [Ask]) -> Self {
        let mut open = BTreeMap::<_, VecDeque<_>>::new();
        for (at, ask) in asks.iter().enumerate() {
            open.entry(ask.id).or_default().push_back(at);
        }
        let done = asks.iter().map(|_| None).collect();
        Self { asks, open, done, now: Timestamp::default(), born: 0 }
    }

    async fn go(&mut self, session: &Session) -> Result<(), Fault> {
        let changes = self.look(session).await?;
        self.change(session, changes).await
    }

    /// Claims those keys that are new, and tells their callers.
    async fn bear(&mut self, session: &Session) -> Result<(), Fault> {
        for (id, now) in bear(session, &self.first()).await? {
            self.now = now;
            self.tell_born(&id);
        }
        Ok(())
    }

    /// The first caller of each open key.
    fn first(&self) -> Vec<&'a Ask> {
        self.open.values().map(|callers| &self.asks[callers[0]]).collect()
    }

    /// Looks at all open keys, and tells those callers whose record needs no change.
    async fn look(&mut self, session: &Session) -> Result<Vec<Change>, Fault> {
        let (now, mut found) = look(session, &self.first()).await?;
        self.now = now;
        let ids: Vec<_> = self.open.keys().copied().collect();
        let mut changes = Vec::new();
        for id in ids {
            match found.remove(&id) {
                Some(Found::Born) => self.tell_born(&id),
                Some(Found::Known(record, seen)) => {
                    changes.extend(
                        self.settle(&id, &record).map(|(claimed, next)| Change {
                            claimed,
                            write: Write::new(seen, next),
                        }),
                    );
                }
                Some(Found::Damaged(error)) => self.refuse(&id, &error),
                None => {}
            }
        }
        Ok(changes)
    }

    /// Makes the changes. Those that came too late leave their callers waiting.
    async fn change(&mut self, session: &Session, changes: Vec<Change>) -> Result<(), Fault> {
        if changes.is_empty() {
            return Ok(());
        }
        let (claimed, writes): (Vec<_>, Vec<_>) =
            changes.into_iter().map(|change| (change.claimed, change.write)).unzip();
        let written = write(session, &writes).await?;
        for (claimed, write) in claimed.into_iter().zip(&writes) {
            let id = write.record.id;
            if written.contains(&id) {
                self.tell(&id, Ok(claimed));
                self.settle(&id, &write.record);
            }
        }
        Ok(())
    }

    /// Tells callers of `id` what their claim comes to, until one needs a change.
    fn settle(&mut self, id: &RecordId, record: &Record) -> Option<(Claimed, Record)> {
        while let Some(&at) = self.open.get(id).and_then(VecDeque::front) {
            match selfsame_core::claim(Some(record), &self.asks[at], self.now) {
                (claimed, None) => self.tell(id, Ok(claimed)),
                (claimed, Some(next)) => return Some((claimed, next)),
            }
        }
        None
    }

    /// Tells the callers of `id`, which the first of them has claimed now.
    fn tell_born(&mut self, id: &RecordId) {
        let Some(callers) = self.open.get(id) else { return };
        let ask = &self.asks[callers[0]];
        let (claimed, _) = selfsame_core::claim(None::<&Record>, ask, self.now);
        self.tell(id, Ok(claimed));
        self.settle(id, &Record::first(ask, self.now));
        self.born += 1;
    }

    fn refuse(&mut self, id: &RecordId, error: &StoreError) {
        while self.open.contains_key(id) {
            self.tell(id, Err(StoreError::new(error.kind(), error.to_string())));
        }
    }

    /// Tells the first caller of `id`.
    fn tell(&mut self, id: &RecordId, outcome: Result<Claimed, StoreError>) {
        let Some(callers) = self.open.get_mut(id) else { return };
        let first = callers.pop_front().expect("a key without callers is not open");
        self.done[first] = Some(outcome);
        if callers.is_empty() {
            self.open.remove(id);
        }
    }

    /// What each caller is told; `open` is for those who still wait.
    fn outcomes(
        self,
        open: impl Fn() -> Result<Option<Claimed>, StoreError>,
    ) -> Vec<Result<Option<Claimed>, StoreError>> {
        let done = self.done.into_iter();
        done.map(|outcome| outcome.map_or_else(&open, |told| told.map(Some))).collect()
    }
}
