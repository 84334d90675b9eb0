//! [`Relay`]: a port of this machine that leads to another, can be made to lead elsewhere, and can stand still.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Result;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, tcp};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// What those who carry must know.
#[derive(Clone, Copy)]
struct Order {
    target: u16,
    /// Grows with each change of the target: who carries for an older one ends.
    turn: u64,
    is_paused: bool,
}

/// A relay, until it is dropped.
pub(super) struct Relay {
    port: u16,
    order: watch::Sender<Order>,
    _carriers: JoinSet<()>,
}

impl Relay {
    pub(super) async fn start(target: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let port = listener.local_addr()?.port();
        let order = watch::Sender::new(Order { target, turn: 0, is_paused: false });
        let mut carriers = JoinSet::new();
        carriers.spawn(accept(listener, order.subscribe()));
        Ok(Self { port, order, _carriers: carriers })
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Nothing goes through any more.
    pub(super) fn pause(&self) {
        self.order.send_modify(|order| order.is_paused = true);
    }

    /// Ends all connections; new ones lead there.
    pub(super) fn lead_to(&self, target: u16) {
        self.order.send_modify(|order| {
            *order = Order { target, turn: order.turn + 1, is_paused: false };
        });
    }
}

async fn accept(listener: TcpListener, order: watch::Receiver<Order>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        connections.spawn(carry_both(near, order.clone()));
    }
}

async fn carry_both(near: TcpStream, mut order: watch::Receiver<Order>) {
    let Order { target, turn, .. } = *order.borrow_and_update();
    let Ok(far) = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, target))).await else {
        return;
    };
    let _delayed = near.set_nodelay(true).and_then(|()| far.set_nodelay(true));
    let ((near_in, near_out), (far_in, far_out)) = (near.into_split(), far.into_split());
    let mut turns = order.clone();
    tokio::select! {
        // First: a change of the target also ends a pause, and what was held back must not pass then.
        biased;
        _ = turns.wait_for(|order| order.turn != turn) => {}
        _ = carry(near_in, far_out, order.clone()) => {}
        _ = carry(far_in, near_out, order) => {}
    }
}

async fn carry(
    mut from: tcp::OwnedReadHalf,
    mut to: tcp::OwnedWriteHalf,
    mut order: watch::Receiver<Order>,
) -> Result<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            return Ok(());
        }
        order.wait_for(|order| !order.is_paused).await?;
        to.write_all(&bytes[..read]).await?;
    }
}
