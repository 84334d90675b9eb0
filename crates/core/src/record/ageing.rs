//! What a record is by itself as time goes on: leased, held, a tombstone, or gone.

use super::{Record, Recover, State};
use crate::Timestamp;

/// What a sweep has to do with a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Due {
    /// It expired: it goes.
    Removal,
    /// It is a tombstone: its answer goes, see [`Record::bury`].
    Burial,
    /// It died and nothing may resume it: a person decides, see [`Record::settle`].
    Hold,
}

/// The state of a record, without what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateName {
    /// Somebody runs, or the next retry takes over.
    Claimed,
    /// The answer is kept.
    Completed,
    /// The next retry runs.
    Failed,
    /// A person decides.
    Held,
    /// The key was used, and its answer is gone.
    Tombstone,
}

impl StateName {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Claimed, Self::Completed, Self::Failed, Self::Held, Self::Tombstone];

    /// The name in one lower-case word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Held => "held",
            Self::Tombstone => "tombstone",
        }
    }

    /// The state with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl<A> Record<A> {
    /// The state that people see at this time.
    pub fn state_name(&self, now: Timestamp) -> StateName {
        match self.state {
            _ if self.is_held(now) => StateName::Held,
            _ if self.is_tombstone(now) => StateName::Tombstone,
            State::Claimed { .. } => StateName::Claimed,
            State::Completed { .. } => StateName::Completed,
            State::Failed => StateName::Failed,
            State::Held { .. } => StateName::Held,
            State::Tombstone => StateName::Tombstone,
        }
    }

    /// Whether a claim of it is alive.
    pub fn is_leased(&self, now: Timestamp) -> bool {
        matches!(self.state, State::Claimed { lease_until } if now < lease_until)
    }

    /// Whether a run without an outcome may be followed by another.
    pub fn is_resumable(&self) -> bool {
        match self.recover {
            Recover::Resume => true,
            Recover::Hold => false,
            Recover::Auto => self.checkpoint.is_some(),
        }
    }

    /// Whether it waits for a person: held, or a dead claim that nothing may resume.
    pub fn is_held(&self, now: Timestamp) -> bool {
        match self.state {
            State::Held { .. } => true,
            State::Claimed { .. } => !self.is_leased(now) && !self.is_resumable(),
            _ => false,
        }
    }

    /// Whether it keeps its request, and its work was left without an outcome: whoever has that
    /// request may see to one, as far as `recover` allows another run or a person would.
    pub fn is_abandoned(&self, now: Timestamp) -> bool {
        let is_left = match self.state {
            State::Claimed { .. } => !self.is_leased(now),
            State::Held { .. } => true,
            State::Completed { .. } | State::Failed | State::Tombstone => false,
        };
        is_left && self.kept_request().is_some()
    }

    /// Since when its work has no outcome, where that is so.
    pub fn left_at(&self) -> Option<Timestamp> {
        match self.state {
            State::Claimed { lease_until } => Some(lease_until),
            State::Held { since } => Some(since),
            State::Completed { .. } | State::Failed | State::Tombstone => None,
        }
    }

    /// Whether the key is new again. A live lease, a hold and a tombstone outlast the retention.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        now >= self.known_until() && !self.is_leased(now) && !self.is_held(now)
    }

    /// Until when anything is known of it, unless a lease or a hold lasts longer.
    pub fn known_until(&self) -> Timestamp {
        match self.state {
            State::Completed { .. } | State::Tombstone => self.expires_at + self.remember,
            State::Claimed { .. } | State::Failed | State::Held { .. } => self.expires_at,
        }
    }

    /// Until when nothing becomes of it by itself: before that nothing is due, and what it is by its
    /// state is what a reader sees.
    pub fn settled_until(&self) -> Timestamp {
        match self.state {
            State::Claimed { lease_until } if self.is_resumable() => {
                lease_until.max(self.expires_at)
            }
            State::Claimed { lease_until } => lease_until,
            State::Completed { .. } | State::Failed => self.expires_at,
            State::Tombstone => self.known_until(),
            State::Held { .. } => Timestamp::from_millis(u64::MAX),
        }
    }

    /// Whether it is a tombstone: completed, past its expiry, and still remembered.
    pub fn is_tombstone(&self, now: Timestamp) -> bool {
        match self.state {
            State::Tombstone => true,
            State::Completed { .. } => now >= self.expires_at && !self.is_expired(now),
            State::Claimed { .. } | State::Failed | State::Held { .. } => false,
        }
    }

    /// What a reader sees of it: nothing once it expired, and no answer in a tombstone.
    pub fn seen_at(mut self, now: Timestamp) -> Option<Self> {
        self.bury(now);
        Some(self).filter(|record| !record.is_expired(now))
    }

    /// What a sweep has to do with it.
    pub fn due(&self, now: Timestamp) -> Option<Due> {
        match self.state {
            _ if self.is_expired(now) => Some(Due::Removal),
            State::Completed { .. } if self.is_tombstone(now) => Some(Due::Burial),
            State::Claimed { .. } if self.is_held(now) => Some(Due::Hold),
            _ => None,
        }
    }

    /// A dead claim that nothing may resume becomes held, for all to see.
    pub fn settle(&mut self, now: Timestamp) {
        if self.due(now) == Some(Due::Hold) {
            self.state = State::Held { since: now };
        }
    }

    /// A completed record that is only remembered becomes a tombstone: what it answered goes.
    pub fn bury(&mut self, now: Timestamp) {
        if self.due(now) == Some(Due::Burial) {
            self.state = State::Tombstone;
            self.checkpoint = None;
            self.keepsake = None;
        }
    }
}
