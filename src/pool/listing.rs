//! Who is in a cluster, and what its engines say.
//!
//! A listing is whole; whoever it does not name has left, and takes its index entries along. Cost: O(endpoints).

use super::Pool;
use crate::clock::Millis;
use crate::config::Config;
use crate::endpoints::Slot;
use crate::endpoints::endpoint::{Endpoint, Reading};
use crate::endpoints::load::{Health, Load};
use crate::endpoints::role::Role;
use crate::number::{to_f64, to_u32};
use crate::raw_json::RawJsonStr;
use crate::telemetry::{Counter, MAX_SERIES, Tally, Telemetry};

/// What a listing says of one endpoint.
pub struct Listed<'a, S> {
    /// `ip:port`.
    pub address: &'a str,
    /// The gateway's word.
    pub health: Health,
    /// What it does of a request, where that is not told by its address.
    pub role: Option<Role>,
    /// What its engine said.
    pub said: Option<S>,
}

/// An engine's words, in the form in which a gateway has them: each gateway builds in its own only.
pub trait Said {
    /// New figures and when they were read; `None` when they are as before.
    fn figures(
        self,
        endpoint: &mut Endpoint,
        telemetry: &mut Telemetry,
        now: Millis,
    ) -> Option<(Load, Millis)>;
}

/// New figures and when they were read.
pub struct Figures(pub Load, pub Millis);

impl Said for Figures {
    fn figures(self, _: &mut Endpoint, _: &mut Telemetry, _: Millis) -> Option<(Load, Millis)> {
        Some((self.0, self.1))
    }
}

impl Said for RawJsonStr<'_> {
    /// Its metrics text as the gateway keeps it, new or not.
    fn figures(
        self,
        endpoint: &mut Endpoint,
        telemetry: &mut Telemetry,
        now: Millis,
    ) -> Option<(Load, Millis)> {
        let load = endpoint.last_text.read(self)?;
        let counter = if load.is_unknown() {
            Counter::ScrapeFailures
        } else {
            Counter::Scrapes
        };
        telemetry.add(counter, 1);
        Some((load, now))
    }
}

impl Pool {
    /// Takes in a whole listing: `entries` yields each endpoint with its health and what its engine said.
    pub fn list<'a, S: Said>(
        &mut self,
        entries: impl Iterator<Item = Listed<'a, S>>,
        config: &Config,
        telemetry: &mut Telemetry,
        now: Millis,
    ) {
        self.table.begin_listing();
        for entry in entries {
            let Some((slot, is_new)) = self.table.list(entry.address, entry.health) else {
                continue;
            };
            if is_new {
                self.welcome(slot, config);
            }
            let figures = match (entry.said, self.table.get_mut(slot)) {
                (Some(said), Some(endpoint)) => said.figures(endpoint, telemetry, now),
                _ => None,
            };
            let is_told = figures.is_some();
            if let Some((load, at)) = figures {
                self.read(slot, load, at, config, telemetry);
            }
            if let Some(endpoint) = self.table.get_mut(slot) {
                endpoint.role = entry.role.unwrap_or(endpoint.role);
                endpoint.looked_at(is_told);
            }
        }
        self.end_listing();
        self.listed_at = Some(now);
        if self.known_since.is_none() && !self.table.is_empty() {
            self.known_since = Some(now);
        }
    }

    /// Who was not listed has left: what it holds is forgotten, what was counted there is kept until it is
    /// handed on.
    fn end_listing(&mut self) {
        let (index, left) = (&mut self.index, &mut self.left);
        self.table.end_listing(|slot, endpoint| {
            index.remove(slot);
            if endpoint.tally != Tally::default() && left.len() < MAX_SERIES {
                left.push((endpoint.address.clone(), endpoint.name_hash, endpoint.tally));
            }
        });
    }

    /// Hands on each endpoint's address, its hash, its requests in flight, and what was counted there; the
    /// counts start anew.
    pub fn by_endpoint(&mut self, told: &mut dyn FnMut(&str, u64, u32, Tally)) {
        for endpoint in self.table.iter_mut() {
            let tally = core::mem::take(&mut endpoint.tally);
            told(
                &endpoint.address,
                endpoint.name_hash,
                endpoint.own.inflight,
                tally,
            );
        }
        for (address, name_hash, tally) in self.left.drain(..) {
            told(&address, name_hash, 0, tally);
        }
    }

    /// Takes in the endpoints that a request names; only these are candidates for it. One that no request
    /// named for a while has left.
    pub fn name(&mut self, addresses: &[&str], config: &Config, now: Millis) {
        const FORGOTTEN_MS: u64 = 60_000;
        if self.named_at.is_none_or(|at| now.is_over(at, FORGOTTEN_MS)) {
            self.end_listing();
            self.table.begin_listing();
            self.named_at = Some(now);
        }
        self.named.clear();
        for address in addresses {
            let Some((slot, is_new)) = self.table.list(address, Health::Healthy) else {
                continue;
            };
            self.named.push(slot);
            if is_new {
                self.welcome(slot, config);
            }
        }
        self.table.put_in_order();
    }

    /// A new endpoint: what it is for, how much it may hold.
    fn welcome(&mut self, slot: Slot, config: &Config) {
        if let (Some(options), Some(endpoint)) = (&config.disaggregation, self.table.get_mut(slot))
        {
            endpoint.role = options.role(&[&endpoint.address]);
        }
        self.fit(slot, config);
    }

    /// Whether what an engine said at `at` is newer than what counts for its address. Who leads anew may
    /// publish what it knew when it last led. A clock that was set back ends no reading.
    #[must_use]
    pub fn is_news(&self, address: &str, at: Millis, now: Millis) -> bool {
        let slot = self.table.slot_of(address);
        let known = slot.and_then(|slot| self.table.get(slot)?.read_at);
        let is_after = |known: Millis| at > known || (known > now && at < known);
        at != Millis(0) && known.is_none_or(is_after)
    }

    /// Takes in what an engine said, with what it means for the index.
    fn read(
        &mut self,
        slot: Slot,
        load: Load,
        at: Millis,
        config: &Config,
        telemetry: &mut Telemetry,
    ) {
        let Some(endpoint) = self.table.get_mut(slot) else {
            return;
        };
        match endpoint.read(load, at) {
            Reading::Same => {}
            Reading::Resized => self.fit(slot, config),
            Reading::Restarted => {
                telemetry.add(Counter::Restarts, 1);
                self.index.clear(slot);
                self.fit(slot, config);
            }
        }
    }

    /// Sets the index's bound for an endpoint from its cache size and our trust.
    pub(super) fn fit(&mut self, slot: Slot, config: &Config) {
        let Some(endpoint) = self.table.get(slot) else {
            return;
        };
        let believed = u64::from(endpoint.load.block_tokens.unwrap_or(1))
            .saturating_mul(config.index.max_engine_blocks);
        let tokens = match endpoint.load.capacity_tokens {
            Some(tokens) => tokens.min(believed),
            None => config.index.default_capacity_tokens,
        };
        let bytes = to_f64(tokens) * endpoint.trust.factor() * self.bytes_per_token.overall();
        let blocks = bytes / f64::from(config.prompt.block_bytes.max(1));
        self.index.set_capacity_blocks(slot, to_u32(blocks).max(1));
    }
}
