//! What a retry gets, and what answers look like.

use http::HeaderName;
use http::header::{DATE, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE};
use selfsame::{
    OnConflict, OnStoreError, Profile, Recover, ReplayStatus, ServerErrors, StatusPattern,
};

use super::super::document::{Line, codes, line, plain, text};
use super::super::words;
use crate::config::RouteSettings;

pub(super) fn conflict(settings: &RouteSettings) -> Line {
    match settings.on_conflict {
        OnConflict::Reject => plain(
            "[in-progress] with `Retry-After`. With `Prefer: wait=N` it waits up to N seconds for \
             the answer first.",
        ),
        OnConflict::Wait => plain(
            "The answer, as soon as it is there. If that takes too long (`Prefer: wait=N` says \
             how long that is): [in-progress] with `Retry-After`.",
        ),
    }
}

pub(super) fn conflict_brief(settings: &RouteSettings) -> Line {
    match settings.on_conflict {
        OnConflict::Reject => plain("a retry does not wait, unless it asks to"),
        OnConflict::Wait => plain("a retry waits for a running attempt"),
    }
}

pub(super) fn server_error(settings: &RouteSettings) -> Line {
    match settings.server_errors {
        ServerErrors::Retry => plain("A new attempt: the key was freed."),
        ServerErrors::Keep => plain("The same error again: it was kept."),
        ServerErrors::Hold => plain("[outcome-unknown], until a person has looked."),
    }
}

pub(super) fn server_error_brief(settings: &RouteSettings) -> Line {
    match settings.server_errors {
        ServerErrors::Retry => plain("a 5xx frees the key"),
        ServerErrors::Keep => plain("a 5xx is kept and replayed"),
        ServerErrors::Hold => plain("after a 5xx a person has to look"),
    }
}

pub(super) fn statuses(settings: &RouteSettings) -> Line {
    let told = sorted_otherwise(settings);
    match told.is_empty() {
        true => plain("The table holds for every status."),
        false => text(format!("Before the table counts: {}.", told.join("; "))),
    }
}

pub(super) fn statuses_brief(settings: &RouteSettings) -> Line {
    let told = sorted_otherwise(settings);
    match told.is_empty() {
        true => plain("statuses are treated as usual"),
        false => text(told.join("; ")),
    }
}

/// Statuses that are not treated as usual, each list with its meaning.
fn sorted_otherwise(settings: &RouteSettings) -> Vec<String> {
    let lists = [
        (&settings.final_statuses, "kept and replayed"),
        (&settings.transient_statuses, "free the key"),
        (&settings.unknown_statuses, "treated like an attempt that was cut short"),
    ];
    let told = |(list, meaning): (&Vec<StatusPattern>, &str)| {
        let names: Vec<String> = list.iter().map(ToString::to_string).collect();
        format!("{} {meaning}", names.join(", "))
    };
    lists.into_iter().filter(|(list, _)| !list.is_empty()).map(told).collect()
}

pub(super) fn cut_short(settings: &RouteSettings) -> Line {
    let told = told_of_cut_short(settings);
    match settings.completing {
        Some(_) => line(
            "{} If no retry comes, the service makes such an attempt by itself, after a while.",
            [told],
        ),
        None => told,
    }
}

fn told_of_cut_short(settings: &RouteSettings) -> Line {
    match settings.recover {
        _ if settings.probe.is_some() => plain(
            "What is known of it: the answer, if the work was done; a new attempt, if it was not. While \
             neither is known, [outcome-unknown]: nothing is done again on a guess.",
        ),
        Recover::Resume => plain("A new attempt."),
        Recover::Auto => plain(
            "A new attempt, where the service has noted how far it came: it goes on from there. \
             Else [outcome-unknown], until a person has looked: the work may have been done, and \
             is not done again on a guess.",
        ),
        Recover::Hold => plain(
            "[outcome-unknown], until a person has looked: the work may have been done, and is \
             not done again on a guess.",
        ),
    }
}

pub(super) fn cut_short_brief(settings: &RouteSettings) -> Line {
    match settings.recover {
        _ if settings.probe.is_some() => {
            plain("after an attempt that was cut short, what became of it is found out")
        }
        Recover::Resume => plain("an attempt that was cut short is made again"),
        Recover::Auto => plain(
            "an attempt that was cut short goes on from where it stopped, if the service has \
             noted that",
        ),
        Recover::Hold => plain("after an attempt that was cut short a person has to look"),
    }
}

pub(super) fn store_down(settings: &RouteSettings) -> Line {
    match settings.on_store_error {
        OnStoreError::Reject => plain("[store-unavailable]: nothing is done."),
        OnStoreError::Bypass => {
            plain("A new attempt, unprotected, which says `Selfsame-Protected: false`.")
        }
    }
}

pub(super) fn store_down_brief(settings: &RouteSettings) -> Line {
    match settings.on_store_error {
        OnStoreError::Reject => plain("nothing is done while keys cannot be looked up"),
        OnStoreError::Bypass => plain("unprotected while keys cannot be looked up"),
    }
}

pub(super) fn replay(settings: &RouteSettings) -> Line {
    let same = match settings.replay_status {
        ReplayStatus::Same => {
            plain("A replay has the same status, headers and body, byte for byte.")
        }
        ReplayStatus::Ok => plain(
            "A replay has the same headers and body, byte for byte, and the same status, but 200 \
             for 201 and 202.",
        ),
    };
    line(
        "{} Left out is what belongs to the moment: {}, rate-limit and trace headers.",
        [same, left_out(settings)],
    )
}

pub(super) fn replay_brief(settings: &RouteSettings) -> Line {
    match settings.replay_status {
        ReplayStatus::Same => line("replays are without {}", [left_out(settings)]),
        ReplayStatus::Ok => {
            line("replays are without {}, and 200 for 201 and 202", [left_out(settings)])
        }
    }
}

fn left_out(settings: &RouteSettings) -> Line {
    let is_replayed = |name: &HeaderName| {
        let chosen = settings.replay_set_cookie && name == SET_COOKIE;
        chosen || settings.replay_also.contains(name)
    };
    let mut names = vec![DATE, SET_COOKIE, RETRY_AFTER, WWW_AUTHENTICATE];
    names.retain(|name| !is_replayed(name) && !settings.replay_never.contains(name));
    names.extend(settings.replay_never.iter().cloned());
    codes(names.iter().map(words::header), "and")
}

pub(super) fn expiry(settings: &RouteSettings) -> Line {
    match settings.expires_header {
        true => plain(
            "An answer that is kept, and each replay of it, says when its key ends: \
             `Idempotency-Expires`, an HTTP date.",
        ),
        false => plain("Answers do not say when their key ends."),
    }
}

pub(super) fn expiry_brief(settings: &RouteSettings) -> Line {
    match settings.expires_header {
        true => plain("answers say when their key ends"),
        false => plain("answers do not say when their key ends"),
    }
}

pub(super) fn refusal(settings: &RouteSettings) -> Line {
    match settings.profile {
        Profile::Ietf => plain(
            "A refusal is `application/problem+json` (RFC 9457). Its `type` leads to one of the \
             entries below, `detail` says what was wrong with this very request, `instance` names \
             it, and `retryable` (in the headers: `X-Should-Retry`) says whether sending it again \
             helps.",
        ),
        Profile::Stripe => plain(
            "A refusal is an error object as Stripe's SDKs read it. Its `doc_url` leads to one of \
             the entries below, `message` says what was wrong with this very request, `code` is \
             the entry's name with underscores (`idempotency_key_in_use` for [in-progress]), and \
             the headers `Stripe-Should-Retry` and `X-Should-Retry` say whether sending it again \
             helps.",
        ),
    }
}

pub(super) fn refusal_brief(settings: &RouteSettings) -> Line {
    match settings.profile {
        Profile::Ietf => plain("refusals are problems (RFC 9457)"),
        Profile::Stripe => plain("refusals are Stripe's error objects"),
    }
}
