//! A look, drawn.

use super::sample::Panel;
use bench_core::table::number;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Line;
use ratatui::widgets::{Block, Gauge, Paragraph, Sparkline};

const POLICIES: [&str; 5] = ["none", "dirty_pages", "fixed8", "extent", "waited_for"];

fn value(p: &Panel, name: &str) -> f64 {
    let as_value = p.values.get(name).and_then(|v| v.parse().ok());
    as_value.or_else(|| p.counters.get(name).copied()).unwrap_or(0.0)
}

fn rate(p: &Panel, name: &str) -> f64 {
    p.rates.get(name).copied().unwrap_or(0.0)
}

fn mib(bytes: f64) -> String {
    format!("{} MiB", number(bytes / f64::from(1 << 20)))
}

fn rows(p: &Panel) -> Vec<(&'static str, Vec<String>)> {
    let mut all = Vec::new();
    let text = |name: &str| p.values.get(name).cloned().unwrap_or_else(|| "-".into());
    all.push((
        "device",
        vec![
            format!(
                "reads  {:>8}/s {:>14}/s",
                number(rate(p, "device_reads")),
                mib(rate(p, "device_read_bytes"))
            ),
            format!(
                "writes {:>8}/s {:>14}/s",
                number(rate(p, "device_writes")),
                mib(rate(p, "device_write_bytes"))
            ),
            format!("flushes{:>8}/s", number(rate(p, "device_flushes"))),
        ],
    ));
    let mut passes =
        vec![format!("policy {}, lock mode {}", text("writeback_policy"), text("dioread_mode"))];
    for policy in POLICIES {
        let of = |what: &str| rate(p, &format!("writeback_{policy}_{what}"));
        let ever = value(p, &format!("writeback_{policy}_passes"));
        if ever > 0.0 {
            let each = of("written") / of("passes").max(f64::MIN_POSITIVE);
            passes.push(format!(
                "{policy:<12}{:>8} passes/s {:>8} pages each {:>8} requests/s",
                number(of("passes")),
                if of("passes") > 0.0 { number(each) } else { "-".into() },
                number(of("requests"))
            ));
        }
    }
    all.push(("write-out", passes));
    if p.counters.contains_key("log_blocks") {
        let mean = rate(p, "commit_us") / rate(p, "commits").max(f64::MIN_POSITIVE);
        all.push((
            "journal",
            vec![
                format!("commits {:>8}/s", number(rate(p, "commits"))),
                format!(
                    "a commit takes {}, the last {}, at most {} ms",
                    if rate(p, "commits") > 0.0 { number(mean / 1e3) } else { "-".into() },
                    number(value(p, "last_commit_us") / 1e3),
                    number(value(p, "max_commit_us") / 1e3)
                ),
            ],
        ));
    }
    if p.counters.keys().any(|n| n.starts_with("request_")) {
        let mut lines = vec![format!("in flight {}", number(value(p, "requests_in_flight")))];
        for (op, each, mean, max) in p.requests.iter().take(8) {
            lines.push(format!(
                "{op:<14}{:>8}/s {:>9} us, at most {} us",
                number(*each),
                number(*mean),
                number(*max)
            ));
        }
        all.push(("requests", lines));
    }
    let (waiting, held): (Vec<_>, Vec<_>) = p.locks.iter().partition(|l| l.contains(" waiting "));
    let mut locks = vec![format!("{} held, {} waited for", held.len(), waiting.len())];
    locks.extend(waiting.iter().take(5).map(|l| (*l).clone()));
    all.push(("I/O locks", locks));
    let files = p.files.iter().map(|(name, size, pieces)| {
        format!("{pieces:>6} pieces {:>10}  {name}", mib(*size as f64))
    });
    all.push(("largest files by fragmentation", files.collect()));
    all
}

/// How full something is, its text, and its limit.
fn gauges(p: &Panel) -> Vec<(&'static str, f64, String)> {
    let part = |a: f64, b: f64| if b > 0.0 { (a / b).clamp(0.0, 1.0) } else { 0.0 };
    let (dirty, limit) = (value(p, "dirty_now"), value(p, "dirty_bytes"));
    let mut all = vec![(
        "dirty",
        part(dirty, limit),
        format!(
            "{} of {}, delayed {} blocks",
            mib(dirty),
            mib(limit),
            number(value(p, "delayed_allocation_blocks"))
        ),
    )];
    let (log, free) = (value(p, "log_blocks"), value(p, "log_free_blocks"));
    if log > 0.0 {
        all.push((
            "journal",
            part(log - free, log),
            format!("{} of {} blocks of the log", number((log - free).max(0.0)), number(log)),
        ));
    }
    all
}

/// As text.
pub fn text(p: &Panel) -> String {
    let mut out = format!("{}\n", p.place);
    for (name, part, text) in gauges(p) {
        out += &format!("{name}: {:.0} %, {text}\n", part * 100.0);
    }
    for (title, lines) in rows(p) {
        out += &format!("{title}\n");
        for l in lines {
            out += &format!("  {l}\n");
        }
    }
    out
}

/// On the screen.
pub fn draw(frame: &mut Frame<'_>, p: &Panel) {
    let gauges = gauges(p);
    let rows = rows(p);
    let mut heights = vec![Constraint::Length(1)];
    heights.extend(gauges.iter().map(|_| Constraint::Length(1)));
    heights.push(Constraint::Length(4));
    heights.push(Constraint::Min(0));
    let areas = Layout::vertical(heights).split(frame.area());
    let title =
        Line::from(vec![" uext4 top ".bold(), p.place.clone().into(), "   q ends it".dim()]);
    frame.render_widget(Paragraph::new(title), areas[0]);
    for (n, (name, part, text)) in gauges.iter().enumerate() {
        let colour = if *part > 0.85 { Color::Red } else { Color::Blue };
        let gauge = Gauge::default()
            .ratio(*part)
            .label(format!("{name}: {text}"))
            .gauge_style(Style::new().fg(colour));
        frame.render_widget(gauge, areas[n + 1]);
    }
    let halves = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)])
        .split(areas[gauges.len() + 1]);
    let line = |title: &'static str, data: Vec<u64>, area: Rect, frame: &mut Frame<'_>| {
        let keep = data.len().saturating_sub(usize::from(area.width));
        let spark = Sparkline::default().data(&data[keep..]).block(Block::new().title(title.dim()));
        frame.render_widget(spark, area);
    };
    line("dirty", p.past.iter().map(|x| x.0).collect(), halves[0], frame);
    line("written to the device", p.past.iter().map(|x| x.1).collect(), halves[1], frame);
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (title, text) in rows {
        lines.push(Line::from(title.bold()));
        lines.extend(text.into_iter().map(|l| Line::from(format!("  {l}"))));
    }
    frame.render_widget(Paragraph::new(lines), areas[gauges.len() + 2]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn panel() -> Panel {
        let mut p = Panel { place: "/mnt".into(), ..Panel::default() };
        p.values.insert("dirty_now".into(), (1 << 20).to_string());
        p.values.insert("dirty_bytes".into(), (4 << 20).to_string());
        p.values.insert("writeback_policy".into(), "extent".into());
        p.counters.insert("writeback_extent_passes".into(), 3.0);
        p.counters.insert("log_blocks".into(), 1024.0);
        p.counters.insert("log_free_blocks".into(), 512.0);
        p.counters.insert("request_read_count".into(), 1.0);
        p.rates.insert("writeback_extent_passes".into(), 2.0);
        p.rates.insert("writeback_extent_written".into(), 64.0);
        p.locks = vec![
            "inode 12 held Exclusive direct write 0.1 s".into(),
            "inode 12 waiting Exclusive direct read 2.0 s".into(),
        ];
        p.files = vec![("big".into(), 1 << 30, 7)];
        p.past = vec![(1, 2), (3, 4)];
        p
    }

    #[test]
    fn everything_is_on_the_screen() {
        let mut t = Terminal::new(TestBackend::new(90, 40)).unwrap();
        t.draw(|f| draw(f, &panel())).unwrap();
        let screen: String = t.backend().buffer().content().iter().map(|c| c.symbol()).collect();
        for want in [
            "/mnt",
            "1.00 MiB of 4.00 MiB",
            "512 of 1024 blocks",
            "32.0 pages each",
            "1 held, 1 waited for",
            "7 pieces",
            "direct read 2.0 s",
        ] {
            assert!(screen.contains(want), "{want}: {screen}");
            assert!(text(&panel()).contains(want), "{want}");
        }
        // Small screens are no trouble.
        let mut t = Terminal::new(TestBackend::new(3, 2)).unwrap();
        t.draw(|f| draw(f, &panel())).unwrap();
    }
}
