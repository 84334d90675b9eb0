//! Going through all records, some at a time.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::future::try_join_all;
use redis::{Cmd, Value, cmd, pipe};
use selfsame_core::{RecordId, StoreError, Timestamp};

use super::buckets::{Bucket, pattern};
use super::link::Ask;
use super::node::{Lane, Node};
use super::trouble::{Access, Fault, Turn};
use super::value::{self, Found, HEAD_LEN, Head};
use super::{RedisStore, strange};

/// How many keys Redis looks at in a step. It serves nobody else meanwhile.
const STEP: usize = 1000;
/// How many records are read whole at a time.
const WHOLE: usize = 64;

/// Where a walk through all servers goes on.
pub(super) struct Cursor {
    /// Those that were not come to yet; the last is the next one, or the one whose keys are shown.
    servers: Vec<Arc<Node>>,
    /// Where that one goes on.
    at: Vec<u8>,
}

impl Cursor {
    pub(super) fn start(store: &RedisStore) -> Self {
        Self { servers: store.routes.masters(), at: b"0".to_vec() }
    }

    /// The records of the next step, perhaps none; nothing at the end.
    pub(super) async fn step(
        &mut self,
        store: &RedisStore,
        pattern: &str,
    ) -> Result<Option<Vec<RecordId>>, StoreError> {
        let Some(server) = self.servers.last() else { return Ok(None) };
        let mut scan = cmd("SCAN");
        scan.arg(&self.at).arg("MATCH").arg(pattern).arg("COUNT").arg(STEP);
        let answer = server.link(Lane::Look).ask(Access::Read, Ask::Command(&scan)).await?;
        let read = redis::from_redis_value(answer);
        let (next, keys): (Vec<u8>, Vec<Vec<u8>>) = read.map_err(|_| strange(Access::Read))?;
        if next == b"0" {
            self.servers.pop();
        }
        self.at = next;
        // What else is called so is not ours.
        Ok(Some(keys.iter().filter_map(|key| store.routes.buckets.id_of(key)).collect()))
    }

    pub(super) fn is_at_the_end(&self) -> bool {
        self.servers.is_empty()
    }
}

/// A walk through all records. It comes to those that are there all the time once, unless a cluster moves
/// them meanwhile.
pub(super) struct Walk {
    cursor: Cursor,
    pattern: String,
    /// Redis may show a key twice. Ids are hashes, so a part of one tells them apart.
    met: HashSet<u64>,
}

impl Walk {
    /// Through the records whose id begins so, in hexadecimal.
    pub(super) fn new(store: &RedisStore, id_prefix: &str) -> Self {
        let (cursor, pattern) = (Cursor::start(store), pattern(id_prefix));
        Self { cursor, pattern, met: HashSet::new() }
    }

    /// Records that were not met before, perhaps none; nothing at the end.
    pub(super) async fn next(
        &mut self,
        store: &RedisStore,
    ) -> Result<Option<Vec<RecordId>>, StoreError> {
        let Some(ids) = self.cursor.step(store, &self.pattern).await? else { return Ok(None) };
        let is_new = |id: &RecordId| {
            let part = id.as_bytes().first_chunk().expect("it is longer");
            self.met.insert(u64::from_be_bytes(*part))
        };
        Ok(Some(ids.into_iter().filter(is_new).collect()))
    }
}

impl RedisStore {
    /// The time, and the heads of those that are still there. A head that is damaged is for whoever
    /// reads the whole record.
    pub(super) async fn heads(
        &self,
        ids: &[RecordId],
    ) -> Result<(Timestamp, Vec<(RecordId, Option<Head>)>), StoreError> {
        let head = |id: &RecordId| {
            let mut command = cmd("GETRANGE");
            command.arg(self.key(id)).arg(0).arg(HEAD_LEN - 1);
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
            command.arg(self.key(id));
            command
        };
        let (now, values) = self.look_at(&some, whole).await?;
        let found = some.iter().zip(values).filter_map(|(id, value)| match value {
            Value::BulkString(value) => value::read(id, &value).ok(),
            _ => None,
        });
        Ok((now, found.collect()))
    }

    /// What `command` finds of each, and a time at which none of it was later. Servers have clocks of their own.
    async fn look_at(
        &self,
        ids: &[RecordId],
        command: impl Fn(&RecordId) -> Cmd,
    ) -> Result<(Timestamp, Vec<Value>), StoreError> {
        // What is sent together is about one slot.
        let buckets = self.routes.buckets.all().map(|bucket| {
            let of_it = ids.iter().enumerate();
            let of_it = of_it.filter(|(_, id)| self.routes.buckets.of(id) == bucket);
            (bucket, of_it.map(|(at, id)| (at, command(id))).collect::<Vec<_>>())
        });
        let looks = buckets.filter(|(_, commands)| !commands.is_empty());
        let looks = looks.map(|(bucket, commands)| self.look_into(bucket, commands));
        let (mut now, mut values) = (None, vec![Value::Nil; ids.len()]);
        for (then, found) in try_join_all(looks).await? {
            now = Some(now.map_or(then, |now: Timestamp| now.min(then)));
            found.into_iter().for_each(|(at, value)| values[at] = value);
        }
        match now {
            Some(now) => Ok((now, values)),
            None => Ok((self.time_now().await?, values)),
        }
    }

    async fn look_into(
        &self,
        bucket: Bucket,
        commands: Vec<(usize, Cmd)>,
    ) -> Result<(Timestamp, Vec<(usize, Value)>), Fault> {
        match self.look_together(bucket, &commands).await {
            // Some are here and some there.
            Err(Fault { turn: Some(Turn::Moving { .. }), .. }) => {
                let (mut now, mut found) = (None, Vec::new());
                for command in commands {
                    let (then, one) = self.look_together(bucket, &[command]).await?;
                    now = Some(now.map_or(then, |now: Timestamp| now.min(then)));
                    found.extend(one);
                }
                Ok((now.expect("there are commands"), found))
            }
            looked => looked,
        }
    }

    async fn look_together(
        &self,
        bucket: Bucket,
        commands: &[(usize, Cmd)],
    ) -> Result<(Timestamp, Vec<(usize, Value)>), Fault> {
        let strange = || Fault::strange(Access::Read);
        let mut all = pipe();
        all.cmd("TIME");
        for (_, command) in commands {
            all.add_command(command.clone());
        }
        let answer = self.routes.ask(bucket, Lane::Look, Access::Read, Ask::All(&all)).await?;
        let Value::Array(mut answers) = answer else { return Err(strange()) };
        if answers.len() != commands.len() + 1 {
            return Err(strange());
        }
        let now = self.time(&answers.remove(0)).ok_or_else(strange)?;
        Ok((now, commands.iter().map(|(at, _)| *at).zip(answers).collect()))
    }
}
