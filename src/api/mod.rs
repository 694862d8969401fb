//! The wire types: `NodeRelocation`, conditions, reasons, annotation keys. Pure: no kube client, no clock.
//!
//! The doc comments of `relocation` and `status` are what `kubectl explain` shows, so they are written for the person
//! who fills in the manifest: meaning, unit, default. `schema` holds the bounds and rules that a derive can't express.
//!
//! The words, used everywhere alike:
//!
//! - **relocation**: one `NodeRelocation`, and the work of emptying its nodes.
//! - **selected node**: a node that the relocation empties.
//! - **replacement**: a node that takes the pods in; **placeholder**: a pod of ours that keeps room there.
//! - **workload**: what makes pods again, such as a `StatefulSet`; **move**: one pod of it, away from a selected node.
//! - **stage**: how far a node, or the relocation, has come; **blocker**: what a person has to change before it goes on.
//! - **settle**: the wait after a moved pod is Ready, before the next of the same workload.

/// Gives a fieldless enum its word on the wire, which is the name of the variant.
macro_rules! words {
    ($type:ident: $($variant:ident),+ $(,)?) => {
        impl $type {
            /// The word on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => stringify!($variant)),+
                }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

pub mod batch_size;
pub(crate) mod bounds;
pub mod conditions;
pub mod crd;
pub mod guards;
pub mod keys;
pub mod relocation;
pub mod replacement;
mod schema;
pub mod status;
