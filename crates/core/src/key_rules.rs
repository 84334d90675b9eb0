//! [`KeyRules`]: what a route asks of its keys beyond being keys.

use std::time::Duration;

use uuid::{Uuid, Variant};

use crate::{InvalidKey, Key, Timestamp};

/// How far a key's time may be ahead of ours: clocks differ.
const AHEAD_MAX: Duration = Duration::from_secs(10 * 60);
/// A UUID with its hyphens has this many characters, and no other form of one has.
const UUID_LEN: usize = 36;

/// What keys must look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KeyFormat {
    /// Like anything.
    #[default]
    Any,
    /// Like a UUID of any version, with hyphens. Its case counts, as everywhere.
    Uuid,
    /// Like a UUID of version 7.
    UuidV7,
}

/// What a route asks of its keys beyond being keys: nothing, unless set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRules {
    /// What they must look like.
    pub format: KeyFormat,
    /// The fewest characters they may have.
    pub len_min: usize,
    /// How old those that tell their age may be, which are UUIDs of version 7; zero if that makes no
    /// difference. With a limit, their time may not be more than 10 minutes in the future either: such
    /// a key would outlive it.
    pub age_max: Duration,
}

impl Default for KeyRules {
    fn default() -> Self {
        Self { format: KeyFormat::Any, len_min: 1, age_max: Duration::ZERO }
    }
}

impl KeyRules {
    /// Whether `key` may be used; `now` is asked only where its age counts.
    pub fn check(&self, key: &Key, now: impl FnOnce() -> Timestamp) -> Result<(), InvalidKey> {
        let text = key.as_str();
        if text.len() < self.len_min {
            return Err(InvalidKey::TooShort { len: text.len(), min: self.len_min });
        }
        if self.format == KeyFormat::Any && self.age_max.is_zero() {
            return Ok(());
        }
        let uuid = Uuid::try_parse(text).ok().filter(|_| text.len() == UUID_LEN);
        let made = uuid.and_then(made_at);
        match self.format {
            KeyFormat::Uuid if uuid.is_none() => return Err(InvalidKey::NotUuid),
            KeyFormat::UuidV7 if made.is_none() => return Err(InvalidKey::NotUuidV7),
            _ => {}
        }
        match made {
            Some(made) if !self.age_max.is_zero() => self.check_age(made, now()),
            _ => Ok(()),
        }
    }

    fn check_age(&self, made: Timestamp, now: Timestamp) -> Result<(), InvalidKey> {
        if now.since(made) > self.age_max {
            return Err(InvalidKey::TooOld);
        }
        if made.since(now) > AHEAD_MAX {
            return Err(InvalidKey::FromTheFuture);
        }
        Ok(())
    }
}

/// The time in a UUID of version 7: its first 48 bits.
fn made_at(uuid: Uuid) -> Option<Timestamp> {
    let is_v7 = uuid.get_version_num() == 7 && uuid.get_variant() == Variant::RFC4122;
    is_v7.then(|| Timestamp::from_millis(uuid.as_u64_pair().0 >> 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "8e03978e-40d5-43dd-bc93-6894a57f9324";
    const V7: &str = "01932e7a-709c-7e2c-9b6a-3f2b1c0d4e5f";
    const MADE: u64 = 0x0193_2e7a_709c;

    fn check(rules: KeyRules, key: &str, now: u64) -> Result<(), InvalidKey> {
        rules.check(&Key::parse(key.as_bytes()).expect("a key"), || Timestamp::from_millis(now))
    }

    #[test]
    fn short_keys_are_refused_where_a_length_is_asked() {
        let rules = KeyRules { len_min: 16, ..KeyRules::default() };
        assert_eq!(check(rules, &"k".repeat(16), 0), Ok(()));
        let short = InvalidKey::TooShort { len: 15, min: 16 };
        assert_eq!(check(rules, &"k".repeat(15), 0), Err(short));
        assert_eq!(check(KeyRules::default(), "k", 0), Ok(()));
    }

    #[test]
    fn a_uuid_has_hyphens_and_any_version_and_case() {
        let rules = KeyRules { format: KeyFormat::Uuid, ..KeyRules::default() };
        for key in [V4, V7, &V4.to_uppercase(), "00000000-0000-0000-0000-000000000000"] {
            assert_eq!(check(rules, key, 0), Ok(()), "{key}");
        }
        let simple = V4.replace('-', "");
        let (braced, urn) = (format!("{{{V4}}}"), format!("urn:uuid:{V4}"));
        let shifted = "8e03978e4-0d5-43dd-bc93-6894a57f9324";
        for key in ["k", &simple, &braced, &urn, shifted, &V4.replace('8', "g")] {
            assert_eq!(check(rules, key, 0), Err(InvalidKey::NotUuid), "{key}");
        }
    }

    #[test]
    fn only_version_7_is_version_7() {
        let rules = KeyRules { format: KeyFormat::UuidV7, ..KeyRules::default() };
        assert_eq!(check(rules, V7, 0), Ok(()), "its age makes no difference");
        for key in ["k", V4, &V7.replace("-9b", "-cb")] {
            assert_eq!(check(rules, key, 0), Err(InvalidKey::NotUuidV7), "{key}");
        }
    }

    #[test]
    fn keys_that_tell_their_age_may_be_too_old() {
        let day = 24 * 60 * 60 * 1000;
        let rules = KeyRules { age_max: Duration::from_millis(day), ..KeyRules::default() };
        assert_eq!(check(rules, V7, MADE + day), Ok(()));
        assert_eq!(check(rules, V7, MADE + day + 1), Err(InvalidKey::TooOld));
        let ahead = 10 * 60 * 1000;
        assert_eq!(check(rules, V7, MADE - ahead), Ok(()));
        assert_eq!(check(rules, V7, MADE - ahead - 1), Err(InvalidKey::FromTheFuture));
        for key in ["k", V4] {
            assert_eq!(check(rules, key, MADE + 9 * day), Ok(()), "{key} tells nothing");
        }
    }
}
