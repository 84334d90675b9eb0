//! A stretch of network that can be cut.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// Passes bytes on, in both directions, until it is cut.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    connections: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub(crate) fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let connections = Arc::new(Mutex::new(Vec::new()));
        let passing = connections.clone();
        thread::spawn(move || {
            for near in listener.incoming().flatten() {
                let Ok(far) = TcpStream::connect(target) else { continue };
                let other = |end: &TcpStream| end.try_clone().expect("a second handle");
                let mut passing = passing.lock().expect("no panic holds it");
                passing.extend([other(&near), other(&far)]);
                let (back_from, back_to) = (other(&far), other(&near));
                thread::spawn(move || pass(near, far));
                thread::spawn(move || pass(back_from, back_to));
            }
        });
        Self { address, connections }
    }

    /// Ends all connections that there are.
    pub(crate) fn cut(&self) {
        for connection in self.connections.lock().expect("no panic holds it").drain(..) {
            // It may have ended by itself.
            let _ended = connection.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ended = to.shutdown(Shutdown::Both);
}
