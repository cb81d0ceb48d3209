//! `uext4 trace MOUNTPOINT [FILTER...]`.

use super::Failure;
use super::args::TraceArgs;
use super::target;

/// Prints events until interrupted or until the mount ends.
pub fn run(args: &TraceArgs) -> Result<(), Failure> {
    let mount = target::uext4_mount(&args.path)?;
    let mut client = target::daemon(&mount)?;
    client
        .ask(&format!("trace {}", args.filter.join(" ")))
        .map_err(|e| target::refused(&args.path, e))?;
    match client.copy_to(&mut std::io::stdout().lock()) {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("trace: {e}")))
        }
        _ => Ok(()),
    }
}
