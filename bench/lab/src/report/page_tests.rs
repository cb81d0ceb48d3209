//! The page in a real browser, with results made up for every built-in experiment.

use super::*;
use crate::measures::Measured;
use crate::spec::{Scale, split_measure};
use bench_core::tools;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

/// Values that rise with the number of the row.
fn made_up(e: &Experiment) -> Results {
    let mut r = Results::new(e.name.get_ref(), &e.title, "quick");
    r.complete = true;
    for v in &e.variants {
        r.variants.push(bench_core::results::Variant {
            name: v.name.get_ref().clone(),
            detail: v.options.clone(),
        });
    }
    for j in &e.jobs {
        let mut wanted: BTreeSet<String> = j.show.iter().map(|s| s.get_ref().clone()).collect();
        wanted.extend(
            e.charts
                .iter()
                .filter(|c| c.job == j.name)
                .flat_map(|c| c.y.iter().map(|m| m.get_ref().clone())),
        );
        for s in e.shapes.iter().filter(|s| s.job == j.name) {
            wanted.extend(
                [&s.left, &s.right].map(|x| split_measure(x.get_ref()).unwrap().1.to_string()),
            );
        }
        let mut rows = vec![BTreeMap::from([("job".to_string(), j.name.get_ref().clone())])];
        let mut names: Vec<(String, Vec<String>)> = j
            .params
            .iter()
            .map(|p| (p.get_ref().clone(), e.values_of(j, p.get_ref(), Scale::Quick)))
            .collect();
        if j.work.as_ref().is_some_and(|w| w.get_ref() == "crash") {
            names.push(("time".into(), ["0", "0.5", "1.5", "5"].map(String::from).to_vec()));
        }
        for (name, values) in names {
            rows = rows
                .iter()
                .flat_map(|row| {
                    values.iter().map(|v| {
                        let mut row = row.clone();
                        row.insert(name.clone(), v.clone());
                        row
                    })
                })
                .collect();
        }
        for (n, row) in rows.iter().enumerate() {
            for (k, v) in e.variants.iter().enumerate() {
                for rep in 0..3 {
                    for m in &wanted {
                        let m =
                            Measured::new(m.clone(), (n + 1) as f64 * (k + 2) as f64 + rep as f64);
                        r.add(v.name.get_ref(), row, rep, &m.name, m.unit, m.better, m.value);
                    }
                }
            }
        }
    }
    for v in &e.variants {
        let disk = serde_json::json!({ "size": 64 << 20, "block": 4096, "files": [["a", [[100, 5000], [9000, 10]]], ["b", [[6000, 100]]]] });
        if e.jobs.iter().any(|j| j.work.as_ref().is_some_and(|w| w.get_ref() == "age")) {
            r.extra.insert(
                format!("disk:{}", v.name.get_ref()),
                serde_json::json!({ "before": disk, "after": disk }),
            );
            r.extra.insert(
                format!("free:{}", v.name.get_ref()),
                serde_json::json!({ "block": 4096, "runs_by_order": [3, 2, 1] }),
            );
        }
    }
    r
}

fn browser() -> Command {
    let program = tools::need("chromium", "chromium").unwrap();
    let mut c = Command::new(program);
    c.args([
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--window-size=1100,3000",
    ]);
    c
}

#[test]
#[ignore = "needs chromium: make test"]
fn the_page_in_a_browser() {
    let all: Vec<(Experiment, Results)> = crate::experiments::all()
        .unwrap()
        .into_iter()
        .map(|e| {
            let r = made_up(&e);
            (e, r)
        })
        .collect();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report.html");
    fs::write(&path, together(&all).html()).unwrap();
    let url = format!("file://{}", path.display());
    // What the browser made of it: every chart is a picture with a size, and nothing was dropped.
    let out = browser().args(["--dump-dom", &url]).output().unwrap();
    let dom = String::from_utf8_lossy(&out.stdout);
    let wanted: usize = all.iter().map(|(e, r)| charts::all(e, r).len() + disks(e, r).len()).sum();
    assert!(wanted >= 20, "{wanted} pictures");
    assert_eq!(dom.matches("<svg").count(), wanted);
    for (e, _) in &all {
        assert!(dom.contains(&format!("id=\"{}\"", e.name.get_ref())), "{}", e.name.get_ref());
    }
    // Light and dark are pictures, and different ones.
    let shots: Vec<Vec<u8>> = ["1", "0"]
        .into_iter()
        .map(|scheme| {
            let png = dir.path().join(format!("{scheme}.png"));
            let scheme = format!("--blink-settings=preferredColorScheme={scheme}");
            let shot = format!("--screenshot={}", png.display());
            assert!(browser().args([&scheme, &shot, &url]).output().unwrap().status.success());
            fs::read(png).unwrap()
        })
        .collect();
    assert!(shots.iter().all(|s| s.starts_with(b"\x89PNG") && s.len() > 50_000));
    assert_ne!(shots[0], shots[1]);
}

#[test]
fn every_chart_and_table_of_every_experiment_can_be_drawn() {
    for e in crate::experiments::all().unwrap() {
        let r = made_up(&e);
        let dir = tempfile::tempdir().unwrap();
        write(&e, &r, dir.path()).unwrap();
        let charts = fs::read_dir(dir.path())
            .unwrap()
            .filter(|f| f.as_ref().unwrap().path().extension().is_some_and(|x| x == "svg"));
        assert!(charts.count() >= e.charts.len(), "{}", e.name.get_ref());
        let page = fs::read_to_string(dir.path().join("report.html")).unwrap();
        assert!(!page.contains("NaN") && !page.contains("not measured"), "{}", e.name.get_ref());
        assert!(text(&e, &r).contains("what has to be seen"));
        // Nothing at all is no trouble either.
        assert!(page_of_nothing(&e).contains("not measured"));
    }
}

fn page_of_nothing(e: &Experiment) -> String {
    page(e, &Results::new(e.name.get_ref(), &e.title, "quick")).html()
}
