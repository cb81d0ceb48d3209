//! The `uext4` command.

fn main() -> std::process::ExitCode {
    uext4::cli::main()
}
