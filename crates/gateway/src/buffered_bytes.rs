//! [`BufferedBytes`]: limits the bytes of requests and responses that are held in memory for one client address, and for
//! all of them.
//!
//! A limit of requests does not bound their memory: each may have a megabyte in it.
//!
//! An address counts for the whole with no more than its own limit. It exceeds that one only by responses that it does not
//! take, and these must not leave others without room.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use selfsame::BufferExcess;

use crate::address_limit::ClientAddress;
use crate::config::Limits;
use crate::room::Seldom;
use crate::telemetry;

pub(crate) const MAX_BUFFERED_BYTES: &str = "max_buffered_bytes";
pub(crate) const MAX_BUFFERED_BYTES_PER_ADDRESS: &str = "max_buffered_bytes_per_address";

/// Gauge of the bytes that are held in memory for clients.
pub(crate) const BUFFERED: &str = "selfsame_buffered_bytes";

const ADDRESS_DETAIL: &str = "requests and responses of this client's address that are not over hold as many bytes as they may \
                              (max_buffered_bytes_per_address); nothing was sent, try again";
const WHOLE_DETAIL: &str = "requests and responses that are not over hold as many bytes as they may \
                            (max_buffered_bytes); nothing was sent, try again";

/// The limits that are the same for all addresses, and the bytes of all of them.
pub(crate) struct BufferLimits {
    max_per_address: AtomicUsize,
    max: AtomicUsize,
    /// Shares of all addresses.
    whole: AtomicUsize,
    address_full: Seldom,
    full: Seldom,
}

/// The bytes that are held for one address.
pub(crate) struct BufferedBytes {
    address: ClientAddress,
    held: Mutex<Held>,
    limits: Arc<BufferLimits>,
}

#[derive(Default)]
struct Held {
    bytes: usize,
    /// Number of them that count for the whole: no more than the limit of one address.
    share: usize,
    /// Number of replays for each part of memory that they share, by its address and length.
    replays: HashMap<(usize, usize), usize>,
}

impl BufferLimits {
    pub(crate) fn new(limits: &Limits) -> Arc<Self> {
        let (max_per_address, max, whole, address_full, full) = Default::default();
        let this = Self { max_per_address, max, whole, address_full, full };
        this.set(limits);
        Arc::new(this)
    }

    /// Applies other limits to whatever comes from now on.
    pub(crate) fn set(&self, limits: &Limits) {
        self.max_per_address.store(limits.max_buffered_bytes_per_address, Ordering::Relaxed);
        self.max.store(limits.max_buffered_bytes, Ordering::Relaxed);
    }

    fn add(&self, held: &mut Held, bytes: usize) {
        held.bytes += bytes;
        self.count_share(held);
        metrics::gauge!(BUFFERED).increment(bytes as f64);
    }

    fn release(&self, held: &mut Held, bytes: usize) {
        held.bytes -= bytes;
        self.count_share(held);
        metrics::gauge!(BUFFERED).decrement(bytes as f64);
    }

    fn count_share(&self, held: &mut Held) {
        let share = held.bytes.min(self.max_per_address.load(Ordering::Relaxed));
        // Less is a number that wraps around.
        self.whole.fetch_add(share.wrapping_sub(held.share), Ordering::Relaxed);
        held.share = share;
    }

    /// Adds a share to the whole, if there is room for it.
    fn has_counted(&self, share: usize) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let more = |whole: usize| Some(whole.saturating_add(share)).filter(|whole| *whole <= max);
        self.whole.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }
}

impl BufferedBytes {
    pub(crate) fn new(address: ClientAddress, limits: Arc<BufferLimits>) -> Self {
        Self { address, held: Mutex::default(), limits }
    }

    /// Tells if there is room for `bytes` more.
    pub(crate) fn check(&self, bytes: usize) -> Result<(), BufferExcess> {
        self.fits_address(&self.held.lock(), bytes)?;
        let max = self.limits.max.load(Ordering::Relaxed);
        match bytes > 0 && self.limits.whole.load(Ordering::Relaxed).saturating_add(bytes) > max {
            true => Err(self.whole_excess()),
            false => Ok(()),
        }
    }

    /// Counts `bytes`, if there is room for them.
    pub(crate) fn reserve(&self, bytes: usize) -> Result<(), BufferExcess> {
        let mut held = self.held.lock();
        self.fits_address(&held, bytes)?;
        // All of them: they are within the limit of the address.
        let share = held.bytes + bytes;
        if !self.limits.has_counted(share - held.share) {
            return Err(self.whole_excess());
        }
        (held.bytes, held.share) = (share, share);
        metrics::gauge!(BUFFERED).increment(bytes as f64);
        Ok(())
    }

    /// Counts `bytes`, whatever the limit.
    pub(crate) fn add(&self, bytes: usize) {
        self.limits.add(&mut self.held.lock(), bytes);
    }

    pub(crate) fn release(&self, bytes: usize) {
        self.limits.release(&mut self.held.lock(), bytes);
    }

    /// Counts the memory of `data`, unless a replay has it already.
    pub(crate) fn share(&self, data: &[u8]) {
        let held = &mut *self.held.lock();
        let replays = held.replays.entry(place(data)).or_default();
        *replays += 1;
        if *replays == 1 {
            self.limits.add(held, data.len());
        }
    }

    /// Takes back the memory of `data`, unless another replay has it, too.
    pub(crate) fn unshare(&self, data: &[u8]) {
        let held = &mut *self.held.lock();
        let replays = held.replays.get_mut(&place(data)).expect("it was shared before");
        *replays -= 1;
        if *replays == 0 {
            held.replays.remove(&place(data));
            self.limits.release(held, data.len());
        }
    }

    fn fits_address(&self, held: &Held, bytes: usize) -> Result<(), BufferExcess> {
        let max = self.limits.max_per_address.load(Ordering::Relaxed);
        if held.bytes.saturating_add(bytes) <= max {
            return Ok(());
        }
        telemetry::shed(MAX_BUFFERED_BYTES_PER_ADDRESS);
        if self.limits.address_full.is_due() {
            tracing::warn!(
                address = %self.address, setting = MAX_BUFFERED_BYTES_PER_ADDRESS, max,
                "requests and responses of a client address hold too many bytes: further bodies are refused; if \
                 it is a load balancer's, name it in trusted_proxies"
            );
        }
        Err(BufferExcess::Client(ADDRESS_DETAIL))
    }

    fn whole_excess(&self) -> BufferExcess {
        telemetry::shed(MAX_BUFFERED_BYTES);
        if self.limits.full.is_due() {
            let max = self.limits.max.load(Ordering::Relaxed);
            tracing::warn!(
                setting = MAX_BUFFERED_BYTES,
                max,
                "requests and responses hold too many bytes: further bodies are refused"
            );
        }
        BufferExcess::Whole(WHOLE_DETAIL)
    }
}

/// Where `data` is in memory.
fn place(data: &[u8]) -> (usize, usize) {
    (data.as_ptr().addr(), data.len())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const CLIENT: Result<(), BufferExcess> = Err(BufferExcess::Client(ADDRESS_DETAIL));
    const WHOLE: Result<(), BufferExcess> = Err(BufferExcess::Whole(WHOLE_DETAIL));

    fn limits(max_buffered_bytes_per_address: usize, max_buffered_bytes: usize) -> Limits {
        Limits { max_buffered_bytes_per_address, max_buffered_bytes, ..Limits::default() }
    }

    fn addresses<const N: usize>(limits: &Arc<BufferLimits>) -> [BufferedBytes; N] {
        std::array::from_fn(|number| {
            let address = ClientAddress::V4(Ipv4Addr::from(u32::try_from(number).expect("few")));
            BufferedBytes::new(address, limits.clone())
        })
    }

    fn whole(limits: &BufferLimits) -> usize {
        limits.whole.load(Ordering::Relaxed)
    }

    #[test]
    fn an_address_has_a_share_and_all_have_a_whole() {
        let limits = BufferLimits::new(&limits(100, 250));
        let [first, second, third] = addresses(&limits);
        for address in [&first, &second] {
            assert_eq!(address.reserve(100), Ok(()));
            assert_eq!((address.check(1), address.reserve(1)), (CLIENT, CLIENT));
            assert_eq!(address.check(0), Ok(()), "it holds what it may");
        }
        assert_eq!((third.check(51), third.reserve(51)), (WHOLE, WHOLE));
        assert_eq!((third.reserve(50), whole(&limits)), (Ok(()), 250));
        assert_eq!(third.check(0), Ok(()));
        first.release(100);
        assert_eq!((third.reserve(50), whole(&limits)), (Ok(()), 200));
        second.release(100);
        third.release(100);
        assert_eq!(whole(&limits), 0);
    }

    #[test]
    fn responses_are_counted_beyond_the_limit_and_take_no_more_than_a_share_from_others() {
        let limits = BufferLimits::new(&limits(100, 250));
        let [first, second] = addresses(&limits);
        first.add(1000);
        assert_eq!((first.check(0), first.reserve(0)), (CLIENT, CLIENT));
        assert_eq!((whole(&limits), second.reserve(100)), (100, Ok(())));
        first.release(900);
        assert_eq!((whole(&limits), first.check(0), first.check(1)), (200, Ok(()), CLIENT));
        first.release(60);
        assert_eq!((whole(&limits), first.reserve(60)), (140, Ok(())));
        first.release(100);
        second.release(100);
        assert_eq!(whole(&limits), 0);
    }

    #[test]
    fn memory_that_replays_share_counts_once_for_each_address() {
        let limits = BufferLimits::new(&limits(100, 250));
        let [first, second] = addresses(&limits);
        let (data, other) = ([0; 60], [0; 30]);
        for _ in 0..1000 {
            first.share(&data);
        }
        first.share(&other);
        second.share(&data);
        assert_eq!((whole(&limits), first.check(10), first.check(11)), (150, Ok(()), CLIENT));
        for _ in 0..1000 {
            assert_eq!(first.check(11), CLIENT);
            first.unshare(&data);
        }
        assert_eq!((whole(&limits), first.check(70)), (90, Ok(())));
        first.unshare(&other);
        second.unshare(&data);
        assert_eq!(whole(&limits), 0);
        assert!(first.held.into_inner().replays.is_empty());
    }

    #[test]
    fn other_limits_count_at_once_and_nothing_is_lost() {
        let before = BufferLimits::new(&limits(100, 250));
        let [first, second] = addresses(&before);
        assert_eq!(first.reserve(100), Ok(()));
        before.set(&limits(50, 60));
        assert_eq!((first.check(0), second.reserve(1)), (CLIENT, WHOLE));
        first.release(10);
        assert_eq!((whole(&before), second.reserve(10)), (50, Ok(())));
        before.set(&limits(1000, 1000));
        assert_eq!((first.reserve(10), whole(&before)), (Ok(()), 110));
        first.release(100);
        second.release(10);
        assert_eq!(whole(&before), 0);
    }

    #[test]
    fn threads_that_take_and_give_back_leave_nothing_counted() {
        let limits = BufferLimits::new(&limits(100, 150));
        let both: [_; 2] = addresses(&limits);
        std::thread::scope(|scope| {
            for number in 0..4 {
                let address = &both[number % 2];
                scope.spawn(move || {
                    for round in 0..20_000 {
                        match round % 3 {
                            0 => address.add(80),
                            _ if address.reserve(80).is_err() => continue,
                            _ => {}
                        }
                        address.release(80);
                    }
                });
            }
        });
        assert_eq!(whole(&limits), 0);
        for address in both {
            let held = address.held.into_inner();
            assert_eq!((held.bytes, held.share), (0, 0));
        }
    }
}
