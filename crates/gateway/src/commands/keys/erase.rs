//! `selfsame keys erase --tenant`: all that a tenant has, after a question.

use std::io::{BufRead, IsTerminal, Write};

use anyhow::{Context, Result, bail};
use selfsame::admin::{TenantErased, TenantRequest};

use super::operator::Operator;
use crate::commands::admin_client::AdminClient;
use crate::printable::printable;

/// The largest page that the admin API gives.
const PAGE: &str = "1000";

/// Erases all that a tenant has, some records at a time.
pub(super) async fn tenant(
    admin: &AdminClient,
    (tag, name): (Option<String>, Option<String>),
    is_agreed: bool,
    operator: Operator,
) -> Result<()> {
    let records = count(admin, &tag, &name).await?;
    if records == 0 {
        println!("there is nothing to erase: no record is this tenant's");
        return Ok(());
    }
    let whose = printable(name.as_deref().or(tag.as_deref()).unwrap_or_default());
    if !is_agreed && !agrees(&format!("erase all {records} records of {whose}?"))? {
        bail!("nothing was erased");
    }
    let (by, reason) = operator.named();
    let mut request = TenantRequest { tag, name, after: None, by, reason };
    let (mut erased, mut running) = (0, 0);
    loop {
        let done = admin.post("/api/v1/tenants/erase", &request).await?;
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

async fn count(admin: &AdminClient, tag: &Option<String>, name: &Option<String>) -> Result<usize> {
    let (mut records, mut after) = (0, None::<String>);
    loop {
        let mut query = vec![("state", "all"), ("limit", PAGE)];
        query.extend(tag.as_deref().map(|tag| ("tenant", tag)));
        query.extend(name.as_deref().map(|name| ("tenant_name", name)));
        query.extend(after.as_deref().map(|after| ("after", after)));
        let page = admin.list(&query).await?;
        records += page.records.len();
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(records),
        }
    }
}

/// Asks the person at the terminal.
fn agrees(question: &str) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        bail!("{question} Nobody is at a terminal to answer: add --yes if that is meant");
    }
    print!("{question} They cannot be brought back. [y/N] ");
    std::io::stdout().flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
