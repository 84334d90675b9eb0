//! Rows 21 and 23: whatever form an answer comes in, its replay is the same, byte for byte.

use std::io::Write;

use crate::harness::{Answer, Gateway, Ledger, Request, Then, reply};

/// An upstream that says exactly these bytes.
fn upstream_saying(bytes: impl Into<Vec<u8>>, then: fn() -> Then) -> Ledger {
    let ledger = Ledger::start();
    let bytes = bytes.into();
    ledger.behave(move |_, client| {
        client.write_all(&bytes).expect("written");
        then()
    });
    ledger
}

/// Sends a request and its retry, and checks that they get the same.
#[track_caller]
fn first_and_replay(ledger: &Ledger, request: &Request) -> (Answer, Answer) {
    let before = ledger.all().len();
    let (first, replay) = (request.send(), request.send());
    assert_eq!(first.header("idempotent-replayed"), None);
    replay.replays(&first);
    assert_no_hop_by_hop(&first);
    assert_no_hop_by_hop(&replay);
    assert_eq!(ledger.all().len(), before + 1);
    (first, replay)
}

#[track_caller]
fn assert_no_hop_by_hop(answer: &Answer) {
    for name in ["keep-alive", "proxy-authenticate", "upgrade", "te", "x-hop", "x-other-hop"] {
        assert_eq!(answer.header(name), None, "{name} belongs to the upstream's connection");
    }
    assert_ne!(answer.header("connection"), Some("keep-alive, X-Hop"));
}

fn post(gateway: &Gateway) -> Request {
    gateway.post("/charges").key("bytes").json("{}")
}

#[test]
fn only_the_final_of_several_answers_is_stored() {
    let ledger = upstream_saying(
        "HTTP/1.1 100 Continue\r\n\r\n\
         HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\n\
         HTTP/1.1 200 OK\r\nX-Final: yes\r\nContent-Length: 5\r\n\r\nfinal",
        || Then::KeepOpen,
    );
    let gateway = Gateway::in_front_of(&ledger).start();
    let (first, replay) = first_and_replay(&ledger, &post(&gateway));
    assert_eq!((first.status, first.text().as_str()), (200, "final"));
    assert_eq!(replay.header("x-final"), Some("yes"));
    assert_eq!(replay.header("link"), None);
}

#[test]
fn a_chunked_answer_is_replayed_with_its_trailers() {
    let ledger = upstream_saying(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum, X-Count\r\n\
         Connection: keep-alive, X-Hop\r\nKeep-Alive: timeout=5\r\nX-Hop: one\r\n\r\n\
         6;note=ignored\r\nfirst \r\n6\r\nsecond\r\n0\r\nX-Sum: abc\r\nX-Count: 2\r\n\r\n",
        || Then::KeepOpen,
    );
    let gateway = Gateway::in_front_of(&ledger).start();

    let (first, _) = first_and_replay(&ledger, &post(&gateway).header("TE", "trailers"));
    assert_eq!((first.status, first.text().as_str()), (200, "first second"));
    let sent: Vec<_> = first.trailers.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(sent, [("x-sum", "abc"), ("x-count", "2")]);

    // Whoever cannot read trailers gets the body all the same.
    let (without, _) = first_and_replay(&ledger, &gateway.post("/charges").key("no-te").json("{}"));
    assert_eq!((without.text().as_str(), without.trailers.len()), ("first second", 0));
}

#[test]
fn packed_bytes_stay_packed() {
    // No gzip at all, in fact: whoever unpacked it would fail.
    let body: Vec<u8> = (0..=255).cycle().take(3000).collect();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Type: application/json\r\n\
         Vary: Accept-Encoding\r\nETag: \"1-gzip\"\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let ledger = upstream_saying([head.as_bytes(), &body].concat(), || Then::KeepOpen);
    let gateway = Gateway::in_front_of(&ledger).start();
    let (first, replay) = first_and_replay(&ledger, &post(&gateway));
    assert_eq!(first.body, body);
    let kept = [("content-encoding", "gzip"), ("vary", "Accept-Encoding"), ("etag", "\"1-gzip\"")];
    for (name, value) in kept {
        assert_eq!(replay.header(name), Some(value));
    }
    assert_eq!(replay.header("content-length"), Some("3000"));
}

#[test]
fn answers_without_a_body_are_replayed_without_one() {
    for head in [
        "HTTP/1.1 204 No Content\r\nX-Kept: yes\r\n\r\n",
        "HTTP/1.1 304 Not Modified\r\nX-Kept: yes\r\nETag: \"a\"\r\n\r\n",
        "HTTP/1.1 201 Created\r\nX-Kept: yes\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 303 See Other\r\nX-Kept: yes\r\nLocation: /charges/1\r\nContent-Length: 0\r\n\r\n",
    ] {
        let ledger = upstream_saying(head, || Then::KeepOpen);
        let gateway = Gateway::in_front_of(&ledger).start();
        let (first, replay) = first_and_replay(&ledger, &post(&gateway));
        assert!(first.body.is_empty() && head.contains(&first.status.to_string()), "{head}");
        assert_eq!(replay.header("x-kept"), Some("yes"), "{head}");
        assert_eq!(replay.header("location"), first.header("location"), "{head}");
        assert_eq!(replay.header("content-length"), first.header("content-length"), "{head}");
        assert_eq!(replay.header("transfer-encoding"), None, "{head}");
    }
}

#[test]
fn an_answer_that_ends_with_its_connection_is_replayed_whole() {
    let ledger = upstream_saying(
        "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nServer: old\r\n\r\nuntil\0the\r\n\r\nend",
        || Then::Close,
    );
    let gateway = Gateway::in_front_of(&ledger).start();
    let (first, replay) = first_and_replay(&ledger, &post(&gateway));
    assert_eq!(first.body, b"until\0the\r\n\r\nend");
    assert_eq!(replay.header("content-type"), Some("text/plain"));
    assert_eq!(replay.header("server"), Some("old"));
}

#[test]
fn repeated_headers_come_again_in_their_order() {
    let ledger = upstream_saying(
        "HTTP/1.1 200 OK\r\nLink: <a>\r\nWarning: 1\r\nLink: <b>\r\nX-Empty:\r\nLink: <a>\r\n\
         X-Latin: caf\u{e9}\r\nWarning: 2\r\nContent-Length: 2\r\n\r\nok",
        || Then::KeepOpen,
    );
    let gateway = Gateway::in_front_of(&ledger).start();
    let (first, replay) = first_and_replay(&ledger, &post(&gateway));
    for answer in [first, replay] {
        assert_eq!(answer.all("link"), ["<a>", "<b>", "<a>"]);
        assert_eq!(answer.all("warning"), ["1", "2"]);
        assert_eq!(answer.all("x-empty"), [""]);
        assert_eq!(answer.all("x-latin"), ["café"]);
    }
}

#[test]
fn what_belongs_to_one_moment_or_one_caller_is_not_replayed() {
    let ledger = Ledger::start();
    let of_the_moment = [
        "Date: Mon, 01 Jan 2024 00:00:00 GMT",
        "Set-Cookie: session=secret",
        "Retry-After: 3",
        "WWW-Authenticate: Bearer",
        "RateLimit-Remaining: 4",
        "X-RateLimit-Remaining: 4",
        "Traceparent: 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ];
    ledger.behave(move |_, client| reply(client, 201, &of_the_moment, "kept"));
    let gateway = Gateway::in_front_of(&ledger).start();
    let (first, replay) = first_and_replay(&ledger, &post(&gateway));
    for line in of_the_moment {
        let (name, value) = line.split_once(": ").expect("a header");
        let name = name.to_ascii_lowercase();
        assert_eq!(first.header(&name), Some(value), "the first client gets it");
        assert_ne!(replay.header(&name), Some(value), "and no other");
    }
}

#[test]
fn cookies_are_replayed_where_the_route_says_so() {
    let ledger = Ledger::start();
    ledger.behave(|_, client| reply(client, 201, &["Set-Cookie: a=1", "Set-Cookie: b=2"], ""));
    let settings = "[idempotency]\nreplay_set_cookie = true\n";
    let gateway = Gateway::in_front_of(&ledger).with(settings).start();
    let (_, replay) = first_and_replay(&ledger, &post(&gateway));
    assert_eq!(replay.all("set-cookie"), ["a=1", "b=2"]);
}

#[test]
fn an_answer_for_one_origin_is_not_opened_to_another() {
    let ledger = Ledger::start();
    ledger.behave(|effect, client| {
        let allowed = effect.header("origin").unwrap_or("*");
        let allow = format!("Access-Control-Allow-Origin: {allowed}");
        reply(client, 201, &[&allow, "Access-Control-Expose-Headers: ETag"], "ok")
    });
    let gateway = Gateway::in_front_of(&ledger).start();
    let from = |origin: &str| post(&gateway).header("Origin", origin).send();
    assert_eq!(from("https://a.test").status, 201);
    let same = from("https://a.test");
    assert_eq!(same.header("access-control-allow-origin"), Some("https://a.test"));
    assert_eq!(same.header("access-control-expose-headers"), Some("ETag"));
    let other = from("https://b.test");
    assert_eq!(other.header("idempotent-replayed"), Some("true"));
    assert_eq!(other.header("access-control-allow-origin"), None);
    assert_eq!(other.header("access-control-expose-headers"), None);
    assert_eq!(ledger.effects("bytes"), 1);
}
