//! A simulated cloud volume.
//!
//! A request arrives at the [`model::Volume`], which decides at once when its reply is due. The
//! server moves the bytes and replies at that time. No part of the model reads a clock or sleeps,
//! so the model gives the same answers for the same requests at the same times.
//!
//! ```text
//! spec -> latency, event -> pace -> limit, restore, io_count -> account, model
//!                                                                 ^
//!                                         sleeper -> served -> control -> plugin (nbdkit), fuse
//! ```

pub mod account;
mod control;
pub mod event;
pub mod fuse;
mod fuse_abi;
pub mod histogram;
pub mod io_count;
pub mod latency;
pub mod limit;
pub mod model;
pub mod pace;
mod plugin;
pub mod request;
pub mod restore;
pub mod scoped_limit;
mod served;
mod sleeper;
pub mod spec;
