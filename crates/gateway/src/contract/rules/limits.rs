//! How much of everything, and for how long.

use selfsame::TenantLimit;

use super::super::document::{Line, line, plain, text};
use super::super::words;
use crate::config::RouteSettings;

pub(super) fn request_body(settings: &RouteSettings) -> Line {
    line(
        "Up to {} with a key. A larger one is refused as [body-too-large].",
        [text(words::bytes(settings.request_bytes_max))],
    )
}

pub(super) fn request_body_brief(settings: &RouteSettings) -> Line {
    line("request body up to {}", [text(words::bytes(settings.request_bytes_max))])
}

pub(super) fn answer_body(settings: &RouteSettings) -> Line {
    match settings.stream {
        true => {
            plain("Passed on as it comes, once, and not kept: a retry gets [response-not-kept].")
        }
        false => line(
            "Kept up to {}. A larger one, or an event stream, is delivered in full, once; a retry \
             gets [response-not-kept].",
            [text(words::bytes(settings.answer_bytes_max))],
        ),
    }
}

pub(super) fn answer_body_brief(settings: &RouteSettings) -> Line {
    match settings.stream {
        true => plain("answers are streams and not replayed"),
        false => line("answers kept up to {}", [text(words::bytes(settings.answer_bytes_max))]),
    }
}

/// A limit in words, with the one of callers without a credential where that is another.
fn tenant_limit(TenantLimit { each, anonymous }: TenantLimit) -> Line {
    let or_any = |most: Option<u32>| most.map_or("any number".to_owned(), |most| most.to_string());
    match each == anonymous {
        true => text(or_any(each)),
        false => {
            line("{} ({} without a credential)", [text(or_any(each)), text(or_any(anonymous))])
        }
    }
}

pub(super) fn quota(settings: &RouteSettings) -> Line {
    line(
        "Not expired: {}. Running at once: {}. Held: {}. One more new key is refused as [too-many-keys].",
        [settings.live_keys_max, settings.claims_max, settings.held_keys_max].map(tenant_limit),
    )
}

pub(super) fn quota_brief(settings: &RouteSettings) -> Line {
    line(
        "keys in use: {}, running at once: {}, held: {}",
        [settings.live_keys_max, settings.claims_max, settings.held_keys_max].map(tenant_limit),
    )
}

pub(super) fn answer_time(settings: &RouteSettings) -> Line {
    line(
        "{}. Then you get [upstream-timeout], the work goes on without you, and a retry finds its \
         answer.",
        [text(words::duration(settings.response_timeout))],
    )
}

pub(super) fn answer_time_brief(settings: &RouteSettings) -> Line {
    line("up to {} to answer", [text(words::duration(settings.response_timeout))])
}

pub(super) fn waiting(settings: &RouteSettings) -> Line {
    line(
        "Up to {} for a running attempt, even if `Prefer: wait=N` asks for more.",
        [text(words::duration(settings.wait_max))],
    )
}

pub(super) fn waiting_brief(settings: &RouteSettings) -> Line {
    line("waits up to {}", [text(words::duration(settings.wait_max))])
}
