//! What `run` and `serve` have in common: engines, the plugin, the model's name.

use std::path::PathBuf;

use anyhow::{Context, ensure};
use serde_json::Value;

use crate::client::{Call, Client, Protocol};
use crate::engine_sim::{EngineSim, SimOptions};
use crate::envoy::{Routing, plugin_configuration};

/// Options of both. Environment variables that are empty count as absent.
#[derive(Debug, Clone, clap::Args)]
pub struct GatewayOptions {
    /// Engines that are already there, `host:port,host:port`; otherwise simulators are started.
    #[arg(long, env = "ENGINES", default_value = "")]
    pub engines: String,
    /// Simulators to start.
    #[arg(long, default_value_t = 4)]
    pub sims: usize,
    /// Worker threads of the gateway.
    #[arg(long, env = "WORKERS", default_value = "1")]
    pub workers: u32,
    /// The plugin [default: dist/warmroute-envoy.wasm].
    #[arg(long, env = "PLUGIN", default_value = "")]
    pub plugin: String,
    /// A file with the plugin's configuration, JSON [default: the one of envoy/envoy.yaml].
    #[arg(long, env = "CONFIG", default_value = "")]
    pub config: String,
}

impl GatewayOptions {
    /// The routing that asks the plugin.
    ///
    /// # Errors
    /// The plugin is not built, or the configuration is no JSON.
    pub fn warmroute(&self) -> anyhow::Result<Routing> {
        let wasm = if self.plugin.is_empty() {
            crate::tree_root().join("dist/warmroute-envoy.wasm")
        } else {
            PathBuf::from(&self.plugin)
        };
        ensure!(
            wasm.is_file(),
            "{} is missing; run `make build`",
            wasm.display()
        );
        let configuration: Value = if self.config.is_empty() {
            plugin_configuration()?
        } else {
            let text = std::fs::read(&self.config).with_context(|| self.config.clone())?;
            serde_json::from_slice(&text).with_context(|| self.config.clone())?
        };
        Ok(Routing::Warmroute {
            wasm,
            configuration,
        })
    }

    /// The engines: those named, or simulators.
    ///
    /// # Errors
    /// No socket for a simulator, or the first engine does not say what model it serves.
    pub async fn engines(&self, sim: &SimOptions) -> anyhow::Result<Engines> {
        let named: Vec<String> = self
            .engines
            .split(',')
            .map(|engine| engine.trim().to_owned())
            .filter(|engine| !engine.is_empty())
            .collect();
        if let Some(first) = named.first() {
            let model = served_model(first).await?;
            return Ok(Engines {
                addresses: named,
                model,
                sims: Vec::new(),
            });
        }
        let mut sims = Vec::new();
        for _ in 0..self.sims.max(1) {
            sims.push(EngineSim::start(sim.clone()).await?);
        }
        Ok(Engines {
            addresses: sims.iter().map(|sim| sim.addr.to_string()).collect(),
            model: sim.model.clone(),
            sims,
        })
    }
}

/// The engines behind the gateway.
#[derive(Debug)]
pub struct Engines {
    /// `host:port` of each.
    pub addresses: Vec<String>,
    /// The model they serve.
    pub model: String,
    /// The simulators among them: all or none.
    pub sims: Vec<EngineSim>,
}

async fn served_model(engine: &str) -> anyhow::Result<String> {
    let client = Client::new(Protocol::Http1);
    let answer = client.send(engine, &Call::get("/v1/models")).await?;
    let models = answer.json()?;
    let model = models.pointer("/data/0/id").and_then(Value::as_str);
    let model = model.with_context(|| format!("{engine} names no model in /v1/models"))?;
    Ok(model.to_owned())
}
