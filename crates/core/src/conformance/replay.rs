//! The same answer, byte for byte, as often as it is asked for.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::Trial;
use super::samples::{RETENTION, answer, ask, mismatch, retry};
use crate::{Answer, AnswerBody, Ask, Claimed, Fenced};

/// Bodies are bytes, not text.
pub async fn a_binary_body_is_replayed_byte_for_byte(trial: Trial) {
    let body: Vec<u8> = (0..=255).rev().cycle().take(1000).collect();
    expect_replayed(&trial, answer(body)).await;
}

/// As large as an answer may be by default.
pub async fn a_large_body_is_replayed_byte_for_byte(trial: Trial) {
    let body: Vec<u8> = (0_u32..1 << 18).flat_map(|word| (word ^ 0xa5a5).to_le_bytes()).collect();
    expect_replayed(&trial, answer(body)).await;
}

/// Nothing is an answer too.
pub async fn an_empty_body_stays_empty(trial: Trial) {
    let status = StatusCode::NO_CONTENT;
    expect_replayed(&trial, Answer { status, ..answer("") }).await;
}

/// Kept or not is not the same as empty or not.
pub async fn a_body_that_was_not_kept_is_not_made_up(trial: Trial) {
    expect_replayed(&trial, Answer { body: AnswerBody::NotKept, ..answer("") }).await;
}

/// Any status can be an answer.
pub async fn the_status_is_replayed(trial: Trial) {
    for code in [200, 303, 422, 500, 599, 999] {
        let status = StatusCode::from_u16(code).expect("a status has three digits");
        let ask = ask(&format!("status-{code}"));
        expect_replayed_for(&trial, &ask, Answer { status, ..answer("as told") }).await;
    }
}

/// Values of one name keep their order, and their bytes.
pub async fn headers_are_replayed_in_their_order(trial: Trial) {
    let headers = headers(&[
        ("link", b"</b>; rel=next"),
        ("x-note", b"caf\xe9 \xff"),
        ("link", b"</a>; rel=prev"),
        ("x-empty", b""),
        ("link", b"</b>; rel=next"),
    ]);
    let replayed = expect_replayed(&trial, Answer { headers, ..answer("done") }).await;
    let links: Vec<_> = replayed.headers.get_all("link").iter().collect();
    assert_eq!(links, ["</b>; rel=next", "</a>; rel=prev", "</b>; rel=next"]);
}

/// What comes after the body belongs to the answer.
pub async fn trailers_are_replayed_apart_from_headers(trial: Trial) {
    let answer = Answer {
        headers: headers(&[("x-sum", b"before")]),
        trailers: headers(&[("grpc-status", b"0"), ("x-sum", b"one"), ("x-sum", b"two")]),
        ..answer("done")
    };
    expect_replayed(&trial, answer).await;
}

/// A replay leaves the record as it was.
pub async fn a_replay_writes_nothing(trial: Trial) {
    let ask = ask("k");
    complete(&trial, &ask, &answer("done")).await;
    let before = trial.record(&ask.id).await;
    for _ in 0..3 {
        assert_eq!(trial.replay(&retry(&ask)).await.answer, answer("done"));
        assert_eq!(trial.record(&ask.id).await, before);
    }
}

/// A replay takes no lock: all who ask at the same time get the answer.
pub async fn many_rivals_all_get_the_answer(trial: Trial) {
    let ask = ask("k");
    complete(&trial, &ask, &answer("done")).await;
    for claimed in trial.race_to_claim((0..16).map(|_| retry(&ask))).await {
        assert!(matches!(claimed, Claimed::Replay(replay) if replay.answer == answer("done")));
    }
}

/// A store may know an answer without looking; it knows no other, and none that is over.
pub async fn an_answer_at_hand_is_what_a_claim_comes_to(trial: Trial) {
    let ask = ask("k");
    assert_eq!(trial.answered(&ask), None);
    let lease = trial.run(&ask).await.lease;
    assert_eq!(trial.answered(&retry(&ask)), None);
    assert_eq!(trial.complete(&lease, &answer("done")).await, Fenced::Applied);
    for _ in 0..2 {
        let at_hand = trial.answered(&retry(&ask));
        let replay = trial.replay(&retry(&ask)).await;
        assert!(at_hand.is_none_or(|at_hand| at_hand == replay));
    }
    assert_eq!(trial.answered(&mismatch(&ask)), None);
    trial.pass(RETENTION).await;
    assert_eq!(trial.answered(&retry(&ask)), None);
}

async fn expect_replayed(trial: &Trial, answer: Answer) -> Answer {
    expect_replayed_for(trial, &ask("k"), answer).await
}

async fn expect_replayed_for(trial: &Trial, ask: &Ask, answer: Answer) -> Answer {
    complete(trial, ask, &answer).await;
    let replayed = trial.replay(&retry(ask)).await.answer;
    // Compared here, because a megabyte in a panic helps nobody.
    assert!(replayed == answer, "the replay differs from the answer");
    replayed
}

async fn complete(trial: &Trial, ask: &Ask, answer: &Answer) {
    let lease = trial.run(ask).await.lease;
    assert_eq!(trial.complete(&lease, answer).await, Fenced::Applied);
}

fn headers(pairs: &[(&'static str, &'static [u8])]) -> HeaderMap {
    let pair = |&(name, value): &(&'static str, &'static [u8])| {
        let value = HeaderValue::from_maybe_shared(Bytes::from_static(value));
        (HeaderName::from_static(name), value.expect("a header's value has no control characters"))
    };
    let mut headers = HeaderMap::new();
    for (name, value) in pairs.iter().map(pair) {
        headers.append(name, value);
    }
    headers
}
