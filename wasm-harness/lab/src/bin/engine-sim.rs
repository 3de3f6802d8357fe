//! `engine-sim`: one simulated engine on a socket.

use clap::Parser;
use warmroute_lab::engine_sim::{EngineSim, SimOptions};

/// Behaves like a vLLM process for a router; costs time, not a GPU.
#[derive(Parser)]
#[command(version)]
struct Cli {
    #[command(flatten)]
    options: SimOptions,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let sim = EngineSim::start(Cli::parse().options).await?;
    println!("engine-sim listens on http://{}", sim.addr);
    tokio::select! {
        () = sim.run() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
    Ok(())
}
