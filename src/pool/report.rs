//! One cluster for people: who is in it, what is known of each, what the index holds.

use super::Pool;
use crate::clock::Millis;
use crate::endpoints::endpoint::Endpoint;
use crate::endpoints::load::Health;
use crate::number::to_f64;
use crate::report::Report;

impl Pool {
    /// Tells what this worker knows of the cluster.
    pub fn tell(&self, report: &mut Report, now: Millis) {
        let stats = self.index.stats();
        report.figures(&[
            ("bytes_per_token", Some(self.bytes_per_token.overall())),
            ("usual_miss_tokens", Some(self.traffic.miss_tokens())),
        ]);
        let members = self.exchange.members.iter();
        let heard = members.filter(|member| member.is_alive(now)).count();
        report.counts(&[("workers_heard", u64::try_from(heard).unwrap_or(0))]);
        report.open("index", '{');
        report.counts(&[
            ("blocks", u64::from(stats.blocks)),
            ("pairs", u64::from(stats.pairs)),
            ("bytes", stats.bytes),
            ("evicted_pairs", stats.evictions),
            ("expired_pairs", stats.expired),
        ]);
        report.close('}');
        report.open("endpoints", '[');
        for (slot, endpoint) in self.table.iter() {
            report.open("", '{');
            report.text("endpoint", &endpoint.address);
            tell(endpoint, self.index.held_blocks(slot), report, now);
            report.close('}');
        }
        report.close(']');
    }
}

#[inline(never)]
fn tell(endpoint: &Endpoint, index_blocks: u32, report: &mut Report, now: Millis) {
    let (load, own) = (&endpoint.load, &endpoint.own);
    let health = match endpoint.health {
        Health::Healthy => "healthy",
        Health::Degraded => "degraded",
        Health::Draining => "draining",
        Health::Unhealthy => "unhealthy",
    };
    report.text("health", health);
    let cooling_ms = endpoint
        .cooldown
        .until(now)
        .map_or(0, |until| until.since(now));
    let load_age_ms = endpoint.load_at.map(|at| to_f64(now.since(at)));
    report.counts(&[
        ("cooling_ms", cooling_ms),
        ("inflight", u64::from(own.inflight)),
        ("awaiting_first", u64::from(own.awaiting_first)),
        ("inflight_of_others", u64::from(endpoint.others.inflight)),
        ("index_blocks", u64::from(index_blocks)),
    ]);
    report.figures(&[
        ("backlog_tokens", Some(endpoint.prefill_tokens(now))),
        ("load_age_ms", load_age_ms),
        ("waiting", load.waiting.map(f64::from)),
        ("running", load.running.map(f64::from)),
        ("kv_use", load.kv_use.map(f64::from)),
        ("capacity_tokens", load.capacity_tokens.map(to_f64)),
        ("prefill_tokens_per_ms", endpoint.rate.tokens_per_ms()),
        ("queueing_ms", Some(endpoint.queueing.ms())),
        ("trust", Some(endpoint.trust.factor())),
        ("failure", Some(own.failure(now))),
    ]);
}
