use std::io::Write;

use flate2::write::ZlibEncoder;
use flate2::{Compression, GzBuilder};

use super::*;

/// `plain` as gzip, with a head that differs by level too.
pub(super) fn gzip(plain: &[u8], level: u32) -> Vec<u8> {
    let builder = GzBuilder::new().mtime(level).filename(format!("body-{level}"));
    let mut encoder = builder.write(Vec::new(), Compression::new(level));
    encoder.write_all(plain).expect("in memory");
    encoder.finish().expect("in memory")
}

/// `plain` as HTTP's deflate, which is zlib.
pub(super) fn zlib(plain: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(level));
    encoder.write_all(plain).expect("in memory");
    encoder.finish().expect("in memory")
}

const POST: RequestFacts<'static> = RequestFacts {
    method: &Method::POST,
    authority: None,
    path: "/v1/charges",
    query: None,
    content_type: Some(b"application/json"),
    content_encoding: None,
    headers: &[],
    body: br#"{"amount":10,"currency":"eur"}"#,
};

const RULES: FingerprintRules<'static> =
    FingerprintRules { form: FingerprintForm::Canonical, ignore: &[], unpacked_bytes_max: 1 << 20 };

fn print(facts: &RequestFacts<'_>) -> Fingerprint {
    Fingerprint::of(facts, &RULES, None)
}

fn raw(facts: &RequestFacts<'_>) -> Fingerprint {
    Fingerprint::of(facts, &FingerprintRules { form: FingerprintForm::Raw, ..RULES }, None)
}

/// That the requests are as many as there are.
fn assert_all_differ(requests: &[RequestFacts<'_>]) {
    let mut seen = Vec::new();
    for facts in requests {
        let next = print(facts);
        assert!(!seen.contains(&next), "{facts:?}");
        seen.push(next);
    }
}

#[test]
fn the_same_json_written_otherwise_is_the_same_request() {
    let other = RequestFacts { body: b"{ \"currency\":\"\\u0065ur\",\n\"amount\":10}", ..POST };
    assert_eq!(print(&POST), print(&other));
    assert_ne!(raw(&POST), raw(&other));
}

#[test]
fn charset_utf8_and_spelling_of_the_type_make_no_difference() {
    for kind in [
        &b"application/json; charset=utf-8"[..],
        b"Application/JSON;charset=\"UTF-8\"",
        b"application/json;",
    ] {
        let other = RequestFacts { content_type: Some(kind), ..POST };
        assert_eq!(print(&POST), print(&other), "{}", kind.escape_ascii());
        assert_ne!(raw(&POST), raw(&other), "{}", kind.escape_ascii());
    }
}

#[test]
fn json_in_another_charset_counts_byte_by_byte() {
    for kind in ["application/json;charset=latin1", "application/json;charset=utf-8;charset=utf-8"]
    {
        let content_type = Some(kind.as_bytes());
        let one = RequestFacts { content_type, body: b"{\"a\":1}", ..POST };
        assert_ne!(print(&one), print(&RequestFacts { body: b"{\"a\": 1}", ..one }), "{kind}");
    }
}

#[test]
fn everything_that_matters_changes_it() {
    let header = |value: &'static [u8]| [("stripe-account", Some(Cow::Borrowed(value)))];
    assert_all_differ(&[
        POST,
        RequestFacts { method: &Method::PATCH, ..POST },
        RequestFacts { authority: Some(b""), ..POST },
        RequestFacts { authority: Some(b"a.example"), ..POST },
        RequestFacts { authority: Some(b"a.example:80"), ..POST },
        RequestFacts { path: "/v1/charges/", ..POST },
        RequestFacts { query: Some(""), ..POST },
        RequestFacts { query: Some("a=1"), ..POST },
        RequestFacts { content_type: None, ..POST },
        RequestFacts { content_type: Some(b"text/plain"), ..POST },
        RequestFacts { content_type: Some(b"not a type"), ..POST },
        RequestFacts { content_encoding: Some(b"br"), ..POST },
        RequestFacts { content_encoding: Some(b"BR"), ..POST },
        RequestFacts { headers: &[("stripe-account", None)], ..POST },
        RequestFacts { headers: &header(b""), ..POST },
        RequestFacts { headers: &header(b"a"), ..POST },
        RequestFacts { body: br#"{"amount":10.0,"currency":"eur"}"#, ..POST },
        RequestFacts { body: br#"{"amount":10,"currency":"eur","currency":"eur"}"#, ..POST },
        RequestFacts { body: b"", ..POST },
    ]);
}

#[test]
fn the_case_of_an_authority_makes_no_difference() {
    let one = RequestFacts { authority: Some(b"API.Example:80"), ..POST };
    assert_eq!(print(&one), print(&RequestFacts { authority: Some(b"api.example:80"), ..POST }));
}

#[test]
fn a_body_packed_otherwise_is_the_same_request() {
    let other = br#"{"currency":"eur", "amount":10}"#;
    for (encoding, body) in [
        ("gzip", gzip(POST.body, 1)),
        ("GZIP", gzip(POST.body, 9)),
        ("gzip", gzip(other, 9)),
        ("deflate", zlib(POST.body, 9)),
        ("deflate, gzip", gzip(&zlib(POST.body, 9), 1)),
        ("identity", POST.body.to_vec()),
    ] {
        let content_encoding = Some(encoding.as_bytes());
        let packed = RequestFacts { content_encoding, body: &body, ..POST };
        assert_eq!(print(&packed), print(&POST), "{encoding}");
        assert_ne!(raw(&packed), raw(&POST), "{encoding}");
    }
}

#[test]
fn a_body_that_stays_packed_counts_with_its_coding() {
    let large = gzip(&[b' '; 100], 9);
    let gzipped = RequestFacts { content_encoding: Some(b"gzip"), body: &large, ..POST };
    let small = FingerprintRules { unpacked_bytes_max: 99, ..RULES };
    let packed = Fingerprint::of(&gzipped, &small, None);
    let no_coding = RequestFacts { content_encoding: None, ..gzipped };
    assert_ne!(packed, Fingerprint::of(&no_coding, &small, None));
    assert_ne!(packed, print(&gzipped), "unpacked");
    // Not even JSON is read while it may be something else.
    let unknown = |body| print(&RequestFacts { content_encoding: Some(b"br"), body, ..POST });
    assert_ne!(unknown(b"{}"), unknown(b"{ }"));
    let broken = |body| print(&RequestFacts { content_encoding: Some(b"gzip"), body, ..POST });
    assert_ne!(broken(b"{}"), broken(b"{ }"));
}

fn form(content_type: &'static str, body: &'static str) -> RequestFacts<'static> {
    let content_type = Some(content_type.as_bytes());
    RequestFacts { content_type, body: body.as_bytes(), ..POST }
}

#[test]
fn a_form_with_another_boundary_is_the_same_request() {
    let one = form(
        "multipart/form-data; boundary=one",
        "--one\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--one--\r\n",
    );
    for other in [
        form(
            "Multipart/Form-Data;Boundary=\"two two\"; charset=utf-8",
            "--two two\r\nContent-Disposition: form-data; name=a\r\n\r\n1\r\n--two two--",
        ),
        form(
            "multipart/form-data; boundary=one",
            "--one\r\ncontent-disposition: form-data; name=a\r\n\r\n1\r\n--one--",
        ),
    ] {
        assert_eq!(print(&one), print(&other), "{other:?}");
        assert_ne!(raw(&one), raw(&other), "{other:?}");
    }
    let body = gzip(one.body, 6);
    let packed = RequestFacts { content_encoding: Some(b"gzip"), body: &body, ..one };
    assert_eq!(print(&one), print(&packed));
}

#[test]
fn each_part_of_a_form_counts_where_it_stands() {
    let kind = "multipart/form-data; boundary=b";
    assert_all_differ(&[
        form(kind, "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--"),
        form(kind, "--b\r\nB: 2\r\nA: 1\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--"),
        form(kind, "--b\r\nA: 1\r\n\r\nx\r\n--b\r\nB: 2\r\n\r\ny\r\n--b--"),
        form(kind, "--b\r\nA:1\r\nB: 2\r\n\r\nx\r\n--b\r\n\r\ny\r\n--b--"),
        form(kind, "--b\r\nA: 1\r\nB: 2\r\n\r\ny\r\n--b\r\n\r\nx\r\n--b--"),
        form(kind, "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n--b--"),
        form(kind, "--b\r\nA: 1\r\nB: 2\r\n\r\nx\r\n\r\ny\r\n--b--"),
    ]);
}

#[test]
fn a_form_in_doubt_counts_byte_by_byte_with_its_boundary() {
    let body = "--b\n\nx\n--b--";
    assert_all_differ(&[
        form("multipart/form-data; boundary=b", body),
        form("multipart/form-data; boundary=c", body),
        form("multipart/form-data", body),
        form("multipart/form-data; boundary=b", "--c\n\nx\n--c--"),
    ]);
}

#[test]
fn what_is_ignored_does_not_count_in_json_and_does_elsewhere() {
    let ignore = [JsonPointer::parse("/sent_at").expect("valid")];
    let ignoring = |facts: &RequestFacts<'_>| {
        Fingerprint::of(facts, &FingerprintRules { ignore: &ignore, ..RULES }, None)
    };
    let body = br#"{"sent_at":"09:00","currency":"eur","amount":10}"#;
    assert_eq!(ignoring(&POST), ignoring(&RequestFacts { body, ..POST }));
    assert_eq!(ignoring(&POST), print(&POST), "what is ignored is not part of it either");
    let twice = br#"{"sent_at":1,"sent_at":2,"currency":"eur","amount":10}"#;
    assert_ne!(ignoring(&POST), ignoring(&RequestFacts { body: twice, ..POST }));

    let text = RequestFacts { content_type: Some(b"text/plain"), ..POST };
    assert_ne!(ignoring(&text), ignoring(&RequestFacts { body, ..text }));
}

#[test]
fn raw_bytes_are_not_taken_for_a_canonical_form() {
    let json = RequestFacts { body: b"{}", ..POST };
    assert_ne!(print(&json), raw(&json));
}

#[test]
fn a_call_is_its_function_and_its_input() {
    let call = |function, input: &str| Fingerprint::of_call(function, input.as_bytes(), None);
    let mail = call("send_mail", r#"{"to":"a","order":1}"#);
    assert_eq!(mail, call("send_mail", r#"{"order":1,"to":"a"}"#));
    assert_ne!(mail, call("send_mail", r#"{"to":"a","order":2}"#));
    assert_ne!(mail, call("send_text", r#"{"to":"a","order":1}"#));
}

#[test]
fn a_secret_changes_it_and_is_named() {
    let one = Secret::from_bytes(&[1; 32]);
    let keyed = Fingerprint::of(&POST, &RULES, Some(&one));
    assert_ne!(keyed, print(&POST));
    assert_eq!(keyed.secret_id, one.id());
    assert_eq!(Fingerprint::from_bytes(keyed.to_bytes()), keyed);
}
