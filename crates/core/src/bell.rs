//! [`Bell`]: wake-ups between the nodes that share a store.
//!
//! They are hints: one may be lost, and one may come for nothing. Whoever waits also looks by itself,
//! and what it finds in the store is all that counts.

use std::sync::Weak;

use crate::RecordId;

/// Carries wake-ups between nodes. No call waits for anything.
pub trait Bell: Send + Sync + 'static {
    /// Somebody here waits for the run of `id` to end, wherever that goes on.
    fn listen_for(&self, id: &RecordId);

    /// The run of `id` has ended here.
    fn ring(&self, id: &RecordId);

    /// Wakes `sleepers` from now on, when a run has ended on another node.
    fn wakes(&self, sleepers: Weak<dyn Sleepers>);

    /// Whether wake-ups come at the moment. Looking must do if not.
    fn is_heard(&self) -> bool;
}

/// Those who wait on one node.
pub trait Sleepers: Send + Sync + 'static {
    /// Wakes all who wait for the run of `id`: it has ended on another node.
    fn wake_here(&self, id: &RecordId);
}
