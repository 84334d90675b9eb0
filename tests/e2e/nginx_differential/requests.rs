//! Odd requests, the same ones in each run.

use crate::harness::Random;

/// A request that two servers may read in two ways.
pub(super) struct Odd {
    pub(super) name: String,
    pub(super) bytes: Vec<u8>,
}

fn odd(name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Odd {
    Odd { name: name.into(), bytes: bytes.into() }
}

/// Bytes that are neither letters nor digits, and some beyond ASCII.
fn special_bytes() -> impl Iterator<Item = u8> {
    (0..=0xff_u8)
        .filter(|byte| !byte.is_ascii_alphanumeric() && !matches!(byte, 0x81..=0x9f | 0xa1..=0xfe))
}

pub(super) fn all() -> Vec<Odd> {
    let groups = [
        methods(),
        targets(),
        versions(),
        names(),
        values(),
        lines(),
        lengths(),
        codings(),
        chunks(),
        hosts(),
        line_ends(),
        mutations(),
    ];
    groups.into_iter().flatten().collect()
}

/// A request without a body, with this request line.
fn with_line(line: &[u8]) -> Vec<u8> {
    [line, b"\r\nHost: a\r\nConnection: close\r\n\r\n"].concat()
}

/// A `POST` with a body of five bytes and this line in its head.
fn with_header(line: &[u8]) -> Vec<u8> {
    [
        b"POST /x HTTP/1.1\r\nHost: a\r\n",
        line,
        b"\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
    ]
    .concat()
}

/// A request that might hide in the body of another.
const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";

fn methods() -> Vec<Odd> {
    let methods = [
        "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "get", "pOST", "FOO",
        "M-SEARCH", "A_B", "A.B", "A!B", "A B", "A\tB", "", " GET", "\tGET", "GET ", "GET\t",
        "G/T", "GET:", "(GET)", "\"GET\"", "G\x01T", "G\x7fT", "1", "PRI", "CONNECT", "TRACE",
        "TRACK", "DEBUG",
    ];
    let long = ["A".repeat(50), "A".repeat(5_000)];
    let methods = methods.iter().map(|method| (*method).to_owned()).chain(long);
    methods
        .map(|method| {
            odd(
                format!("method {method:.60?}"),
                with_line(format!("{method} /x HTTP/1.1").as_bytes()),
            )
        })
        .collect()
}

fn targets() -> Vec<Odd> {
    let targets = [
        "/x",
        "x",
        "",
        "*",
        "//x",
        "/../x",
        "/a/../x",
        "/a/../../x",
        "/./x",
        "/%2e%2e/x",
        "/a/%2e%2e/x",
        "/x%",
        "/x%0",
        "/x%00",
        "/x%zz",
        "/x%2f",
        "/x%5c..",
        "/x?",
        "/x??",
        "/x?a b",
        "/x#y",
        "/x?y#z",
        "/x;y",
        "/x\\y",
        "\\x",
        "/x y",
        "/x\ty",
        "http://a/x",
        "http://a",
        "http://b/x",
        "HTTP://a/x",
        "https://a/x",
        "ftp://a/x",
        "http:///x",
        "http://a:99999/x",
        "http://me@a/x",
        "http://a?x",
        "http:/x",
        "http:x",
        "a:80",
        "a/x",
        "://a/x",
        "/x HTTP/1.0",
        "/caf\u{e9}",
        "/%c3%a9",
        "/%ff",
        "/..",
        "/.",
        "/...",
        "/x/..",
        "/x/.",
        "?x",
        "#x",
        "/%2e",
        "/x%u0041",
        "/x%20y",
    ];
    let mut all: Vec<Odd> = targets
        .iter()
        .map(|target| {
            odd(
                format!("target {target:?}"),
                with_line(format!("GET {target} HTTP/1.1").as_bytes()),
            )
        })
        .collect();
    all.extend(special_bytes().map(|byte| {
        odd(
            format!("target with byte {byte:#04x}"),
            with_line(&[b"GET /a", &[byte][..], b"b HTTP/1.1"].concat()),
        )
    }));
    all.push(odd(
        "target of 7000 bytes",
        with_line(format!("GET /{} HTTP/1.1", "a".repeat(7_000)).as_bytes()),
    ));
    all
}

fn versions() -> Vec<Odd> {
    let versions = [
        " HTTP/1.1",
        " HTTP/1.0",
        " HTTP/0.9",
        " HTTP/1.2",
        " HTTP/1.9",
        " HTTP/2.0",
        " HTTP/2",
        " HTTP/3",
        " HTTP/1.10",
        " HTTP/1.01",
        " HTTP/01.1",
        " HTTP/1",
        " HTTP/1.",
        " HTTP/.1",
        " HTTP/11",
        " HTTP1.1",
        " HTTPS/1.1",
        " http/1.1",
        " Http/1.1",
        " HTTP/1.1x",
        " HTTP/1.1 ",
        " HTTP/1.1 x",
        "  HTTP/1.1",
        "\tHTTP/1.1",
        " \tHTTP/1.1",
        "",
        " ",
        " HTTP/",
        " HTTP",
        " HTTP/1.1\t",
        " HTTP /1.1",
        " HTTP/ 1.1",
        " HTTP/1 .1",
        " HTTP/1,1",
        " HTTP/-1.1",
        " HTTP/+1.1",
        " HTTP/1.1.1",
        " XTTP/1.1",
        " HTTP/1.a",
        " HTTP/999999.1",
    ];
    versions
        .iter()
        .map(|version| {
            odd(format!("version {version:?}"), with_line(format!("GET /x{version}").as_bytes()))
        })
        .collect()
}

fn names() -> Vec<Odd> {
    let inside = special_bytes().map(|byte| {
        odd(
            format!("name with byte {byte:#04x}"),
            with_header(&[b"X", &[byte][..], b"Y: z"].concat()),
        )
    });
    let lengths = special_bytes().filter(|byte| !byte.is_ascii_graphic()).map(|byte| {
        let line = [b"Content-Length", &[byte][..], b": 0"].concat();
        odd(
            format!("length's name with byte {byte:#04x}"),
            [&with_header(&line)[..], HIDDEN.as_bytes()].concat(),
        )
    });
    let more = [
        "X : y",
        "X\t: y",
        ": y",
        "X",
        "X:",
        "X:y",
        "X: ",
        "X:\ty",
        " X: y",
        "\tX: y",
        "X:: y",
        "Transfer-Encoding : chunked",
    ];
    let more =
        more.iter().map(|line| odd(format!("header {line:?}"), with_header(line.as_bytes())));
    inside.chain(lengths).chain(more).collect()
}

fn values() -> Vec<Odd> {
    let all = special_bytes().map(|byte| {
        odd(
            format!("value with byte {byte:#04x}"),
            with_header(&[b"X: y", &[byte][..], b"z"].concat()),
        )
    });
    let codings = special_bytes().filter(|byte| !byte.is_ascii_graphic()).map(|byte| {
        let head = b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked";
        let rest = b"\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        odd(format!("coding with byte {byte:#04x}"), [&head[..], &[byte], &rest[..]].concat())
    });
    let long = [7_000, 40_000].map(|length| {
        odd(
            format!("value of {length} bytes"),
            with_header(format!("X: {}", "y".repeat(length)).as_bytes()),
        )
    });
    all.chain(codings).chain(long).collect()
}

fn lines() -> Vec<Odd> {
    let lines: [(&str, &str); 14] = [
        ("folded line", "X: y\r\n z"),
        ("line folded with a tab", "X: y\r\n\tz"),
        ("empty folded line", "X: y\r\n \r\nZ: a"),
        ("folded length", "X: y\r\n Content-Length: 0"),
        ("folded host", "Host\r\n : b"),
        ("two of Expect", "Expect: 100-continue\r\nExpect: x"),
        ("Expect of something else", "Expect: x"),
        ("Connection with the length", "Connection: Content-Length"),
        ("Connection with the host", "Connection: close, Host"),
        ("Upgrade to h2c", "Upgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__"),
        (
            "HTTP2-Settings in Connection",
            "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk",
        ),
        ("Range", "Range: bytes=0-0,0-0,0-0"),
        ("TE", "TE: chunked"),
        ("Trailer", "Trailer: Content-Length"),
    ];
    let many = odd("120 headers", with_header(vec!["X: y"; 120].join("\r\n").as_bytes()));
    lines
        .iter()
        .map(|(name, line)| odd(*name, with_header(line.as_bytes())))
        .chain([many])
        .collect()
}

fn lengths() -> Vec<Odd> {
    let values = [
        "5",
        "05",
        "+5",
        "-5",
        " 5",
        "5 ",
        "5\t",
        "\t5",
        "0x5",
        "5.0",
        "5e0",
        "5,5",
        "5, 5",
        "5,6",
        "5;",
        "5 5",
        "",
        " ",
        "five",
        "\"5\"",
        "0",
        "00",
        "4",
        "6",
        "-0",
        "+0",
        "0,5",
        "5,",
        ",5",
        "9223372036854775807",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "18446744073709551621",
        "4294967301",
        "5\x0b",
        "5\x0c",
        "\u{665}",
    ];
    let one = values.iter().map(|value| {
        let text =
            format!("POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {value}\r\n\r\nhello{HIDDEN}");
        odd(format!("length {value:?}"), text)
    });
    let pairs = [
        ("5", "5"),
        ("5", "6"),
        ("0", "5"),
        ("5", "0"),
        ("5", ""),
        ("", "5"),
        ("5", "x"),
        ("05", "5"),
    ];
    let two = pairs.iter().map(|(first, second)| {
        let text = format!(
            "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: {first}\r\nContent-Length: {second}\r\n\r\nhello{HIDDEN}"
        );
        odd(format!("lengths {first:?} and {second:?}"), text)
    });
    let of_get = ["GET", "HEAD", "OPTIONS", "DELETE"].map(|method| {
        odd(
            format!("{method} with a body"),
            format!("{method} /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello{HIDDEN}"),
        )
    });
    one.chain(two).chain(of_get).collect()
}

fn codings() -> Vec<Odd> {
    let codings = [
        "chunked",
        "Chunked",
        "CHUNKED",
        "chunked,",
        ",chunked",
        ", chunked",
        "chunked, chunked",
        "gzip, chunked",
        "chunked, gzip",
        "identity",
        "identity, chunked",
        "chunked, identity",
        "xchunked",
        "chunkedx",
        "chunked;q=1",
        "\"chunked\"",
        "'chunked'",
        "",
        "chunked\0",
        "x",
        "gzip",
        "deflate, chunked",
        "chunked chunked",
        "ch unked",
        "cow",
        "cow, chunked",
        "chunk",
        "c hunked",
    ];
    let body = "5\r\nhello\r\n0\r\n\r\n";
    let alone = codings.iter().map(|coding| {
        let text = format!(
            "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\n\r\n{body}{HIDDEN}"
        );
        odd(format!("coding {coding:?}"), text)
    });
    let with_length =
        ["chunked", "identity", "x", "", "chunked, identity"].into_iter().flat_map(|coding| {
            let length = "Content-Length: 15";
            let coding_line = format!("Transfer-Encoding: {coding}");
            [[length, &coding_line].join("\r\n"), [&coding_line, length].join("\r\n")].map(
                |lines| {
                    odd(
                        format!("coding {coding:?} and a length"),
                        format!("POST /x HTTP/1.1\r\nHost: a\r\n{lines}\r\n\r\n{body}{HIDDEN}"),
                    )
                },
            )
        });
    let twice = [
        ("chunked", "chunked"),
        ("chunked", "identity"),
        ("identity", "chunked"),
        ("gzip", "chunked"),
        ("chunked", ""),
    ];
    let twice = twice.iter().map(|(first, second)| {
        let text = format!(
            "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {first}\r\nTransfer-Encoding: {second}\r\n\r\n{body}{HIDDEN}"
        );
        odd(format!("codings {first:?} and {second:?}"), text)
    });
    let old = odd(
        "chunks in HTTP/1.0",
        format!("POST /x HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{HIDDEN}"),
    );
    let similar = ["Transfer_Encoding", "TransferEncoding", "X-Transfer-Encoding", "Transfer-Encoding\t", "Transfer-Encoding-"].map(|name| {
        odd(format!("coding in {name:?}"), format!("POST /x HTTP/1.1\r\nHost: a\r\n{name}: chunked\r\nContent-Length: 0\r\n\r\n{HIDDEN}"))
    });
    alone.chain(with_length).chain(twice).chain([old]).chain(similar).collect()
}

fn chunks() -> Vec<Odd> {
    let bodies = [
        "5\r\nhello\r\n0\r\n\r\n",
        "05\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "5 \r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5\t\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "5;a\r\nhello\r\n0\r\n\r\n",
        "5;a=b\r\nhello\r\n0\r\n\r\n",
        "5;a=\"b\"\r\nhello\r\n0\r\n\r\n",
        "5;\r\nhello\r\n0\r\n\r\n",
        "5 ;a\r\nhello\r\n0\r\n\r\n",
        "5; a\r\nhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5;a\rb\r\nhello\r\n0\r\n\r\n",
        "5;\0\r\nhello\r\n0\r\n\r\n",
        "5;a=\"\r\n\"\r\nhello\r\n0\r\n\r\n",
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5\r\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r0\r\n\r\n",
        "5\r\nhelloXX0\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
        "5\r\nhello\r\n0\r\n\n",
        "5\r\nhello\r\n0\n\r\n",
        "5\r\nhello\r\n00\r\n\r\n",
        "5\r\nhello\r\n0;a\r\n\r\n",
        "5\r\nhello\r\n0 \r\n\r\n",
        "5\r\nhello\r\n\r\n0\r\n\r\n",
        "g\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "5,5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "5.0\r\nhello\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "100000005\r\nhello\r\n0\r\n\r\n",
        "0000000000000000000005\r\nhello\r\n0\r\n\r\n",
        "8000000000000000\r\nhello\r\n0\r\n\r\n",
        "6\r\nhello\r\n0\r\n\r\n",
        "4\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\r\n\r\n",
        "5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n",
        "5\r\nhello\r\n0\r\nTransfer-Encoding: chunked\r\n\r\n",
        "5\r\nhello\r\n0\r\nHost: b\r\n\r\n",
        "5\r\nhello\r\n0\r\n X: y\r\n\r\n",
        "5\r\nhello\r\n0\r\nX y\r\n\r\n",
        "5\r\nhello\r\n0\r\nX : y\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: \0\r\n\r\n",
        "5\r\nhello\r\n0\r\nX: y\n\r\n",
        "5\r\nhello\r\n0\r\n: y\r\n\r\n",
        "5\r\nhello\r\n0\r\nX\r\n\r\n",
        "5\r\nhello\r\n",
        "5\r\nhel",
        "",
    ];
    let mut all: Vec<Odd> = bodies
        .iter()
        .map(|body| {
            let text = format!(
                "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{body}{HIDDEN}"
            );
            odd(format!("chunks {body:?}"), text)
        })
        .collect();
    let long = format!("5;{}\r\nhello\r\n0\r\n\r\n", "a".repeat(20_000));
    all.push(odd(
        "a chunk's extension of 20000 bytes",
        format!("POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{long}{HIDDEN}"),
    ));
    all
}

fn hosts() -> Vec<Odd> {
    let hosts = [
        "a",
        "A",
        "a.",
        "a:80",
        "a:",
        "a:x",
        "a:99999",
        "a:-1",
        "a b",
        "a,b",
        "a/b",
        "a\\b",
        "a?b",
        "a#b",
        "me@a",
        "",
        " ",
        "[::1]",
        "[::1",
        "::1",
        "[x]",
        "[::1]:80",
        "[::1]x",
        "127.0.0.1",
        "127.0.0.1.",
        "1",
        "a_b",
        "-a",
        "a..b",
        ".a",
        "..",
        "/",
        "a%41",
        "%61",
        "caf\u{e9}",
        "a\0",
        "a\x01",
        "a\x7f",
        "a\tb",
        "(a)",
        "<a>",
        "\"a\"",
        "a;b",
        "a=b",
        "a&b",
        "a+b",
        "*",
        "*.a",
        "a|b",
        "a`b",
        "a{b}",
        "a^b",
        "a'b",
        "a!b",
        "a$b",
        "a~b",
    ];
    let one = hosts.iter().map(|host| {
        odd(
            format!("host {host:?}"),
            format!("GET /x HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"),
        )
    });
    let lines = [
        "",
        "Host: a\r\nHost: a\r\n",
        "Host: a\r\nHost: b\r\n",
        "Host:a\r\n",
        "host: a\r\n",
        "Host : a\r\n",
        " Host: a\r\n",
        "X-Host: a\r\n",
    ];
    let more = lines.iter().map(|lines| {
        odd(
            format!("host lines {lines:?}"),
            format!("GET /x HTTP/1.1\r\n{lines}Connection: close\r\n\r\n"),
        )
    });
    one.chain(more).collect()
}

fn line_ends() -> Vec<Odd> {
    let base = "POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
    let mut all = Vec::new();
    for (name, end) in
        [("LF", "\n"), ("CR", "\r"), ("CR CR LF", "\r\r\n"), ("LF CR", "\n\r"), ("NUL LF", "\0\n")]
    {
        all.push(odd(format!("{name} at every end"), base.replace("\r\n", end)));
        for at in 0..5 {
            let (mut text, mut count) = (String::new(), 0);
            for part in base.split_inclusive("\r\n") {
                let replaced = part.replace("\r\n", if count == at { end } else { "\r\n" });
                text.push_str(&replaced);
                count += 1;
            }
            all.push(odd(format!("{name} at end {at}"), text));
        }
    }
    for before in ["\r\n", "\r\n\r\n", "\n", "\n\n", "\r", " ", "\t", "\0", " \r\n", "\r\n \r\n"] {
        all.push(odd(format!("{before:?} before the request"), format!("{before}{base}")));
    }
    all.push(odd("many empty lines before the request", format!("{}{base}", "\r\n".repeat(50))));
    all.push(odd("two requests", format!("GET /x HTTP/1.1\r\nHost: a\r\n\r\n{HIDDEN}")));
    all.push(odd(
        "an empty line between requests",
        format!("GET /x HTTP/1.1\r\nHost: a\r\n\r\n\r\n{HIDDEN}"),
    ));
    all
}

/// A valid request with one byte replaced, added or removed.
fn mutations() -> Vec<Odd> {
    let bases = [
        "POST /x?a=b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello",
        "POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ];
    let bytes = b"\0\x01\t\n\x0b\x0c\r !\"#%&'()*+,-./05:;<=>?@AZ[\\]^_`az{|}~\x7f\x80\xff";
    let mut random = Random::seeded(0x5e1f_5a3e);
    let mut below = |end: usize| usize::try_from(random.below(end as u64)).expect("small");
    let mut all = Vec::new();
    for index in 0..160 {
        let mut text = bases[index % 2].as_bytes().to_vec();
        let (at, byte) = (below(text.len() - 8), bytes[below(bytes.len())]);
        match below(3) {
            0 => text[at] = byte,
            1 => text.insert(at, byte),
            _ => drop(text.remove(at)),
        }
        all.push(odd(format!("mutation {index}"), text));
    }
    all
}
