//! `uext4 ctl PATH [NAME[=VALUE]...]`.

use super::Failure;
use super::args::{CtlArgs, print};
use super::target;
use crate::fuse::control_socket::Client;

/// Shows everything, or shows and sets what is named, in order.
pub fn run(args: &CtlArgs) -> Result<(), Failure> {
    let (mount, inode) = target::inode(&args.path)?;
    let mut client = target::daemon(&mount)?;
    let scope = inode.map(|i| format!("inode {i} ")).unwrap_or_default();
    let ask = |client: &mut Client, request: String| {
        client.ask(&request).map_err(|e| target::refused(&args.path, e))
    };
    if args.items.is_empty() {
        let names = ask(&mut client, "list".into())?;
        for line in names.lines() {
            let mut words = line.split(' ');
            let name = words.next().unwrap_or_default();
            if inode.is_some() && !words.any(|w| w == "i") {
                continue;
            }
            let value = ask(&mut client, format!("{scope}get {name}"))?;
            print(&shown(name, &value))?;
        }
        return Ok(());
    }
    for item in &args.items {
        match item.split_once('=') {
            None if item == "sync" => drop(ask(&mut client, "sync".into())?),
            Some(("shutdown", how)) => drop(ask(&mut client, format!("shutdown {how}"))?),
            Some((name, value)) => {
                ask(&mut client, format!("{scope}set {name} {value}"))?;
            }
            None if item == "pid" => print(&format!("{}\n", ask(&mut client, "pid".into())?))?,
            None => {
                let value = ask(&mut client, format!("{scope}get {item}"))?;
                print(&if args.items.len() == 1 { value } else { shown(item, &value) })?;
            }
        }
    }
    Ok(())
}

/// `name=value`, or the name on a line of its own before a longer value.
fn shown(name: &str, value: &str) -> String {
    let value = value.strip_suffix('\n').unwrap_or(value);
    if value.contains('\n') {
        let indented: Vec<String> = value.lines().map(|l| format!("    {l}")).collect();
        format!("{name}:\n{}\n", indented.join("\n"))
    } else {
        format!("{name}={value}\n")
    }
}
