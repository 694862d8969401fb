//! Free loopback ports that stay free while a program restarts.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Below the ranges that systems take for outgoing connections (Linux from 32768, macOS from 49152): a port that the
/// system hands out itself could go to any client while its server is down, and a restart would then fail.
const FIRST: u16 = 20_000;
const COUNT: u16 = 10_000;

/// `N` different ports that nobody listens on and that this process did not hand out before.
///
/// Another process may still take one before it is used; who starts a program there tries again with others.
pub(crate) fn choose<const N: usize>() -> io::Result<[u16; N]> {
    static TAKEN: Mutex<Option<HashSet<u16>>> = Mutex::new(None);

    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    let taken = taken.get_or_insert_default();
    // A start that differs between processes, or two labs started at once would try the same ports in the same order.
    let start = RandomState::new().build_hasher().finish() % u64::from(COUNT);
    let start = u16::try_from(start).unwrap_or_default();
    let mut free = (0..COUNT)
        .map(|step| FIRST + (start + step) % COUNT)
        .filter(|port| {
            !taken.contains(port) && TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok()
        });
    let mut ports = [0; N];
    for port in &mut ports {
        *port = free.next().ok_or_else(|| {
            let last = FIRST + (COUNT - 1);
            io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("no free port between {FIRST} and {last}"),
            )
        })?;
    }
    taken.extend(ports);
    Ok(ports)
}

#[cfg(test)]
mod tests {
    #[test]
    fn ports_are_never_handed_out_twice() {
        let first: [u16; 6] = super::choose().unwrap();
        let second: [u16; 6] = super::choose().unwrap();
        let all: std::collections::HashSet<_> = first.iter().chain(&second).collect();
        assert_eq!(all.len(), 12);
    }
}
