//! One gateway process with its workers, and what they say.

use warmroute_harness::host::{
    Artifact, Gateway, Profile, StreamId, StreamSpec, UpstreamHost, Vm, header_map,
};

use super::redis::Redis;
use super::{CLUSTER, STORE, TICK_MS};

/// One gateway process.
pub struct Replica {
    pub gateway: Gateway,
    pub workers: Vec<Vm>,
}

/// What the plugin says of a request.
pub struct Said {
    pub picked: String,
    pub matched: u64,
    /// Address and cost of each endpoint, the best first.
    pub costs: Vec<(String, f64)>,
}

impl Said {
    pub fn cost(&self, address: &str) -> f64 {
        let found = self.costs.iter().find(|(known, _)| known == address);
        found.expect("three endpoints are shown").1
    }
}

impl Replica {
    pub fn start(
        artifact: &Artifact,
        number: u64,
        workers: usize,
        redis: &Redis,
        more: &str,
    ) -> Self {
        let gateway = Gateway::new(Profile::Higress);
        // Clocks of two machines are never the same.
        gateway.advance(17 * number);
        let hosts = ["10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"].map(UpstreamHost::new);
        gateway.set_hosts(CLUSTER, hosts.to_vec());
        gateway.set_redis(STORE, redis.address);
        let config = format!(
            r#"{{"debug":{{"header":true}},"replicas":{{"store":"redis","cluster":"{STORE}"{more}}}}}"#
        );
        let workers = (0..workers).map(|_| {
            let mut vm = Vm::new(artifact, &gateway).unwrap();
            assert!(vm.start(&config).unwrap(), "{:?}", vm.logs());
            vm.poll().unwrap();
            vm
        });
        let workers = workers.collect();
        Self { gateway, workers }
    }

    pub fn tick(&mut self) {
        self.gateway.advance(TICK_MS);
        self.workers.iter_mut().for_each(|vm| vm.poll().unwrap());
    }

    pub fn send(&mut self, worker: usize, prompt: &str) -> StreamId {
        let vm = &mut self.workers[worker];
        let spec = StreamSpec {
            cluster: CLUSTER.to_owned(),
            ..StreamSpec::default()
        };
        let stream = vm.open_stream(spec).unwrap();
        let body = format!(
            r#"{{"model":"m","stream":true,"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
        );
        let headers = [
            (":method", "POST"),
            (":path", "/v1/chat/completions"),
            (":authority", "a"),
            ("content-length", &body.len().to_string()),
        ];
        vm.request_headers(stream, header_map(&headers), false)
            .unwrap();
        vm.request_body(stream, body.as_bytes(), true).unwrap();
        assert!(vm.seen(stream).unwrap().upstream.ended, "it is never held");
        stream
    }

    pub fn answer(&mut self, worker: usize, stream: StreamId) -> Said {
        let vm = &mut self.workers[worker];
        let picked = vm.seen(stream).unwrap().picked.clone().expect("a pick");
        let by = Some(picked.clone());
        vm.update_spec(stream, |spec| spec.upstream_address = by);
        let headers = [(":status", "200"), ("content-type", "text/event-stream")];
        vm.response_headers(stream, header_map(&headers), false)
            .unwrap();
        let end = b"data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
        vm.response_body(stream, end, true).unwrap();
        let seen = vm.close(stream).unwrap();
        let note = seen.downstream.header("x-warmroute-decision").unwrap();
        let field = |name: &str| {
            let mut pairs = note.split(';').filter_map(|pair| pair.split_once('='));
            pairs.find(|(key, _)| *key == name).unwrap().1.to_owned()
        };
        let cost = |one: &str| {
            let (address, cost) = one.rsplit_once(':').unwrap();
            (address.to_owned(), cost.parse().unwrap())
        };
        Said {
            picked,
            matched: field("blocks").split('/').next().unwrap().parse().unwrap(),
            costs: field("costs").split(',').map(cost).collect(),
        }
    }

    pub fn ask(&mut self, worker: usize, prompt: &str) -> Said {
        let stream = self.send(worker, prompt);
        self.answer(worker, stream)
    }

    pub fn metric(&self, name: &str) -> u64 {
        let metrics = self.gateway.metrics();
        metrics.get(name).copied().unwrap_or(0)
    }

    pub fn log(&self) -> Vec<&str> {
        let lines = self.workers.iter().flat_map(Vm::logs);
        lines.map(|line| line.message.as_str()).collect()
    }
}
