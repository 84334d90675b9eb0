//! Selfsame as one binary: a gateway in front of any API that makes retries safe.

mod address_limit;
mod admin;
mod audit;
mod background;
mod body_rate;
mod buffered_bytes;
mod checkpoints;
mod cli;
mod client_ip;
mod commands;
mod completer;
mod config;
mod contract;
mod descriptors;
mod door;
mod fair_share;
mod forward_auth;
mod forwarded;
mod framing;
mod gateway;
mod http2;
mod installation;
mod internal_listener;
mod jwt;
mod live;
mod new_key_rate;
mod pace;
mod peer;
mod preface;
mod printable;
mod request_head;
mod request_path;
mod room;
mod route_table;
mod routes;
mod secret_files;
mod server;
mod shutdown;
mod status;
mod store_size;
mod target;
mod telemetry;
mod tenant;
mod tls;
mod tunnel;
mod unread;
mod upgrade;
mod upstream;
mod verification;
mod workers;

pub use cli::run;

/// The system's is slow at what a request takes: pieces of more than a kilobyte.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
