//! `selfsame keys show`: records, for people and as JSON.

use std::time::SystemTime;

use anyhow::{Result, bail};
use selfsame::admin::RecordView;

use crate::commands::admin_client::{AdminClient, Page};
use crate::printable::{printable, printable_json};

/// Which records are shown.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A key, or the beginning of a record's id
    key: Option<String>,
    /// Only those in this state: claimed, completed, failed, held, tombstone, or all
    #[arg(long)]
    state: Option<String>,
    /// Only those of the tenant with this tag
    #[arg(long, value_name = "TAG", conflicts_with = "tenant_name")]
    tenant: Option<String>,
    /// Only those of the tenant with this name
    #[arg(long, value_name = "NAME")]
    tenant_name: Option<String>,
    /// Only those that this route took
    #[arg(long)]
    route: Option<String>,
    /// Only those first used since then: a time such as 2026-01-31T12:00:00Z, or a duration such as 24h
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Go on behind this record, as the page before said
    #[arg(long, value_name = "ID", conflicts_with = "all")]
    after: Option<String>,
    /// Records on a page, up to 1000 [default: 100]
    #[arg(long, value_name = "NUMBER")]
    limit: Option<String>,
    /// All pages, one after the other
    #[arg(long)]
    all: bool,
    /// As JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn show(admin: &AdminClient, args: &Args) -> Result<()> {
    let since = args.since.as_deref().map(time);
    let filters = [
        ("find", args.key.as_deref()),
        ("state", args.state.as_deref()),
        ("tenant", args.tenant.as_deref()),
        ("tenant_name", args.tenant_name.as_deref()),
        ("route", args.route.as_deref()),
        ("since", since.as_deref()),
        ("limit", args.limit.as_deref()),
    ];
    let filters = filters.into_iter().filter_map(|(name, value)| Some((name, value?)));
    let filters: Vec<(&str, &str)> = filters.collect();
    let mut page = one(admin, &filters, args.after.as_deref()).await?;
    if args.json && args.all {
        let mut records = std::mem::take(&mut page.records);
        while let Some(next) = page.next.take() {
            page = one(admin, &filters, Some(&next)).await?;
            records.append(&mut page.records);
        }
        page.records = records;
    }
    if args.json {
        println!("{}", printable_json(&serde_json::to_string_pretty(&page.records)?));
        more(&page).iter().for_each(|more| eprintln!("selfsame: {more}"));
        return Ok(());
    }
    let is_plain = filters.iter().all(|(name, _)| *name == "limit");
    match (&args.key, page.records.is_empty()) {
        (Some(key), true) => bail!("nothing is known of {key}"),
        (None, true) if is_plain && args.after.is_none() => println!("no key is held"),
        (None, true) => println!("no record matches"),
        _ => {}
    }
    print(&page);
    while args.all
        && let Some(next) = page.next.take()
    {
        page = one(admin, &filters, Some(&next)).await?;
        println!();
        print(&page);
    }
    more(&page).iter().for_each(|more| println!("\n{more}"));
    Ok(())
}

async fn one(admin: &AdminClient, filters: &[(&str, &str)], after: Option<&str>) -> Result<Page> {
    let mut query = filters.to_vec();
    query.extend(after.map(|after| ("after", after)));
    admin.list(&query).await
}

/// A hint that this was not all.
fn more(page: &Page) -> Option<String> {
    match &page.next {
        Some(next) => Some(format!("there are more: go on with --after {next}, or add --all")),
        None => page.is_cut_off.then(|| {
            "there are more of this key: narrow it down with --tenant, --state or a record's id"
                .to_owned()
        }),
    }
}

fn print(page: &Page) {
    let cards: Vec<String> = page.records.iter().map(card).collect();
    print!("{}", cards.join("\n"));
}

/// A time as the admin API takes it: a duration counts back from now.
#[expect(
    clippy::disallowed_methods,
    reason = "what a person means by a day ago is the wall's time"
)]
fn time(text: &str) -> String {
    match humantime::parse_duration(text).ok().and_then(|ago| SystemTime::now().checked_sub(ago)) {
        Some(since) => humantime::format_rfc3339_seconds(since).to_string(),
        None => text.to_owned(),
    }
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
    ];
    if let (Some(method), Some(path)) = (&record.method, &record.path) {
        facts.push(("request", format!("{method} {path}")));
    }
    facts.extend([
        ("state", state),
        ("attempt", format!("{} (fence {})", record.attempt, record.fence)),
        ("created", record.created_at.clone()),
        ("expires", expiry(record)),
    ]);
    if let Some(point) = &record.recovery_point {
        facts.push(("reached", point.clone()));
    }
    if let Some(status) = record.answer_status {
        let size = record.answer_bytes.map(|bytes| format!("{bytes} bytes"));
        let size = size.unwrap_or_else(|| "body not kept".into());
        facts.push(("answer", format!("{status}, {size}")));
    }
    if let Some(by) = &record.resolved_by {
        let at = record.resolved_at.as_deref().unwrap_or_default();
        let reason = record.resolved_reason.as_ref().map(|reason| format!(": {reason}"));
        facts.push(("resolved", format!("by {by} at {at}{}", reason.unwrap_or_default())));
    }
    facts.push(("to do", record.advice.clone()));
    facts.iter().map(|(name, value)| format!("{name:<8} {}\n", printable(value))).collect()
}

fn expiry(record: &RecordView) -> String {
    match (&record.expires_at, &record.remembered_until) {
        (Some(expires), Some(until)) => format!("{expires}, remembered until {until}"),
        (Some(expires), None) => expires.clone(),
        (None, _) => "not while held".into(),
    }
}
