//! Going through all records, some at a time.

use std::collections::HashSet;

use redis::{Cmd, Value, cmd, pipe};
use selfsame_core::{RecordId, StoreError, Timestamp};

use super::link::Ask;
use super::scripts::{PREFIX, id_of, key};
use super::trouble::Access;
use super::value::{self, Found, HEAD_LEN, Head};
use super::{RedisStore, strange};

/// How many keys Redis looks at in a step. It serves nobody else meanwhile.
const STEP: usize = 1000;
/// How many records are read whole at a time.
const WHOLE: usize = 64;

/// A walk through all records. It comes to those that are there all the time once.
pub(super) struct Walk {
    cursor: Option<Vec<u8>>,
    pattern: String,
    /// Redis may show a key twice. Ids are hashes, so a part of one tells them apart.
    met: HashSet<u64>,
}

impl Walk {
    /// Through the records whose id begins so, in hexadecimal.
    pub(super) fn new(id_prefix: &str) -> Self {
        let pattern = format!("{PREFIX}{}*", id_prefix.to_ascii_lowercase());
        Self { cursor: Some(b"0".to_vec()), pattern, met: HashSet::new() }
    }

    /// Records that were not met before, perhaps none; nothing at the end.
    pub(super) async fn next(
        &mut self,
        store: &RedisStore,
    ) -> Result<Option<Vec<RecordId>>, StoreError> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let (next, ids) = store.scan(cursor, &self.pattern).await?;
        self.cursor = Some(next).filter(|next| next != b"0");
        let is_new = |id: &RecordId| {
            let part = id.as_bytes().first_chunk().expect("it is longer");
            self.met.insert(u64::from_be_bytes(*part))
        };
        Ok(Some(ids.into_iter().filter(is_new).collect()))
    }
}

impl RedisStore {
    /// A step of a scan: where the next one begins, and the records that were met.
    pub(super) async fn scan(
        &self,
        cursor: &[u8],
        pattern: &str,
    ) -> Result<(Vec<u8>, Vec<RecordId>), StoreError> {
        let mut scan = cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP);
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = self.look(&scan).await?;
        // What else is called so is not ours.
        Ok((next, keys.iter().filter_map(|key| id_of(key)).collect()))
    }

    /// The time, and the heads of those that are still there. A head that is damaged is for whoever
    /// reads the whole record.
    pub(super) async fn heads(
        &self,
        ids: &[RecordId],
    ) -> Result<(Timestamp, Vec<(RecordId, Option<Head>)>), StoreError> {
        let head = |id: &RecordId| {
            let mut command = cmd("GETRANGE");
            command.arg(key(id)).arg(0).arg(HEAD_LEN - 1);
            command
        };
        let (now, values) = self.look_at(ids, head).await?;
        let heads = ids.iter().zip(values).filter_map(|(id, value)| match value {
            Value::BulkString(head) if head.is_empty() => None,
            Value::BulkString(head) => Some((*id, value::read_head(&head).ok())),
            _ => None,
        });
        Ok((now, heads.collect()))
    }

    /// The time, and those that are still there, whole, no more than [`WHOLE`]; the rest of `ids` is
    /// left. A damaged one has raised its alarm, and does not stop whoever looks at many.
    pub(super) async fn take_whole(
        &self,
        ids: &mut Vec<RecordId>,
    ) -> Result<(Timestamp, Vec<Found>), StoreError> {
        let some: Vec<_> = ids.drain(..ids.len().min(WHOLE)).collect();
        let whole = |id: &RecordId| {
            let mut command = cmd("GET");
            command.arg(key(id));
            command
        };
        let (now, values) = self.look_at(&some, whole).await?;
        let found = some.iter().zip(values).filter_map(|(id, value)| match value {
            Value::BulkString(value) => value::read(id, &value).ok(),
            _ => None,
        });
        Ok((now, found.collect()))
    }

    async fn look_at(
        &self,
        ids: &[RecordId],
        command: impl Fn(&RecordId) -> Cmd,
    ) -> Result<(Timestamp, Vec<Value>), StoreError> {
        let mut all = pipe();
        all.cmd("TIME");
        for id in ids {
            all.add_command(command(id));
        }
        let answer = self.look.ask(Access::Read, Ask::All(&all)).await?;
        let Value::Array(mut answers) = answer else { return Err(strange(Access::Read)) };
        if answers.len() != ids.len() + 1 {
            return Err(strange(Access::Read));
        }
        let now = self.time(&answers.remove(0)).ok_or_else(|| strange(Access::Read))?;
        Ok((now, answers))
    }

    /// What a single command reads.
    pub(super) async fn look<T: redis::FromRedisValue>(
        &self,
        command: &Cmd,
    ) -> Result<T, StoreError> {
        let answer = self.look.ask(Access::Read, Ask::Command(command)).await?;
        redis::from_redis_value(answer).map_err(|_| strange(Access::Read))
    }
}
