//! Files that hold secrets, and warnings of those that are open to everybody.

use std::fmt;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use selfsame::stores::PostgresStore;

use crate::admin::token_path;
use crate::config::{Config, PostgresUrl, RedisUrl, StoreUrl, Tls};
use crate::live::Origin;

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
pub(crate) fn open_to_everybody(config: &Config, origin: &Origin) -> Vec<SecretFile> {
    let mut files = all(config);
    files.extend(with_password(config, origin));
    files.retain(SecretFile::is_open_to_everybody);
    files
}

/// Logs a warning for each file that every user of this machine can read or change.
pub(crate) fn warn(config: &Config, origin: &Origin) {
    for SecretFile { setting, path } in open_to_everybody(config, origin) {
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

/// The configuration file, by the first setting in it that holds a password. What a flag or the
/// environment says does not count: the file may say something else.
fn with_password(config: &Config, Origin { path, overrides }: &Origin) -> Option<SecretFile> {
    let url = match &config.store {
        StoreUrl::Postgres(url) => url.has_password(),
        StoreUrl::Redis(url) => url.has_password(),
        StoreUrl::Memory | StoreUrl::File(_) => false,
    };
    let direct_url = config.database.direct_url.as_ref().is_some_and(PostgresUrl::has_password);
    let cache_url = config.cache.as_ref().is_some_and(RedisUrl::has_password);
    let settings = [
        ("store.url", url && overrides.store.is_none()),
        ("store.direct_url", direct_url && overrides.store_direct.is_none()),
        ("store.cache_url", cache_url && overrides.store_cache.is_none()),
    ];
    let (setting, _) = settings.into_iter().find(|(_, has_password)| *has_password)?;
    Some(SecretFile { setting, path: path.clone()? })
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

    /// Setting by which the configuration file is a secret.
    fn password_in(text: &str, overrides: Overrides) -> Option<&'static str> {
        let file = tempfile::NamedTempFile::new().expect("a file");
        fs::write(&file, format!("upstream = 'http://a'\n[store]\n{text}")).expect("ours");
        let path = file.path().to_owned();
        let config = Config::load(Some(&path), &overrides).expect("valid");
        let found = with_password(&config, &Origin { path: Some(path.clone()), overrides })?;
        assert_eq!(found.path, path);
        Some(found.setting)
    }

    #[test]
    fn a_configuration_with_a_password_is_a_secret() {
        let url = "url = 'postgres://me:hunter2@h/d'";
        let direct = "url = 'postgres://me@h/d'\ndirect_url = 'postgres://me:hunter2@h/d'";
        let cache = "url = 'postgres://me@h/d'\ncache_url = 'redis://:hunter2@h'";
        let table = [
            (url, Some("store.url")),
            ("url = 'postgres://h/d?user=me&password=hunter2'", Some("store.url")),
            (direct, Some("store.direct_url")),
            (cache, Some("store.cache_url")),
            ("url = 'postgres://me@h:5432/d'", None),
            ("url = 'postgres://me:@[::1]:5432/d'", None),
            ("url = 'file:./a:b@c'", None),
            ("", None),
        ];
        for (text, expected) in table {
            assert_eq!(password_in(text, Overrides::default()), expected, "{text}");
        }
        let store = Some("postgres://me@h/d".to_owned());
        assert_eq!(password_in(url, Overrides { store, ..Overrides::default() }), None);
    }
}
