//! `uext4 top`: a live view of a mount. It asks `uext4 ctl`, past the FUSE queue, so that it works
//! on a mount that hangs.

mod files;
mod sample;
mod view;

use bench_core::{Context, Result, tools};
use clap::Args;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};
use sample::{Panel, Source};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// `uext4 top`.
#[derive(Args)]
pub struct TopArgs {
    /// The mount point
    #[arg(value_name = "MOUNTPOINT")]
    pub path: PathBuf,
    /// Seconds between two looks
    #[arg(short, long, default_value_t = 1.0)]
    pub delay: f64,
    /// Look so many times, then end
    #[arg(short = 'n', long, value_name = "N")]
    pub count: Option<u64>,
    /// Print plain text instead of a screen
    #[arg(short, long)]
    pub batch: bool,
}

/// How often the largest files are looked for.
const FILES_EVERY: Duration = Duration::from_secs(15);

/// Shows it until q, or so many times.
pub fn run(args: &TopArgs) -> Result<()> {
    let delay = Duration::try_from_secs_f64(args.delay.max(0.1)).context("--delay")?;
    let mut source = Source::new(&tools::uext4()?, &args.path)?;
    let mut panel = source.look()?;
    panel.files = files::largest(&source, &args.path);
    if args.batch {
        for n in 0..args.count.unwrap_or(u64::MAX) {
            if n > 0 {
                std::thread::sleep(delay);
                panel = Panel { files: panel.files, ..source.look()? };
            }
            print!("{}", view::text(&panel));
        }
        return Ok(());
    }
    let mut terminal = ratatui::init();
    let done = watch(&mut terminal, args, delay, &mut source, panel);
    ratatui::restore();
    done
}

fn watch(
    terminal: &mut ratatui::DefaultTerminal,
    args: &TopArgs,
    delay: Duration,
    source: &mut Source,
    mut panel: Panel,
) -> Result<()> {
    let mut files_seen = Instant::now();
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        terminal.draw(|frame| view::draw(frame, &panel))?;
        let next = Instant::now() + delay;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            if let Event::Key(key) = event::read()? {
                let ctrl_c =
                    key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                if ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
                    return Ok(());
                }
            }
            terminal.draw(|frame| view::draw(frame, &panel))?;
        }
        panel = Panel { files: panel.files, ..source.look()? };
        if files_seen.elapsed() > FILES_EVERY {
            panel.files = files::largest(source, &args.path);
            files_seen = Instant::now();
        }
    }
    Ok(())
}
