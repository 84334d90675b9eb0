//! What the page says, chapter by chapter.

use http::Method;
use selfsame::{KeyFormat, KeyMode};

use super::document::{
    Block, Document, Line, Section, Table, code, codes, line, lines, plain, text,
};
use super::problems::Entry;
use super::rules::{self, ANSWERS, KEY, LIMITS, REFUSALS, RETRIES, Rule};
use super::{Contract, Form, example, negotiation, words};
use crate::config::{Route, RouteSettings};

/// The contract in words.
pub(super) fn document(contract: &Contract) -> Document {
    let mut sections = vec![
        in_short(contract),
        requests(contract),
        the_key(contract),
        making_a_key(contract),
        answers(contract),
        retrying(),
    ];
    sections.extend(contract.status.as_deref().map(looking_up));
    sections.extend([limits(contract), no_key(contract), problems(contract), forms(contract)]);
    Document {
        title: "Safe retries",
        lead: plain(
            "Send a key with each request that must not happen twice. The same key gives the same \
             answer, and the work behind it is done once: through time-outs, lost answers and \
             restarts.",
        ),
        sections,
    }
}

fn in_short(contract: &Contract) -> Section {
    // As in the example, which may be of a route that has a header of its own.
    let (_, settings) = example::request(contract);
    let header = codes(settings.key_headers.iter().map(words::header), "or");
    let blocks = vec![
        Block::Steps(vec![
            plain(
                "Make a random key for the operation before you first try it, and store it with \
                 the request.",
            ),
            match &settings.key_pointer {
                None => line("Send the request with the key in the header {}.", [header]),
                Some(pointer) => line(
                    "Send the request with the key in the header {}, or at {} in its JSON body.",
                    [header, code(words::pointer(pointer))],
                ),
            },
            plain("If no answer comes, or one that may be retried, send exactly the same again."),
        ]),
        Block::Shell(example::shell(contract)),
        Block::Paragraph(plain(
            "If the work was done before, the first answer comes again, and says \
             `Idempotent-Replayed: true`.",
        )),
    ];
    Section { id: "in-short", title: "In short", blocks }
}

fn requests(contract: &Contract) -> Section {
    let defaults = &contract.defaults;
    let mut blocks = Vec::new();
    if contract.routes.is_empty() {
        let methods = methods(&defaults.methods, "and");
        blocks.push(Block::Paragraph(match defaults.key {
            KeyMode::Required => line("Every {} request needs a key.", [methods]),
            KeyMode::Optional => line(
                "Every {} request may have a key. Without one it is carried out unprotected.",
                [methods],
            ),
            KeyMode::Off => plain("None: at present, keys are ignored."),
        }));
    } else {
        let mut rows: Vec<_> = contract.routes.iter().map(|route| row(route, defaults)).collect();
        let others = line("every other {}", [methods(&defaults.methods, "or")]);
        rows.push(vec![vec![others], vec![text(rules::need(defaults))], Vec::new()]);
        let head = vec!["Request", "Key", "Differs from the rules below"];
        blocks.push(Block::Table(Table { head, rows }));
    }
    blocks.push(Block::Paragraph(plain(
        "Requests with other methods pass as they are, with or without a key.",
    )));
    Section { id: "requests", title: "Which requests", blocks }
}

fn row(route: &Route, defaults: &RouteSettings) -> Vec<Vec<Line>> {
    let methods: Vec<&str> = route.settings.methods.iter().map(Method::as_str).collect();
    let mut differences = rules::differences(&route.settings, defaults);
    if route.host.is_some() && route.settings.key != KeyMode::Off {
        differences.push(plain("for another host, it is another request"));
    }
    vec![
        vec![line("{} {}", [text(methods.join(", ")), code(route.name())])],
        vec![text(rules::need(&route.settings))],
        differences,
    ]
}

fn the_key(contract: &Contract) -> Section {
    let blocks = vec![facts(&KEY, &contract.defaults)];
    Section { id: "key", title: "The key", blocks }
}

fn making_a_key(contract: &Contract) -> Section {
    let mut lines = lines([
        "One key for each operation, not for each attempt: this charge, this order, this message. \
         A random UUID (version 4) is a good one.",
        "Make it before the first attempt and store it with the body, so that even after a restart \
         of your own program the same bytes go out with the same key.",
        "Never put personal data into it, such as a name, an e-mail address or a card number: \
         keys are kept, and they are no secret.",
        "No counters and no clocks: two machines would make the same key for two operations.",
    ]);
    if contract.defaults.key_rules.format == KeyFormat::UuidV7 {
        lines[0] = plain(
            "One key for each operation, not for each attempt: this charge, this order, this \
             message. It is a UUID of version 7, made when the operation is first tried.",
        );
    }
    let blocks = vec![Block::List(lines)];
    Section { id: "making-a-key", title: "Make a key", blocks }
}

fn answers(contract: &Contract) -> Section {
    let row = |when: &'static str, gets: &'static str| vec![vec![plain(when)], vec![plain(gets)]];
    let mut rows = vec![
        row("after any answer but those below", "A replay: nothing is done again."),
        row("after 401, 403, 408, 425, 429 or 503", "A new attempt: the key was freed."),
        row("after an attempt that never arrived", "A new attempt: the key was freed."),
    ];
    for Rule { name, say, .. } in RETRIES {
        rows.push(vec![vec![text(name)], vec![say(&contract.defaults)]]);
    }
    rows.push(row("with the same key, but another request", "[key-reused]: nothing is done."));
    let mut blocks = vec![
        Block::Paragraph(plain(
            "The first request with a key is carried out, and its answer is recorded before the \
             first byte of it is sent to you.",
        )),
        Block::Table(Table { head: vec!["A retry that comes", "gets"], rows }),
    ];
    blocks.extend(ANSWERS.map(|rule| Block::Paragraph((rule.say)(&contract.defaults))));
    Section { id: "answers", title: "What a retry gets", blocks }
}

fn retrying() -> Section {
    let blocks = vec![Block::List(lines([
        "Retry after connection errors and time-outs, and after 408, 409 [in-progress], 425, 429, \
         500, 502, 503 and 504. Not after an answer that says `X-Should-Retry: false`, nor after a \
         500 that says `Idempotent-Replayed: true`. Other errors would only come again.",
        "Before each retry, pause for a random time between zero and a bound that doubles from 0.5 \
         to 8 seconds (full jitter). Where an answer has `Retry-After`, pause for that long.",
        "Give up after a number of attempts and a total time, 5 and a minute for instance. What \
         happened is then unknown to you: keep the key and the body, and go on with them later.",
        "Never make a new key after a time-out, a lost connection or a 5xx: the work may have been \
         done, and with a new key it would be done twice.",
        "A 401 or 429 to a retry says nothing about the first attempt.",
        "Do not send the key to another origin when you follow a redirect.",
    ]))];
    Section { id: "retrying", title: "How to retry", blocks }
}

fn looking_up(address: &str) -> Section {
    let states = [
        ("unknown", "It was not used with your credential, or is new again."),
        ("in_progress", "An attempt is running."),
        ("completed", "It was carried out: a retry gets the answer, if that was kept."),
        ("failed", "The last attempt freed the key: a retry is a new attempt."),
        ("held", "Whether it was carried out is unknown, and a person decides: [outcome-unknown]."),
        ("expired", "It was carried out, and its answer is no longer kept: [key-expired]."),
    ];
    let blocks = vec![
        Block::Paragraph(line(
            "{} tells what became of a key, without doing anything: send the key in its header, your \
             credential as with the request, and name the request by its method and path: {}. \
             Callers without a credential are refused as [missing-tenant].",
            [code(format!("GET {address}")), code("?route=POST%20/v1/charges")],
        )),
        Block::Facts(states.map(|(state, meaning)| (state, plain(meaning))).into()),
        Block::Paragraph(plain(
            "The answer is JSON: `state`, `attempts`, `first_seen`, `expires_at` and, where it was \
             carried out, `original_status`.",
        )),
    ];
    Section { id: "looking-up", title: "Look a key up", blocks }
}

fn limits(contract: &Contract) -> Section {
    let blocks = vec![facts(&LIMITS, &contract.defaults)];
    Section { id: "limits", title: "Limits", blocks }
}

fn no_key(contract: &Contract) -> Section {
    let all = [&contract.defaults].into_iter().chain(contract.routes.iter().map(|r| &r.settings));
    let takes = |method| all.clone().any(|s| s.key != KeyMode::Off && s.methods.contains(&method));
    let mut lines = lines([
        "For reads (`GET`, `HEAD`, `OPTIONS`): they can be repeated anyway.",
        "For calls that come to the same when repeated, such as replacing a whole resource, or \
         deleting one by its name.",
        "As a cache: a key brings back what was answered, not what is true now.",
        "As a lock: requests with different keys run side by side.",
        "For streams: their answers come once and are not kept.",
        "In place of a rule in the data, such as one payment for each order: keys end.",
    ]);
    if takes(Method::PUT) || takes(Method::DELETE) {
        lines[1] = plain(
            "For calls that come to the same when repeated, unless you need their first answer.",
        );
    }
    Section { id: "no-key", title: "When not to use a key", blocks: vec![Block::List(lines)] }
}

fn problems(contract: &Contract) -> Section {
    let block = |entry: &Entry| {
        let mut statuses: Vec<String> =
            contract.profiles.iter().map(|profile| entry.status(*profile).to_string()).collect();
        statuses.dedup();
        Block::Problem(entry.clone(), statuses.join(" or "))
    };
    let (used, unused): (Vec<_>, Vec<_>) = contract.problems.iter().partition(|entry| entry.used);
    let mut blocks = vec![Block::Paragraph((REFUSALS.say)(&contract.defaults))];
    for other in &contract.profiles[1..] {
        let others = RouteSettings { profile: *other, ..contract.defaults.clone() };
        blocks.push(Block::Paragraph(line(
            "Requests whose row above says so are refused otherwise. {} Of two statuses below, the \
             second is theirs.",
            [(REFUSALS.say)(&others)],
        )));
    }
    blocks.push(Block::Paragraph(plain(
        "A gRPC call is refused with a gRPC status instead, and `grpc-retry-pushback-ms`.",
    )));
    blocks.extend(used.into_iter().map(block));
    if !unused.is_empty() {
        blocks.push(Block::Paragraph(plain("As it is set up now, this service never answers:")));
        blocks.extend(unused.into_iter().map(block));
    }
    Section { id: "problems", title: "Problems", blocks }
}

fn forms(contract: &Contract) -> Section {
    let form = |name: &'static str, form: Form| {
        (name, line("{}", [code(format!("Accept: {}", negotiation::media_type(form)))]))
    };
    let blocks = vec![
        Block::Paragraph(line(
            "This page is at {}. It is written from the rules in force, and comes as:",
            [code(&contract.address)],
        )),
        Block::Facts(vec![
            form("HTML", Form::Html),
            form("Markdown", Form::Markdown),
            form("JSON", Form::Json),
            form("OpenAPI 3.1", Form::Openapi),
        ]),
    ];
    Section { id: "forms", title: "This page, for programs", blocks }
}

fn facts<const N: usize>(rules: &[Rule; N], settings: &RouteSettings) -> Block {
    Block::Facts(rules.iter().map(|rule| (rule.name, (rule.say)(settings))).collect())
}

fn methods(methods: &[Method], word: &str) -> Line {
    codes(methods.iter().map(ToString::to_string), word)
}
