//! What a module asks of its gateway and offers to it.

use anyhow::{Context, Result};
use wasmparser::{ExternalKind, Parser, Payload, TypeRef};

/// Imports and exports of a module, each sorted by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surface {
    /// `module.name` of each import, with its kind.
    pub imports: Vec<String>,
    /// Name of each export, with its kind.
    pub exports: Vec<String>,
}

impl Surface {
    /// Reads the surface of a module.
    ///
    /// # Errors
    /// When the bytes are no core wasm module.
    pub fn of(module: &[u8]) -> Result<Self> {
        let mut imports = Vec::new();
        let mut exports = Vec::new();
        for payload in Parser::new(0).parse_all(module) {
            match payload.context("no wasm module")? {
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        imports.push(format!(
                            "{} {}.{}",
                            type_name(import.ty),
                            import.module,
                            import.name
                        ));
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        let export = export?;
                        exports.push(format!("{} {}", kind_name(export.kind), export.name));
                    }
                }
                _ => {}
            }
        }
        imports.sort_unstable();
        exports.sort_unstable();
        Ok(Self { imports, exports })
    }

    /// The surface as text: one import or export a line, as the committed lists hold it.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let imports = self.imports.iter().map(|import| format!("import {import}"));
        let exports = self.exports.iter().map(|export| format!("export {export}"));
        imports.chain(exports).collect()
    }
}

fn type_name(ty: TypeRef) -> &'static str {
    match ty {
        TypeRef::Func(_) | TypeRef::FuncExact(_) => "func",
        TypeRef::Table(_) => "table",
        TypeRef::Memory(_) => "memory",
        TypeRef::Global(_) => "global",
        TypeRef::Tag(_) => "tag",
    }
}

fn kind_name(kind: ExternalKind) -> &'static str {
    match kind {
        ExternalKind::Func | ExternalKind::FuncExact => "func",
        ExternalKind::Table => "table",
        ExternalKind::Memory => "memory",
        ExternalKind::Global => "global",
        ExternalKind::Tag => "tag",
    }
}
