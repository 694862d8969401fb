//! What relocator tells: events and logs. Decides nothing; nothing depends on its success.

pub mod events;
pub mod logs;
