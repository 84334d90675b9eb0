//! The command line: what can be asked for, and the exit code.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::commands::{config, contract, demo, keys, serve, store};
use crate::printable::printable_lines;

/// Makes retries safe: the same key gives the same answer, and the work behind it is done once.
#[derive(Debug, Parser)]
#[command(name = "selfsame", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Stands in front of an API and protects its keyed requests
    Serve(serve::Args),
    /// Shows a double payment, and how it is prevented
    Demo(demo::Args),
    /// Looks keys up, and decides about those that are held
    Keys(keys::Args),
    /// Brings a store up to date
    Store(store::Args),
    /// Checks a configuration, or tells what one may hold
    Config(config::Args),
    /// Prints what clients may rely on, from a configuration
    Contract(contract::Args),
}

/// Runs what the command line asks for: 0 if all went well, 1 if not, 2 if it was not understood.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve(args) => serve::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Keys(args) => keys::run(args),
        Command::Store(args) => store::run(args),
        Command::Config(args) => config::run(args),
        Command::Contract(args) => contract::run(args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("selfsame: {}", printable_lines(&format!("{error:#}")));
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// Variables whose values help may show: no credential can be part of them.
    const SHOWN: [&str; 9] = [
        "SELFSAME_LISTEN",
        "SELFSAME_ADMIN",
        "SELFSAME_ADMIN_CA",
        "SELFSAME_ADMIN_CERT",
        "SELFSAME_ADMIN_KEY",
        "SELFSAME_CONFIG",
        "SELFSAME_ADMIN_TOKEN_FILE",
        "SELFSAME_TOKEN_FILE",
        "SELFSAME_SECRET_FILE",
    ];

    #[test]
    fn help_shows_no_address_from_the_environment() {
        let mut commands = vec![Cli::command()];
        let mut hidden = 0;
        while let Some(command) = commands.pop() {
            for argument in command.get_arguments() {
                let Some(name) = argument.get_env().and_then(|name| name.to_str()) else {
                    continue;
                };
                let is_hidden = argument.is_hide_env_values_set();
                assert!(is_hidden || SHOWN.contains(&name), "{} {name}", command.get_name());
                hidden += usize::from(is_hidden);
            }
            commands.extend(command.get_subcommands().cloned());
        }
        assert!(hidden >= 8, "{hidden}");
    }
}
