//! Rocket rides: a request does work here and work elsewhere, can be interrupted anywhere, and is
//! finished once.
//!
//! | module | is |
//! |---|---|
//! | [`rides`] | the service; read `create_ride` |
//! | [`processor`] | whoever charges cards: another process, with a table of its own |
//! | [`simulator`] | riders on bad networks |
//! | [`stops`] | where a test stops the service |

pub mod processor;
pub mod rides;
pub mod simulator;
pub mod stops;
