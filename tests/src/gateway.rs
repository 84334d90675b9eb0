//! The gateway, built for the tests that start it.

fn main() -> std::process::ExitCode {
    selfsame_gateway::run()
}
