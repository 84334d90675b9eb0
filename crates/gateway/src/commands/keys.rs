//! `selfsame keys`: looks keys up, decides about those that are held, and erases.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use bytes::Bytes;
use clap::{ArgGroup, Subcommand};
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::runtime::Runtime;

use crate::admin::api::{CompleteRequest, FreeRequest};
use crate::admin::erase::{TenantErased, TenantRequest};
use crate::admin::{RecordView, Token, token_path};
use crate::config::{Config, Overrides};

/// Looks keys up, decides about those that are held, and erases what is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// The gateway's admin listener [default: http://127.0.0.1:9090, or as the configuration says]
    #[arg(long, global = true, env = "SELFSAME_ADMIN_URL")]
    admin: Option<String>,
    /// The file with the admin token [default: beside the store's data]
    #[arg(long, global = true, env = "SELFSAME_TOKEN_FILE")]
    token_file: Option<PathBuf>,
    /// The gateway's configuration, to find the two above
    #[arg(long, global = true, env = "SELFSAME_CONFIG")]
    config: Option<PathBuf>,
    /// The gateway's store, to find its token
    #[arg(long, global = true, env = "SELFSAME_STORE")]
    store: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows what is known of a key, or all keys that are held
    Show {
        /// A key, or the beginning of a record's id
        key: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The work was not done: the next retry runs
    Free {
        /// A key, or the beginning of a record's id
        key: String,
    },
    /// The work was done: retries get this answer
    Complete {
        /// A key, or the beginning of a record's id
        key: String,
        /// The status that retries get
        #[arg(long)]
        status: u16,
        /// A header that retries get, such as "Content-Type: application/json"
        #[arg(long = "header", value_name = "NAME: VALUE")]
        headers: Vec<String>,
        /// The body that retries get
        #[arg(long, default_value = "", conflicts_with = "body_file")]
        body: String,
        /// A file with the body that retries get
        #[arg(long)]
        body_file: Option<PathBuf>,
    },
    /// Takes away what is kept of a key, or of all keys of a tenant; retries get 410 key-expired
    #[command(group(ArgGroup::new("what").required(true).args(["key", "tenant", "tenant_name"])))]
    Erase {
        /// A key, or the beginning of a record's id
        key: Option<String>,
        /// All keys of the tenant with this tag, as `keys show` shows it
        #[arg(long, value_name = "TAG")]
        tenant: Option<String>,
        /// All keys of the tenant with this name
        #[arg(long, value_name = "NAME")]
        tenant_name: Option<String>,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    let admin = AdminClient::new(&args)?;
    Runtime::new()?.block_on(async {
        match args.action {
            Action::Show { key, json } => show(&admin, key, json).await,
            Action::Free { key } => {
                let record = admin.the_held(&key).await?;
                let request = FreeRequest { fence: record.fence };
                admin.act(&record, "free", &serde_json::to_vec(&request)?).await?;
                println!("freed: the next retry of {} runs", record.key);
                Ok(())
            }
            Action::Complete { key, status, headers, body, body_file } => {
                let record = admin.the_held(&key).await?;
                let body = match body_file {
                    Some(path) => std::fs::read_to_string(&path)
                        .with_context(|| format!("{} cannot be read", path.display()))?,
                    None => body,
                };
                let headers = headers.iter().map(|line| header(line)).collect::<Result<_>>()?;
                let request = CompleteRequest { fence: record.fence, status, headers, body };
                admin.act(&record, "complete", &serde_json::to_vec(&request)?).await?;
                println!("completed: retries of {} get {status}", record.key);
                Ok(())
            }
            Action::Erase { key: Some(key), .. } => {
                let record = admin.the_one(&key).await?;
                admin.act(&record, "erase", b"").await?;
                println!("erased: retries of {} get 410 key-expired", record.key);
                Ok(())
            }
            Action::Erase { tenant, tenant_name, .. } => {
                erase_tenant(&admin, TenantRequest { tag: tenant, name: tenant_name, after: None })
                    .await
            }
        }
    })
}

/// Erases all that a tenant has, some records at a time.
async fn erase_tenant(admin: &AdminClient, mut request: TenantRequest) -> Result<()> {
    let (mut erased, mut running) = (0, 0);
    loop {
        let done = admin.post("/api/v1/tenants/erase", &serde_json::to_vec(&request)?).await?;
        let done: TenantErased = serde_json::from_slice(&done)
            .context("the admin API answered something else than what it erased")?;
        erased += done.erased;
        running += done.running;
        match done.next {
            Some(next) => request.after = Some(next),
            None => break,
        }
    }
    println!("erased: {erased} records");
    match running {
        0 => Ok(()),
        _ => bail!(
            "{running} keys were running and were left alone: erase them when they have ended"
        ),
    }
}

async fn show(admin: &AdminClient, key: Option<String>, json: bool) -> Result<()> {
    let records = admin.find(key.as_deref()).await?;
    if json {
        println!("{}", serde_json::to_string_pretty(&records)?);
        return Ok(());
    }
    match (&key, records.is_empty()) {
        (Some(key), true) => bail!("nothing is known of {key}"),
        (None, true) => println!("no key is held"),
        _ => {}
    }
    let cards: Vec<String> = records.iter().map(card).collect();
    print!("{}", cards.join("\n"));
    Ok(())
}

/// A record for people, one fact a line.
fn card(record: &RecordView) -> String {
    let state = match (record.state.as_str(), &record.state_at) {
        ("held", Some(at)) => format!("held since {at}"),
        ("claimed", Some(at)) => format!("claimed until {at}"),
        ("completed", Some(at)) => format!("completed at {at}"),
        (state, _) => state.to_owned(),
    };
    let mut facts = vec![
        ("key", record.key.clone()),
        ("record", record.id.clone()),
        ("tenant", record.tenant.clone()),
        ("tag", record.tenant_tag.clone()),
        ("route", record.route.clone()),
        ("state", state),
        ("attempt", format!("{} (fence {})", record.attempt, record.fence)),
        ("created", record.created_at.clone()),
        ("expires", expiry(record)),
    ];
    if let Some(point) = &record.recovery_point {
        facts.push(("reached", point.clone()));
    }
    if let Some(status) = record.answer_status {
        let size = record.answer_bytes.map(|bytes| format!("{bytes} bytes"));
        let size = size.unwrap_or_else(|| "body not kept".into());
        facts.push(("answer", format!("{status}, {size}")));
    }
    facts.push(("to do", record.advice.clone()));
    facts.iter().map(|(name, value)| format!("{name:<8} {value}\n")).collect()
}

fn expiry(record: &RecordView) -> String {
    match (&record.expires_at, &record.remembered_until) {
        (Some(expires), Some(until)) => format!("{expires}, remembered until {until}"),
        (Some(expires), None) => expires.clone(),
        (None, _) => "not while held".into(),
    }
}

fn header(line: &str) -> Result<(String, String)> {
    let (name, value) = line
        .split_once(':')
        .with_context(|| format!("{line:?} is not a header; write \"Name: value\""))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}

/// The admin API, as the command line speaks to it.
struct AdminClient {
    address: String,
    token_file: PathBuf,
}

impl AdminClient {
    fn new(args: &Args) -> Result<Self> {
        // The upstream plays no part here; any will do to read the rest of a configuration.
        let upstream = args.config.is_none().then(|| "http://127.0.0.1:1".to_owned());
        let overrides = Overrides { upstream, store: args.store.clone(), ..Overrides::default() };
        let config = Config::load(args.config.as_deref(), &overrides)?;
        let address = args.admin.clone().unwrap_or(format!("http://{}", config.admin.listen));
        let token_file = args.token_file.clone().unwrap_or_else(|| token_path(&config));
        Ok(Self { address: address.trim_end_matches('/').to_owned(), token_file })
    }

    async fn find(&self, key: Option<&str>) -> Result<Vec<RecordView>> {
        let query = key.map(|key| format!("?find={}", escape(key))).unwrap_or_default();
        let request = Request::builder().uri(self.uri(&format!("/api/v1/keys{query}"))?);
        let body = self.send(request.body(Full::default())?).await?;
        serde_json::from_slice(&body).context("the admin API answered something else than records")
    }

    /// The one held record that `key` names.
    async fn the_held(&self, key: &str) -> Result<RecordView> {
        let found = self.find(Some(key)).await?;
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
    async fn the_one(&self, key: &str) -> Result<RecordView> {
        let found = self.find(Some(key)).await?;
        match &*found {
            [] => bail!("nothing is known of {key}"),
            [only] => Ok(only.clone()),
            several => bail!("several records have {key}; name one:\n{}", ids(several)),
        }
    }

    async fn act(&self, record: &RecordView, action: &str, body: &[u8]) -> Result<()> {
        self.post(&format!("/api/v1/keys/{}/{action}", record.id), body).await.map(drop)
    }

    async fn post(&self, path: &str, body: &[u8]) -> Result<Bytes> {
        let token = Token::read(&self.token_file)?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.uri(path)?)
            .header(AUTHORIZATION, token.bearer())
            .header(CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(body)))?;
        self.send(request).await
    }

    fn uri(&self, path: &str) -> Result<Uri> {
        let uri = format!("{}{path}", self.address);
        uri.parse().with_context(|| format!("{uri} is not an address like http://127.0.0.1:9090"))
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let response = client.request(request).await.with_context(|| {
            format!("the gateway's admin listener at {} does not answer", self.address)
        })?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        match status {
            StatusCode::OK | StatusCode::NO_CONTENT => Ok(body),
            _ => bail!("{}", String::from_utf8_lossy(&body).trim_end()),
        }
    }
}

/// Records to choose from, one a line.
fn ids(records: &[RecordView]) -> String {
    let line = |record: &RecordView| format!("  {}  {}", &record.id[..12], record.tenant);
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
