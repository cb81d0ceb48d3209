use super::*;
use crate::options::{ControlName, TraceStream};

struct Toy(Mutex<String>);

struct Ticks(u32);
impl TraceStream for Ticks {
    fn next(&mut self, _: Duration) -> TraceNext {
        self.0 += 1;
        match self.0 {
            1..=3 => TraceNext::Line(format!("tick {}", self.0)),
            4 => TraceNext::Idle,
            _ => TraceNext::End,
        }
    }
}

impl Control for Toy {
    fn names(&self) -> Vec<ControlName> {
        vec![ControlName { name: "x", writable: true, per_inode: false }]
    }
    fn get(&self, scope: Scope, name: &str) -> Result<String, ControlError> {
        match (scope, name) {
            (Scope::Mount, "x") => Ok(self.0.lock().unwrap().clone()),
            (Scope::Inode(i), "x") => Ok(format!("of {i}\n")),
            _ => Err(ControlError::unknown(name)),
        }
    }
    fn set(&self, _: Scope, name: &str, value: &str) -> Result<(), ControlError> {
        if name != "x" {
            return Err(ControlError::unknown(name));
        }
        *self.0.lock().unwrap() = format!("{value}\nsecond line\n");
        Ok(())
    }
    fn remount(&self, options: &str) -> Result<Vec<String>, ControlError> {
        Ok(vec![options.into(), "two".into()])
    }
    fn sync(&self) -> Result<(), ControlError> {
        Ok(())
    }
    fn shutdown(&self, how: Shutdown) -> Result<(), ControlError> {
        Err(ControlError::refused(format!("{how:?}")))
    }
    fn trace(&self, filter: &str) -> Result<Box<dyn TraceStream>, ControlError> {
        if filter == "bad" {
            Err(ControlError::refused("bad filter"))
        } else {
            Ok(Box::new(Ticks(0)))
        }
    }
}

fn toy() -> (tempfile::TempDir, Server, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let server = Server::start(listener, Arc::new(Toy(Mutex::new("1\n".into())))).unwrap();
    (dir, server, path)
}

fn client(path: &Path) -> Client {
    Client(BufReader::new(UnixStream::connect(path).unwrap()))
}

#[test]
fn requests_are_answered_in_turn() {
    let (_dir, _server, path) = toy();
    let mut c = client(&path);
    assert_eq!(c.ask("get x").unwrap(), "1\n");
    assert_eq!(c.ask("set x a b").unwrap(), "");
    assert_eq!(c.ask("get x").unwrap(), "a b\nsecond line\n");
    assert_eq!(c.ask("inode 12 get x").unwrap(), "of 12\n");
    assert_eq!(c.ask("list").unwrap(), "x w\n");
    assert_eq!(c.ask("remount ro").unwrap(), "ro\ntwo");
    assert_eq!(c.ask("pid").unwrap(), std::process::id().to_string());
    for (request, want) in [
        ("get y", "no such tunable: \"y\""),
        ("inode x get x", "malformed request \"inode x get x\""),
        ("", "malformed request \"\""),
        ("shutdown 2", "NoLogFlush"),
        ("shutdown 7", "shutdown=7: must be default, logflush or nologflush"),
    ] {
        assert!(matches!(c.ask(request), Err(ClientError::Refused(m)) if m == want), "{request}");
    }
}

#[test]
fn those_who_wait_hear_of_the_end() {
    let (_dir, server, path) = toy();
    let mut c = client(&path);
    assert_eq!(c.ask("umount-wait").unwrap(), "");
    assert!(!c.wait(Duration::from_millis(50)));
    let waiter = std::thread::spawn(move || c.answer());
    server.finish(Err("journal abort".into()));
    assert!(matches!(waiter.join().unwrap(), Err(ClientError::Refused(m)) if m == "journal abort"));
}

#[test]
fn a_trace_is_a_stream() {
    let (_dir, _server, path) = toy();
    let mut c = client(&path);
    assert_eq!(c.ask("trace all").unwrap(), "");
    let mut out = vec![];
    c.copy_to(&mut out).unwrap();
    assert_eq!(out, b"tick 1\ntick 2\ntick 3\n");
    assert!(client(&path).ask("trace bad").is_err());
}

#[test]
fn an_endless_line_is_refused() {
    let (_dir, _server, path) = toy();
    let mut c = client(&path);
    let long = "x".repeat(MAX_LINE as usize * 2);
    // The server may hang up while we are still writing.
    assert!(c.ask(&long).is_err());
    assert_eq!(client(&path).ask("get x").unwrap(), "1\n");
}
