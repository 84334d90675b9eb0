//! What it costs, and whom, when a million records expire at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use selfsame_test_postgres::{Server, pass, settable_clock};

use super::{DATABASE, open};
use crate::figures::Latencies;
use crate::report::{Target, number};
use crate::store::expiry::{beside, sweep};
use crate::store::work::{self, Keys};
use crate::timing::Stopwatch;

const RECORDS: u64 = 1_000_000;
/// How long claims are made without a sweep beside them.
const NORMAL: Duration = Duration::from_secs(10);

/// What the sweeper's statements took. Those of callers are told by what only they do.
const SWEPT_MS: &str = "select coalesce(sum(total_exec_time), 0) from pg_stat_statements \
     where query not like '%unseen as (%' and query like '%selfsame.%'";

pub(super) struct Expiry {
    took: Duration,
    database_s: f64,
    normal: Latencies,
    meanwhile: Latencies,
}

impl Expiry {
    pub(super) fn note(&mut self) -> String {
        format!(
            "{} records expired within {} s and took {} s of the database's time; claims beside: \
             p99 {} ms, the longest {} ms (before: {} and {} ms).",
            number(RECORDS as f64),
            number(self.took.as_secs_f64()),
            number(self.database_s),
            number(self.meanwhile.percentile(0.99)),
            number(self.meanwhile.percentile(1.0)),
            number(self.normal.percentile(0.99)),
            number(self.normal.percentile(1.0)),
        )
    }

    pub(super) fn targets(&mut self) -> [Target; 2] {
        let times = self.meanwhile.percentile(0.99) / self.normal.percentile(0.99);
        [
            Target::new(
                "a million records expire: below 3 s of the database's time",
                format!("{} s", number(self.database_s)),
                self.database_s < 3.0,
            ),
            Target::new(
                "claim p99 meanwhile: below 3 times the normal one",
                format!("{} times", number(times)),
                times < 3.0,
            ),
        ]
    }
}

/// Lets a million records expire at once, and claims beside the sweep.
pub(super) async fn measure(server: &Server) -> Result<Expiry> {
    server.sql(DATABASE, "create extension if not exists pg_stat_statements");
    // For sessions that begin from here on; the server's own setting goes before one of the system's.
    let track = format!("alter database {DATABASE} set pg_stat_statements.track");
    server.sql(DATABASE, &format!("{track} = 'top'"));
    let store = open(server).await?;
    server.sql(DATABASE, &settable_clock("selfsame", "public"));
    work::fill(&store, 0..RECORDS, work::ANSWER_BYTES).await?;
    server.sql(DATABASE, "vacuum analyze selfsame.keys");
    let keys = Arc::new(Keys::from(RECORDS));
    let (_, normal) = beside(&store, &keys, tokio::time::sleep(NORMAL)).await?;
    // Nobody completes those claims: they would be held, which is another thing than to expire.
    server.sql(DATABASE, "delete from selfsame.keys where state = 1");
    server.sql(DATABASE, "vacuum selfsame.keys");
    server.sql(DATABASE, &pass("selfsame", Duration::from_secs(50 * 60 * 60)));
    server.sql(DATABASE, "select pg_stat_statements_reset()");
    let begun = Stopwatch::start();
    let (swept, meanwhile) = beside(&store, &keys, sweep(&*store)).await?;
    let took = begun.elapsed();
    let database_ms: f64 = server.sql(DATABASE, SWEPT_MS).parse().context("it is counted")?;
    if database_ms == 0.0 {
        bail!("the database counted none of the sweep's statements");
    }
    server.sql(DATABASE, &format!("{track} = 'none'"));
    // What was only claimed is held now.
    let swept = swept?;
    if swept != RECORDS {
        bail!("{swept} of {RECORDS} records expired");
    }
    Ok(Expiry { took, database_s: database_ms / 1000.0, normal, meanwhile })
}
