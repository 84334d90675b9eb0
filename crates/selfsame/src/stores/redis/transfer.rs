//! Records as they are, out of and into Redis.

use std::time::Duration;

use async_trait::async_trait;
use redis::{Value, cmd};
use selfsame_core::{Bell, Record, RecordId, StoreError, StoreErrorKind};
use tokio::time::Instant;

use super::buckets::Bucket;
use super::guard::FACTS;
use super::link::Ask;
use super::node::Lane;
use super::scan::Walk;
use super::trouble::Access;
use super::{RedisStore, strange, value};
use crate::stores::transfer::{Imported, JournalRow, Transfer};

/// Pause between two looks at whether this store itself listens.
const PAUSE: Duration = Duration::from_millis(10);

#[async_trait]
impl Transfer for RedisStore {
    async fn ids(&self) -> Result<Vec<RecordId>, StoreError> {
        let (mut walk, mut all) = (Walk::new(self, ""), Vec::new());
        while let Some(ids) = walk.next(self).await? {
            all.extend(ids);
        }
        all.sort_unstable();
        Ok(all)
    }

    async fn import(&self, record: &Record) -> Result<Imported, StoreError> {
        let now = self.time_now().await?;
        let written = value::write(record);
        let mut set = cmd("SET");
        set.arg(self.key(&record.id)).arg(&written).arg("NX");
        let lives = value::lives(record, now);
        if let Some(lives) = lives {
            set.arg("PX").arg(value::millis(lives).max(1));
        }
        match self.ask(&record.id, Access::Write, Ask::Command(&set)).await? {
            Value::Nil => Ok(Imported::Known),
            Value::Okay => {
                let bucket = self.routes.buckets.of(&record.id);
                self.guard.note_write(bucket, &record.id, (&written, lives));
                Ok(Imported::Done)
            }
            _ => Err(strange(Access::Write)),
        }
    }

    async fn facts(&self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let mut read = cmd("HGETALL");
        read.arg(self.routes.buckets.beside(Bucket::FIRST, FACTS));
        let ask = Ask::Command(&read);
        let answer = self.routes.ask(Bucket::FIRST, Lane::Look, Access::Read, ask).await?;
        redis::from_redis_value(answer).map_err(|_| strange(Access::Read))
    }

    async fn phases(&self, _: &Record) -> Result<Vec<JournalRow>, StoreError> {
        Ok(Vec::new())
    }

    async fn import_phase(&self, _: &JournalRow) -> Result<(), StoreError> {
        Err(StoreError::new(StoreErrorKind::NotWritten, "Redis has no journal of phases"))
    }

    /// Every process that uses the store listens for wake-ups. So does this one, once it is connected.
    async fn users(&self) -> Result<Option<String>, StoreError> {
        let until = Instant::now() + self.options.time_out;
        while !self.bell.is_heard() && Instant::now() < until {
            tokio::time::sleep(PAUSE).await;
        }
        let mut count = cmd("PUBSUB");
        count.arg("NUMSUB").arg(self.bell.channel());
        let mut listeners = 0;
        for master in self.routes.masters() {
            let answer = master.link(Lane::Look).ask(Access::Read, Ask::Command(&count)).await?;
            let told: (String, u64) =
                redis::from_redis_value(answer).map_err(|_| strange(Access::Read))?;
            listeners += told.1;
        }
        let others = listeners.saturating_sub(u64::from(self.bell.is_heard()));
        Ok((others > 0).then(|| format!("{others} gateways or services that listen for wake-ups")))
    }

    async fn version(&self) -> Result<String, StoreError> {
        let mut info = cmd("INFO");
        info.arg("server");
        let ask = Ask::Command(&info);
        let answer = self.routes.ask(Bucket::FIRST, Lane::Look, Access::Read, ask).await?;
        let text: String = redis::from_redis_value(answer).map_err(|_| strange(Access::Read))?;
        let version = text.lines().find_map(|line| line.strip_prefix("redis_version:"));
        Ok(format!("Redis {}", version.unwrap_or("of an unknown version")))
    }
}
