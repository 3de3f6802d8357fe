//! `warmroute-lab serve`: the gateway left up, for curl.

use std::net::SocketAddr;

use crate::envoy::{Envoy, EnvoyOptions};
use crate::gateway::GatewayOptions;
use crate::run::sim_options;

/// Options of serving.
#[derive(Debug, Clone, clap::Args)]
pub struct ServeOptions {
    #[command(flatten)]
    gateway: GatewayOptions,
    /// Address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:10000")]
    listen: SocketAddr,
}

/// Starts the gateway and says how to use it. It ends when the returned value is dropped.
///
/// # Errors
/// Something does not start.
pub async fn serve(options: &ServeOptions) -> anyhow::Result<Serving> {
    let routing = options.gateway.warmroute()?;
    let engines = options.gateway.engines(&sim_options()).await?;
    let envoy = Envoy::start(&EnvoyOptions {
        concurrency: options.gateway.workers,
        listen: options.listen,
        ..EnvoyOptions::new(engines.addresses.clone(), routing)
    })
    .await?;
    println!("gateway  http://{}", envoy.listener_addr);
    println!(
        "admin    http://{}/stats?filter=warmroute",
        envoy.admin_addr
    );
    for engine in &engines.addresses {
        println!("engine   http://{engine}/metrics");
    }
    println!(
        "\ncurl http://{}/v1/chat/completions -H 'content-type: application/json' \\\n  \
         -d '{{\"model\": \"{}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n\n\
         Ctrl-C ends it.",
        envoy.listener_addr, engines.model
    );
    Ok(Serving {
        _envoy: envoy,
        _engines: engines,
    })
}

/// A gateway that is up. Dropped in this order: the gateway before its engines.
#[derive(Debug)]
pub struct Serving {
    _envoy: Envoy,
    _engines: crate::gateway::Engines,
}
