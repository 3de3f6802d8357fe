//! `warmroute-lab run`: one workload through three policies, on cold engines each.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};

use crate::client::{Client, Protocol};
use crate::engine_sim::{EngineSim, SimOptions};
use crate::envoy::{Envoy, EnvoyOptions, Routing};
use crate::gateway::{Engines, GatewayOptions};
use crate::play::{identical_bodies, play};
use crate::report::{Report, Row};
use crate::workload::{Conversation, WorkloadOptions, generate, read_mooncake};

/// Who chooses the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// Envoy's round robin.
    RoundRobin,
    /// Envoy's least request.
    LeastRequest,
    /// The plugin.
    Warmroute,
}

impl Policy {
    fn name(self) -> &'static str {
        match self {
            Self::RoundRobin => "round robin",
            Self::LeastRequest => "least request",
            Self::Warmroute => "warmroute",
        }
    }

    fn routing(self, gateway: &GatewayOptions) -> anyhow::Result<Routing> {
        match self {
            Self::RoundRobin => Ok(Routing::RoundRobin),
            Self::LeastRequest => Ok(Routing::LeastRequest),
            Self::Warmroute => gateway.warmroute(),
        }
    }
}

/// Options of a run.
#[derive(Debug, Clone, clap::Args)]
pub struct RunOptions {
    #[command(flatten)]
    gateway: GatewayOptions,
    /// What to play, in this order; the last is compared with the others.
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [
        Policy::RoundRobin, Policy::LeastRequest, Policy::Warmroute,
    ])]
    policies: Vec<Policy>,
    /// A trace in the Mooncake format to play instead of the generated workload.
    #[arg(long, env = "TRACE", default_value = "")]
    trace: String,
    /// How much faster than recorded the trace is played.
    #[arg(long, env = "SPEED", default_value = "")]
    speed: String,
    /// How many requests of the trace are played.
    #[arg(long, env = "LIMIT", default_value = "")]
    limit: String,
    /// Users of the generated workload.
    #[arg(long, default_value_t = WorkloadOptions::default().users)]
    users: usize,
    /// Seed of the generated workload.
    #[arg(long, default_value_t = WorkloadOptions::default().seed)]
    seed: u64,
    /// Prefill speed of the simulators, tokens per second.
    #[arg(long, default_value_t = sim_options().prefill_tokens_per_s)]
    prefill_tokens_per_s: f64,
    /// Cache of each simulator, blocks of 16 tokens.
    #[arg(long, default_value_t = sim_options().num_gpu_blocks)]
    num_gpu_blocks: usize,
    /// Where the result goes as JSON [default: target/report/run.json].
    #[arg(long, default_value = "")]
    json: String,
}

/// The simulators of a run: together they can hold the conversations of the default workload once,
/// but not four times.
pub fn sim_options() -> SimOptions {
    SimOptions {
        num_gpu_blocks: 2900,
        prefill_tokens_per_s: 8000.0,
        inter_token_ms: 20.0,
        ..SimOptions::default()
    }
}

/// Runs it all, prints the table, writes the JSON.
///
/// # Errors
/// Something does not start, a request failed, or a body was changed on its way.
pub async fn run(options: &RunOptions) -> anyhow::Result<()> {
    // Before anything runs for minutes: is all there?
    let policies: Vec<(Policy, Routing)> = options
        .policies
        .iter()
        .map(|policy| Ok((*policy, policy.routing(&options.gateway)?)))
        .collect::<anyhow::Result<_>>()?;
    let sim = SimOptions {
        prefill_tokens_per_s: options.prefill_tokens_per_s,
        num_gpu_blocks: options.num_gpu_blocks,
        ..sim_options()
    };
    let engines = options.gateway.engines(&sim).await?;
    let mut rows = Vec::new();
    for (policy, routing) in policies {
        rows.push(measure(options, &engines, policy.name(), routing).await?);
    }
    let name = if options.trace.is_empty() {
        format!("generated workload, seed {}", options.seed)
    } else {
        options.trace.clone()
    };
    let report = Report::new(name, engines.addresses.clone(), rows);
    print!("{}", report.table());
    let path = if options.json.is_empty() {
        crate::tree_root().join("target/report/run.json")
    } else {
        PathBuf::from(&options.json)
    };
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    std::fs::write(&path, serde_json::to_vec_pretty(&report)?)
        .with_context(|| path.display().to_string())?;
    println!("written to {}", path.display());
    if !report.rows.iter().all(Row::is_clean) {
        bail!("requests failed or were changed");
    }
    Ok(())
}

async fn measure(
    options: &RunOptions,
    engines: &Engines,
    policy: &str,
    routing: Routing,
) -> anyhow::Result<Row> {
    for sim in &engines.sims {
        sim.reset();
    }
    let lead = if engines.sims.is_empty() {
        unique_lead(policy)
    } else {
        String::new()
    };
    let conversations = Arc::new(workload(options, &engines.model, lead)?);
    let envoy = Envoy::start(&EnvoyOptions {
        concurrency: options.gateway.workers,
        ..EnvoyOptions::new(engines.addresses.clone(), routing)
    })
    .await?;
    let client = Client::new(Protocol::Http1);
    let played = play(policy, &client, &envoy.authority(), &conversations).await;
    drop(envoy);
    let identical = (!engines.sims.is_empty()).then(|| {
        let logs: Vec<_> = engines.sims.iter().flat_map(EngineSim::log).collect();
        identical_bodies(&played.outcomes, &logs)
    });
    Ok(Row::new(
        policy,
        &played,
        engines.addresses.len(),
        identical,
    ))
}

/// Engines whose caches cannot be cleared have never seen it.
fn unique_lead(policy: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    format!("Run {:x}, {policy}. ", now.unwrap_or_default().as_nanos())
}

fn workload(options: &RunOptions, model: &str, lead: String) -> anyhow::Result<Vec<Conversation>> {
    if options.trace.is_empty() {
        return Ok(generate(&WorkloadOptions {
            model: model.to_owned(),
            seed: options.seed,
            users: options.users,
            lead,
            ..WorkloadOptions::default()
        }));
    }
    let number = |name: &str, text: &str, default: f64| match text {
        "" => Ok(default),
        text => text
            .parse()
            .with_context(|| format!("{name}={text}: a number expected")),
    };
    let speed = number("SPEED", &options.speed, 1.0)?;
    let limit = number("LIMIT", &options.limit, 300.0)?;
    let file = std::fs::File::open(&options.trace).with_context(|| options.trace.clone())?;
    let file = std::io::BufReader::new(file);
    read_mooncake(file, model, &lead, speed, limit as usize).with_context(|| options.trace.clone())
}
