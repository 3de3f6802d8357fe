//! Writes `plugin-config/schema.json` and `docs/CONFIGURATION.md` from the configuration's types.

use std::fs;
use std::path::Path;

use warmroute::config::schema;

fn main() -> std::io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::create_dir_all(root.join("plugin-config"))?;
    fs::create_dir_all(root.join("docs"))?;
    fs::write(
        root.join("plugin-config/schema.json"),
        schema::schema_text(),
    )?;
    fs::write(root.join("docs/CONFIGURATION.md"), schema::markdown())
}
