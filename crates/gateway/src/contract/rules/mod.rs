//! The rules that routes may have of their own: a sentence, and a few words, for each setting that
//! clients feel.

mod answers;
mod key;
mod limits;

use selfsame::KeyMode;

use super::document::Line;
use crate::config::RouteSettings;

/// A rule, and what some settings make of it.
pub(super) struct Rule {
    pub(super) name: &'static str,
    /// In whole sentences.
    pub(super) say: fn(&RouteSettings) -> Line,
    /// In a few words, for a route that differs from the defaults.
    brief: fn(&RouteSettings) -> Line,
}

/// What a key is.
pub(super) const KEY: [Rule; 7] = [
    Rule { name: "Stands in", say: key::place, brief: key::place_brief },
    Rule { name: "Format", say: key::format, brief: key::format_brief },
    Rule { name: "Age", say: key::age, brief: key::age_brief },
    Rule { name: "Belongs to", say: key::tenant, brief: key::tenant_brief },
    Rule { name: "Counts on", say: key::scope, brief: key::scope_brief },
    Rule { name: "Lasts", say: key::retention, brief: key::retention_brief },
    Rule { name: "Stands for", say: key::compared, brief: key::compared_brief },
];

/// What a retry gets, by when it comes.
pub(super) const RETRIES: [Rule; 4] = [
    Rule {
        name: "while the first attempt still runs",
        say: answers::conflict,
        brief: answers::conflict_brief,
    },
    Rule {
        name: "after 500, or another 5xx but 502, 503 and 504",
        say: answers::server_error,
        brief: answers::server_error_brief,
    },
    Rule {
        name: "after an attempt that was cut short, or 502 or 504",
        say: answers::cut_short,
        brief: answers::cut_short_brief,
    },
    Rule {
        name: "while keys cannot be looked up",
        say: answers::store_down,
        brief: answers::store_down_brief,
    },
];

/// What answers tell, and what a replay leaves out.
pub(super) const ANSWERS: [Rule; 3] = [
    Rule { name: "Statuses", say: answers::statuses, brief: answers::statuses_brief },
    Rule { name: "Replays", say: answers::replay, brief: answers::replay_brief },
    Rule { name: "Expiry", say: answers::expiry, brief: answers::expiry_brief },
];

/// What refusals look like.
pub(super) const REFUSALS: Rule =
    Rule { name: "Refusals", say: answers::refusal, brief: answers::refusal_brief };

/// How much of everything.
pub(super) const LIMITS: [Rule; 5] = [
    Rule { name: "Request body", say: limits::request_body, brief: limits::request_body_brief },
    Rule { name: "Answer", say: limits::answer_body, brief: limits::answer_body_brief },
    Rule { name: "Keys", say: limits::quota, brief: limits::quota_brief },
    Rule { name: "Time to answer", say: limits::answer_time, brief: limits::answer_time_brief },
    Rule { name: "Waiting", say: limits::waiting, brief: limits::waiting_brief },
];

/// Whether a request needs a key, in a word or two.
pub(super) fn need(settings: &RouteSettings) -> &'static str {
    match settings.key {
        KeyMode::Required => "required",
        KeyMode::Optional => "optional",
        KeyMode::Off => "ignored",
    }
}

/// In what some settings differ from the defaults.
pub(super) fn differences(settings: &RouteSettings, defaults: &RouteSettings) -> Vec<Line> {
    // Where keys are ignored, nothing else is promised either.
    if settings.key == KeyMode::Off {
        return Vec::new();
    }
    let rules = KEY.iter().chain(&RETRIES).chain(&ANSWERS).chain([&REFUSALS]).chain(&LIMITS);
    let differs = |rule: &&Rule| (rule.brief)(settings) != (rule.brief)(defaults);
    rules.filter(differs).map(|rule| (rule.brief)(settings)).collect()
}
