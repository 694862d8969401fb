//! What relocator tells: events, logs, metrics and probes. Decides nothing; nothing depends on its success.

pub mod events;
pub mod logs;
pub mod metrics;
pub mod probes;
