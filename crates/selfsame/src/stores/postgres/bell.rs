//! [`PostgresBell`]: wake-ups between processes, by `NOTIFY` over one connection that listens.
//!
//! Who waits says so, and who ends a run that somebody waits for says that. Transactions that notify
//! commit one after another, so none that records anything does: it is said behind it, for all that
//! came up meanwhile at once.

use std::convert::Infallible;
use std::future::poll_fn;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use selfsame_core::{Bell, RecordId, Sleepers};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::{AsyncMessage, Client, Connection, SimpleQueryMessage, Socket};

use super::session::{Target, within};
use super::tls::Stream;
use super::trouble::{Access, Fault};
use crate::background::{self, Backoff};
use crate::stores::ears::{Ears, Word};

/// How many words may wait to be said; one more is left unsaid.
const QUEUE_MAX: usize = 4096;
/// How many are said together: a notification has room for no more.
const TOGETHER_MAX: usize = 120;
/// How long nothing may come before the connection is tried.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// Wake-ups between the processes that use one schema.
pub(super) struct PostgresBell {
    words: mpsc::Sender<Word>,
    ears: Arc<Ears>,
}

impl PostgresBell {
    /// Listens at the database, and again whenever it was away, until it is dropped.
    pub(super) fn start(target: Target) -> Self {
        let (sender, words) = mpsc::channel(QUEUE_MAX);
        let bell = Self { words: sender, ears: Arc::default() };
        background::spawn(run(target, words, bell.ears.clone()));
        bell
    }

    /// One that nobody hears.
    pub(super) fn silent() -> Self {
        let (words, _) = mpsc::channel(1);
        Self { words, ears: Arc::default() }
    }

    fn say(&self, word: Word) {
        // It is a hint: whoever waits looks by itself.
        let _ = self.words.try_send(word);
    }
}

impl Bell for PostgresBell {
    fn listen_for(&self, id: &RecordId) {
        self.say(Word::Wanted(*id));
    }

    fn ring(&self, id: &RecordId) {
        if self.ears.take_wanted(id) {
            self.say(Word::Ended(*id));
        }
    }

    fn wakes(&self, sleepers: Weak<dyn Sleepers>) {
        self.ears.wakes(sleepers);
    }

    fn is_heard(&self) -> bool {
        self.ears.is_listening()
    }
}

/// Listens and speaks, until nobody has a use for it.
async fn run(target: Target, mut words: mpsc::Receiver<Word>, ears: Arc<Ears>) {
    let mut pause = Backoff::new();
    while !words.is_closed() {
        match Ringer::start(&target, &ears).await {
            Ok(mut ringer) => {
                pause = Backoff::new();
                ears.set_listening(true);
                let ended = ringer.speak(&mut words, target.time_out).await;
                ears.set_listening(false);
                if let Err(fault) = ended {
                    tracing::warn!(error = %fault.error(), "wake-ups of other nodes are missed");
                }
            }
            Err(fault) => {
                tracing::debug!(error = %fault.error(), "wake-ups of other nodes are missed");
            }
        }
        pause.wait().await;
    }
}

/// A connection that listens.
struct Ringer {
    client: Client,
    channel: String,
    /// Ends with the connection.
    is_over: oneshot::Receiver<Infallible>,
}

impl Ringer {
    async fn start(target: &Target, ears: &Arc<Ears>) -> Result<Self, Fault> {
        let start = async {
            let (client, connection) = target.open().await?;
            let (held, is_over) = oneshot::channel();
            let own = Arc::new(Mutex::new(None));
            background::spawn(hear(connection, ears.clone(), own.clone(), held));
            let channel = target.schema.clone();
            let listen = format!("listen {channel}; select pg_backend_pid()");
            let answer = client.simple_query(&listen).await;
            let answer = answer.map_err(|error| Fault::of(&error, Access::Read))?;
            let pid = answer.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
                _ => None,
            });
            *own.lock() = pid;
            Ok(Self { client, channel, is_over })
        };
        within(target.time_out, Access::Read, start).await
    }

    /// Says what is to be said, until the connection ends or nobody speaks any more.
    async fn speak(
        &mut self,
        words: &mut mpsc::Receiver<Word>,
        time_out: Duration,
    ) -> Result<(), Fault> {
        loop {
            let mut together = Vec::new();
            tokio::select! {
                said = words.recv_many(&mut together, TOGETHER_MAX) => {
                    if said == 0 {
                        return Ok(());
                    }
                }
                _ = &mut self.is_over => return Err(Fault::not_written("the connection ended")),
                () = tokio::time::sleep(QUIET_MAX) => {}
            }
            let words = Word::write_all(together);
            let sql = match words.as_str() {
                "" => "select 1".to_owned(),
                words => format!("notify {}, '{words}'", self.channel),
            };
            let said = async {
                let said = self.client.batch_execute(&sql).await;
                said.map_err(|error| Fault::of(&error, Access::Read))
            };
            within(time_out, Access::Read, said).await?;
        }
    }
}

/// Hears what other processes say, until the connection ends.
async fn hear(
    mut connection: Connection<Socket, Stream>,
    ears: Arc<Ears>,
    own: Arc<Mutex<Option<i32>>>,
    _held: oneshot::Sender<Infallible>,
) {
    while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
        let AsyncMessage::Notification(said) = message else { continue };
        // What is said here need not be heard here.
        if *own.lock() != Some(said.process_id()) {
            ears.hear_all(said.payload().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_together_fits_into_a_notification() {
        let id = |number: usize| {
            let mut bytes = [7; RecordId::LEN];
            bytes[..8].copy_from_slice(&number.to_be_bytes());
            RecordId::from_bytes(bytes)
        };
        let most = (0..TOGETHER_MAX).map(|number| Word::Wanted(id(number)));
        assert!(Word::write_all(most.collect()).len() < 8000);
    }
}
