//! The hot pieces: extent lookup, buddy search, htree lookup and insert, commit of N blocks,
//! checksum, page-cache insert and gather.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::hint::black_box;
use std::sync::Arc;
use uext4::alloc::buddy::{Buddy, Extent};
use uext4::cache::pages::FilePages;
use uext4::device::AlignedBuf;
use uext4::dir;
use uext4::fs::{Cred, Fs, WriteHow};
use uext4::inode::Inode;
use uext4::ondisk::Seal;
use uext4::ondisk::csum::crc32c;
use uext4::types::{Ino, LBlock};

fn checksum(c: &mut Criterion) {
    let mut g = c.benchmark_group("checksum");
    for len in [256, 1024, 4096] {
        let data = vec![0xa5u8; len];
        g.throughput(Throughput::Bytes(len as u64));
        g.bench_function(BenchmarkId::new("crc32c", len), |b| {
            b.iter(|| crc32c(!0, black_box(&data)));
        });
    }
    g.finish();
}

/// A group of 32,768 blocks with every other block of its first half used.
fn ragged() -> Buddy {
    let mut bitmap = vec![0u8; 4096];
    bitmap[..2048].fill(0x55);
    Buddy::new(32_768, 13, &bitmap)
}

fn buddy(c: &mut Criterion) {
    let mut g = c.benchmark_group("buddy");
    let bitmap = vec![0x55u8; 4096];
    g.bench_function("build from a bitmap", |b| {
        b.iter(|| Buddy::new(32_768, 13, black_box(&bitmap)));
    });
    let full = ragged();
    g.bench_function("find a chunk of order 8", |b| b.iter(|| full.chunk(black_box(8), 0)));
    g.bench_function("next free run", |b| b.iter(|| full.next_free(black_box(9000))));
    g.bench_function("mark 64 used and free again", |b| {
        let mut one = ragged();
        let run = Extent { start: 20_000, len: 64 };
        b.iter(|| {
            one.mark_used(run).expect("free");
            one.mark_free(run).expect("used");
        });
    });
    g.finish();
}

fn pages(c: &mut Criterion) {
    let mut g = c.benchmark_group("pages");
    let n = 256u32;
    g.throughput(Throughput::Elements(n.into()));
    g.bench_function("insert 256, gather, drop", |b| {
        let mut p = FilePages::default();
        let mut at = 0;
        b.iter(|| {
            for i in 0..n {
                p.insert(LBlock(at + i), AlignedBuf::for_overwrite(4096), true);
            }
            let t = p.take(LBlock(at), u64::MAX, n as usize);
            black_box(&t);
            p.written(t.first, t.len());
            at = (at + n) % (1 << 24);
        });
    });
    g.finish();
}

fn mounted() -> Arc<Fs> {
    uext4_micro::mount(uext4_micro::image(1024, &["-N", "300000"]))
}

fn directory(fs: &Fs, name: &str, files: u64) -> Arc<Inode> {
    let d = fs.mkdir(Cred::ROOT, Ino::ROOT, name.as_bytes(), 0o755, 0).expect("mkdir").ino;
    for i in 0..files {
        fs.mknod(Cred::ROOT, d, format!("file-{i:07}").as_bytes(), 0o644, 0, 0).expect("mknod");
    }
    fs.vol.inodes.get(&fs.vol, d).expect("the directory")
}

fn htree(c: &mut Criterion) {
    let mut g = c.benchmark_group("htree");
    let fs = mounted();
    for files in [2_000u64, 200_000] {
        let d = directory(&fs, &format!("d{files}"), files);
        let mut i = 0;
        g.bench_function(BenchmarkId::new("lookup", files), |b| {
            b.iter(|| {
                i = (i + 7919) % files;
                let name = format!("file-{i:07}");
                dir::lookup(&fs.vol, &d, name.as_bytes()).expect("lookup").expect("there")
            });
        });
        let mut n = 0u64;
        g.bench_function(BenchmarkId::new("insert and remove", files), |b| {
            b.iter(|| {
                n += 1;
                let name = format!("new-{n:09}");
                let mut h = fs.vol.journal.start("bench", 40).expect("handle");
                let (v, kind) = (&fs.vol, uext4::ondisk::FileKind::Regular);
                dir::insert(v, &mut h, &d, name.as_bytes(), Ino(12), kind).expect("insert");
                dir::remove(v, &mut h, &d, name.as_bytes()).expect("remove");
                h.stop().expect("stop");
            });
        });
    }
    g.finish();
    fs.unmount().expect("unmount");
}

/// A file of `extents` extents: every other block of it is there.
fn holey(fs: &Fs, name: &str, extents: u64) -> Arc<Inode> {
    let i = fs.mknod(Cred::ROOT, Ino::ROOT, name.as_bytes(), 0o644, 0, 0).expect("mknod").ino;
    fs.open(i, true).expect("open");
    for n in 0..extents {
        fs.write(Cred::ROOT, i, n * 8192, &[7; 4096], WriteHow::default()).expect("write");
        if n % 8192 == 8191 {
            fs.fsync(i, false).expect("fsync");
        }
    }
    fs.fsync(i, false).expect("fsync");
    fs.vol.inodes.get(&fs.vol, i).expect("the file")
}

fn extents(c: &mut Criterion) {
    let mut g = c.benchmark_group("extents");
    let fs = mounted();
    for n in [1u64, 1_000, 100_000] {
        let i = holey(&fs, &format!("f{n}"), n);
        let ctx = fs.vol.map_ctx();
        let mut at = 0;
        g.bench_function(BenchmarkId::new("lookup, extents", n), |b| {
            b.iter(|| {
                at = (at + 7919) % n;
                let l = LBlock((at * 2) as u32);
                i.map().expect("map").lookup(&ctx, black_box(l), 1).expect("lookup")
            });
        });
    }
    g.finish();
    fs.unmount().expect("unmount");
}

fn commit(c: &mut Criterion) {
    let mut g = c.benchmark_group("commit");
    let fs = mounted();
    let first = fs.vol.geo.blocks_count / 2;
    for n in [1u64, 16, 256, 2048] {
        let bufs: Vec<_> = (0..n)
            .map(|i| fs.vol.cache.read(uext4::types::Block(first + i), &Seal::None).expect("read"))
            .collect();
        g.throughput(Throughput::Elements(n));
        g.bench_function(BenchmarkId::new("blocks", n), |b| {
            b.iter_batched(
                || {
                    let mut h = fs.vol.journal.start("bench", n as u32).expect("handle");
                    for buf in &bufs {
                        h.modify(buf, &Seal::None, |b| b[0] = b[0].wrapping_add(1))
                            .expect("modify");
                    }
                    let tid = h.tid();
                    h.stop().expect("stop");
                    tid
                },
                |tid| fs.vol.journal.wait_commit(tid).expect("commit"),
                BatchSize::PerIteration,
            );
        });
    }
    g.finish();
}

criterion_group!(hot, checksum, buddy, pages, extents, htree, commit);
criterion_main!(hot);
