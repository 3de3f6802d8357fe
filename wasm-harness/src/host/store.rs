//! What VMs of one process share: data with compare-and-swap, queues, metrics.

use std::collections::{BTreeMap, VecDeque};

use super::status::Status;

/// Key-value data, apart per vm_id.
#[derive(Default)]
pub(super) struct SharedData {
    entries: BTreeMap<(String, Vec<u8>), (Vec<u8>, u32)>,
    last_cas: u32,
}

impl SharedData {
    pub(super) fn get(&self, vm_id: &str, key: &[u8]) -> Option<(Vec<u8>, u32)> {
        self.entries.get(&(vm_id.to_owned(), key.to_vec())).cloned()
    }

    /// Writes; `cas` 0 writes always, another one only over the value that was read with it.
    pub(super) fn set(
        &mut self,
        vm_id: &str,
        key: &[u8],
        value: Vec<u8>,
        cas: u32,
    ) -> Result<(), Status> {
        let key = (vm_id.to_owned(), key.to_vec());
        let stale = self
            .entries
            .get(&key)
            .is_some_and(|(_, current)| cas != 0 && cas != *current);
        if stale {
            return Err(Status::CAS_MISMATCH);
        }
        self.last_cas = self.last_cas.wrapping_add(1).max(1);
        self.entries.insert(key, (value, self.last_cas));
        Ok(())
    }
}

/// Queues: each message is taken once, by whoever comes first.
#[derive(Default)]
pub(super) struct Queues {
    names: Vec<(String, Vec<u8>)>,
    messages: Vec<VecDeque<Vec<u8>>>,
}

impl Queues {
    pub(super) fn register(&mut self, vm_id: &str, name: Vec<u8>) -> u32 {
        if let Some(id) = self.resolve(vm_id, &name) {
            return id;
        }
        self.names.push((vm_id.to_owned(), name));
        self.messages.push(VecDeque::new());
        index_id(self.names.len())
    }

    pub(super) fn resolve(&self, vm_id: &str, name: &[u8]) -> Option<u32> {
        let place = self
            .names
            .iter()
            .position(|(id, known)| id == vm_id && known == name)?;
        Some(index_id(place + 1))
    }

    pub(super) fn queue(&mut self, id: u32) -> Result<&mut VecDeque<Vec<u8>>, Status> {
        let place = usize::try_from(id)
            .ok()
            .and_then(|id| id.checked_sub(1))
            .ok_or(Status::NOT_FOUND)?;
        self.messages.get_mut(place).ok_or(Status::NOT_FOUND)
    }
}

struct Metric {
    name: String,
    kind: u32,
    value: u64,
    samples: Vec<u64>,
}

const COUNTER: u32 = 0;
const GAUGE: u32 = 1;
const HISTOGRAM: u32 = 2;

/// Metrics by id; a name has one id in all VMs, so that they add up.
#[derive(Default)]
pub(super) struct Metrics(Vec<Metric>);

impl Metrics {
    pub(super) fn define(&mut self, kind: u32, name: &str) -> Result<u32, Status> {
        if kind > HISTOGRAM {
            return Err(Status::BAD_ARGUMENT);
        }
        let place = self
            .0
            .iter()
            .position(|metric| metric.name == name && metric.kind == kind);
        let place = place.unwrap_or_else(|| {
            self.0.push(Metric {
                name: name.to_owned(),
                kind,
                value: 0,
                samples: Vec::new(),
            });
            self.0.len() - 1
        });
        Ok(index_id(place + 1))
    }

    fn metric(&mut self, id: u32) -> Result<&mut Metric, Status> {
        let place = usize::try_from(id)
            .ok()
            .and_then(|id| id.checked_sub(1))
            .ok_or(Status::NOT_FOUND)?;
        self.0.get_mut(place).ok_or(Status::NOT_FOUND)
    }

    pub(super) fn increment(&mut self, id: u32, offset: i64) -> Result<(), Status> {
        let metric = self.metric(id)?;
        match metric.kind {
            COUNTER if offset >= 0 => metric.value = metric.value.saturating_add_signed(offset),
            GAUGE => metric.value = metric.value.saturating_add_signed(offset),
            _ => return Err(Status::BAD_ARGUMENT),
        }
        Ok(())
    }

    /// A counter grows by the value, a gauge takes it, a histogram keeps it.
    pub(super) fn record(&mut self, id: u32, value: u64) -> Result<(), Status> {
        let metric = self.metric(id)?;
        match metric.kind {
            COUNTER => metric.value = metric.value.saturating_add(value),
            GAUGE => metric.value = value,
            _ => metric.samples.push(value),
        }
        Ok(())
    }

    pub(super) fn get(&mut self, id: u32) -> Result<u64, Status> {
        let metric = self.metric(id)?;
        if metric.kind == HISTOGRAM {
            Err(Status::BAD_ARGUMENT)
        } else {
            Ok(metric.value)
        }
    }

    pub(super) fn values(&self) -> BTreeMap<String, u64> {
        self.0
            .iter()
            .filter(|metric| metric.kind != HISTOGRAM)
            .map(|metric| (metric.name.clone(), metric.value))
            .collect()
    }

    pub(super) fn samples(&self, name: &str) -> Vec<u64> {
        let of_name = |metric: &&Metric| metric.kind == HISTOGRAM && metric.name == name;
        self.0
            .iter()
            .find(of_name)
            .map(|metric| metric.samples.clone())
            .unwrap_or_default()
    }
}

fn index_id(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}
