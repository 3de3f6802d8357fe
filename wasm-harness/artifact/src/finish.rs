//! From the linker's module to the gateway's.

use crate::host::{ABI_PREFIX, Host, SDK_ABI, lacking};
use anyhow::{Context, Result, bail, ensure};
use wasm_encoder::{ExportKind, ExportSection, Module, RawSection};
use wasmparser::{Export, ExportSectionReader, ExternalKind, ImportSectionReader, Parser, Payload};

/// An export with this prefix stands in for the SDK's export of the name that follows: the SDK's
/// dispatcher panics on what a gateway may well send, such as an answer to a call it has forgotten.
pub const TAKEOVER: &str = "warmroute_takeover_";

/// The one custom section that is kept: it tells an optimiser which instructions the module uses.
const TARGET_FEATURES: &str = "target_features";

/// Finishes a linked plugin for one gateway. Exports come out sorted by name.
///
/// # Errors
/// When the bytes are no core wasm module, an import is one that the gateway lacks, the SDK's ABI
/// version is not exported exactly once, a takeover has nothing to take over, or an export is
/// missing without which no gateway loads a module.
pub fn finish(module: &[u8], host: Host) -> Result<Vec<u8>> {
    let mut out = Module::new();
    let mut exported = false;
    for payload in Parser::new(0).parse_all(module) {
        let payload = payload.context("no wasm module")?;
        match &payload {
            Payload::ImportSection(section) => check_imports(section.clone(), host)?,
            Payload::ExportSection(section) => {
                out.section(&exports_for(section.clone(), host)?);
                exported = true;
                continue;
            }
            Payload::CustomSection(section) if section.name() != TARGET_FEATURES => continue,
            _ => {}
        }
        if let Some((id, range)) = payload.as_section() {
            let data = module
                .get(range)
                .context("a section reaches past the end")?;
            out.section(&RawSection { id, data });
        }
    }
    ensure!(exported, "the module exports nothing: is it the plugin?");
    without_unreachable(&out.finish())
}

/// Drops what nothing reaches any more: the callbacks whose exports went, and all that only they called.
fn without_unreachable(module: &[u8]) -> Result<Vec<u8>> {
    let mut config = walrus::ModuleConfig::new();
    config
        .generate_producers_section(false)
        .generate_name_section(false);
    let mut module = config.parse(module)?;
    walrus::passes::gc::run(&mut module);
    Ok(module.emit_wasm())
}

fn check_imports(section: ImportSectionReader<'_>, host: Host) -> Result<()> {
    let mut lacking = Vec::new();
    for import in section.into_imports() {
        let import = import?;
        let is_func = matches!(import.ty, wasmparser::TypeRef::Func(_));
        if !is_func || !host.offers(import.module, import.name) {
            lacking.push(format!("{}.{}", import.module, import.name));
        }
    }
    if !lacking.is_empty() {
        bail!(
            "{host} lacks what the module imports, and would not start: {}",
            lacking.join(", ")
        );
    }
    Ok(())
}

fn exports_for(section: ExportSectionReader<'_>, host: Host) -> Result<ExportSection> {
    let linked = section.into_iter().collect::<Result<Vec<_>, _>>()?;
    let abis: Vec<&str> = names(&linked)
        .filter(|name| name.starts_with(ABI_PREFIX))
        .collect();
    ensure!(
        abis == [SDK_ABI],
        "expected the export {SDK_ABI} and no other ABI version, found {abis:?}"
    );

    let takeovers: Vec<&str> = names(&linked)
        .filter_map(|name| name.strip_prefix(TAKEOVER))
        .collect();
    for target in &takeovers {
        ensure!(
            names(&linked).any(|name| name == *target),
            "{TAKEOVER}{target}: there is no export {target} to take over"
        );
    }

    let mut kept: Vec<(&str, &Export<'_>)> = linked
        .iter()
        .filter(|export| !takeovers.contains(&export.name))
        .map(|export| (final_name(export.name, host), export))
        .filter(|(name, _)| host.reads(name))
        .collect();
    kept.sort_unstable_by_key(|(name, _)| *name);
    let kept_names: Vec<&str> = kept.iter().map(|(name, _)| *name).collect();
    if let Some(name) = lacking(&kept_names) {
        bail!("the module does not export {name}");
    }

    let mut out = ExportSection::new();
    for (name, export) in kept {
        out.export(name, kind(export.kind)?, export.index);
    }
    Ok(out)
}

fn names<'a>(exports: &'a [Export<'a>]) -> impl Iterator<Item = &'a str> {
    exports.iter().map(|export| export.name)
}

fn final_name(linked: &str, host: Host) -> &str {
    if linked == SDK_ABI {
        host.abi()
    } else {
        linked.strip_prefix(TAKEOVER).unwrap_or(linked)
    }
}

fn kind(kind: ExternalKind) -> Result<ExportKind> {
    Ok(match kind {
        ExternalKind::Func | ExternalKind::FuncExact => ExportKind::Func,
        ExternalKind::Table => ExportKind::Table,
        ExternalKind::Memory => ExportKind::Memory,
        ExternalKind::Global => ExportKind::Global,
        ExternalKind::Tag => bail!("a tag is exported: the gateways know no exceptions"),
    })
}
