//! `warmroute-lab`: the measured comparison, and a gateway to try.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use warmroute_lab::run::{RunOptions, run};
use warmroute_lab::serve::{ServeOptions, serve};

/// warmroute in a real Envoy in front of simulated or real engines.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Play one workload through round robin, least request and warmroute; compare.
    Run(RunOptions),
    /// Leave the gateway up for curl.
    Serve(ServeOptions),
}

#[tokio::main]
async fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Run(options) => tokio::select! {
            outcome = run(&options) => outcome,
            // Dropping the run ends Envoy and the engines.
            () = stopped() => return ExitCode::from(130),
        },
        Command::Serve(options) => match serve(&options).await {
            Ok(serving) => {
                stopped().await;
                drop(serving);
                Ok(())
            }
            Err(error) => Err(error),
        },
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Ctrl-C, or a polite kill.
async fn stopped() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        let _ = tokio::signal::ctrl_c().await;
        return;
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
    }
}
