//! What goes over the wire: the messages of `accounts.proto`, and what the build made of its methods.

#![allow(unreachable_pub, reason = "generated code is public throughout")]

/// An amount of money.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Cents {
    #[prost(uint64, tag = "1")]
    pub cents: u64,
}

/// Nothing to say.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Nothing {}

include!(concat!(env!("OUT_DIR"), "/accounts.Accounts.rs"));
