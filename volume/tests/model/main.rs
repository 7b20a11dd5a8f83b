//! The model in simulated time, under programs that keep requests in flight.

mod accounts;
mod credits;
mod events;
mod rates;
mod simulation;
mod specs;
