//! TLS with clients: what is shown to them, and who they show themselves to be. What is needed for it
//! with the upstream as well is in [`files`].

mod certificate;
pub(crate) mod files;
mod incoming;

pub(crate) use incoming::{Alpn, Secured, Tls, check, warning};
