//! Three brokers that are killed and stand still while a group of processes handles their records.

mod brokers;
mod worker;
