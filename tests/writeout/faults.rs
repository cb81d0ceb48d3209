//! A device that refuses to take data.

use super::*;
use uext4::{
    device::{FaultDevice, IoOp, ModelDevice, fault::Rule, model::presets},
    error::Error,
};

#[test]
fn a_failed_write_is_told_once_and_shows_nothing_stale() {
    for mode in ["dioread_nolock", "dioread_lock"] {
        let dev = mkfs(64, &["-b", "4096"]);
        let faults = Arc::new(FaultDevice::new(dev.clone()));
        let fs = mount(faults.clone(), &format!("{mode},dirty_writeback=0,errors=continue"));
        let f = create(&fs, "f");
        let mut seen = fs.errors_seen(&fs.open(f, true).unwrap());
        let mut other = seen;
        write(&fs, f, 0, &[1; 64 << 10]).unwrap();
        fs.fsync(f, false).unwrap();
        assert!(fs.take_error(f, &mut seen).is_ok(), "{mode}");

        // The blocks around the first extent: nothing but file data goes there.
        let place = extents(&fs, f)[0].2;
        faults.add(Rule::range(IoOp::Write, (place - 490) * 4096..place * 4096));
        faults.add(Rule::range(IoOp::Write, (place + 16) * 4096..(place + 1024) * 4096));
        write(&fs, f, 64 << 10, &[2; 64 << 10]).unwrap();
        let r = fs.fsync(f, false);
        assert!(matches!(r, Err(Error::Io { .. })), "{mode}: {r:?}");
        assert!(fs.take_error(f, &mut other).is_err(), "{mode}: the other handle is told too");
        assert!(fs.take_error(f, &mut other).is_ok(), "{mode}: but once");

        // What was there is intact, what was lost reads as zeros or is past the end.
        assert_eq!(read(&fs, f, 0, 64 << 10), [1; 64 << 10]);
        assert!(read(&fs, f, 64 << 10, 64 << 10).iter().all(|b| *b == 0), "{mode}");

        // It goes on once the device is well.
        faults.reset();
        write(&fs, f, 64 << 10, &[3; 64 << 10]).unwrap();
        fs.fsync(f, false).unwrap();
        assert_eq!(read(&fs, f, 64 << 10, 64 << 10), [3; 64 << 10]);
        fs.release(f);
        fs.unmount().unwrap();

        let image = fsck(&dev);
        let super_block = run(Command::new("dumpe2fs").arg("-h").arg(image.path()));
        let field =
            |name: &str| super_block.lines().find(|l| l.starts_with(name)).map(String::from);
        let last = field("Last error function").unwrap_or_else(|| panic!("{mode}: {super_block}"));
        assert!(last.ends_with("writepages"), "{last}");
        assert!(field("Last error inode").unwrap().ends_with(&format!(" {}", f.0)));

        let fs = mount(dev.clone(), mode);
        assert_eq!(get(&fs, "last_error_func"), "writepages\n");
        assert_eq!(get(&fs, "errors_count"), "1\n");
        assert_eq!(read(&fs, f, 0, 128 << 10)[64 << 10..], [3; 64 << 10]);
        fs.unmount().unwrap();
    }
}

/// Pages below a run, and pages of it, that become dirty while it is on its way: no block that is
/// written lies past the size that commits with it, and the size covers no byte that is not written.
#[test]
fn what_turns_dirty_below_a_run_leaves_no_block_past_the_size() {
    for mode in ["dioread_nolock", "dioread_lock"] {
        for round in 0..6u64 {
            let dev = mkfs(32, &["-b", "4096"]);
            let spec = presets::by_name("raid10-14").unwrap();
            let slow = Arc::new(ModelDevice::new(dev.clone(), spec, 1.0, round));
            let fs = mount(slow, &format!("{mode},dirty_writeback=0"));
            let f = create(&fs, "f");
            write(&fs, f, 3 * 4096, &[3; 3 * 4096 - 100]).unwrap();
            std::thread::scope(|s| {
                let synced = s.spawn(|| fs.fsync(f, false).unwrap());
                std::thread::sleep(std::time::Duration::from_millis(1 + 2 * round));
                write(&fs, f, 2 * 4096, &[2; 4096]).unwrap();
                write(&fs, f, 6 * 4096 - 100, &[3; 100]).unwrap();
                synced.join().unwrap();
            });
            let crashed = Arc::new(dev.snapshot());
            let after = mount(crashed.clone(), "");
            let size = after.getattr(f).unwrap().size;
            assert!(size >= 6 * 4096 - 100, "{mode}, round {round}: {size}");
            let tail = read(&after, f, 3 * 4096, size as usize - 3 * 4096);
            assert!(tail.iter().all(|b| *b == 3), "{mode}, round {round}");
            after.unmount().unwrap();
            fsck(&crashed);
            fs.unmount().unwrap();
            fsck(&dev);
        }
    }
}
