//! Upstreams that speak HTTP/2: what they get, and what is known of a request that they refuse,
//! leave behind, or answer by half.

use std::io::Write;
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::harness::{Gateway, Http2, RawUpstream, goaway, headers, read, reset};
use crate::unreachable::nobody;

/// `:status 200`, and nothing else.
const OK: [u8; 1] = [0x88];

/// A way to treat a request, by its name: what is said on its stream.
type Way = (&'static str, fn(u32) -> Vec<u8>);
type Exchange = (Request<RecvStream>, SendResponse<Bytes>);

/// An upstream that speaks HTTP/2 properly, for as long as the set lives.
async fn upstream<F>(
    handle: impl Fn(Exchange) -> F + Clone + Send + 'static,
) -> (SocketAddr, JoinSet<()>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let serving = async move {
        let mut connections = JoinSet::new();
        while let Ok((stream, _)) = listener.accept().await {
            let handle = handle.clone();
            connections.spawn(async move {
                let mut server = h2::server::Builder::new();
                let server = server.max_concurrent_streams(100).handshake(stream);
                let mut connection = server.await.expect("a handshake");
                let mut exchanges = JoinSet::new();
                while let Some(Ok(exchange)) = connection.accept().await {
                    exchanges.spawn(handle(exchange));
                }
            });
        }
    };
    (address, JoinSet::from_iter([serving]))
}

#[tokio::test(flavor = "multi_thread")]
async fn it_gets_the_request_as_it_was_sent_and_its_answer_is_given_again() {
    let (address, _serving) = upstream(|(request, mut respond): Exchange| async move {
        let (head, mut body) = request.into_parts();
        let mut seen = format!("{} {}\n", head.method, head.uri);
        for (name, value) in &head.headers {
            seen.push_str(&format!("{name}: {}\n", value.to_str().expect("text")));
        }
        while let Some(data) = body.data().await {
            seen.push_str(&String::from_utf8_lossy(&data.expect("a body")));
        }
        let trailers = body.trailers().await.expect("a body").unwrap_or_default();
        let mut answer = respond.send_response(Response::new(()), false).expect("sent");
        answer.send_data(Bytes::from(seen), false).expect("sent");
        answer.send_trailers(trailers).expect("sent");
    })
    .await;
    let gateway = Gateway::before(address).over_http2().start();
    let client = Http2::connect(gateway.address).await;
    let request = || {
        Request::post("http://api.example.com/charges?a=1")
            .header("idempotency-key", "k")
            .header("te", "trailers")
            .header("x-twice", "1")
            .header("x-twice", "2")
            .body(())
            .expect("a request")
    };
    let mut answers = Vec::new();
    for _ in 0..2 {
        let (answer, mut stream) = client.begin(request(), false).await;
        stream.send_data(Bytes::from_static(b"body"), false).expect("sent");
        let sum = (HeaderName::from_static("x-sum"), HeaderValue::from_static("7"));
        stream.send_trailers(HeaderMap::from_iter([sum])).expect("sent");
        answers.push(read(answer).await.expect("an answer"));
    }
    let seen = answers[0].text();
    for part in [
        "POST http://api.example.com/charges?a=1\n",
        "\nidempotency-key: k\n",
        "\nte: trailers\n",
        "\nx-twice: 1\n",
        "\nx-twice: 2\n",
        "\nselfsame-attempt: 1\n",
    ] {
        assert!(seen.contains(part), "{part} in {seen}");
    }
    assert!(!seen.contains("\nhost:") && seen.ends_with("\nbody"), "{seen}");
    assert_eq!(answers[0].trailers, [("x-sum".to_owned(), "7".to_owned())]);
    answers[1].replays(&answers[0]);

    // A client of HTTP/1.1 in front makes no difference, but for what only HTTP/1.1 has.
    let request = gateway.post("/charges").key("one").header("Connection", "close, X-Hop");
    let seen = request.header("X-Hop", "1").header("TE", "trailers, deflate").json("{}").send();
    let seen = seen.text();
    assert!(seen.contains(&format!("POST http://{}/charges\n", gateway.address)), "{seen}");
    assert!(seen.contains("\nte: trailers\n"), "{seen}");
    for absent in ["connection", "x-hop", "host", "transfer-encoding"] {
        assert!(!seen.contains(&format!("\n{absent}:")), "{absent} in {seen}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trailers_that_belong_into_a_head_go_no_further() {
    let (address, _serving) = upstream(|(request, mut respond): Exchange| async move {
        let mut body = request.into_body();
        while let Some(data) = body.data().await {
            data.expect("a body");
        }
        let mut trailers = body.trailers().await.expect("a body").unwrap_or_default();
        trailers.insert("selfsame-protected", HeaderValue::from_static("false"));
        trailers.insert("set-cookie", HeaderValue::from_static("a=1"));
        let response = Response::builder().header("trailer", "x-sum, set-cookie").body(());
        let response = response.expect("a response");
        let mut answer = respond.send_response(response, false).expect("sent");
        answer.send_trailers(trailers).expect("sent");
    })
    .await;
    let gateway = Gateway::before(address).over_http2().start();
    let forbidden = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\
                     Selfsame-Claim: 1\r\nAuthorization: Bearer eve\r\nIdempotency_Key: k\r\n";
    let body = format!("2\r\n{{}}\r\n0\r\n{forbidden}X-Sum: 7\r\n\r\n");
    for key in [None, Some("k")] {
        let request = gateway.post("/charges").header("Transfer-Encoding", "chunked");
        let request = request.header("TE", "trailers").body(body.as_bytes());
        let request = key.into_iter().fold(request, |request, key| request.key(key));
        let answer = request.send();
        assert_eq!(answer.status, 200, "{key:?}");
        assert_eq!(answer.trailers, [("x-sum".to_owned(), "7".to_owned())], "{key:?}");
    }
}

#[test]
fn a_request_that_it_never_began_leaves_the_key_free() {
    let refused = |stream| reset(stream, Reason::REFUSED_STREAM.into()).bytes();
    // The last stream that was or will be looked at is an earlier one.
    let left_behind = |stream| goaway(stream - 1).bytes();
    let ways: [Way; 2] = [("refused", refused), ("left", left_behind)];
    for (what, bytes) in ways {
        let upstream = RawUpstream::start(move |arrived, connection| {
            let answer = match arrived.number {
                1 => bytes(arrived.stream),
                _ => headers(arrived.stream, &OK, true).bytes(),
            };
            connection.write_all(&answer).expect("written");
        });
        // The strictest settings: what never began is not held.
        let settings = "[idempotency]\nrecover = \"hold\"\nserver_errors = \"hold\"\n";
        let gateway = Gateway::before(upstream.address).over_http2().with(settings).start();
        let request = gateway.post("/charges").key("k").json("{}");
        request.send().refused("upstream-unreachable");
        let retry = request.send();
        assert_eq!((retry.status, retry.header("idempotent-replayed")), (200, None), "{what}");
        request.send().replays(&retry);
        assert_eq!(upstream.arrived(), 2, "{what}");
    }
}

#[test]
fn a_request_that_it_may_have_begun_is_not_sent_again() {
    let cancelled = |stream| reset(stream, Reason::CANCEL.into()).bytes();
    let failed = |stream| reset(stream, Reason::INTERNAL_ERROR.into()).bytes();
    let calm = |stream| reset(stream, Reason::ENHANCE_YOUR_CALM.into()).bytes();
    let last = |stream| goaway(stream).bytes();
    let half = |stream| headers(stream, &OK, false).bytes();
    let half_and_refused = |stream| {
        let refused = reset(stream, Reason::REFUSED_STREAM.into());
        [headers(stream, &OK, false).bytes(), refused.bytes()].concat()
    };
    let nothing = |_| Vec::new();
    let not_http2 = |_| b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec();
    let ways: [Way; 8] = [
        ("cancelled", cancelled),
        ("failed", failed),
        ("calm", calm),
        ("its last", last),
        ("half an answer", half),
        ("half an answer, and refused", half_and_refused),
        ("nothing", nothing),
        ("not HTTP/2", not_http2),
    ];
    for (what, bytes) in ways {
        let upstream = RawUpstream::start(move |arrived, connection| {
            connection.write_all(&bytes(arrived.stream)).expect("written");
            // All that was written goes out first.
            connection.shutdown(Shutdown::Write).expect("a connection");
        });
        let gateway = Gateway::before(upstream.address).over_http2().start();
        let request = gateway.post("/charges").key("k").json("{}");
        let lost = request.send();
        assert_eq!(lost.refused("upstream-failed")["retryable"], false, "{what}");
        request.send().refused("outcome-unknown");
        // Without a key, half an answer is passed on as it comes, and cut off.
        let unkeyed = gateway.post("/unkeyed").json("{}").try_send();
        let was_cut = unkeyed.map_or(true, |answer| answer.status != 502);
        assert_eq!(was_cut, what.starts_with("half"), "{what}");
        assert_eq!(upstream.arrived(), 2, "{what}: one for each request that was sent");
    }
}

#[test]
fn a_connection_that_goes_away_between_two_requests_is_replaced() {
    let upstream = RawUpstream::start(|arrived, connection| {
        let answer = headers(arrived.stream, &OK, true).bytes();
        let away = goaway(arrived.stream).bytes();
        connection.write_all(&[answer, away].concat()).expect("written");
    });
    let gateway = Gateway::before(upstream.address).over_http2().start();
    for number in 0..50 {
        let answer = gateway.post("/charges").key(&format!("k-{number}")).json("{}").send();
        assert_eq!(answer.status, 200, "{number}: {}", answer.text());
    }
    assert_eq!(upstream.arrived(), 50);
}

#[test]
fn nobody_there_leaves_the_key_free() {
    let gateway = Gateway::before(nobody()).over_http2().start();
    let request = gateway.post("/charges").key("k").json("{}");
    for _ in 0..2 {
        request.send().refused("upstream-unreachable");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_request_waits_for_the_slow_ones_before_it() {
    const REQUESTS: u32 = 250;
    let (arrived, go_on) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let (arrives, waits) = (arrived.clone(), go_on.clone());
    let (address, _serving) = upstream(move |(_, mut respond): Exchange| {
        let (arrives, waits) = (arrives.clone(), waits.clone());
        async move {
            arrives.add_permits(1);
            drop(waits.acquire().await.expect("open"));
            respond.send_response(Response::new(()), true).expect("sent");
        }
    })
    .await;
    let gateway = Gateway::before(address).over_http2().start();
    let client = Http2::connect(gateway.address).await;
    let requests = join_all((0..REQUESTS).map(|number| {
        let request = Request::post("http://a/charges").header("idempotency-key", number);
        client.send(request.body("{}").expect("a request"))
    }));
    let opener = async {
        // More than the upstream allows on one connection, and each of them is there.
        drop(arrived.acquire_many(REQUESTS).await.expect("open"));
        go_on.add_permits(1);
    };
    let (answers, ()) = tokio::join!(requests, opener);
    assert!(answers.iter().all(|answer| answer.status == 200));
}
