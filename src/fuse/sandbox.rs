//! The daemon's own walls: it parses images that anybody may have made, so it gives
//! up whatever it does not need. What needs rights stays with the supervisor.
//!
//! Three steps, each for threads that start later too:
//! 1. [`before_opening`]: no new privileges; Landlock leaves the image, the record
//!    file, /dev/fuse, and to read /proc, /sys and what is between the image and a
//!    loop device; capabilities only to open files; no TCP, no signals and no
//!    abstract sockets to processes outside.
//! 2. [`before_parsing`]: no capabilities; Landlock leaves /dev/fuse.
//! 3. [`when_serving`]: a seccomp filter for all threads: no opening of files, no
//!    programs, no processes, no sockets of its own, no executable memory.
//!
//! Nothing in the daemon may open a file after step 2.

use crate::options::MountOptions;
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreated, RulesetCreatedAttr, RulesetStatus, Scope,
};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Display;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// The newest Landlock whose rights are used; older kernels get what they know.
const LANDLOCK: ABI = ABI::V6;
const DAC_OVERRIDE: u32 = 1;
const DAC_READ_SEARCH: u32 = 2;
const IPC_LOCK: u32 = 14;

/// Step 1, with one thread, before the image is opened.
pub fn before_opening(image: &Path, options: &MountOptions) -> Result<(), String> {
    if let Some(record) = &options.record {
        // So that it can be named in a rule; the recorder empties it.
        let made = std::fs::File::options().create(true).append(true).open(record);
        made.map_err(|e| format!("record={}: {e}", record.display()))?;
    }
    // SAFETY: no pointers; it only takes rights away.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return Err(format!("no_new_privs: {}", io::Error::last_os_error()));
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let mut allowed: Vec<(&Path, BitFlags<AccessFs>)> = vec![
        (Path::new("/dev/fuse"), device),
        (Path::new("/dev/null"), AccessFs::ReadFile | AccessFs::WriteFile),
        (Path::new("/proc"), AccessFs::ReadFile | AccessFs::ReadDir),
        (Path::new("/sys"), AccessFs::ReadFile | AccessFs::ReadDir),
    ];
    let read_only = AccessFs::ReadFile | AccessFs::IoctlDev;
    allowed.push((image, if options.read_only { read_only } else { device | AccessFs::Truncate }));
    if let Some(record) = &options.record {
        allowed.push((record, AccessFs::WriteFile | AccessFs::Truncate));
    }
    let loops = loop_files();
    for (device, backing) in &loops {
        // The claim on the image asks both ends whether somebody uses it.
        allowed.push((device, AccessFs::ReadFile | AccessFs::IoctlDev));
        if device == image {
            allowed.push((backing, AccessFs::ReadFile.into()));
        }
    }
    landlock(&allowed, true)?;
    keep_capabilities(&[DAC_OVERRIDE, DAC_READ_SEARCH, IPC_LOCK])
}

/// The loop devices in use and the files behind them.
fn loop_files() -> Vec<(PathBuf, PathBuf)> {
    let Ok(disks) = std::fs::read_dir("/sys/block") else { return vec![] };
    let pair = |disk: std::fs::DirEntry| {
        let mut backing = std::fs::read(disk.path().join("loop/backing_file")).ok()?;
        backing.pop_if(|last| *last == b'\n');
        Some((Path::new("/dev").join(disk.file_name()), OsString::from_vec(backing).into()))
    };
    disks.flatten().filter_map(pair).collect()
}

/// Step 2, in the thread that will start all others, before the image is parsed.
pub fn before_parsing() -> Result<(), String> {
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let null = AccessFs::ReadFile | AccessFs::WriteFile;
    landlock(&[(Path::new("/dev/fuse"), device), (Path::new("/dev/null"), null)], false)?;
    keep_capabilities(&[])
}

/// Step 3, once every descriptor is open and the mount answers.
pub fn when_serving() -> Result<(), String> {
    let Some(arch) = arch() else {
        log::info!("no seccomp filter for this architecture");
        return Ok(());
    };
    for filter in filters(arch).map_err(|e| format!("seccomp filter: {e}"))? {
        match seccompiler::apply_filter_all_threads(&filter) {
            Ok(()) => {}
            Err(seccompiler::Error::Seccomp(e)) if e.raw_os_error() == Some(libc::EINVAL) => {
                log::info!("this kernel has no seccomp filters");
                return Ok(());
            }
            Err(e) => return Err(format!("seccomp: {e}")),
        }
    }
    Ok(())
}

fn landlock(allowed: &[(&Path, BitFlags<AccessFs>)], outside: bool) -> Result<(), String> {
    let say = |e: &dyn Display| format!("Landlock: {e}");
    let mut rules =
        Ruleset::default().handle_access(AccessFs::from_all(LANDLOCK)).map_err(|e| say(&e))?;
    if outside {
        rules = rules.handle_access(AccessNet::from_all(LANDLOCK)).map_err(|e| say(&e))?;
        rules = rules.scope(Scope::from_all(LANDLOCK)).map_err(|e| say(&e))?;
    }
    let mut rules: RulesetCreated = rules.create().map_err(|e| say(&e))?;
    for (path, access) in allowed {
        // What is not there needs no permission.
        if let Ok(fd) = PathFd::new(path) {
            rules = rules.add_rule(PathBeneath::new(fd, *access)).map_err(|e| say(&e))?;
        }
    }
    let status = rules.restrict_self().map_err(|e| say(&e))?;
    if outside && status.ruleset == RulesetStatus::NotEnforced {
        log::info!("this kernel has no Landlock: files are protected by seccomp only");
    }
    Ok(())
}

#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Drops all capabilities of this thread but those of `keep` that it has.
fn keep_capabilities(keep: &[u32]) -> Result<(), String> {
    // _LINUX_CAPABILITY_VERSION_3: two words of 32 capabilities each.
    let mut header = CapHeader { version: 0x2008_0522, pid: 0 };
    let mut data = [CapData::default(); 2];
    let mask = keep.iter().fold(0u32, |mask, bit| mask | 1 << bit);
    // SAFETY: header and data are laid out as version 3 wants and live through the calls.
    let done = unsafe {
        libc::syscall(libc::SYS_capget, &raw mut header, data.as_mut_ptr()) == 0 && {
            let permitted = data[0].permitted & mask;
            data =
                [CapData { effective: permitted, permitted, inheritable: 0 }, CapData::default()];
            libc::syscall(libc::SYS_capset, &raw mut header, data.as_ptr()) == 0
        }
    };
    if done { Ok(()) } else { Err(format!("capabilities: {}", io::Error::last_os_error())) }
}

fn arch() -> Option<TargetArch> {
    std::env::consts::ARCH.try_into().ok()
}

/// What a serving daemon calls. What is not here fails with EPERM.
const PLAIN: &[libc::c_long] = &[
    // Data, on descriptors that are open.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_ftruncate,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_vmsplice,
    libc::SYS_tee,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_ioctl,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_signalfd4,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    // Sockets that are open.
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_shutdown,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    // Memory.
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mlock,
    libc::SYS_munlock,
    libc::SYS_mincore,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    // Threads, time, signals, and what one may know of oneself.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getcwd,
    libc::SYS_getrusage,
    libc::SYS_getrlimit,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

#[cfg(target_arch = "x86_64")]
const OF_THE_ARCHITECTURE: &[libc::c_long] = &[
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_epoll_create,
    libc::SYS_eventfd,
    libc::SYS_pipe,
    libc::SYS_dup2,
    libc::SYS_select,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];
#[cfg(not(target_arch = "x86_64"))]
const OF_THE_ARCHITECTURE: &[libc::c_long] = &[];

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

fn filters(arch: TargetArch) -> Result<Vec<BpfProgram>, seccompiler::BackendError> {
    let errno = |e: i32| SeccompAction::Errno(e.unsigned_abs());
    let when = |arg, op, value: u64| {
        let c = SeccompCondition::new(arg, SeccompCmpArgLen::Dword, op, value)?;
        SeccompRule::new(vec![c])
    };
    let mut rules = Rules::new();
    for &call in PLAIN.iter().chain(OF_THE_ARCHITECTURE) {
        rules.insert(call, vec![]);
    }
    let bits = |b: i32| u64::from(b.unsigned_abs());
    let thread = bits(libc::CLONE_THREAD);
    rules.insert(libc::SYS_clone, vec![when(0, SeccompCmpOp::MaskedEq(thread), thread)?]);
    let exec = bits(libc::PROT_EXEC);
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        rules.insert(call, vec![when(2, SeccompCmpOp::MaskedEq(exec), 0)?]);
    }
    let names = [libc::PR_SET_NAME, libc::PR_GET_NAME, libc::PR_GET_DUMPABLE, libc::PR_SET_VMA];
    let prctls = names.iter().map(|&n| when(0, SeccompCmpOp::Eq, bits(n)));
    rules.insert(libc::SYS_prctl, prctls.collect::<Result<_, _>>()?);
    // Limits may be asked for, not set.
    let no_value = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)?;
    rules.insert(libc::SYS_prlimit64, vec![SeccompRule::new(vec![no_value])?]);

    // clone3 hides its flags behind a pointer: without it the C library takes clone.
    let no_clone3 = Rules::from([(libc::SYS_clone3, vec![])]);
    let hide = SeccompFilter::new(no_clone3, SeccompAction::Allow, errno(libc::ENOSYS), arch)?;
    let allow = SeccompFilter::new(rules, errno(libc::EPERM), SeccompAction::Allow, arch)?;
    Ok(vec![hide.try_into()?, allow.try_into()?])
}
