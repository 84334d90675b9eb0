//! The binary `selfsame`.

fn main() -> std::process::ExitCode {
    selfsame_gateway::run()
}
