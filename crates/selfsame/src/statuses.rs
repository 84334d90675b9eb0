//! [`Statuses`]: which statuses mean what, where a route says otherwise than [`Outcome::of`].

use std::fmt;

use http::StatusCode;

use crate::outcome::Outcome;

/// A status, or a class of statuses such as `4xx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StatusPattern {
    /// One status.
    Exactly(StatusCode),
    /// All statuses that begin with this digit.
    Class(u8),
}

/// The text is neither a status from 200 to 599 nor a class from `2xx` to `5xx`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a status from 200 to 599, or a class like \"4xx\"")]
pub struct InvalidStatus;

impl StatusPattern {
    /// One status, from 200 to 599.
    ///
    /// # Errors
    /// Any other number.
    pub fn status(number: u16) -> Result<Self, InvalidStatus> {
        let number = Some(number).filter(|number| (200..600).contains(number));
        let status = number.and_then(|number| StatusCode::from_u16(number).ok());
        status.map(Self::Exactly).ok_or(InvalidStatus)
    }

    /// A class, `2xx` to `5xx`.
    ///
    /// # Errors
    /// Any other text.
    pub fn class(text: &str) -> Result<Self, InvalidStatus> {
        match text.as_bytes() {
            [digit @ b'2'..=b'5', b'x', b'x'] => Ok(Self::Class(digit - b'0')),
            _ => Err(InvalidStatus),
        }
    }

    /// Returns whether every status that fits says that the work was done.
    pub fn is_success(self) -> bool {
        match self {
            Self::Exactly(status) => status.is_success(),
            Self::Class(digit) => digit == 2,
        }
    }

    fn is_class_of(self, status: StatusCode) -> bool {
        matches!(self, Self::Class(digit) if u16::from(digit) == status.as_u16() / 100)
    }
}

impl fmt::Display for StatusPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(status) => write!(f, "{}", status.as_u16()),
            Self::Class(digit) => write!(f, "{digit}xx"),
        }
    }
}

/// Lists of statuses that are final, transient or of unknown outcome. Those in no list are sorted by
/// [`Outcome::of`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Statuses {
    /// Kept and replayed.
    pub(crate) final_statuses: Vec<StatusPattern>,
    /// The key is freed: a retry runs again. Success never is: the work was done. 401 and 403
    /// leave no record of a first attempt.
    pub(crate) transient_statuses: Vec<StatusPattern>,
    /// The work may have been done or not.
    pub(crate) unknown_statuses: Vec<StatusPattern>,
}

impl Statuses {
    /// The outcome of a run that was answered so: by its number, else by its class, else by default.
    /// Where a status is in several lists, it is unknown before it is final, and final before
    /// it is transient: nothing runs twice because of a contradiction.
    pub(crate) fn outcome(&self, status: StatusCode) -> Outcome {
        let by_number = self.named(|pattern| *pattern == StatusPattern::Exactly(status));
        let named = by_number.or_else(|| self.named(|pattern| pattern.is_class_of(status)));
        match (named, Outcome::of(status)) {
            (Some(Outcome::Transient), _) if status.is_success() => Outcome::Final,
            // Freed either way, and whoever was turned away leaves nothing behind.
            (Some(Outcome::Transient), Outcome::Denied) => Outcome::Denied,
            (Some(named), _) => named,
            (None, default) => default,
        }
    }

    fn named(&self, fits: impl Fn(&StatusPattern) -> bool) -> Option<Outcome> {
        let lists = [
            (&self.unknown_statuses, Outcome::Unknown),
            (&self.final_statuses, Outcome::Final),
            (&self.transient_statuses, Outcome::Transient),
        ];
        lists.into_iter().find(|(list, _)| list.iter().any(&fits)).map(|(_, outcome)| outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(texts: &[&str]) -> Vec<StatusPattern> {
        let read = |text: &&str| match text.parse() {
            Ok(number) => StatusPattern::status(number).expect("a status"),
            Err(_) => StatusPattern::class(text).expect("a class"),
        };
        texts.iter().map(read).collect()
    }

    fn status(number: u16) -> StatusCode {
        StatusCode::from_u16(number).expect("valid")
    }

    #[test]
    fn without_lists_the_default_table_counts() {
        for number in 200..600 {
            assert_eq!(Statuses::default().outcome(status(number)), Outcome::of(status(number)));
        }
    }

    #[test]
    fn a_number_goes_before_a_class_and_both_before_the_default() {
        let statuses = Statuses {
            final_statuses: patterns(&["500", "4xx"]),
            transient_statuses: patterns(&["409", "403", "5xx"]),
            unknown_statuses: patterns(&["202"]),
        };
        let table = [
            (200, Outcome::Final),
            (202, Outcome::Unknown),
            (404, Outcome::Final),
            (409, Outcome::Transient),
            (401, Outcome::Final),
            (403, Outcome::Denied),
            (429, Outcome::Final),
            (500, Outcome::Final),
            (502, Outcome::Transient),
            (303, Outcome::Final),
        ];
        for (number, outcome) in table {
            assert_eq!(statuses.outcome(status(number)), outcome, "{number}");
        }
    }

    #[test]
    fn a_contradiction_never_runs_twice() {
        let all = patterns(&["404"]);
        let statuses = Statuses {
            final_statuses: all.clone(),
            transient_statuses: all.clone(),
            unknown_statuses: Vec::new(),
        };
        assert_eq!(statuses.outcome(status(404)), Outcome::Final);
        let statuses = Statuses { unknown_statuses: all, ..statuses };
        assert_eq!(statuses.outcome(status(404)), Outcome::Unknown);
        let success = patterns(&["2xx", "201"]);
        let statuses = Statuses { transient_statuses: success, ..Statuses::default() };
        assert_eq!(statuses.outcome(status(201)), Outcome::Final);
    }

    #[test]
    fn other_texts_are_no_statuses() {
        for text in ["", "1xx", "6xx", "4XX", "40x", "x", "4xxx"] {
            assert_eq!(StatusPattern::class(text), Err(InvalidStatus), "{text}");
        }
        for number in [0, 100, 199, 600, 999] {
            assert_eq!(StatusPattern::status(number), Err(InvalidStatus), "{number}");
        }
        let written: Vec<String> =
            patterns(&["404", "5xx"]).iter().map(ToString::to_string).collect();
        assert_eq!(written, ["404", "5xx"]);
    }
}
