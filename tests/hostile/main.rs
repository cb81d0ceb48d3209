//! Images that lie: every kind of metadata of every feature set is mutated, given a checksum that is
//! right again, and mounted, walked, written and unmounted. There is a clear error or an answer: no
//! panic, no hang (10 s), no more than 256 MiB of memory.
//!
//! `UEXT4_TEST_SCALE=full` takes an hour instead of seconds, `UEXT4_HOSTILE_SECONDS` as long as it says;
//! `UEXT4_HOSTILE_SEED` begins elsewhere. A failure names its seed.

mod guard;
mod image;
mod layout;
mod memory;
mod mutate;
mod special;
mod trial;

use layout::Layout;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use trial::Outcome;
use uext4::crash::Rng;
use uext4::device::MemDevice;

#[global_allocator]
static ALLOCATOR: memory::Counting = memory::Counting;

/// An image as it was made.
struct Base {
    name: &'static str,
    dev: MemDevice,
    layout: Layout,
    digest: u64,
    dirty: bool,
}

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let base = |spec: &image::Spec| {
        let dev = image::build(spec);
        let layout = Layout::of(&dev);
        let copy = Arc::new(dev.snapshot());
        let fs = image::mount(copy).unwrap();
        let walked = trial::walk(&fs);
        assert_eq!(walked.error, None, "{}", spec.name);
        fs.unmount().unwrap();
        Base { name: spec.name, dev, layout, digest: walked.digest, dirty: spec.dirty }
    };
    image::SPECS.iter().map(base).collect()
});

fn number(variable: &str, otherwise: u64) -> u64 {
    std::env::var(variable).ok().and_then(|v| v.parse().ok()).unwrap_or(otherwise)
}

fn seconds() -> u64 {
    let full = std::env::var("UEXT4_TEST_SCALE").as_deref() == Ok("full");
    number("UEXT4_HOSTILE_SECONDS", if full { 3600 } else { 15 })
}

/// Outcomes of the trials of each kind of metadata.
type Table = BTreeMap<&'static str, BTreeMap<Outcome, u64>>;

fn show(table: &Table) -> String {
    let all = [Outcome::Refused, Outcome::Error, Outcome::Same, Outcome::Changed];
    let mut text =
        "| mutated | tried | refused | error at use | read as before | read as changed |\n\
                    |---|---|---|---|---|---|\n"
            .to_string();
    let mut sum: BTreeMap<Outcome, u64> = BTreeMap::new();
    let row = |name: &str, n: &BTreeMap<Outcome, u64>| {
        let of = |o: &Outcome| n.get(o).copied().unwrap_or(0).to_string();
        let cells: Vec<String> = all.iter().map(of).collect();
        format!("| {name} | {} | {} |\n", n.values().sum::<u64>(), cells.join(" | "))
    };
    for (kind, n) in table {
        text += &row(kind, n);
        n.iter().for_each(|(o, n)| *sum.entry(*o).or_default() += n);
    }
    text + &row("all", &sum)
}

/// Each image, walked and changed as it is, is no error.
#[test]
fn honest_images() {
    for base in BASES.iter() {
        let (copy, digest) = (Arc::new(base.dev.snapshot()), base.digest);
        let got = guard::guarded(move || trial::attack(copy, Some(digest))).unwrap();
        assert_eq!(got, (Outcome::Same, String::new()), "{}", base.name);
        let kinds = mutate::kinds(&base.layout);
        assert!(kinds.len() >= 6, "{}: {kinds:?}", base.name);
    }
}

#[test]
fn mutations_of_every_kind_of_metadata() {
    let bases: &Vec<Base> = &BASES;
    let began = Instant::now();
    let limit = Duration::from_secs(seconds());
    let first = number("UEXT4_HOSTILE_SEED", 1);
    let mut table = Table::new();
    let mut wrong = Vec::new();
    let mut seed = first;
    while began.elapsed() < limit && wrong.len() < 5 {
        for base in bases {
            for kind in mutate::kinds(&base.layout) {
                let mut rng = Rng::new(seed);
                let dev = Arc::new(base.dev.snapshot());
                let said = mutate::mutate(&dev, &base.layout, kind, &mut rng);
                let digest = base.digest;
                match guard::guarded(move || trial::attack(dev, Some(digest))) {
                    Ok((outcome, _)) => {
                        *table.entry(kind).or_default().entry(outcome).or_default() += 1;
                    }
                    Err(e) => wrong.push(format!("[{}] seed {seed}: {said}: {e}", base.name)),
                }
            }
        }
        seed += 1;
    }
    let tried: u64 = table.values().flat_map(|n| n.values()).sum();
    let rate = tried as f64 / began.elapsed().as_secs_f64();
    println!(
        "{}\n{tried} mutations, {rate:.0} per second, seeds {first} to {}",
        show(&table),
        seed - 1
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(tried > 50, "only {tried}");
}

#[test]
fn special_images() {
    let mut wrong = Vec::new();
    let mut table = String::new();
    for base in BASES.iter() {
        for case in special::CASES {
            let dev = Arc::new(base.dev.snapshot());
            if !(case.make)(&dev, &base.layout) {
                continue;
            }
            let digest = base.digest;
            match guard::guarded(move || trial::attack(dev, Some(digest))) {
                // Replay may write over the lie.
                Ok((Outcome::Changed, _)) if !case.harmless && !base.dirty => {
                    wrong.push(format!("[{}] {}: believed", base.name, case.name));
                }
                Ok((outcome, e)) => {
                    table += &format!("[{}] {}: {outcome:?} {e}\n", base.name, case.name);
                }
                Err(e) => wrong.push(format!("[{}] {}: {e}", base.name, case.name)),
            }
        }
    }
    println!("{table}");
    for case in special::CASES {
        assert!(table.contains(case.name) || !wrong.is_empty(), "{}: on no image", case.name);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
