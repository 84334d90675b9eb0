//! The bank behind the gateway: slow, busy, or gone before its answer is whole.

use std::collections::BTreeSet;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::harness::{Effect, Ledger, Random, Then, reply};

/// The bank's own books, beside the ledger. Clones are the same bank.
#[derive(Clone)]
pub(super) struct Bank {
    books: Arc<Books>,
}

struct Books {
    seed: u64,
    /// How many effects take their time right now.
    busy: AtomicUsize,
    /// The effects that were turned away and charged nobody.
    turned_away: Mutex<BTreeSet<usize>>,
    /// The effects whose answer the bank did not send as a whole.
    unanswered: Mutex<BTreeSet<usize>>,
}

impl Bank {
    pub(super) fn new(seed: u64) -> Self {
        let (turned_away, unanswered) = Default::default();
        Self { books: Arc::new(Books { seed, busy: AtomicUsize::new(0), turned_away, unanswered }) }
    }

    pub(super) fn behaviour(
        self,
    ) -> impl Fn(&Effect, &mut TcpStream) -> Then + Send + Sync + 'static {
        move |effect, client| self.serve(effect, client)
    }

    fn serve(&self, effect: &Effect, client: &mut TcpStream) -> Then {
        let mut random = Random::seeded(self.books.seed ^ effect.number as u64);
        let fate = random.below(100);
        if fate < 25 {
            self.books.busy.fetch_add(1, Ordering::Relaxed);
            std::thread::sleep(Duration::from_millis(50 + random.below(100)));
            self.books.busy.fetch_sub(1, Ordering::Relaxed);
        }
        let note = |set: &Mutex<BTreeSet<usize>>| {
            set.lock().expect("no panic holds it").insert(effect.number);
        };
        match fate {
            80..88 => {
                note(&self.books.turned_away);
                reply(client, 503, &[], "busy")
            }
            88..92 => {
                note(&self.books.unanswered);
                Then::Close
            }
            92..96 => {
                note(&self.books.unanswered);
                let _gone =
                    client.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 99\r\n\r\nha");
                Then::Close
            }
            _ => reply(client, 201, &[], &receipt(effect)),
        }
    }

    /// Whether it is in the middle of something that takes its time.
    pub(super) fn is_busy(&self) -> bool {
        self.books.busy.load(Ordering::Relaxed) > 0
    }

    /// The receipt of what was charged for an order, if it was.
    pub(super) fn charge_of(&self, ledger: &Ledger, tenant: &str, key: &str) -> Option<String> {
        self.charges(ledger, tenant, key).first().map(receipt)
    }

    /// What was charged for an order.
    pub(super) fn charges(&self, ledger: &Ledger, tenant: &str, key: &str) -> Vec<Effect> {
        let mut effects = ledger.of(key);
        let turned_away = self.books.turned_away.lock().expect("no panic holds it");
        effects.retain(|effect| effect.header("x-tenant") == Some(tenant));
        effects.retain(|effect| !turned_away.contains(&effect.number));
        effects
    }

    /// Whether it left some charge of an order without a whole answer.
    pub(super) fn owes_an_answer(&self, ledger: &Ledger, tenant: &str, key: &str) -> bool {
        let unanswered = self.books.unanswered.lock().expect("no panic holds it");
        self.charges(ledger, tenant, key).iter().any(|effect| unanswered.contains(&effect.number))
    }
}

fn receipt(effect: &Effect) -> String {
    let tenant = effect.header("x-tenant").unwrap_or_default();
    format!(r#"{{"charge":"ch_{}","for":"{tenant}"}}"#, effect.number)
}
