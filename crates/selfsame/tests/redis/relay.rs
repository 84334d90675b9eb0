//! A way to a server on which not everything arrives as it was sent.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use selfsame_test_redis::Server;

/// What every time begins with that Redis tells, for some centuries.
const TIME: &[u8] = b"*2\r\n$10\r\n";
const DIGITS: usize = 10;

/// Passes bytes on in both directions.
pub(crate) struct Relay {
    port: u16,
    wrong: Arc<Wrong>,
}

/// What is wrong with the way.
#[derive(Default)]
struct Wrong {
    /// The answer to the next command about this key is not passed on, and its connection ends.
    unanswered: Mutex<Option<String>>,
    /// By how many seconds the times that are told are off.
    seconds_off: AtomicI64,
    /// Words of which others of the same length are made on the way there.
    said_as: Mutex<Option<(&'static [u8], &'static [u8])>>,
    /// The number of connections up to now.
    made: AtomicUsize,
    /// The number of those, from the first on, that are dead: nothing is passed on, and nobody is told.
    dead: AtomicUsize,
    /// The time that every answer takes on the way.
    answers_take: Mutex<Duration>,
}

impl Relay {
    pub(crate) fn to(server: &Server) -> Self {
        let (listener, target) =
            (TcpListener::bind("127.0.0.1:0").expect("a free port"), server.port());
        let port = listener.local_addr().expect("bound").port();
        let wrong = Arc::new(Wrong::default());
        let passing = wrong.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(("127.0.0.1", target)) else { continue };
                let other = |end: &TcpStream| end.try_clone().expect("a second handle");
                let (back_from, back_to) = (other(&far), other(&near));
                let (there, back) = (passing.clone(), passing.clone());
                let is_mute = Arc::new(AtomicBool::new(false));
                let is_muted = is_mute.clone();
                let at = passing.made.fetch_add(1, Ordering::SeqCst);
                thread::spawn(move || {
                    let ask = |bytes: &mut [u8]| there.ask(bytes, &is_mute);
                    pass(near, far, ask, || there.is_dead(at));
                });
                thread::spawn(move || {
                    let answer = |bytes: &mut [u8]| back.answer(bytes, &is_muted);
                    pass(back_from, back_to, answer, || back.is_dead(at));
                });
            }
        });
        Self { port, wrong }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0", self.port)
    }

    /// The answer to the next command about `key` is not heard.
    pub(crate) fn mute(&self, key: String) {
        *self.wrong.unanswered.lock().expect("no panic holds it") = Some(key);
    }

    /// Every answer takes `delay` on the way from now on.
    pub(crate) fn slow_down(&self, delay: Duration) {
        *self.wrong.answers_take.lock().expect("no panic holds it") = delay;
    }

    /// Nothing more is passed on over the connections there are; new ones work.
    pub(crate) fn kill_silently(&self) {
        let made = self.wrong.made.load(Ordering::SeqCst);
        self.wrong.dead.store(made, Ordering::SeqCst);
    }

    /// Nothing is passed on until `let_go_on`, as if the process that uses this were stopped.
    pub(crate) fn hold_up(&self) {
        self.wrong.dead.store(usize::MAX, Ordering::SeqCst);
    }

    /// New connections work again.
    pub(crate) fn let_go_on(&self) {
        self.kill_silently();
    }

    /// Sets the server's clock, as far as can be told from here.
    pub(crate) fn set_clock(&self, seconds_off: i64) {
        self.wrong.seconds_off.store(seconds_off, Ordering::SeqCst);
    }

    /// Says something else from now on.
    pub(crate) fn say(&self, this: &'static [u8], instead_of: &'static [u8]) {
        assert_eq!(this.len(), instead_of.len());
        *self.wrong.said_as.lock().expect("no panic holds it") = Some((instead_of, this));
    }
}

impl Wrong {
    /// Tells whether nothing is passed on over the connection of this number.
    fn is_dead(&self, at: usize) -> bool {
        at < self.dead.load(Ordering::SeqCst)
    }

    fn ask(&self, bytes: &mut [u8], is_mute: &AtomicBool) -> bool {
        let is_about = |key: &mut String| !places(bytes, key.as_bytes()).is_empty();
        if self.unanswered.lock().expect("no panic holds it").take_if(is_about).is_some() {
            is_mute.store(true, Ordering::SeqCst);
        }
        if let Some((words, others)) = *self.said_as.lock().expect("no panic holds it") {
            for at in places(bytes, words) {
                bytes[at..at + others.len()].copy_from_slice(others);
            }
        }
        true
    }

    fn answer(&self, bytes: &mut [u8], is_mute: &AtomicBool) -> bool {
        if is_mute.load(Ordering::SeqCst) {
            return false;
        }
        let delay = *self.answers_take.lock().expect("no panic holds it");
        thread::sleep(delay);
        let times = places(bytes, TIME).into_iter().filter_map(|at| {
            let at = at + TIME.len();
            // Some settings begin like a time.
            let digits = str::from_utf8(bytes.get(at..at + DIGITS)?).ok()?;
            Some((at, digits.parse::<i64>().ok()?))
        });
        let off = self.seconds_off.load(Ordering::SeqCst);
        for (at, seconds) in times.collect::<Vec<_>>() {
            let told = (seconds + off).to_string();
            bytes[at..at + DIGITS].copy_from_slice(told.as_bytes());
        }
        true
    }
}

fn places(bytes: &[u8], words: &[u8]) -> Vec<usize> {
    let windows = bytes.windows(words.len()).enumerate();
    windows.filter(|(_, window)| *window == words).map(|(at, _)| at).collect()
}

fn pass(
    mut from: TcpStream,
    mut to: TcpStream,
    through: impl Fn(&mut [u8]) -> bool,
    is_dead: impl Fn() -> bool,
) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if is_dead() {
            continue;
        }
        if !through(&mut bytes[..read]) || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    for end in [from, to] {
        // It may have ended by itself.
        let _ended = end.shutdown(Shutdown::Both);
    }
}
