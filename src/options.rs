//! Mount options, parsed and checked once.
