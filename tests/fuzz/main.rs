//! The targets of `fuzz/` without a fuzzer: over the seeds kept in the repository, and for a short while on
//! what random changes make of them. `UEXT4_TEST_SCALE=full` takes a minute for each.
//!
//! `UEXT4_WRITE_SEEDS=1` writes the seeds anew from the images.

#[path = "../hostile/guard.rs"]
mod guard;
#[path = "../hostile/memory.rs"]
mod memory;
#[path = "../../fuzz/src/lib.rs"]
mod targets;

use std::path::Path;
use std::time::{Duration, Instant};
use uext4::crash::Rng;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

fn kept(target: &str) -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    if std::env::var_os("UEXT4_WRITE_SEEDS").is_some() {
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(&dir).unwrap();
        for (i, seed) in targets::seeds(target).iter().enumerate() {
            // Zeros at the end say nothing.
            let end = seed.iter().rposition(|b| *b != 0).map_or(1, |n| n + 1);
            std::fs::write(dir.join(format!("{i:02}")), &seed[..end]).unwrap();
        }
    }
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    files.iter().map(|f| std::fs::read(f).unwrap()).collect()
}

/// Flips, overwrites, cuts and repeats.
fn change(data: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(6) {
        let at = rng.below(data.len() as u64) as usize;
        match rng.below(6) {
            0 | 1 => data[at] ^= 1 << rng.below(8),
            2 => data[at] = [0, 1, 0x7f, 0x80, 0xff][rng.below(5) as usize],
            3 => data.truncate(at.max(1)),
            4 => data.extend((0..1 + rng.below(9)).map(|_| rng.draw() as u8).collect::<Vec<_>>()),
            _ => {
                let piece = data[at..].iter().take(9).copied().collect::<Vec<_>>();
                let to = rng.below(data.len() as u64) as usize;
                data.splice(to..to, piece);
            }
        }
    }
    data.truncate(20_000);
}

#[test]
fn every_target_for_a_short_while() {
    let full = std::env::var("UEXT4_TEST_SCALE").as_deref() == Ok("full");
    let time = if full { Duration::from_secs(60) } else { Duration::from_millis(700) };
    std::sync::LazyLock::force(&targets::BASES);
    let mut wrong = Vec::new();
    for (name, target) in targets::TARGETS {
        let seeds = kept(name);
        assert!(!seeds.is_empty(), "{name}: no seeds");
        let (began, mut runs) = (Instant::now(), 0);
        let mut rng = Rng::new(3);
        while runs < seeds.len() || began.elapsed() < time {
            let mut data = seeds[runs % seeds.len()].clone();
            if runs >= seeds.len() {
                change(&mut data, &mut rng);
            }
            runs += 1;
            let input = data.clone();
            if let Err(e) = guard::guarded(move || target(&input)) {
                wrong.push(format!("{name}: {e}: input {data:02x?}"));
                break;
            }
        }
        println!(
            "{name}: {runs} runs, {:.0} per second",
            runs as f64 / began.elapsed().as_secs_f64()
        );
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
