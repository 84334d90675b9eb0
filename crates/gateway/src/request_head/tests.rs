use std::fs;

use super::*;

fn rules(text: &str) -> HeadRules {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let text = format!("upstream = \"http://127.0.0.1:9\"\n{text}");
    fs::write(file.path(), text).expect("written");
    HeadRules::new(&Config::load(Some(file.path()), &Default::default()).expect("valid"))
}

fn request(method: &str, target: &str, version: Version, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(target).version(version);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request")
}

fn stranger() -> Peer {
    let address = "192.0.2.1:5".parse().expect("an address");
    Peer { address, is_encrypted: false, holder: None }
}

fn outcome(version: Version, target: &str, headers: &[(&str, &str)]) -> Result<(), Refusal> {
    let mut request = request("POST", target, version, headers);
    rules("").apply(&mut request, &stranger())
}

#[test]
fn a_request_names_one_valid_host() {
    const H1: Version = Version::HTTP_11;
    const H2: Version = Version::HTTP_2;
    let valid = [
        "a",
        "api.example.com",
        "API.example.com.",
        "a_b:80",
        "a:",
        "[::1]:8443",
        "[::1]",
        "10.0.0.1",
    ];
    for host in valid {
        assert_eq!(outcome(H1, "/", &[("host", host)]), Ok(()), "{host}");
    }
    let invalid = [
        "", ".", "a..b", ".a", "a,b", "a, b", "a b", "me@a", "a/b", "a:b", "a:80:80", "a:65536",
        "a?b", "a#b", "[::1", "::1", "[a]", "[::1]80", "%61", "a\\b", "a;b", "a:+1",
    ];
    for host in invalid {
        assert_eq!(outcome(H1, "/", &[("host", host)]), Err(INVALID_HOST), "{host}");
        assert_eq!(outcome(H2, "/", &[("host", host)]), Err(INVALID_HOST), "{host}");
    }
    let two = [("host", "a"), ("host", "a")];
    type Case<'a> = (Version, &'a str, &'a [(&'a str, &'a str)], Result<(), Refusal>);
    let table: [Case<'_>; 12] = [
        (H1, "/", &[], Err(NO_HOST)),
        (Version::HTTP_10, "/", &[], Ok(())),
        (Version::HTTP_10, "/", &two, Err(HOSTS)),
        (H1, "/", &two, Err(HOSTS)),
        (H1, "http://b/", &[], Err(NO_HOST)),
        (H1, "http://b/", &[("host", "a")], Ok(())),
        (H1, "http://me:secret@b/", &[("host", "b")], Err(INVALID_HOST)),
        (H2, "/", &[], Err(NO_HOST)),
        (H2, "https://a/", &[], Ok(())),
        (H2, "https://a/", &[("host", "A")], Ok(())),
        (H2, "https://a/", &[("host", "b")], Err(HOSTS)),
        (H2, "https://me@a/", &[], Err(INVALID_HOST)),
    ];
    for (version, target, headers, expected) in table {
        assert_eq!(outcome(version, target, headers), expected, "{version:?} {target} {headers:?}");
    }
}

#[test]
fn a_length_is_one_number_in_its_shortest_form() {
    for (lengths, expected) in [
        (&["5"][..], Ok("5")),
        (&["0005"], Ok("5")),
        (&["0"], Ok("0")),
        (&["5", "5"], Err(LENGTH)),
        (&["5", "05"], Err(LENGTH)),
        (&["+5"], Err(LENGTH)),
        (&[""], Err(LENGTH)),
        (&["5, 5"], Err(LENGTH)),
        (&["99999999999999999999"], Err(LENGTH)),
    ] {
        let mut headers = vec![("host", "a")];
        headers.extend(lengths.iter().map(|length| ("content-length", *length)));
        let mut request = request("POST", "/", Version::HTTP_2, &headers);
        let outcome = rules("").apply(&mut request, &stranger());
        let length = outcome.map(|()| request.headers()[CONTENT_LENGTH].to_str().expect("ASCII"));
        assert_eq!(length, expected, "{lengths:?}");
    }
}

#[test]
fn trailers_hold_nothing_of_a_head() {
    let rules = rules("[idempotency]\ntenant = \"credential:X-Api-Key\"");
    let names = [
        "x-sum",
        "grpc-status",
        "content-length",
        "transfer-encoding",
        "connection",
        "selfsame-claim",
        "x-api-key",
        "x_api_key",
        "idempotency-key",
        "authorization",
        "x-forwarded-for",
        "host",
        "trailer",
    ];
    let mut trailers = HeaderMap::new();
    for name in names {
        trailers.insert(HeaderName::from_static(name), HeaderValue::from_static("1"));
    }
    rules.clean_trailers(&mut trailers);
    let left: Vec<_> = trailers.keys().map(HeaderName::as_str).collect();
    assert_eq!(left, ["x-sum", "grpc-status"]);
}

#[test]
fn connect_and_trace_are_refused() {
    for (method, target) in [("CONNECT", "a:443"), ("TRACE", "/")] {
        let mut request = request(method, target, Version::HTTP_11, &[("host", "a")]);
        assert_eq!(rules("").apply(&mut request, &stranger()), Err(TUNNEL), "{method}");
    }
}

#[test]
fn connection_lists_few_headers_and_none_of_the_whole_request() {
    let rules =
        rules("[idempotency]\ntenant = \"credential:X-Api-Key\"\nkey_headers = [\"X-Key\"]");
    let outcome = |line: &str| {
        let headers = [("host", "a"), ("connection", line)];
        rules.apply(&mut request("GET", "/", Version::HTTP_11, &headers), &stranger())
    };
    for line in ["close", "keep-alive, X-Own", "Upgrade, HTTP2-Settings", ",,", "not a name"] {
        assert_eq!(outcome(line), Ok(()), "{line}");
    }
    let names = [
        "host",
        "Cookie",
        "authorization",
        "X-Forwarded-For",
        "Forwarded",
        "Selfsame-Attempt",
        "content-length",
        "Idempotency-Key",
        "X-Key",
        "x-api-key",
    ];
    for name in names {
        assert_eq!(outcome(&format!("close, {name}")), Err(NOMINATED), "{name}");
    }
    assert_eq!(outcome(&["a"; 10].join(",")), Ok(()));
    assert_eq!(outcome(&["a"; 11].join(",")), Err(NOMINATIONS));
}

/// The names of the headers that go on, without `host`.
fn left(rules: &HeadRules, peer: &Peer, names: &[&str]) -> Vec<String> {
    let mut headers = vec![("host", "a")];
    headers.extend(names.iter().map(|name| (*name, "value")));
    let mut request = request("GET", "/", Version::HTTP_11, &headers);
    rules.apply(&mut request, peer).expect("it is taken");
    request.headers().keys().filter(|name| *name != HOST).map(ToString::to_string).collect()
}

#[test]
fn headers_that_name_a_caller_come_from_proxies_alone() {
    let rules = rules(
        "trusted_proxies = [\"10.0.0.0/8\"]\nunderscores_in_headers = true\n\
         [idempotency]\ntenant = \"header:X-Tenant\"\n[forward_auth]\nurl = \"http://127.0.0.1:8/\"\n\
         tenant_header = \"X-User\"\n[[route]]\nmatch = \"/a\"\ntenant = \"forward-auth\"",
    );
    let proxy = Peer { address: "10.0.0.1:5".parse().expect("an address"), ..stranger() };
    let names = ["x-tenant", "x-user", "x_tenant", "x_user", "x_forwarded_for", "x_other"];
    assert_eq!(left(&rules, &stranger(), &names), ["x_other"]);
    assert_eq!(left(&rules, &proxy, &names), ["x-tenant", "x_other"]);
}

#[test]
fn names_with_underscores_are_removed_unless_they_are_allowed() {
    let names = ["x_other", "idempotency_key", "x-other"];
    assert_eq!(left(&rules(""), &stranger(), &names), ["x-other"]);
    let allowing = rules("underscores_in_headers = true");
    assert_eq!(left(&allowing, &stranger(), &names), ["x_other", "x-other"]);
}
