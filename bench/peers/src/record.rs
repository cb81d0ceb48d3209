//! What one measurement notes: the rate, CPU time of daemon and client per operation.

use crate::peer::Peer;
use bench_core::Result;
use bench_core::procs::{self, Cpu};
use bench_core::results::{Better, Results, params};
use std::time::{Duration, Instant};

/// Puts what a scenario measures of one peer into the results.
pub struct Recorder<'a> {
    /// All results.
    pub results: &'a mut Results,
    /// Which repetition.
    pub rep: usize,
    peer: &'static str,
}

/// How a figure is told.
#[derive(Debug, Clone, Copy)]
pub enum Figure {
    /// Operations in a second.
    Rate(u64),
    /// Bytes, told as MB/s, in requests of so many.
    Bytes(u64, u64),
    /// Seconds, for so many operations.
    Seconds(u64),
}

impl Recorder<'_> {
    /// For one peer.
    pub fn new<'a>(results: &'a mut Results, rep: usize, peer: &Peer) -> Recorder<'a> {
        Recorder { results, rep, peer: peer.kind.name() }
    }

    /// Notes a value.
    pub fn put(&mut self, workload: &str, measure: &str, unit: &str, better: Better, value: f64) {
        let p = params([("workload", workload.to_string())]);
        self.results.add(self.peer, &p, self.rep, measure, unit, better, value);
    }

    /// Runs something and notes how fast it was. What runs may say how long it really took.
    pub fn timed(
        &mut self,
        peer: &Peer,
        workload: &str,
        what: impl FnOnce() -> Result<(Figure, Option<Duration>)>,
    ) -> Result<()> {
        let (daemon, client) = (peer.cpu(), procs::children_cpu());
        let begun = Instant::now();
        let (figure, took) = what()?;
        let took = took.unwrap_or_else(|| begun.elapsed()).as_secs_f64();
        let ops = match figure {
            Figure::Rate(n) => {
                self.put(workload, "speed", "/s", Better::Higher, n as f64 / took);
                n
            }
            Figure::Bytes(bytes, each) => {
                self.put(workload, "speed", "MB/s", Better::Higher, bytes as f64 / 1e6 / took);
                bytes / each
            }
            Figure::Seconds(n) => {
                self.put(workload, "speed", "s", Better::Lower, took);
                n
            }
        };
        let per = |c: Cpu| c.seconds() * 1e6 / ops.max(1) as f64;
        self.put(workload, "daemon CPU", "us/op", Better::Lower, per(peer.cpu() - daemon));
        let client = per(procs::children_cpu() - client);
        self.put(workload, "client CPU", "us/op", Better::Lower, client);
        Ok(())
    }
}
