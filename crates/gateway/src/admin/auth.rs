//! Who may do what: reading on loopback is free, acting always needs the token.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use axum::extract::{Request, State};
use axum::http::header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use selfsame::Secret;
use uuid::Uuid;

use super::Admin;
use crate::config::Config;

/// Where the token is, unless the configuration names a file.
const TOKEN_FILE: &str = "admin-token";
const TOKEN_CHARACTERS_MIN: usize = 16;

/// What shows that a caller may act.
pub(crate) struct Token(String);

/// The file that holds the admin token.
pub(crate) fn token_path(config: &Config) -> PathBuf {
    match &config.admin.token_file {
        Some(path) => path.clone(),
        None => config.store.folder().join(TOKEN_FILE),
    }
}

impl Token {
    /// The configured token, or one that is made at the first start and readable by its owner.
    pub(crate) fn open(config: &Config) -> Result<Self> {
        let path = token_path(config);
        if config.admin.token_file.is_none() && !path.exists() {
            make(&path).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Self::read(&path)
    }

    /// The token in a file.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path)
            .with_context(|| format!("the admin token {} cannot be read", path.display()))?;
        let text = text.trim();
        if text.len() < TOKEN_CHARACTERS_MIN {
            bail!(
                "the admin token in {} is shorter than {TOKEN_CHARACTERS_MIN} characters",
                path.display()
            );
        }
        Ok(Self(text.to_owned()))
    }

    /// What goes into `Authorization`.
    pub(crate) fn bearer(&self) -> String {
        format!("Bearer {}", self.0)
    }

    fn is_shown_by(&self, request: &Request) -> bool {
        let shown = request.headers().get(AUTHORIZATION).map(|value| value.as_bytes());
        // Compared by their MACs under a secret of the moment: timing tells nothing of the token.
        let secret = Secret::random();
        let mac = |bytes: &[u8]| secret.tag("token", &[bytes]);
        shown.is_some_and(|shown| mac(shown) == mac(self.bearer().as_bytes()))
    }
}

fn make(path: &Path) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let token = format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")
}

/// Lets those act who show the token.
pub(super) async fn acting(
    State(admin): State<Arc<Admin>>,
    request: Request,
    next: Next,
) -> Response {
    match admin.token.is_shown_by(&request) {
        true => next.run(request).await,
        false => unauthorised(),
    }
}

/// Lets everyone on this machine read, and elsewhere those who show the token.
pub(super) async fn reading(
    State(admin): State<Arc<Admin>>,
    request: Request,
    next: Next,
) -> Response {
    match admin.on_loopback || admin.token.is_shown_by(&request) {
        true => next.run(request).await,
        false => unauthorised(),
    }
}

/// Lets those read who may read, and those act who may act.
pub(super) async fn by_method(state: State<Arc<Admin>>, request: Request, next: Next) -> Response {
    match *request.method() {
        Method::GET | Method::HEAD => reading(state, request, next).await,
        _ => acting(state, request, next).await,
    }
}

/// A page on the web must not reach a loopback listener through a name of its own.
pub(super) async fn host(
    State(admin): State<Arc<Admin>>,
    request: Request,
    next: Next,
) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    match !admin.on_loopback || is_loopback_name(host) {
        true => next.run(request).await,
        false => {
            let text = "this listener answers only to localhost and loopback addresses\n";
            (StatusCode::MISDIRECTED_REQUEST, text).into_response()
        }
    }
}

fn is_loopback_name(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
    name.eq_ignore_ascii_case("localhost") || name.parse().is_ok_and(is_loopback)
}

fn unauthorised() -> Response {
    let text = "show the admin token as \"Authorization: Bearer …\"; it is in the file admin-token \
                beside the store's data, or where admin.token_file says\n";
    (StatusCode::UNAUTHORIZED, [(WWW_AUTHENTICATE, "Bearer")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::is_loopback_name;

    #[test]
    fn only_loopback_names_reach_a_loopback_listener() {
        for host in ["localhost", "LOCALHOST:9090", "127.0.0.1:9090", "127.8.0.1", "[::1]:9090"] {
            assert!(is_loopback_name(host), "{host}");
        }
        for host in ["", "evil.example", "localhost.evil.example", "10.0.0.1", "[::2]"] {
            assert!(!is_loopback_name(host), "{host}");
        }
    }
}
