//! `make bench`: what the built plugin costs, held against the budget.

use anyhow::{Result, bail};
use warmroute_harness::bench::budget::{self, Budget};
use warmroute_harness::bench::{memory, native, report};
use warmroute_harness::built;
use warmroute_harness::host::Profile;

const HELP: &str = "\
Settings come from the environment:
  UPDATE   1 = write what things cost into benches/budget.json
  MEMORY   requests of new prompts, for the linear memory they take [20000]";

fn main() -> Result<()> {
    if std::env::args().len() > 1 {
        println!("{HELP}");
        return Ok(());
    }
    let measured = budget::measure_all()?;
    let figures = budget::figures(&measured);
    let lines = measured
        .into_iter()
        .map(|measured| Ok((measured, native::measure(&measured.case)?)))
        .collect::<Result<Vec<_>>>()?;
    let requests = match std::env::var("MEMORY") {
        Ok(text) if !text.is_empty() => text.parse()?,
        _ => 20_000,
    };
    let memory = (requests > 0)
        .then(|| {
            let artifact = built::artifact(Profile::Higress)?;
            memory::measure(&artifact, memory::Run::short_prompts(requests))
        })
        .transpose()?;
    print!("{}", report::table(&lines, memory.as_ref()));
    report::write(&lines, memory.as_ref())?;

    let built_with = built::built_with()?;
    if std::env::var("UPDATE").is_ok_and(|update| update == "1") {
        Budget::load()
            .unwrap_or_default()
            .update(&figures, &built_with)?;
        println!("benches/budget.json: updated");
    }
    let budget = Budget::load()?;
    let faults = budget.faults(&figures, budget.built_with == built_with);
    if !faults.is_empty() {
        bail!("{}", faults.join("\n"));
    }
    Ok(())
}
