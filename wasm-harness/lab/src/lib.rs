//! Engine simulators, workloads and a real Envoy.
