//! `warmroute-artifact finish --host envoy|higress IN OUT`: the linker's module made loadable.
//! `warmroute-artifact list IN`: its imports, exports and size.

use anyhow::{Context, Result, bail};
use std::fs;
use std::process::ExitCode;
use warmroute_artifact::{Host, Surface, finish};

const USAGE: &str = "usage: warmroute-artifact finish --host envoy|higress IN OUT
       warmroute-artifact list IN";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("warmroute-artifact: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &[&str]) -> Result<()> {
    match *args {
        ["finish", "--host", host, input, output] => {
            let module = finish(&read(input)?, host.parse::<Host>()?)
                .with_context(|| format!("cannot finish {input} for {host}"))?;
            fs::write(output, module).with_context(|| format!("cannot write {output}"))
        }
        ["list", input] => {
            let module = read(input)?;
            for line in Surface::of(&module)?.lines() {
                println!("{line}");
            }
            println!("size {} bytes", module.len());
            Ok(())
        }
        _ => bail!("{USAGE}"),
    }
}

fn read(path: &str) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {path}"))
}
