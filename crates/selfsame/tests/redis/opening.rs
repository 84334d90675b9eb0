//! What is checked before a store is used.

use selfsame::stores::{RedisOpenError, RedisOptions, RedisStore};
use selfsame_core::conformance::samples::ask;
use selfsame_test_redis::{Authority, Server};

use crate::support::{RedisBench, SERVER, complete};

async fn refused(url: &str) -> RedisOpenError {
    let opened = RedisStore::open(url, RedisOptions::default()).await;
    opened.expect_err("it cannot be opened")
}

#[tokio::test]
async fn no_error_tells_a_password() {
    let url = SERVER.url_as("keys:correct-horse@", RedisBench::new().database);
    let store = RedisStore::open(&url, RedisOptions::default()).await.expect("the password fits");
    assert!(!format!("{store:?}").contains("horse"), "{store:?}");
    let wrong = [
        url.replace("keys:correct", "nobody:correct"),
        url.replace("correct-horse", "wrong-horse"),
        url.replace("redis:", "mysql:"),
        url.replace(':', "!"),
        url.replace("127.0.0.1", "127.0.0.1:1"),
        format!("{url}?sslrootcert=/nowhere"),
        url.replace("redis:", "rediss:") + "?sslrootcert=/nowhere",
    ];
    for wrong in wrong {
        let error = refused(&wrong).await;
        assert!(!format!("{error} {error:?}").contains("horse"), "{error:?}");
    }
}

#[tokio::test]
async fn an_encrypted_connection_leads_to_the_right_server() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let server = Server::start_encrypted(&ours.server("localhost"));
    let trusting = |authority: &Authority, name: &str| {
        let file = server.keep(name, &authority.pem());
        format!("{}?sslrootcert={}", server.url(0), file.display())
    };
    let url = trusting(&ours, "ours.crt");
    let store = RedisStore::open(&url, RedisOptions::default()).await.expect("it is the right one");
    complete(&store, &ask("k")).await;
    for wrong in [
        trusting(&others, "others.crt"),
        server.url(0),
        url.replace("localhost", "127.0.0.1"),
        server.url(0).replace("rediss:", "redis:"),
    ] {
        let error = refused(&wrong).await;
        assert!(matches!(error, RedisOpenError::Connection { .. }), "{wrong}: {error}");
    }
}
