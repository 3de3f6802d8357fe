//! Wasm instructions of a decision's parts, each by itself: [`warmroute_parts`] compiled as the plugin is.
//!
//! Parsing and hashing depend on the body alone. The prompt that is matched and recorded is one that every
//! endpoint holds; in a whole decision of [`super::case`] few do.

use anyhow::{Context, Result, anyhow, ensure};
use serde::Serialize;
use wasmtime::{Config, Engine, Instance, Module, Store, WasmParams, WasmResults};

use super::body::{Text, body};
use super::case::Case;
use crate::built::tree;

/// The fuel of a store before each call.
const FUEL: u64 = u64::MAX;

/// Wasm instructions of a decision's parts.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct PartCost {
    /// Taking the body apart: JSON, texts, what they mean.
    pub parse: u64,
    /// Cutting the prompt into blocks, hashing and chaining them.
    pub hash: u64,
    /// Matching the blocks for all endpoints.
    #[serde(rename = "match")]
    pub find: u64,
    /// Recording them at one endpoint, which holds them.
    pub record: u64,
}

/// The compiled module.
pub struct PartsModule {
    engine: Engine,
    module: Module,
}

impl PartsModule {
    /// Compiles what `make build` has built.
    ///
    /// # Errors
    /// It has not been built, or cannot be compiled.
    pub fn load() -> Result<Self> {
        const NAME: &str = "target/bench/warmroute-parts.wasm";
        let bytes = std::fs::read(tree().join(NAME))
            .with_context(|| format!("{NAME}: run `make build` first"))?;
        compile(&bytes).map_err(told)
    }

    /// Measures the parts of a case.
    ///
    /// # Errors
    /// The module traps, or finds no prompt.
    pub fn measure(&self, case: &Case) -> Result<PartCost> {
        let body = body(case.text, case.bytes, 1);
        let is_completion = u32::from(case.text == Text::TokenIds);
        let mut guest = Guest::new(self, &body).map_err(told)?;
        let begun: u32 = guest.call("parts_begin", is_completion).map_err(told)?;
        ensure!(begun == 1, "a body without a prompt");
        let parse = guest.fuel_of("parts_parse")?;
        let read = guest.fuel_of("parts_read")?;
        guest
            .call::<u32, ()>("parts_hold", u32::try_from(case.hosts)?)
            .map_err(told)?;
        Ok(PartCost {
            parse,
            hash: read.saturating_sub(parse),
            find: guest.fuel_of("parts_match")?,
            record: guest.fuel_of("parts_record")?,
        })
    }
}

fn compile(bytes: &[u8]) -> wasmtime::Result<PartsModule> {
    let mut config = Config::new();
    config.consume_fuel(true);
    let engine = Engine::new(&config)?;
    let module = Module::new(&engine, bytes)?;
    Ok(PartsModule { engine, module })
}

fn told(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error:#}")
}

/// An instance with a body in its memory.
struct Guest {
    store: Store<()>,
    instance: Instance,
}

impl Guest {
    fn new(module: &PartsModule, body: &[u8]) -> wasmtime::Result<Self> {
        let mut store = Store::new(&module.engine, ());
        store.set_fuel(FUEL)?;
        let instance = Instance::new(&mut store, &module.module, &[])?;
        let mut guest = Self { store, instance };
        let length = u32::try_from(body.len())?;
        let place: u32 = guest.call("parts_body", length)?;
        if let Some(memory) = instance.get_memory(&mut guest.store, "memory") {
            memory.write(&mut guest.store, usize::try_from(place)?, body)?;
        }
        Ok(guest)
    }

    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, given: P) -> wasmtime::Result<R> {
        let part = self
            .instance
            .get_typed_func::<P, R>(&mut self.store, name)?;
        self.store.set_fuel(FUEL)?;
        part.call(&mut self.store, given)
    }

    /// Of the second call: the first finds the room that it needs.
    fn fuel_of(&mut self, name: &str) -> Result<u64> {
        for _ in 0..2 {
            let result: u64 = self.call(name, ()).map_err(told)?;
            ensure!(result > 0, "{name} did nothing");
        }
        Ok(FUEL - self.store.get_fuel().map_err(told)?)
    }
}
