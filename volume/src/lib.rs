//! A simulated cloud volume.
//!
//! A request arrives at the [`model::Volume`], which decides at once when it may start and how long
//! it takes. The plugin moves the bytes and replies at that time. No part of the model reads a
//! clock or sleeps, so the model gives the same answers for the same requests at the same times.
//!
//! ```text
//! spec -> limit, latency, event -> model -> account
//!                                    ^
//!                                  plugin (nbdkit)
//! ```

pub mod account;
mod control;
pub mod event;
pub mod latency;
pub mod limit;
pub mod model;
mod plugin;
pub mod request;
pub mod spec;
