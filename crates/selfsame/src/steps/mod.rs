//! The seven steps of a keyed request, one file each. A step does not branch on another's
//! business: that is `handle`'s.

mod claim;
mod fingerprint;
mod keepsake;
mod parse;
mod probe;
mod record;
mod replay;
mod run;
mod scope;
mod seek;
mod turn;

pub(crate) use claim::{ClaimContext, Settled, answered, claim};
pub(crate) use fingerprint::{
    Asked, Whole, announces_more_than, ask, fingerprint, fingerprint_of, read_whole,
};
pub(crate) use keepsake::{difference, keepsake};
pub(crate) use parse::{Apart, Keyed, Parsed, is_looked_at, key_in, missing, parse};
pub(crate) use probe::probe;
pub(crate) use record::{Recorder, is_stream, release_after, stored_answer, unknown};
#[cfg(feature = "postgres")]
pub(crate) use replay::answer_to_keep;
pub(crate) use replay::replay;
pub(crate) use run::{bypass, pass, run};
pub(crate) use scope::{Identity, scope};
pub(crate) use seek::{Sought, has_no_other_key, key_in_body, seek};
pub(crate) use turn::{Turn, take_turn};
