//! [`Gather`]: commands of many callers that go over a connection together.
//!
//! A connection sends at once what it is given, and that is a call of the system, which takes longer than all else, here and
//! where it is read. Callers come in crowds, when the answers to many of them were read together. So what the first of
//! them has to say waits until all have run that can, and goes with what they have to say. Nobody waits for an answer
//! to others.

use std::sync::Arc;

use parking_lot::Mutex;
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisError, RedisResult, Value};
use tokio::sync::oneshot;
use tokio::task::yield_now;

use crate::background;

/// How many callers go together at most: their answers are heard together, too.
const TOGETHER_MAX: usize = 16;

/// What is to be read behind a write. If several callers of a crowd have the same, it is read once, behind all of them.
pub(super) type Behind = Arc<[Cmd]>;

/// A connection, and what is about to be sent over it.
pub(super) struct Gather {
    connection: MultiplexedConnection,
    waiting: Mutex<Vec<Waiting>>,
}

/// What a caller asks.
struct Waiting {
    commands: Vec<Cmd>,
    asker: Asker,
}

impl Waiting {
    fn is_heard(&self) -> bool {
        !self.asker.answers.is_closed()
    }
}

/// A caller.
struct Asker {
    /// How many commands are its own.
    count: usize,
    behind: Option<Behind>,
    /// Where the answers go.
    answers: oneshot::Sender<RedisResult<Vec<Value>>>,
}

impl Asker {
    fn tell(self, answers: RedisResult<Vec<Value>>) {
        // It may have given up.
        let _unheard = self.answers.send(answers);
    }
}

impl Gather {
    pub(super) fn over(connection: MultiplexedConnection) -> Arc<Self> {
        Arc::new(Self { connection, waiting: Mutex::default() })
    }

    /// For what is said by itself.
    pub(super) fn connection(&self) -> MultiplexedConnection {
        self.connection.clone()
    }

    /// The answers to these commands, and to those behind them; errors of Redis' are among them. They are sent in their
    /// order, and nothing of anybody else's is in between.
    pub(super) async fn ask(
        self: &Arc<Self>,
        commands: Vec<Cmd>,
        behind: Option<Behind>,
    ) -> RedisResult<Vec<Value>> {
        let (answers, heard) = oneshot::channel();
        let asker = Asker { count: commands.len(), behind, answers };
        let is_one_too_many = {
            let mut waiting = self.waiting.lock();
            waiting.push(Waiting { commands, asker });
            waiting.len() % TOGETHER_MAX == 1
        };
        if is_one_too_many {
            background::spawn(send(self.clone()));
        }
        let ended = || RedisError::from(std::io::Error::other("nobody has sent it"));
        heard.await.unwrap_or_else(|_| Err(ended()))
    }
}

/// Sends what waits, once for each crowd.
async fn send(gather: Arc<Gather>) {
    yield_now().await;
    let crowd: Vec<_> = {
        let mut waiting = gather.waiting.lock();
        let count = waiting.len().min(TOGETHER_MAX);
        waiting.drain(..count).collect()
    };
    let mut pipeline = Pipeline::with_capacity(crowd.len() + 2);
    let (mut askers, mut behind) = (Vec::with_capacity(crowd.len()), Vec::new());
    // Who has given up by now need not be asked what became of it.
    for Waiting { commands, asker } in crowd.into_iter().filter(Waiting::is_heard) {
        askers.push(asker);
        for command in commands {
            pipeline.add_command(command);
        }
    }
    for wanted in askers.iter().filter_map(|asker| asker.behind.as_ref()) {
        if !behind.iter().any(|other| Arc::ptr_eq(other, wanted)) {
            behind.push(wanted.clone());
        }
    }
    for command in behind.iter().flat_map(|behind| behind.iter()) {
        pipeline.add_command(command.clone());
    }
    if askers.is_empty() {
        return;
    }
    let mut connection = gather.connection();
    let heard = connection.req_packed_commands(&pipeline, 0, pipeline.len()).await;
    hand_out(heard, askers, behind);
}

/// Gives each what it has asked for.
fn hand_out(heard: RedisResult<Vec<Value>>, askers: Vec<Asker>, behind: Vec<Behind>) {
    let mut all = match heard {
        Ok(all) => all.into_iter(),
        Err(error) => {
            for asker in askers {
                asker.tell(Err(error.clone()));
            }
            return;
        }
    };
    let own: Vec<Vec<_>> =
        askers.iter().map(|asker| all.by_ref().take(asker.count).collect()).collect();
    let read: Vec<Vec<_>> =
        behind.iter().map(|behind| all.by_ref().take(behind.len()).collect()).collect();
    for (asker, mut own) in askers.into_iter().zip(own) {
        if let Some(wanted) = &asker.behind {
            let at = behind.iter().position(|behind| Arc::ptr_eq(behind, wanted));
            own.extend_from_slice(&read[at.expect("it was asked for")]);
        }
        asker.tell(Ok(own));
    }
}
