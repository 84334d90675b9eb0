//! Whether the tables stay as large as what they hold, while all of it comes and goes.

use std::time::Duration;

use anyhow::Result;
use selfsame_test_postgres::{Server, pass, settable_clock};

use super::{DATABASE, open};
use crate::report::{Target, number};
use crate::store::expiry::STEP;
use crate::store::work;

const HOUR: Duration = Duration::from_secs(60 * 60);
/// How many records each hour brings, which live for a day.
const PER_HOUR: u64 = 10_000;
const MIB: f64 = 1024.0 * 1024.0;

const BYTES: &str = "select pg_total_relation_size('selfsame.keys') + coalesce((select \
     sum(pg_total_relation_size(inhrelid)) from pg_inherits \
     where inhparent = 'selfsame.answers'::regclass), 0)::bigint";

pub(super) struct Churn {
    /// The most that was seen on each day.
    days: Vec<f64>,
}

impl Churn {
    fn growth(&self) -> f64 {
        // On the first day the tables fill, on the second the first records leave.
        self.days[3] / self.days[2]
    }

    pub(super) fn note(&self) -> String {
        let days: Vec<_> = self.days.iter().map(|bytes| number(bytes / MIB)).collect();
        format!(
            "{} records came and went each hour; the tables had at most {} MiB, day by day.",
            number(PER_HOUR as f64),
            days.join(", ")
        )
    }

    pub(super) fn target(&self) -> Target {
        let growth = self.growth();
        Target::new(
            "the tables after a day of churn: below 1.05 times the day before",
            format!("{} times", number(growth)),
            growth < 1.05,
        )
    }
}

/// Four days, fast-forwarded: the vacuum that an hour has room for is made by hand, and the sweep
/// makes no pauses.
pub(super) async fn measure(server: &Server) -> Result<Churn> {
    let store = open(server).await?;
    server.sql(DATABASE, &settable_clock("selfsame", "public"));
    let mut days = Vec::new();
    for day in 0..4 {
        let mut most: f64 = 0.0;
        for hour in 0..24 {
            let first = (day * 24 + hour) * PER_HOUR;
            work::fill(&store, first..first + PER_HOUR, work::ANSWER_BYTES).await?;
            server.sql(DATABASE, &pass("selfsame", HOUR));
            while !store.sweep(STEP).await?.finished {}
            server.sql(DATABASE, "vacuum selfsame.keys");
            most = most.max(server.sql(DATABASE, BYTES).parse()?);
        }
        days.push(most);
    }
    Ok(Churn { days })
}
