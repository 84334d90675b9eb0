//! How much of everything, and for how long.

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

pub(super) fn quota(settings: &RouteSettings) -> Line {
    let over = "One more is refused as [too-many-keys].";
    let count = |count: u32| text(count.to_string());
    match (settings.live_keys_max, settings.claims_max) {
        (None, None) => plain("Any number."),
        (Some(keys), None) => {
            line("Up to {} that have not expired. {}", [count(keys), plain(over)])
        }
        (None, Some(running)) => {
            line("Up to {} that run at once. {}", [count(running), plain(over)])
        }
        (Some(keys), Some(running)) => line(
            "Up to {} that have not expired, and up to {} that run at once. {}",
            [count(keys), count(running), plain(over)],
        ),
    }
}

pub(super) fn quota_brief(settings: &RouteSettings) -> Line {
    let or_any =
        |most: Option<u32>| text(most.map_or("any number of".into(), |most| most.to_string()));
    line(
        "{} keys in use, {} running at once",
        [or_any(settings.live_keys_max), or_any(settings.claims_max)],
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
