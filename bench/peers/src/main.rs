//! `uext4-bench`: how fast uext4 is beside its peers.

mod meta;

use std::path::Path;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let r = match args[..] {
        ["meta", op, dir, count, clients] => meta_command(op, dir, count, clients),
        _ => Err("usage: uext4-bench meta OP DIR COUNT CLIENTS".to_string()),
    };
    if let Err(e) = r {
        eprintln!("uext4-bench: {e}");
        std::process::exit(1);
    }
}

fn meta_command(op: &str, dir: &str, count: &str, clients: &str) -> Result<(), String> {
    let which = meta::Op::by_name(op).ok_or_else(|| format!("{op}: no such operation"))?;
    let number = |s: &str| s.parse::<u64>().map_err(|_| format!("{s}: not a number"));
    let (count, clients) = (number(count)?, number(clients)?.max(1));
    let took = meta::run(which, Path::new(dir), 0, count, clients)
        .map_err(|e| format!("{op} in {dir}: {e}"))?;
    println!("{:.6}", took.as_secs_f64());
    Ok(())
}
