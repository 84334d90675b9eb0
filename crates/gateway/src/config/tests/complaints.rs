//! Whole files: what is said, and where, about what does not load.

use std::path::Path;

use super::{load, text};
use crate::config::{Config, Overrides};

/// What is said about `text` below a line that names the upstream.
fn complaints(text: &str) -> String {
    let text = format!("upstream = \"http://a\"\n{text}");
    load(&text).expect_err("a mistake").to_string()
}

#[test]
fn a_wrong_flag_is_named_instead_of_a_line() {
    let overrides =
        Overrides { listen: text("8080"), store: text("mysql://a"), ..Default::default() };
    assert_eq!(
        Config::load(None, &overrides).expect_err("mistakes").to_string(),
        "--listen: expected an address and port like \"127.0.0.1:8080\", \"0.0.0.0:8080\" or \
         \"[::1]:8080\", found \"8080\"\n\
         --store: \"mysql:\" is not supported yet by this version; write \"memory:\", a folder \
         like \"file:./selfsame-data\", a database like \
         \"postgres://user:password@host/database\" or a Redis like \
         \"rediss://user:password@host:6379/0\"\n\
         --upstream: is missing; write upstream = \"http://127.0.0.1:3000\" or pass --upstream\n\
         3 mistakes"
    );
}

#[test]
fn a_missing_upstream_is_a_mistake_of_the_file() {
    assert_eq!(
        load("listen = '127.0.0.1:1'").expect_err("no upstream").to_string(),
        "f.toml:1:1: upstream: is missing; write upstream = \"http://127.0.0.1:3000\" or pass \
         --upstream\n1 mistake"
    );
}

#[test]
fn a_file_that_cannot_be_read_is_a_mistake() {
    let path = Path::new("/nowhere/selfsame.toml");
    let overrides = Overrides { listen: text(""), ..Overrides::default() };
    let mistakes = Config::load(Some(path), &overrides).expect_err("no file").to_string();
    let lines: Vec<&str> = mistakes.lines().collect();
    assert!(lines[0].starts_with("--listen: expected an address"), "{mistakes}");
    assert!(lines[1].starts_with("/nowhere/selfsame.toml: cannot be read: "), "{mistakes}");
    assert_eq!(lines[2..], ["2 mistakes"]);
}

#[test]
fn each_mistake_is_told_with_its_place_and_what_would_be_right() {
    let table = [
        (
            "[[route]]\nmatch = '/'\n  leese = '1s'",
            "4:3: unknown name \"leese\"; did you mean \"lease\"?",
        ),
        (
            "retention = '2h'",
            "2:1: unknown name \"retention\" here; it belongs below [idempotency]",
        ),
        ("tls = true", "2:7: tls: expected a table: write [tls] on a line of its own"),
        (
            "[tls]\ncert = 'x'",
            "2:1: tls.key: is missing; name the PEM file with the certificate's key",
        ),
        (
            "[idempotency]\ntenant = 'mtls'",
            "3:10: idempotency.tenant: nobody is asked for a certificate; set tls.client_ca",
        ),
        (
            "[idempotency]\nlease = 30",
            "3:9: idempotency.lease: expected a duration like \"500ms\", \"30s\", \"15m\", \
             \"24h\" or \"7d\", found the integer 30",
        ),
        ("[idempotency]\nlease = '10ms'", "3:9: idempotency.lease: must be at least 1s"),
        (
            "[idempotency]\nkey_pointer = 'idempotency_key'",
            "3:15: idempotency.key_pointer: a pointer begins with a slash, like \"/meta/sent_at\"",
        ),
        (
            "[idempotency]\nformat = 'UUID'",
            "3:10: idempotency.format: expected \"any\", \"uuid\" or \"uuidv7\", found \"UUID\"",
        ),
        (
            "[idempotency]\nmax_claims = 0",
            "3:14: idempotency.max_claims: expected a whole number from 1 on, without quotes, or \
             \"off\", found the integer 0",
        ),
        (
            "[idempotency]\nmin_length = 0",
            "3:14: idempotency.min_length: expected a whole number from 1 to 255, without quotes, \
             found the integer 0",
        ),
        (
            "[idempotency]\nreject_older_than = 7",
            "3:21: idempotency.reject_older_than: expected a duration like \"12h\" or \"30d\", or \
             \"off\", found the integer 7",
        ),
        (
            "[idempotency]\nformat = 'uuid'\nmin_length = 37",
            "4:14: idempotency.min_length: a UUID has 36 characters, so with min_length = 37 none \
             is taken",
        ),
        ("shutdown_delay = '11m'", "2:18: shutdown_delay: must be at most 10m"),
        (
            "shutdown_delay = 5",
            "2:18: shutdown_delay: expected a duration like \"5s\", or \"0s\", found the integer 5",
        ),
        ("drain_timeout = '0s'", "2:17: drain_timeout: must be longer than zero"),
        (
            "[idempotency]\nmax_request_body = 0",
            "3:20: idempotency.max_request_body: must be more than zero",
        ),
        (
            "[idempotency]\nkey = 'maybe'",
            "3:7: idempotency.key: expected \"required\", \"optional\" or \"off\", found \"maybe\"",
        ),
        (
            "[idempotency]\ncors_origins = ['*', 'https://a.example/']",
            "3:22: idempotency.cors_origins: expected an origin as browsers write it, like \
             \"https://app.example.com\", or \"*\", found \"https://a.example/\"",
        ),
        (
            "[idempotency]\nrecover = 'probe'",
            "3:11: idempotency.recover: nothing says where to ask; set probe = \
             \"GET /idempotency/{key}\"",
        ),
        (
            "[idempotency]\nprobe = '/idempotency/{key}'",
            "3:9: idempotency.probe: expected a path with the key in it like \
             \"GET /idempotency/{key}\", found \"/idempotency/{key}\"",
        ),
        (
            "[idempotency]\nstream = 'true'",
            "3:10: idempotency.stream: expected true or false, without quotes, found \"true\"",
        ),
        (
            "[idempotency]\nkey_headers = 'X-Key'",
            "3:15: idempotency.key_headers: expected a list, each a header name like \
             \"Idempotency-Key\", found \"X-Key\"",
        ),
        (
            "[idempotency]\nkey_headers = []",
            "3:15: idempotency.key_headers: expected a list of at least one, each a header name \
             like \"Idempotency-Key\"",
        ),
        (
            "[idempotency]\nheaders = [\n 'X-A',\n 'x-a',\n]",
            "5:2: idempotency.headers: \"x-a\" stands here twice",
        ),
        (
            "[idempotency]\nignore = ['/a', 'b']",
            "3:17: idempotency.ignore: a pointer begins with a slash, like \"/meta/sent_at\"",
        ),
        (
            "[[route]]\nmatch = '/'\nhost = 'http://a.example'",
            "4:8: route.host: expected a host like \"api.example.com\", \"*.example.com\" or \
             \"api.example.com:8443\", found \"http://a.example\"",
        ),
        (
            "[idempotency]\nmethods = ['POST', 'GET']",
            "3:20: idempotency.methods: expected \"POST\", \"PATCH\", \"PUT\" or \"DELETE\", found \
             \"GET\"",
        ),
        (
            "[checkpoints]\nurl = 'http://a:1'",
            "3:7: checkpoints.url: needs checkpoints.listen, the address to listen on",
        ),
        (
            "[checkpoints]\nlisten = ':9'",
            "3:10: checkpoints.listen: expected an address and port like \"127.0.0.1:8080\", \
             \"0.0.0.0:8080\" or \"[::1]:8080\", found \":9\"",
        ),
        (
            "[checkpoints]\nlisten = '0.0.0.0:9'",
            "3:10: checkpoints.listen: 0.0.0.0:9 is no address that upstreams could be told; set \
             checkpoints.url to one where they reach it",
        ),
        (
            "[checkpoints]\nlisten = '127.0.0.1:9090'",
            "3:10: checkpoints.listen: listen (127.0.0.1:8080), admin.listen (127.0.0.1:9090) and \
             checkpoints.listen (127.0.0.1:9090) need different ports",
        ),
        ("store = 'memory:'", "2:9: store: expected a table: write [store] on a line of its own"),
        (
            "[route]\nmatch = '/'",
            "2:1: route: expected a list of tables: write [[route]] above each",
        ),
        (
            "[idempotency]\ntenant = 'credential:X-Key'\nkey_headers = ['X-Key']",
            "4:15: idempotency.key_headers: x-key cannot be both the caller's credential and the \
             key",
        ),
        (
            "[idempotency]\nheaders = ['X-Key']\n[[route]]\nmatch = '/'\ntenant = 'credential:x-key'",
            "6:10: route.tenant: x-key is the caller's credential and never part of a fingerprint",
        ),
        (
            "[[route]]\nmatch = 'POST /v1/*'",
            "3:9: route.match: '*' is no wildcard here; use {id} for one segment or {*rest} for \
             all that follow",
        ),
        (
            "[[route]]\nmatch = '/v1/:id'",
            "3:9: route.match: \":id\" would be taken literally; use {id} for one segment or \
             {*rest} for all that follow",
        ),
        (
            "[idempotency]\nfinal_statuses = [404, '5xx']\nunknown_statuses = [\n409, '5xx']",
            "4:20: idempotency.unknown_statuses: final_statuses and unknown_statuses disagree \
             about 5xx",
        ),
        (
            "[idempotency]\ntransient_statuses = ['2xx']",
            "3:23: idempotency.transient_statuses: 2xx says that the work was done; were its key \
             freed, a retry would do it again",
        ),
        (
            "[idempotency]\nfinal_statuses = ['404']",
            "3:19: idempotency.final_statuses: expected a status from 200 to 599, or a class like \
             \"4xx\", found \"404\"",
        ),
        (
            "[[route]]\nkey = 'off'",
            "2:1: route.match: is missing; write match = \"POST /v1/charges\"",
        ),
        (
            "secret_file = ''",
            "2:15: secret_file: expected a path like \"/etc/selfsame/secret\", found \"\"",
        ),
        ("a = \"é\" b", "2:9: not TOML: unexpected key or value, expected newline, `#`"),
        ("log_keys = true\nlog_keys = false", "3:1: not TOML: duplicate key"),
        ("[[route]]\nmatch POST /", "3:7: not TOML: key with no value, expected `=`"),
        ("listen =", "2:9: not TOML: string values must be quoted, expected literal string"),
    ];
    for (text, expected) in table {
        assert_eq!(complaints(text), format!("f.toml:{expected}\n1 mistake"), "{text}");
    }
}

#[test]
fn what_does_not_fit_together_is_told_once_and_where() {
    let table = [
        (
            "listen = '0.0.0.0:9090'",
            "2:10: listen: listen (0.0.0.0:9090) and admin.listen (127.0.0.1:9090) need different \
             ports",
        ),
        (
            "[admin]\nlisten = '127.0.0.1:8080'",
            "3:10: admin.listen: listen (127.0.0.1:8080) and admin.listen (127.0.0.1:8080) need \
             different ports",
        ),
        (
            "[admin]\nlisten = '0.0.0.0:9090'",
            "3:10: admin.listen: 0.0.0.0:9090 can be reached from other machines; set \
             admin.token_file, or listen on 127.0.0.1",
        ),
        (
            "[[route]]\nmatch = '/'\ntenant = 'header:X-A'",
            "4:10: route.tenant: anyone can send a header; set trusted_proxies to the proxies \
             that set this one",
        ),
        (
            "[idempotency]\nretention = '59m'\n[[route]]\nmatch = '/'",
            "3:13: idempotency.retention: retention (59m) is shorter than 1h, and a retry after \
             it runs again; make it longer, or set allow_short_retention = true",
        ),
        (
            "[idempotency]\nreplay_also = ['Date']\nreplay_never = ['X-A', 'date']",
            "4:16: idempotency.replay_never: replay_also and replay_never disagree about date",
        ),
        (
            "[idempotency]\nreplay_never = ['Set-Cookie']\nreplay_set_cookie = true",
            "4:21: idempotency.replay_set_cookie: replay_set_cookie and replay_never disagree \
             about set-cookie",
        ),
        (
            "[idempotency]\nresponse_timeout = '2m'\n[[route]]\nmatch = '/'\nrun_timeout = '90s'",
            "6:15: route.run_timeout: response_timeout (2m) must not be longer than run_timeout \
             (90s)",
        ),
        (
            "[[route]]\nmatch = 'POST /a'\nmethods = ['POST']",
            "4:11: route.methods: match names the methods already; leave them out of one",
        ),
        (
            "[[route]]\nmatch = 'PUT,POST /{a}'\n[[route]]\nmatch = 'POST /{b}'",
            "5:9: route.match: POST /{b} and the route POST /{a} can fit the same path, and \
             neither would go first",
        ),
        (
            "[[route]]\nhost = 'a.b'\nmatch = '/{a}'\n[[route]]\nmatch = '/{b}'\nhost = 'A.b'",
            "7:8: route.host: POST a.b/{b} and the route POST a.b/{a} can fit the same path, and \
             neither would go first",
        ),
        (
            "[[route]]\nmatch = 'PUT /{a}'\n[[route]]\nmatch = 'POST /{b}'\nupstream = 'http://b'",
            "6:12: route.upstream: /{b} and the route /{a} fit the same path and have different \
             upstreams; requests with other methods would not know where to go",
        ),
        (
            "[[route]]\nmatch = '/'\nupstream = 'http://127.0.0.1:8080'",
            "4:12: route.upstream: upstream (127.0.0.1:8080) is where the gateway itself listens \
             (127.0.0.1:8080)",
        ),
        (
            "[idempotency]\nignore = ['/a']\n[[route]]\nmatch = '/'\nfingerprint = 'raw'",
            "6:15: route.fingerprint: with fingerprint = \"raw\" everything counts; write \
             ignore = [] here, or leave fingerprint out",
        ),
        (
            "[[route]]\nmatch = '/v1/{id}/x'\n[[route]]\nmatch = '/v1/{*rest}'",
            "5:9: route.match: POST /v1/{*rest} and the route POST /v1/{id}/x can fit the same \
             path, and neither would go first",
        ),
    ];
    for (text, expected) in table {
        assert_eq!(complaints(text), format!("f.toml:{expected}\n1 mistake"), "{text}");
    }
}

#[test]
fn an_upstream_that_is_the_gateway_itself_is_a_mistake() {
    for (listen, upstream) in [("0.0.0.0:80", "127.0.0.1"), ("10.0.0.1:80", "10.0.0.1:80")] {
        let config = format!("listen = '{listen}'\nupstream = 'http://{upstream}'");
        let mistakes = load(&config).expect_err("a circle").to_string();
        assert!(mistakes.starts_with("f.toml:2:12: upstream: upstream ("), "{mistakes}");
        assert!(mistakes.contains(" is where the gateway itself listens ("), "{mistakes}");
    }
    load("listen = '0.0.0.0:80'\nupstream = 'http://10.0.0.1'").expect("another machine");
}

#[test]
fn a_wrong_value_does_not_make_others_look_wrong() {
    let table = [
        "trusted_proxies = ['x']\n[idempotency]\ntenant = 'header:X-A'",
        "listen = 'x'\n[admin]\nlisten = '127.0.0.1:8080'",
        "[admin]\nlisten = '0.0.0.0:9090'\ntoken_file = 5",
        "[idempotency]\nretention = '1m'\nallow_short_retention = 'yes'",
        "[idempotency]\nrun_timeout = '1x'\n[[route]]\nmatch = '/'\nresponse_timeout = '1h'",
        "upstream = 5",
        "[[route]]\nmatch = 5",
        "[[route]]\nmatch = '/'\nhost = ''\n[[route]]\nmatch = '/'",
    ];
    for text in table {
        let text = match text.starts_with("upstream") {
            true => text.to_owned(),
            false => format!("upstream = 'http://a'\n{text}"),
        };
        let mistakes = load(&text).expect_err("a mistake").to_string();
        assert!(mistakes.ends_with("\n1 mistake"), "{mistakes}");
    }
}

#[test]
fn every_mistake_is_reported_at_once() {
    let text = r#"
listen = 8080
upstream = "ftp://api.example.com"
drain_timout = "30s"

[store]
url = "mysql://localhost/selfsame"

[idempotency]
lease = "soon"
key = required

[[route]]
match = "FETCH /v1/charges"
retention = "5m"
"#;
    assert_eq!(
        load(text).expect_err("mistakes").to_string(),
        "f.toml:2:10: listen: expected an address and port like \"127.0.0.1:8080\", \
         \"0.0.0.0:8080\" or \"[::1]:8080\", found the integer 8080\n\
         f.toml:3:12: upstream: expected a host and port like \"http://127.0.0.1:3000\", \
         \"https://api.internal\" or \"h2c://127.0.0.1:50051\", found \"ftp://api.example.com\"\n\
         f.toml:4:1: unknown name \"drain_timout\"; did you mean \"drain_timeout\"?\n\
         f.toml:7:7: store.url: \"mysql:\" is not supported yet by this version; write \"memory:\", \
         a folder like \"file:./selfsame-data\", a database like \
         \"postgres://user:password@host/database\" or a Redis like \
         \"rediss://user:password@host:6379/0\"\n\
         f.toml:10:9: idempotency.lease: expected a duration like \"500ms\", \"30s\", \"15m\", \
         \"24h\" or \"7d\", found \"soon\"\n\
         f.toml:11:7: not TOML: string values must be quoted, expected literal string\n\
         f.toml:14:9: route.match: expected \"POST\", \"PATCH\", \"PUT\" or \"DELETE\", found \
         \"FETCH\"\n\
         f.toml:15:13: route.retention: retention (5m) is shorter than 1h, and a retry after it \
         runs again; make it longer, or set allow_short_retention = true\n\
         8 mistakes"
    );
}
