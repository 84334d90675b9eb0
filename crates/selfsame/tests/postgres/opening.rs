//! What is checked and done before a store is used.

use futures_util::future::join_all;
use selfsame::stores::{Migrations, PostgresOpenError, PostgresStore};
use selfsame_core::conformance::samples::ask;
use selfsame_core::{Count, Inspect};
use selfsame_test_postgres::{PASSWORD, Server};

use crate::support::{
    DATABASE, OWNER, PostgresBench, SERVER, USER, fresh_schema, grants, options, run,
};

async fn refused(url: &str, schema: &str) -> PostgresOpenError {
    PostgresStore::open(url, options(schema)).await.expect_err("it cannot be opened")
}

/// The version that this build knows.
async fn latest() -> i32 {
    let url = SERVER.socket_url(OWNER, DATABASE);
    let migrated = PostgresStore::migrate(&url, options(&fresh_schema())).await;
    migrated.expect("the owner may").to
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_that_start_together_migrate_once() {
    let schema = fresh_schema();
    let url = SERVER.socket_url(OWNER, DATABASE);
    let stores = join_all((0..10).map(|_| PostgresStore::open(&url, options(&schema)))).await;
    for store in &stores {
        let store = store.as_ref().expect("one migrates and the others wait for it");
        assert_eq!(store.count().await.expect("it works"), Count::default());
    }
    let versions = SERVER.sql(DATABASE, &format!("select version from {schema}.migrations"));
    let expected: Vec<_> = (1..=latest().await).map(|version| version.to_string()).collect();
    assert_eq!(versions, expected.join("\n"));
}

#[tokio::test]
async fn a_newer_schema_is_refused() {
    let bench = PostgresBench::new();
    let newer = format!("insert into {}.migrations (version) values (99)", bench.schema);
    bench.owner().await.batch_execute(&newer).await.expect("the owner may");
    let error = refused(&SERVER.socket_url(USER, DATABASE), &bench.schema).await;
    let PostgresOpenError::Newer { found, known, .. } = error else { panic!("{error}") };
    assert_eq!((found, known), (99, latest().await));
    let older = format!("delete from {}.migrations where version = 99", bench.schema);
    bench.owner().await.batch_execute(&older).await.expect("the owner may");
}

#[tokio::test]
async fn who_may_not_make_the_schema_is_told_who_may() {
    let error = refused(&SERVER.socket_url(USER, DATABASE), &fresh_schema()).await.to_string();
    assert!(error.contains("permission denied") && error.contains("owns it"), "{error}");
}

#[tokio::test]
async fn a_schema_is_brought_up_to_date_once_and_by_its_owner() {
    let schema = fresh_schema();
    let (owner, user) = (SERVER.socket_url(OWNER, DATABASE), SERVER.socket_url(USER, DATABASE));
    let elsewhere = || options(&schema).migrations(Migrations::Elsewhere);
    // Not even who may does it then.
    for url in [&user, &owner] {
        let error = PostgresStore::open(url, elsewhere()).await.expect_err("there is nothing yet");
        assert!(matches!(error, PostgresOpenError::Older { found: 0, .. }), "{error}");
        assert!(error.to_string().contains("selfsame store migrate"), "{error}");
    }
    let made = PostgresStore::migrate(&owner, elsewhere()).await.expect("the owner may");
    assert!(made.from == 0 && made.to > 0, "{made:?}");
    SERVER.sql(DATABASE, &grants(&schema));
    // Who finds nothing to do needs no right to do it.
    let again = PostgresStore::migrate(&user, elsewhere()).await.expect("there is nothing to do");
    assert_eq!((again.from, again.to), (made.to, made.to));
    let store = PostgresStore::open(&user, elsewhere()).await.expect("it is up to date");
    run(&store, &ask("k")).await;
}

#[tokio::test]
async fn a_name_that_is_no_schema_is_refused() {
    for schema in ["", "Keys", "1a", "a-b", "a; drop schema public"] {
        let error = refused(&SERVER.socket_url(USER, DATABASE), schema).await;
        assert!(matches!(error, PostgresOpenError::Schema { .. }), "{error}");
    }
}

#[tokio::test]
async fn no_error_tells_a_password() {
    let bench = PostgresBench::new();
    drop(bench.store().await);
    let url = SERVER.url(USER, DATABASE);
    let store = PostgresStore::open(&url, options(&bench.schema)).await.expect("the password fits");
    assert!(!format!("{store:?}").contains(PASSWORD), "{store:?}");
    let wrong = [
        url.replace(USER, "nobody"),
        url.replace(DATABASE, "nowhere"),
        url.replace("postgres:", "mysql:"),
        url.replace(':', "!"),
        format!("{url}?sslmode=require"),
    ];
    for wrong in wrong {
        let error = refused(&wrong, &bench.schema).await;
        assert!(!format!("{error} {error:?}").contains(PASSWORD), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_refused() {
    let mut server = Server::start();
    let url = server.socket_url("postgres", "postgres");
    let store = PostgresStore::open(&url, options("keys")).await.expect("a primary is fine");
    run(&store, &ask("k")).await;
    server.crash();
    server.start_as_standby();
    let error = refused(&url, "keys").await.to_string();
    assert!(error.contains("standby"), "{error}");
    let error = store.now().await.expect_err("nor is it used by a store that was open");
    assert!(error.is_retryable(), "{error}");
}
