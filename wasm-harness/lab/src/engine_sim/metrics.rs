//! The text of `/metrics`: every family of a vLLM 0.32 process, about 50 KB, values live.

use std::fmt::Write;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::engine::Running;
use super::families::{CACHE_CONFIG, FAMILIES, Family, Scope, Shape};
use super::histogram::{Histo, Histogram};
use super::{SimCounts, SimOptions};

/// All that is counted.
#[derive(Debug, Clone)]
pub(crate) struct Stats {
    pub(crate) counts: SimCounts,
    pub(crate) generated: u64,
    pub(crate) body_bytes: u64,
    created: f64,
    histograms: Vec<Histogram>,
}

impl Default for Stats {
    fn default() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        Self {
            counts: SimCounts::default(),
            generated: 0,
            body_bytes: 0,
            created: now.unwrap_or_default().as_secs_f64(),
            histograms: Histo::ALL
                .iter()
                .map(|&(_, bounds)| Histogram::new(bounds))
                .collect(),
        }
    }
}

impl Stats {
    /// Back to zero, but for what is going on right now.
    pub(crate) fn reset(&mut self) {
        let counts = SimCounts {
            running: self.counts.running,
            waiting: self.counts.waiting,
            ..SimCounts::default()
        };
        *self = Self {
            counts,
            ..Self::default()
        };
    }

    fn observe(&mut self, which: Histo, value: f64, times: u64) {
        if let Some(histogram) = self.histograms.get_mut(which as usize) {
            histogram.observe(value, times);
        }
    }

    /// A request leaves the batch: with its answer's length, or aborted.
    pub(crate) fn leave(&mut self, request: &Running, output_tokens: Option<usize>) {
        self.counts.running = self.counts.running.saturating_sub(1);
        let (Some(output), Some(first)) = (output_tokens, request.first_token) else {
            self.counts.aborted += 1;
            return;
        };
        self.counts.finished += 1;
        self.generated += output as u64;
        let now = Instant::now();
        let seconds = |from: Instant, to: Instant| (to - from).as_secs_f64();
        let (decode, gaps) = (seconds(first, now), output.saturating_sub(1));
        let gap = decode / gaps.max(1) as f64;
        let whole = seconds(request.arrived, now);
        let prompt = request.prompt.tokens as f64;
        let computed = prompt - request.cached_tokens as f64;
        for (which, value) in [
            (Histo::PromptTokens, prompt),
            (Histo::GenerationTokens, output as f64),
            (Histo::StepTokens, computed),
            (Histo::MaxGeneration, output as f64),
            (Histo::ParamN, 1.0),
            (Histo::ParamMaxTokens, output as f64),
            (Histo::FirstToken, seconds(request.arrived, first)),
            (Histo::PerOutputToken, gap),
            (Histo::EndToEnd, whole),
            (Histo::Queue, seconds(request.arrived, request.started)),
            (Histo::Inference, seconds(request.started, now)),
            (Histo::Prefill, seconds(request.started, first)),
            (Histo::Decode, decode),
            (Histo::Preemptions, 0.0),
            (Histo::Computed, computed),
            (Histo::HttpFine, whole),
            (Histo::HttpCoarse, whole),
        ] {
            self.observe(which, value, 1);
        }
        self.observe(Histo::InterToken, gap, gaps as u64);
    }
}

/// What a family's values are read from.
pub(crate) struct View<'a> {
    pub(crate) stats: &'a Stats,
    pub(crate) kv_usage: f64,
    pub(crate) created: f64,
}

/// The whole text.
pub(crate) fn render(options: &SimOptions, stats: &Stats, kv_usage: f64) -> String {
    let view = View {
        stats,
        kv_usage,
        created: stats.created,
    };
    let mut text = Text {
        out: String::with_capacity(52 * 1024),
        options,
    };
    for family in FAMILIES {
        text.family(family, &view);
    }
    text.out
}

struct Text<'a> {
    out: String,
    options: &'a SimOptions,
}

impl Text<'_> {
    fn head(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a String cannot fail.
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    fn line(&mut self, name: &str, scope: Scope, extra: &[(&str, &str)], value: f64) {
        let mut labels: Vec<(&str, &str)> = match scope {
            Scope::Process => vec![],
            Scope::Model => vec![("model_name", &self.options.model)],
            Scope::Engine => vec![("engine", "0"), ("model_name", &self.options.model)],
            Scope::Handler => vec![("handler", "/v1/chat/completions"), ("method", "POST")],
            Scope::HandlerOnly => vec![("handler", "/v1/chat/completions")],
        };
        labels.extend(extra.iter().filter(|(key, _)| !key.is_empty()));
        labels.sort_unstable();
        self.out.push_str(name);
        for (i, (key, value)) in labels.iter().enumerate() {
            let open = if i == 0 { '{' } else { ',' };
            let _ = write!(self.out, "{open}{key}=\"{}\"", escape(value));
        }
        if !labels.is_empty() {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {}", number(value));
    }

    fn family(&mut self, family: &Family, view: &View<'_>) {
        let &Family {
            name, help, scope, ..
        } = family;
        match &family.shape {
            Shape::Gauge(series) => {
                self.head(name, help, "gauge");
                for (extra, value) in *series {
                    self.line(name, scope, &[*extra], value(view));
                }
            }
            Shape::Counter(series) => {
                let total = format!("{name}_total");
                self.head(&total, help, "counter");
                for (extra, value) in *series {
                    self.line(&total, scope, &[*extra], value(view));
                }
                // The process's own collectors report no time of creation.
                if scope != Scope::Process {
                    let extras = series.iter().map(|(extra, _)| *extra);
                    self.created(family, extras, view);
                }
            }
            Shape::Histogram(which) => {
                self.head(name, help, "histogram");
                self.histogram(family, *which, view);
                self.created(family, [("", "")], view);
            }
            Shape::Summary(count, sum) => {
                self.head(name, help, "summary");
                self.line(&format!("{name}_count"), scope, &[], count(view));
                self.line(&format!("{name}_sum"), scope, &[], sum(view));
                self.created(family, [("", "")], view);
            }
            Shape::CacheConfig => {
                self.head(name, help, "gauge");
                self.cache_config(name);
            }
        }
    }

    fn created<'e>(
        &mut self,
        family: &Family,
        extras: impl IntoIterator<Item = (&'e str, &'e str)>,
        view: &View<'_>,
    ) {
        let name = format!("{}_created", family.name);
        self.head(&name, family.help, "gauge");
        for extra in extras {
            self.line(&name, family.scope, &[extra], view.created);
        }
    }

    fn histogram(&mut self, family: &Family, which: Histo, view: &View<'_>) {
        let Some(histogram) = view.stats.histograms.get(which as usize) else {
            return;
        };
        let name = family.name;
        let bucket = format!("{name}_bucket");
        let bounds = histogram.bounds.iter().copied().chain([f64::INFINITY]);
        let mut below = 0;
        for (bound, count) in bounds.zip(&histogram.buckets) {
            below += count;
            let le = number(bound);
            self.line(&bucket, family.scope, &[("le", &le)], below as f64);
        }
        self.line(&format!("{name}_count"), family.scope, &[], below as f64);
        self.line(&format!("{name}_sum"), family.scope, &[], histogram.sum);
    }

    fn cache_config(&mut self, name: &str) {
        let block = self.options.block_tokens.to_string();
        let blocks = self.options.num_gpu_blocks.to_string();
        let tokens = (self.options.block_tokens * self.options.num_gpu_blocks).to_string();
        let concurrency = format!("{}.0", self.options.max_batch);
        let mut labels = vec![
            ("block_size", block.as_str()),
            ("effective_attention_block_size", &block),
            ("num_gpu_blocks", &blocks),
            ("kv_cache_size_tokens", &tokens),
            ("kv_cache_max_concurrency", &concurrency),
        ];
        labels.extend(CACHE_CONFIG);
        self.line(name, Scope::Process, &labels, 1.0);
    }
}

fn escape(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

/// A value as the Python client writes it: `128.0`, `1.79e+09`, `+Inf`.
fn number(value: f64) -> String {
    if value == f64::INFINITY {
        return "+Inf".into();
    }
    let plain = format!("{value:?}");
    match plain.split_once('.') {
        Some((whole, part)) if value > 0.0 && whole.len() > 6 && !plain.contains('e') => {
            let (first, rest) = whole.split_at(1);
            let digits = format!("{first}.{rest}{part}");
            let mantissa = digits.trim_end_matches(['0', '.']);
            format!("{mantissa}e+{:02}", whole.len() - 1)
        }
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::{Histo, Stats, number, render};
    use crate::engine_sim::SimOptions;

    #[test]
    fn numbers_look_like_the_python_clients() {
        for (value, text) in [
            (0.0, "0.0"),
            (128.0, "128.0"),
            (0.0385, "0.0385"),
            (146_484.0, "146484.0"),
            (1_796_005_944.5, "1.7960059445e+09"),
            (2_000_000.0, "2e+06"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(number(f64::INFINITY), "+Inf");
    }

    #[test]
    fn buckets_add_up() {
        let mut stats = Stats::default();
        for value in [0.0005, 0.3, 0.3, 9_999.0] {
            stats.observe(Histo::FirstToken, value, 1);
        }
        let text = render(&SimOptions::default(), &stats, 0.0);
        let has = |line: &str| assert!(text.lines().any(|l| l == line), "{line}");
        let labels = r#"engine="0",le="#;
        let name = "vllm:time_to_first_token_seconds";
        has(&format!(
            r#"{name}_bucket{{{labels}"0.001",model_name="sim"}} 1.0"#
        ));
        has(&format!(
            r#"{name}_bucket{{{labels}"0.5",model_name="sim"}} 3.0"#
        ));
        has(&format!(
            r#"{name}_bucket{{{labels}"+Inf",model_name="sim"}} 4.0"#
        ));
        has(&format!(
            r#"{name}_count{{engine="0",model_name="sim"}} 4.0"#
        ));
    }

    #[test]
    fn labels_are_escaped() {
        let options = SimOptions {
            model: "a\"b\\c".into(),
            ..SimOptions::default()
        };
        let text = render(&options, &Stats::default(), 0.25);
        assert!(text.contains(r#"vllm:kv_cache_usage_perc{engine="0",model_name="a\"b\\c"} 0.25"#));
    }
}
