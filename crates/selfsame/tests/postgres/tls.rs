//! Connections that are encrypted, and lead to the database that is meant.

use std::path::Path;
use std::sync::LazyLock;

use selfsame::stores::{PostgresOpenError, PostgresStore};
use selfsame_core::Inspect;
use selfsame_core::conformance::samples::ask;
use selfsame_test_postgres::{Authority, Server, Signed};

use crate::support::{DATABASE, OWNER, SERVER, USER, make_roles, options, run};

/// A server whose certificate is for `localhost`, which lets [`USER`] in by certificate only.
struct Encrypted {
    server: Server,
    authority: String,
    stranger: String,
    identity: String,
}

static ENCRYPTED: LazyLock<Encrypted> = LazyLock::new(|| {
    let server = Server::start();
    make_roles(&server);
    let authority = Authority::new("ours");
    server.encrypt(&authority.server("localhost"), &authority, USER);
    let path = |path: &Path| path.display().to_string();
    let client = authority.client(USER);
    let certificate = path(&server.keep("client.crt", &client.certificate));
    let key = path(&server.keep("client.key", &client.key));
    let stranger = path(&server.keep("stranger.crt", &Authority::new("another").pem()));
    let authority = path(&server.keep("authority.crt", &authority.pem()));
    let identity = format!("sslcert={certificate}&sslkey={key}");
    Encrypted { server, authority, stranger, identity }
});

impl Encrypted {
    fn url(&self, user: &str, host: &str, query: &str) -> String {
        let query = query.replace("OURS", &self.authority).replace("STRANGER", &self.stranger);
        format!("{}?{query}", self.server.url(user, DATABASE).replace("127.0.0.1", host))
    }

    async fn open(&self, host: &str, query: &str) -> Result<PostgresStore, PostgresOpenError> {
        let name = format!("application_name={}&{query}", name(query));
        PostgresStore::open(&self.url(OWNER, host, &name), options("keys")).await
    }

    async fn refused(&self, host: &str, query: &str) -> String {
        self.open(host, query).await.expect_err(query).to_string()
    }

    /// Whether the connections that were made with `query` are encrypted.
    fn are_encrypted(&self, query: &str) -> String {
        let sql = format!(
            "select distinct s.ssl from pg_stat_ssl s join pg_stat_activity a using (pid) \
             where a.application_name = '{}'",
            name(query)
        );
        self.server.sql(DATABASE, &sql)
    }
}

/// What tells connections apart.
fn name(query: &str) -> String {
    query.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_encrypted_unless_that_is_switched_off() {
    let table = [
        ("", "t"),
        ("sslmode=prefer", "t"),
        ("sslmode=require", "t"),
        ("sslmode=require&sslrootcert=OURS", "t"),
        ("sslmode=verify-ca&sslrootcert=OURS", "t"),
        ("sslmode=verify-full&sslrootcert=OURS", "t"),
        ("sslmode=disable", "f"),
    ];
    for (query, encrypted) in table {
        let store = ENCRYPTED.open("localhost", query).await.expect(query);
        run(&store, &ask(&format!("key-{}", name(query)))).await;
        assert_eq!(ENCRYPTED.are_encrypted(query), encrypted, "{query}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_refused() {
    for mode in ["prefer", "require", "verify-ca", "verify-full"] {
        let query = format!("sslmode={mode}&sslrootcert=STRANGER");
        let said = ENCRYPTED.refused("localhost", &query).await;
        assert!(said.contains("signed by no authority that is trusted here"), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_for_another_host_is_refused_where_the_name_counts() {
    let said = ENCRYPTED.refused("127.0.0.1", "sslmode=verify-full&sslrootcert=OURS").await;
    assert!(said.contains("is for another host name"), "{said}");
    let store = ENCRYPTED.open("127.0.0.1", "sslmode=verify-ca&sslrootcert=OURS").await;
    store.expect("the authority is right").now().await.expect("it works");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_of_no_use_is_named() {
    let nothing = ENCRYPTED.server.keep("nothing.crt", "not PEM");
    let table = [
        ("sslmode=verify-ca&sslrootcert=/nowhere/ca.crt".to_owned(), "sslrootcert=/nowhere/ca.crt"),
        (format!("sslmode=require&sslrootcert={}", nothing.display()), "there is no certificate"),
        ("sslcert=/nowhere/me.crt&sslkey=/nowhere/me.key".to_owned(), "sslcert=/nowhere/me.crt"),
        (format!("sslcert={}&sslkey=/nowhere/me.key", "OURS"), "sslkey=/nowhere/me.key"),
    ];
    for (query, expected) in table {
        let said = ENCRYPTED.refused("localhost", &query).await;
        assert!(said.contains(expected), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_may_show_a_certificate_instead_of_a_password() {
    let made = ENCRYPTED.open("localhost", "").await.expect("the owner makes the schema");
    drop(made);
    ENCRYPTED.server.sql(DATABASE, &crate::support::grants("keys"));
    let url = ENCRYPTED.url(USER, "localhost", &ENCRYPTED.identity);
    let store = PostgresStore::open(&url, options("keys")).await.expect("it is certified");
    store.now().await.expect("it works");
    let url = ENCRYPTED.url(USER, "localhost", "sslmode=require");
    let said = PostgresStore::open(&url, options("keys")).await.expect_err("it is not").to_string();
    assert!(said.contains("valid client certificate"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_encryption_is_refused_where_it_must_be() {
    let url = SERVER.url(OWNER, DATABASE);
    for mode in ["require", "verify-full"] {
        let url = format!("{url}?sslmode={mode}&sslrootcert={}", ENCRYPTED.authority);
        let said = PostgresStore::open(&url, options("keys")).await.expect_err(mode).to_string();
        assert!(said.contains("does not support TLS"), "{said}");
    }
    let store = PostgresStore::open(&format!("{url}?sslmode=prefer"), options("keys")).await;
    store.expect("it is only preferred");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_that_signs_itself_can_be_named() {
    let server = Server::start();
    make_roles(&server);
    let own = Signed::by_itself("localhost");
    server.encrypt(&own, &Authority::new("nobody"), "nobody");
    let file = server.keep("own.crt", &own.certificate);
    let url = server.url(OWNER, DATABASE);
    let query = format!("sslmode=verify-full&sslrootcert={}", file.display());
    let right = format!("{}?{query}", url.replace("127.0.0.1", "localhost"));
    PostgresStore::open(&right, options("keys")).await.expect("it is the one that was named");
    let wrong = format!("{url}?{query}");
    let said = PostgresStore::open(&wrong, options("keys")).await.expect_err("the name counts");
    assert!(said.to_string().contains("is for another host name"), "{said}");
}
