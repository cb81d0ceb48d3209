//! A device that refuses to take data.

use super::*;
use uext4::{
    device::{FaultDevice, IoOp, fault::Rule},
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
