//! [`RedisBell`]: wake-ups between processes, by `PUBLISH` to a channel that each listens to.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{PubSubSink, PubSubStream};
use redis::cmd;
use selfsame_core::{AttemptId, Bell, RecordId, Sleepers};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::link::{Ask, Link};
use super::source::Source;
use super::trouble::{Access, Fault};
use crate::background::{self, Backoff};
use crate::stores::ears::{Ears, Word};

/// How many words may wait to be said; one more is left unsaid.
const QUEUE_MAX: usize = 4096;
/// How many are said together.
const TOGETHER_MAX: usize = 256;
/// How long nothing may come before the connection is tried.
const QUIET_MAX: Duration = Duration::from_secs(30);

/// Wake-ups between the processes that use one database.
pub(super) struct RedisBell {
    words: mpsc::Sender<Word>,
    ears: Arc<Ears>,
    channel: String,
}

impl RedisBell {
    /// Listens at Redis, and again whenever it was away, until it is dropped.
    pub(super) fn start(
        source: impl Into<Source>,
        link: Arc<Link>,
        database: i64,
        time_out: Duration,
    ) -> Self {
        let (sender, words) = mpsc::channel(QUEUE_MAX);
        // Channels are the same in all databases.
        let channel = format!("selfsame:bell:{database}");
        let bell = Self { words: sender, ears: Arc::default(), channel: channel.clone() };
        let own = *AttemptId::random().as_bytes();
        let ears = bell.ears.clone();
        let source = source.into();
        background::spawn(Ringer { source, link, channel, own, ears, time_out }.run(words));
        bell
    }

    /// The channel to which every process that uses the database listens.
    pub(super) fn channel(&self) -> &str {
        &self.channel
    }

    fn say(&self, word: Word) {
        // It is a hint: whoever waits looks by itself.
        let _ = self.words.try_send(word);
    }
}

impl Bell for RedisBell {
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

struct Ringer {
    source: Source,
    /// Carries what is said: a connection that listens cannot.
    link: Arc<Link>,
    channel: String,
    /// The name of this bell: what is said here need not be heard here.
    own: [u8; AttemptId::LEN],
    ears: Arc<Ears>,
    time_out: Duration,
}

impl Ringer {
    /// Listens and speaks, until nobody has a use for it.
    async fn run(self, mut words: mpsc::Receiver<Word>) {
        let mut pause = Backoff::new();
        while !words.is_closed() {
            match self.listen().await {
                Ok((sink, heard)) => {
                    pause = Backoff::new();
                    self.ears.set_listening(true);
                    let ended = self.speak(&mut words, sink, heard).await;
                    self.ears.set_listening(false);
                    if let Err(fault) = ended {
                        tracing::warn!(error = fault.message, "wake-ups of other nodes are missed");
                    }
                }
                Err(fault) => {
                    tracing::debug!(error = fault.message, "wake-ups of other nodes are missed");
                }
            }
            pause.wait().await;
        }
    }

    async fn listen(&self) -> Result<(PubSubSink, PubSubStream), Fault> {
        let (client, _) = self.source.client().await?;
        let listen = async {
            let (mut sink, heard) = client.get_async_pubsub().await?.split();
            sink.subscribe(&self.channel).await?;
            Ok((sink, heard))
        };
        self.within(listen).await
    }

    /// Says what is to be said and hears what others say, until the connection ends or nobody speaks
    /// any more.
    async fn speak(
        &self,
        words: &mut mpsc::Receiver<Word>,
        mut sink: PubSubSink,
        mut heard: PubSubStream,
    ) -> Result<(), Fault> {
        loop {
            let mut together = Vec::new();
            tokio::select! {
                said = words.recv_many(&mut together, TOGETHER_MAX) => {
                    if said == 0 {
                        return Ok(());
                    }
                }
                message = heard.next() => {
                    let Some(message) = message else {
                        return Err(Fault::not_written("the connection ended"));
                    };
                    match message.get_payload_bytes().split_first_chunk() {
                        Some((by, words)) if *by != self.own => self.ears.hear_all(words),
                        _ => {}
                    }
                    continue;
                }
                () = tokio::time::sleep(QUIET_MAX) => {
                    self.within(sink.ping::<redis::Value>()).await?;
                    continue;
                }
            }
            let mut said = self.own.to_vec();
            said.extend_from_slice(Word::write_all(together).as_bytes());
            let mut publish = cmd("PUBLISH");
            publish.arg(&self.channel).arg(said);
            self.link.ask(Access::Read, Ask::Command(&publish)).await?;
        }
    }

    async fn within<T>(
        &self,
        call: impl Future<Output = redis::RedisResult<T>>,
    ) -> Result<T, Fault> {
        match timeout(self.time_out, call).await {
            Ok(answer) => answer.map_err(|error| Fault::of(&error, Access::Read)),
            Err(_) => Err(Fault::timed_out(Access::Read)),
        }
    }
}
