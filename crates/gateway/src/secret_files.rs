//! Files that hold secrets, and warnings of those that are open to everybody.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use selfsame::stores::PostgresStore;

use crate::admin::token_path;
use crate::config::{Config, PostgresUrl, StoreUrl, Tls};

const ADVICE: &str = "every user of this machine has access to this secret: chmod 600";

/// A file that holds a secret, and the setting that names it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct SecretFile {
    setting: &'static str,
    path: PathBuf,
}

impl SecretFile {
    /// Tells if every user of this machine can read or change the file.
    fn is_open_to_everybody(&self) -> bool {
        fs::metadata(&self.path).is_ok_and(|file| file.permissions().mode() & 0o007 != 0)
    }
}

impl fmt::Display for SecretFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {ADVICE}", self.setting, self.path.display())
    }
}

/// Files that every user of this machine can read or change. They are not refused: orchestrators
/// mount secrets so. The file of `[encryption]` is not among them: it was refused when it was read.
pub(crate) fn open_to_everybody(config: &Config) -> Vec<SecretFile> {
    let mut files = all(config);
    files.retain(SecretFile::is_open_to_everybody);
    files
}

/// Logs a warning for each file that every user of this machine can read or change.
pub(crate) fn warn(config: &Config) {
    for SecretFile { setting, path } in open_to_everybody(config) {
        tracing::warn!(setting, path = %path.display(), "{ADVICE}");
    }
}

fn all(config: &Config) -> Vec<SecretFile> {
    let tls_key = |tls: &Option<Tls>| tls.as_ref().map(|tls| tls.key.clone());
    let upstream_key = config.upstream_tls.identity.as_ref().map(|(_, key)| key.clone());
    let database_key = |url: &PostgresUrl| PostgresStore::client_key_file(url.as_str());
    let store_key = match &config.store {
        StoreUrl::Postgres(url) => database_key(url),
        StoreUrl::Memory | StoreUrl::File(_) | StoreUrl::Redis(_) => None,
    };
    let shared_key = config.jwt.as_ref().filter(|jwt| jwt.is_secret());
    let files = [
        ("secret_file", config.secret_file.clone()),
        ("admin.token_file", Some(token_path(config))),
        ("tls.key", tls_key(&config.tls)),
        ("admin_tls.key", tls_key(&config.admin_tls)),
        ("upstream_tls.key", upstream_key),
        ("jwt.key_file", shared_key.map(|jwt| jwt.key_file.clone())),
        ("sslkey in store.url", store_key),
        ("sslkey in store.direct_url", config.database.direct_url.as_ref().and_then(database_key)),
    ];
    let file = |(setting, path): (_, Option<_>)| path.map(|path| SecretFile { setting, path });
    files.into_iter().filter_map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Overrides;

    fn files_of(text: &str) -> Vec<(&'static str, PathBuf)> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, format!("upstream = 'http://a'\n{text}")).expect("ours");
        let config = Config::load(Some(file.path()), &Overrides::default()).expect("valid");
        all(&config).into_iter().map(|file| (file.setting, file.path)).collect()
    }

    #[test]
    fn keys_for_databases_are_secrets() {
        let url = "postgres://h/d?sslcert=/a.pem&sslkey=";
        let found =
            files_of(&format!("[store]\nurl = '{url}/a%20b.key'\ndirect_url = '{url}/c.key'\n"));
        let token = ("admin.token_file", "./selfsame-data/admin-token".into());
        let [first, second] = ["/a b.key", "/c.key"].map(PathBuf::from);
        let expected =
            [token, ("sslkey in store.url", first), ("sslkey in store.direct_url", second)];
        assert_eq!(found, expected);
    }
}
