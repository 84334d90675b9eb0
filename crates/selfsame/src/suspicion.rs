//! Keys that are probably a mistake: counted, and logged once for each tenant; never refused.

use std::collections::HashSet;

use parking_lot::Mutex;
use selfsame_core::{Key, TenantTag};

use crate::telemetry;

/// How many tenants are remembered as told; more are counted and not logged.
const TOLD_MAX: usize = 10_000;
/// Longer numbers are more likely random, or the time.
const COUNTER_DIGITS_MAX: usize = 9;
const PHONE_DIGITS_MIN: usize = 8;

/// What is wrong with a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Suspicion {
    /// An address, a phone or a card number: keys are stored and may be logged.
    PersonalData,
    /// A small number: two operations can easily get the same one.
    Counter,
}

/// Who was told what.
#[derive(Default)]
pub(crate) struct Suspicions {
    told: Mutex<HashSet<(TenantTag, Suspicion)>>,
}

impl Suspicions {
    /// Looks at a key before it is used.
    pub(crate) fn look(&self, key: &Key, tenant: TenantTag) {
        let Some(suspicion) = suspect(key.as_str()) else { return };
        telemetry::suspect_key(suspicion.label());
        let mut told = self.told.lock();
        if told.len() < TOLD_MAX && told.insert((tenant, suspicion)) {
            tracing::warn!(%tenant, kind = suspicion.label(), "{}", suspicion.advice());
        }
    }
}

impl Suspicion {
    fn label(self) -> &'static str {
        match self {
            Self::PersonalData => "personal_data",
            Self::Counter => "counter",
        }
    }

    fn advice(self) -> &'static str {
        match self {
            Self::PersonalData => {
                "a tenant's keys look like personal data; keys are stored: use random ones"
            }
            Self::Counter => {
                "a tenant's keys look like counters, which begin again; use random ones"
            }
        }
    }
}

fn suspect(key: &str) -> Option<Suspicion> {
    let all_digits = key.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits && key.len() <= COUNTER_DIGITS_MAX {
        return Some(Suspicion::Counter);
    }
    let is_personal = is_address(key) || is_phone(key) || (all_digits && is_card(key));
    is_personal.then_some(Suspicion::PersonalData)
}

fn is_address(key: &str) -> bool {
    key.split_once('@').is_some_and(|(name, host)| {
        let host_is_one =
            host.split('.').count() > 1 && host.split('.').all(|part| !part.is_empty());
        !name.is_empty() && host_is_one && !host.contains(['@', '/', ':'])
    })
}

fn is_phone(key: &str) -> bool {
    let Some(number) = key.strip_prefix('+') else { return false };
    let digits = number.bytes().filter(u8::is_ascii_digit).count();
    let only_marks = number.bytes().all(|b| b.is_ascii_digit() || b" -().".contains(&b));
    only_marks && digits >= PHONE_DIGITS_MIN
}

/// The length and the check digit of a card number (Luhn).
fn is_card(digits: &str) -> bool {
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(at, digit)| {
            let doubled = u32::from(digit - b'0') << (at % 2);
            doubled / 10 + doubled % 10
        })
        .sum();
    // Shorter ones are rare, and the time in milliseconds has 13 digits.
    (15..=19).contains(&digits.len()) && sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn personal_data_and_counters_are_suspected() {
        for key in ["ann@example.com", "+49 170 1234567", "4242424242424242"] {
            assert_eq!(suspect(key), Some(Suspicion::PersonalData), "{key}");
        }
        for key in ["1", "42", "123456789"] {
            assert_eq!(suspect(key), Some(Suspicion::Counter), "{key}");
        }
    }

    #[test]
    fn what_real_clients_send_is_not() {
        let keys = [
            "8e03978e-40d5-43dd-bc93-6894a57f9324",
            "stripe-node-retry-6f9c",
            "1731650000_a1B2c3",
            "1731650000123",
            "order-1042",
            "user@host:1/2",
            "a@b",
            "+12",
            "4242424242424241",
        ];
        for key in keys {
            assert_eq!(suspect(key), None, "{key}");
        }
    }

    #[test]
    fn a_tenant_is_told_once() {
        let suspicions = Suspicions::default();
        let tenant = |byte| TenantTag::from_bytes([byte; TenantTag::LEN]);
        for (key, byte) in [("1", 1), ("2", 1), ("a@example.com", 1), ("3", 2)] {
            suspicions.look(&Key::parse(key.as_bytes()).expect("a key"), tenant(byte));
        }
        assert_eq!(suspicions.told.lock().len(), 3);
    }
}
