//! The control directory, as `ls`, `cat` and `echo` see it.

use crate::common::{Fs, Scratch, peer_is_kernel};
use std::fs;

#[test]
fn is_listed_read_and_set_but_hidden() {
    if peer_is_kernel() {
        return;
    }
    let scratch = Scratch::new();
    let image = scratch.mkfs("img", "64M", &[]);
    let mount = scratch.mount(Fs::Uext4, &image, "");
    let names = |dir: &str| -> Vec<String> {
        let entries = fs::read_dir(mount.join(dir)).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    };
    assert!(!names("").contains(&".uext4".to_string()));
    let tunables = names(".uext4");
    for name in ["options", "writeback_policy", "stats"] {
        assert!(tunables.iter().any(|n| n == name), "{name} is not in {tunables:?}");
    }
    let policy = mount.join(".uext4/writeback_policy");
    fs::write(&policy, "fixed8\n").unwrap();
    assert_eq!(fs::read_to_string(&policy).unwrap(), "fixed8\n");
    assert!(fs::write(&policy, "no such policy\n").is_err());
}
