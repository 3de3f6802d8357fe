//! A compiled module: compiled once, instantiated by many VMs.

use wasmtime::{Config, Engine, Module};

use super::vm::HostError;

/// The ABI version that a module exports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// `proxy_abi_version_0_2_0`.
    V0_2_0,
    /// `proxy_abi_version_0_2_1`.
    V0_2_1,
    /// `proxy_abi_version_0_2_100`, Higress's own: header StopIteration passes through.
    V0_2_100,
}

/// A compiled module. Cloning is cheap.
#[derive(Clone)]
pub struct Artifact {
    pub(super) engine: Engine,
    pub(super) module: Module,
    abi: Abi,
}

impl Artifact {
    /// Compiles a wasm binary or WAT text.
    ///
    /// # Errors
    /// The module does not compile, or does not export exactly one known ABI version.
    pub fn load(bytes: &[u8]) -> Result<Self, HostError> {
        let mut config = Config::new();
        config.consume_fuel(true);
        let engine = Engine::new(&config).map_err(|error| HostError::Load(format!("{error:#}")))?;
        let module =
            Module::new(&engine, bytes).map_err(|error| HostError::Load(format!("{error:#}")))?;
        let abi = exported_abi(&module)?;
        Ok(Self {
            engine,
            module,
            abi,
        })
    }

    /// The ABI version that the module exports.
    #[must_use]
    pub fn abi(&self) -> Abi {
        self.abi
    }

    /// Imports as `module.name`, in the module's order.
    #[must_use]
    pub fn imports(&self) -> Vec<String> {
        self.module
            .imports()
            .map(|import| format!("{}.{}", import.module(), import.name()))
            .collect()
    }

    /// Names of all exports, in the module's order.
    #[must_use]
    pub fn exports(&self) -> Vec<String> {
        self.module
            .exports()
            .map(|export| export.name().to_owned())
            .collect()
    }
}

fn exported_abi(module: &Module) -> Result<Abi, HostError> {
    let versions: Vec<&str> = module
        .exports()
        .filter_map(|export| export.name().strip_prefix("proxy_abi_version_"))
        .collect();
    match versions.as_slice() {
        ["0_2_0"] => Ok(Abi::V0_2_0),
        ["0_2_1"] => Ok(Abi::V0_2_1),
        ["0_2_100"] => Ok(Abi::V0_2_100),
        [] => Err(HostError::Abi(
            "the module exports no proxy_abi_version_*".to_owned(),
        )),
        [one] => Err(HostError::Abi(format!(
            "the module exports the unknown proxy_abi_version_{one}"
        ))),
        many => Err(HostError::Abi(format!(
            "the module exports several ABI versions: {}",
            many.join(", ")
        ))),
    }
}
