//! [`MachineClocks`]: readings of the clocks of a machine.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use selfsame_core::Timestamp;

/// The clocks of a machine.
pub(super) trait MachineClocks: Send + Sync + 'static {
    /// Time since some moment before. Nobody sets it, and it stands still in a suspension.
    fn monotonic(&self) -> Duration;

    /// Wall time, which may be wrong, and may be set.
    fn wall(&self) -> Timestamp;

    /// Time since the machine was booted, where the system tells.
    fn since_boot(&self) -> Option<SinceBoot>;
}

/// True time since a boot, suspensions included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SinceBoot {
    pub(super) boot: BootId,
    pub(super) elapsed: Duration,
}

/// Id of a boot, made by the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BootId(pub(super) [u8; 16]);

/// The clocks of this machine.
pub(super) struct SystemClocks {
    began: Instant,
    boot: Option<BootId>,
}

impl SystemClocks {
    #[expect(clippy::disallowed_methods, reason = "this is the clock of a store")]
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), boot: boot_id() }
    }
}

impl MachineClocks for SystemClocks {
    fn monotonic(&self) -> Duration {
        self.began.elapsed()
    }

    #[expect(clippy::disallowed_methods, reason = "this is the clock of a store")]
    fn wall(&self) -> Timestamp {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::default() + since_epoch
    }

    fn since_boot(&self) -> Option<SinceBoot> {
        Some(SinceBoot { boot: self.boot?, elapsed: boot_time()? })
    }
}

#[cfg(target_os = "linux")]
fn boot_id() -> Option<BootId> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&digits, 16).ok().map(|id| BootId(id.to_be_bytes()))
}

#[cfg(target_os = "linux")]
fn boot_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(time).ok()
}

#[cfg(not(target_os = "linux"))]
fn boot_id() -> Option<BootId> {
    None
}

#[cfg(not(target_os = "linux"))]
fn boot_time() -> Option<Duration> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_tells_its_boot_and_the_time_since() {
        let clocks = SystemClocks::new();
        if cfg!(target_os = "linux") {
            let first = clocks.since_boot().expect("Linux tells");
            let second = SystemClocks::new().since_boot().expect("Linux tells");
            assert_eq!(first.boot, second.boot);
            assert!(second.elapsed >= first.elapsed && !first.elapsed.is_zero());
        }
        assert!(clocks.wall() > Timestamp::default());
    }
}
