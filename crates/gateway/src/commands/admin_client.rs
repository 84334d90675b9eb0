//! The admin API, as the command line speaks to it.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, LINK};
use http::{HeaderMap, Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::ServerName;
use selfsame::admin::RecordView;
use serde::Serialize;

use crate::admin::{Token, token_path};
use crate::config::{self, Config, Protocol, UpstreamTls};
use crate::printable::printable;
use crate::upstream::{ClientTls, ConnectionLimits, Connector};

/// Time in which a connection must come about, its encryption included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where the admin listener is, and how to reach it.
#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The gateway's admin listener [default: http://127.0.0.1:9090, or as the configuration says]
    #[arg(long, global = true, env = "SELFSAME_ADMIN_URL", hide_env_values = true)]
    pub(super) admin: Option<String>,
    /// The file with the authorities that vouch for an https:// admin listener [default: the system's]
    #[arg(long, global = true, env = "SELFSAME_ADMIN_CA")]
    admin_ca: Option<PathBuf>,
    /// The file with a certificate to show, where the admin listener asks for one
    #[arg(long, global = true, env = "SELFSAME_ADMIN_CERT", requires = "admin_key")]
    admin_cert: Option<PathBuf>,
    /// The file with the key of --admin-cert
    #[arg(long, global = true, env = "SELFSAME_ADMIN_KEY", requires = "admin_cert")]
    admin_key: Option<PathBuf>,
    /// The file with the admin token [default: beside the store's data]
    #[arg(long, global = true, env = "SELFSAME_TOKEN_FILE")]
    token_file: Option<PathBuf>,
}

pub(super) struct AdminClient {
    address: String,
    token_file: PathBuf,
    connector: Connector,
}

/// Some records, and where there are more.
pub(super) struct Page {
    pub(super) records: Vec<RecordView>,
    /// The id behind which the next page begins.
    pub(super) next: Option<String>,
    /// Set where more records match, without a way to page through them.
    pub(super) is_cut_off: bool,
}

impl AdminClient {
    /// Speaks to the gateway with this configuration, as far as the options do not say otherwise.
    pub(super) fn new(options: &Options, config: &Config) -> Result<Self> {
        let scheme = if config.admin_tls.is_some() { "https" } else { "http" };
        let address =
            options.admin.clone().unwrap_or(format!("{scheme}://{}", config.admin.listen));
        // Before anything else: complaints quote the address.
        if address.contains('@') {
            bail!("--admin must not hold a name or password; the token is in --token-file");
        }
        let token_file = options.token_file.clone().unwrap_or_else(|| token_path(config));
        let connector = connector(&address, options)?;
        Ok(Self { address: address.trim_end_matches('/').to_owned(), token_file, connector })
    }

    /// A page of records, by the parameters of `GET /api/v1/keys`.
    pub(super) async fn list(&self, query: &[(&str, &str)]) -> Result<Page> {
        let pairs = query.iter().map(|(name, value)| format!("{name}={}", escape(value)));
        let query = pairs.collect::<Vec<_>>().join("&");
        let (headers, body) = self.read(&format!("/api/v1/keys?{query}")).await?;
        let records = serde_json::from_slice(&body)
            .context("the admin API answered something else than records")?;
        let is_cut_off = headers.contains_key("selfsame-more");
        Ok(Page { records, next: next(&headers), is_cut_off })
    }

    async fn find(&self, key: &str) -> Result<Vec<RecordView>> {
        let page = self.list(&[("find", key)]).await?;
        if page.is_cut_off {
            bail!("too many records have {key}; name one by its id, as `keys show` lists them");
        }
        Ok(page.records)
    }

    /// The one held record that `key` names.
    pub(super) async fn the_held(&self, key: &str) -> Result<RecordView> {
        let found = self.find(key).await?;
        let held = found.iter().filter(|record| record.state == "held");
        let held: Vec<RecordView> = held.cloned().collect();
        match (&*held, &*found) {
            ([], []) => bail!("nothing is known of {key}"),
            ([], [other, ..]) => bail!("{key} is {}, not held: {}", other.state, other.advice),
            ([only], _) => Ok(only.clone()),
            (several, _) => {
                bail!("several tenants hold {key}; name the record:\n{}", ids(several))
            }
        }
    }

    /// The one record that `key` names.
    pub(super) async fn the_one(&self, key: &str) -> Result<RecordView> {
        let found = self.find(key).await?;
        match &*found {
            [] => bail!("nothing is known of {key}"),
            [only] => Ok(only.clone()),
            several => bail!("several records have {key}; name one:\n{}", ids(several)),
        }
    }

    pub(super) async fn act(
        &self,
        record: &RecordView,
        action: &str,
        body: &impl Serialize,
    ) -> Result<()> {
        self.post(&format!("/api/v1/keys/{}/{action}", record.id), body).await.map(drop)
    }

    pub(super) async fn get(&self, path: &str) -> Result<Bytes> {
        Ok(self.read(path).await?.1)
    }

    async fn read(&self, path: &str) -> Result<(HeaderMap, Bytes)> {
        let mut request = Request::builder().uri(self.uri(path)?);
        // Reading needs a token unless the listener is on loopback; it does no harm there.
        if let Ok(token) = Token::read(&self.token_file) {
            request = request.header(AUTHORIZATION, token.bearer());
        }
        self.send(request.body(Full::default())?).await
    }

    pub(super) async fn post(&self, path: &str, body: &impl Serialize) -> Result<Bytes> {
        let token = Token::read(&self.token_file)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.uri(path)?)
            .header(AUTHORIZATION, token.bearer())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(body)?))?;
        Ok(self.send(request).await?.1)
    }

    fn uri(&self, path: &str) -> Result<Uri> {
        let uri = format!("{}{path}", self.address);
        uri.parse().with_context(|| format!("{uri} is not an address like http://127.0.0.1:9090"))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<(HeaderMap, Bytes)> {
        let client = Client::builder(TokioExecutor::new()).build(self.connector.clone());
        let response = client.request(request).await.with_context(|| {
            format!("the gateway's admin listener at {} does not answer", self.address)
        })?;
        let (parts, body) = response.into_parts();
        let body = body.collect().await?.to_bytes();
        match parts.status {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
                Ok((parts.headers, body))
            }
            _ => bail!("{}", String::from_utf8_lossy(&body).trim_end()),
        }
    }
}

/// Makes connections to `address`, over TLS for `https:`.
fn connector(address: &str, options: &Options) -> Result<Connector> {
    let wrong = || format!("{address} is not an address like http://127.0.0.1:9090");
    let uri: Uri = address.parse().with_context(wrong)?;
    let is_encrypted = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => bail!("{}", wrong()),
    };
    let authority = uri.authority().with_context(wrong)?.clone();
    if is_encrypted {
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        ServerName::try_from(host).with_context(wrong)?;
    }
    let files = UpstreamTls {
        ca: options.admin_ca.clone(),
        identity: options.admin_cert.clone().zip(options.admin_key.clone()),
        server_name: None,
    };
    let tls = is_encrypted.then(|| ClientTls::open(&files)).transpose();
    let tls = tls.map_err(|unfit| anyhow!("--admin-{unfit}"))?;
    let to = config::Upstream { protocol: Protocol::Http1, is_encrypted, authority };
    let limit = ConnectionLimits::new(usize::MAX).of(&to.authority);
    Ok(Connector::new(HttpConnector::new(), &to, tls.as_ref(), CONNECT_TIMEOUT, limit))
}

/// The id behind which the next page begins, as `Link: <?…after=ID>; rel="next"` says.
fn next(headers: &HeaderMap) -> Option<String> {
    let link = headers.get(LINK)?.to_str().ok()?;
    let (query, _) = link.strip_prefix("<?")?.split_once(">; rel=\"next\"")?;
    query.split('&').find_map(|pair| pair.strip_prefix("after=")).map(str::to_owned)
}

/// Records to choose from, one a line.
fn ids(records: &[RecordView]) -> String {
    let line =
        |record: &RecordView| format!("  {}  {}", &record.id[..12], printable(&record.tenant));
    records.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn escape(text: &str) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~".contains(byte);
    text.bytes()
        .map(|byte| match plain(&byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        })
        .collect()
}
