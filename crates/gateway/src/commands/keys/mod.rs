//! `selfsame keys`: looks keys up, decides about those that are held, and erases.

mod erase;
mod operator;
mod show;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{ArgGroup, Subcommand};
use selfsame::admin::{CompleteRequest, EraseRequest, FreeRequest};
use tokio::runtime::Runtime;

use self::operator::Operator;
use super::admin_client::{self, AdminClient};
use crate::config::{Config, Overrides};
use crate::printable::printable;

/// Looks keys up, decides about those that are held, and erases what is kept.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    #[command(flatten)]
    admin: admin_client::Options,
    /// The gateway's configuration, to find the two above
    #[arg(long, global = true, env = "SELFSAME_CONFIG")]
    config: Option<PathBuf>,
    /// The gateway's store, to find its token
    #[arg(long, global = true, env = "SELFSAME_STORE", hide_env_values = true)]
    store: Option<String>,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Shows what is known of a key, or lists keys: those that are held, unless filters say otherwise
    Show(show::Args),
    /// The work was not done: the next retry runs
    Free {
        /// A key, or the beginning of a record's id
        key: String,
        #[command(flatten)]
        operator: Operator,
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
        #[command(flatten)]
        operator: Operator,
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
        /// Erase a tenant's keys without asking first
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        operator: Operator,
    },
}

pub(crate) fn run(args: Args) -> Result<()> {
    // The upstream plays no part here; any will do to read the rest of a configuration.
    let upstream = args.config.is_none().then(|| "http://127.0.0.1:1".to_owned());
    let overrides = Overrides { upstream, store: args.store, ..Overrides::default() };
    let config = Config::load(args.config.as_deref(), &overrides)?;
    let admin = AdminClient::new(&args.admin, &config)?;
    Runtime::new()?.block_on(async {
        match args.action {
            Action::Show(args) => show::show(&admin, &args).await,
            Action::Free { key, operator } => {
                let record = admin.the_held(&key).await?;
                let (by, reason) = operator.named();
                let request = FreeRequest { fence: record.fence, by, reason };
                admin.act(&record, "free", &request).await?;
                println!("freed: the next retry of {} runs", printable(&record.key));
                Ok(())
            }
            Action::Complete { key, status, headers, body, body_file, operator } => {
                let record = admin.the_held(&key).await?;
                let body = match body_file {
                    Some(path) => std::fs::read_to_string(&path)
                        .with_context(|| format!("{} cannot be read", path.display()))?,
                    None => body,
                };
                let headers = headers.iter().map(|line| header(line)).collect::<Result<_>>()?;
                let (by, reason) = operator.named();
                let fence = record.fence;
                let request = CompleteRequest { fence, status, headers, body, by, reason };
                admin.act(&record, "complete", &request).await?;
                println!("completed: retries of {} get {status}", printable(&record.key));
                Ok(())
            }
            Action::Erase { key: Some(key), operator, .. } => {
                let record = admin.the_one(&key).await?;
                let (by, reason) = operator.named();
                admin.act(&record, "erase", &EraseRequest { by, reason }).await?;
                println!("erased: retries of {} get 410 key-expired", printable(&record.key));
                Ok(())
            }
            Action::Erase { tenant, tenant_name, yes, operator, .. } => {
                erase::tenant(&admin, (tenant, tenant_name), yes, operator).await
            }
        }
    })
}

fn header(line: &str) -> Result<(String, String)> {
    let (name, value) = line
        .split_once(':')
        .with_context(|| format!("{line:?} is not a header; write \"Name: value\""))?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
