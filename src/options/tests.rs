use super::*;
use std::collections::HashSet;

fn parse(text: &str) -> Result<MountOptions, String> {
    MountOptions::parse(&[text]).map_err(|e| e.to_string())
}

#[test]
fn no_options_are_the_defaults() {
    let o = parse("").unwrap();
    assert_eq!(o, MountOptions::default());
    assert_eq!(o.to_string(), "rw");
    assert!(o.dioread == DioreadMode::Nolock && o.delalloc && o.barrier && o.acl);
}

#[test]
fn every_name_is_in_the_table_once() {
    let mut seen = HashSet::new();
    for s in TABLE.iter().flat_map(|r| r.spellings) {
        assert!(seen.insert(s.name), "{} twice", s.name);
    }
}

#[test]
fn what_is_shown_reads_back() {
    let default = MountOptions::default();
    for row in TABLE {
        let Some(show) = row.show else { continue };
        let text = show(&default);
        let again = parse(&text).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert_eq!(show(&again), text);
    }
    let o = parse("ro,noload,sb=32768,data=writeback,commit=17,barrier=0,errors=panic,nodelalloc,\
        dioread_lock,stripe=16,discard,noacl,minixdf,grpid,resuid=7,resgid=8,init_itable=3,noatime,\
        nosuid,dev,noexec,offset=1m,ctldir=ctl,writeback_policy=fixed8,dirty_bytes=1g,disk_model=hdd,\
        disk_scale=2.5,record=/tmp/a\\,b,nosandbox,threads=3,dirty_expire=0.5,max_dir_size_kb=9")
    .unwrap();
    let again = parse(&o.to_string()).unwrap();
    assert_eq!(again.lines(), o.lines());
    assert_eq!(o.record.as_deref(), Some(std::path::Path::new("/tmp/a,b")));
}

#[test]
fn values_arrive() {
    let o =
        parse("noauto_da_alloc,max_batch_time=0,min_batch_time=0,nouser_xattr,bsddf,sysvgroups")
            .unwrap();
    assert!(!o.auto_da_alloc && !o.user_xattr && !o.minixdf && !o.grpid);
    assert_eq!(parse("commit=0").unwrap().commit, Duration::from_secs(5));
    assert!(!parse("barrier,barrier=0").unwrap().barrier);
    assert!(parse("nobarrier,barrier").unwrap().barrier);
    assert_eq!(parse("nodioread_nolock").unwrap().dioread, DioreadMode::Lock);
    assert_eq!(parse("dioread_shared").unwrap().dioread, DioreadMode::Shared);
    assert_eq!(parse("noatime,strictatime").unwrap().atime, Atime::Strictatime);
    assert_eq!(parse("noatime,atime").unwrap().atime, Atime::Relatime);
    assert_eq!(parse("fsname=\"a,b\"").unwrap().fsname.as_deref(), Some("a,b"));
    assert_eq!(MountOptions::parse(&["ro", "rw,ro"]).map(|o| o.read_only), Ok(true));
}

#[test]
fn errors_name_the_option_and_the_value() {
    for (text, want) in [
        ("foo", "unrecognized mount option \"foo\""),
        ("ro,foo=3", "unrecognized mount option \"foo=3\""),
        ("commit=x", "mount option \"commit=x\": must be a whole number"),
        ("commit=-1", "mount option \"commit=-1\": must be a whole number"),
        ("commit", "mount option \"commit\" needs a value: commit=SECONDS"),
        ("ro=1", "mount option \"ro\" takes no value (\"1\" given)"),
        ("data=some", "mount option \"data=some\": must be one of journal, ordered, writeback"),
        ("journal_dev=8", "mount option \"journal_dev=8\": external journals are not supported"),
        ("threads=0", "mount option \"threads=0\": must be between 1 and 256"),
        ("ctldir=a/b", "mount option \"ctldir=a/b\": must be a file name"),
        ("offset=-1", "mount option \"offset=-1\": must be a number of bytes"),
    ] {
        let e = parse(text).unwrap_err();
        assert!(e.starts_with(want), "{text}: {e}");
    }
}

#[test]
fn conflicts_are_linux_s() {
    assert!(parse("data=journal,delalloc").unwrap_err().contains("both data=journal and delalloc"));
    assert!(!parse("data=journal").unwrap().delalloc);
    let o = parse("data=journal,dioread_nolock").unwrap();
    assert_eq!(o.warnings().len(), 1);
    let journal = |text: &str, has| parse(text).unwrap().check_journal(has);
    assert!(journal("journal_async_commit", true).is_err());
    assert!(journal("journal_async_commit,data=writeback", true).is_ok());
    assert!(journal("commit=5", false).is_err());
    assert!(journal("data=ordered", false).is_err());
    assert!(journal("", false).is_ok());
}

#[test]
fn what_means_nothing_is_accepted() {
    let o = parse(
        "debug,inode_readahead_blks=32,x-systemd.automount,nofail,_netdev,defaults,user_id=0,\
        group_id=0,rootmode=40755",
    )
    .unwrap();
    assert_eq!(o.warnings().len(), 2, "{:?}", o.warnings());
    assert!(o.warnings().iter().any(|w| w.contains("\"debug\"")));
}

#[test]
fn the_superblock_s_defaults_go_underneath() {
    let sb = SuperDefaults {
        default_mount_opts: 0x60 | 0x100 | 0x800,
        errors: 2,
        mount_opts: "commit=9".into(),
        reserved_for: (3, 4),
        stripe: 64,
    };
    let o = parse("delalloc,resuid=9").unwrap().with_superblock(&sb).unwrap();
    assert_eq!(o.data, DataMode::Writeback);
    assert_eq!(o.errors, Some(ErrorsMode::RemountRo));
    assert!(!o.barrier && o.delalloc);
    assert_eq!((o.resuid, o.resgid, o.stripe), (Some(9), Some(4), Some(64)));
    assert_eq!(o.commit, Duration::from_secs(9));
}

#[test]
fn an_image_cannot_ask_for_files_of_the_host() {
    for text in ["record=/etc/passwd", "commit=7,nosandbox", "\0,=,,=", "allow_other", "suid"] {
        let sb = SuperDefaults { mount_opts: text.into(), ..SuperDefaults::default() };
        let o = parse("").unwrap().with_superblock(&sb).unwrap();
        assert!(o.record.is_none() && o.sandbox && o.suid.is_none());
        assert_eq!(o.commit, Duration::from_secs(5));
        assert_eq!(o.warnings().len(), 1, "{text:?}");
    }
}

#[test]
fn a_remount_changes_only_what_may_change() {
    let o = parse("data=writeback,offset=4096").unwrap();
    let n = o.remounted("remount,commit=1,data=writeback,dioread_lock,ro").unwrap();
    assert!(n.read_only && !n.remount && n.dioread == DioreadMode::Lock && n.offset == 4096);
    let e = o.remounted("remount,data=journal").unwrap_err();
    assert_eq!(e.0, "mount option \"data=journal\" cannot be changed while mounted");
    assert!(o.remounted("nosandbox").is_err());
}

#[test]
fn the_help_and_the_manual_name_every_option() {
    let (help, manual) = (help(), manual());
    for s in TABLE.iter().flat_map(|r| r.spellings) {
        assert!(help.contains(s.name), "{}", s.name);
        assert!(manual.contains(&s.name.replace('-', "\\-")), "{}", s.name);
    }
    assert!(help.lines().all(|l| l.len() <= 80));
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,60}", name in 0..TABLE.len(), value in "[-0-9a-z.]{0,12}") {
        let _ = parse(&text);
        let spelling = TABLE[name].spellings[0].name;
        if let Ok(o) = parse(&format!("{spelling}={value}")) {
            proptest::prop_assert!(parse(&o.to_string()).is_ok());
        }
    }
}

/// UPDATE_MAN=1 writes the table into the manual page instead of comparing.
#[test]
fn the_manual_page_has_the_table() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/man/mount.uext4.8");
    let page = std::fs::read_to_string(path).unwrap();
    let (head, rest) = page.split_once(".\\\" BEGIN OPTIONS").unwrap();
    let (line, rest) = rest.split_once('\n').unwrap();
    let (_, tail) = rest.split_once(".\\\" END OPTIONS").unwrap();
    let want = format!("{head}.\\\" BEGIN OPTIONS{line}\n{}.\\\" END OPTIONS{tail}", manual());
    if std::env::var_os("UPDATE_MAN").is_some() {
        std::fs::write(path, &want).unwrap();
    } else {
        assert!(page == want, "docs/man/mount.uext4.8 is not up to date: UPDATE_MAN=1 cargo test");
    }
}
