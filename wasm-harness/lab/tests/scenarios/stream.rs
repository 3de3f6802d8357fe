//! One request of a scenario: sent over a worker's connection, waited for at the hosts, answered, noted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, bail, ensure};
use tokio::net::TcpStream;
use warmroute_scenario::{Request, RequestOutcome, Response, first_of};

use crate::bootstrap::{self, LOGGED_HEADER, PICK_COPY_HEADER};
use crate::engines::Arrival;
use crate::player::{NotInTime, Open, Player, until};
use crate::wire::Wire;

impl<'a> Player<'a> {
    pub(crate) async fn request(&mut self, request: &'a Request) -> anyhow::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let setup = &self.scenario.gateway;
        let cluster = request.cluster.as_ref().unwrap_or(&setup.cluster);
        self.asked_clusters.insert(cluster.clone());
        let way = bootstrap::way(request, setup);
        let stream = self.connect(request.worker).await?;
        let wire = Wire::open(stream, request, number, &way)?;
        let mut open = Open {
            request,
            wire,
            hangs: false,
            local_reply: None,
        };
        open.wire.send(request, false).await;
        self.begun += 1;
        let begun = self.begun;
        self.until_stat("http.gateway.downstream_rq_total", |count| count >= begun)
            .await?;
        if open.wire.is_whole() {
            self.arrive(&mut open).await?;
        }
        self.open.insert(request.name.clone(), open);
        Ok(())
    }

    /// A connection that this worker serves. The kernel chooses who takes one, so as many are made as it
    /// needs; they stay open until the right one is there, or the kernel might choose alike again.
    async fn connect(&self, worker: usize) -> anyhow::Result<TcpStream> {
        let mut others = Vec::new();
        loop {
            let before = self.connections().await?;
            let stream = TcpStream::connect(self.envoy.listener_addr).await?;
            let sum = |counts: &BTreeMap<usize, u64>| counts.values().sum::<u64>();
            until("a worker takes a connection", || async {
                Ok(sum(&self.connections().await?) > sum(&before))
            })
            .await?;
            if self.connections().await?.get(&worker) > before.get(&worker) {
                return Ok(stream);
            }
            others.push(stream);
            ensure!(others.len() < 64, "worker {worker} takes no connection");
        }
    }

    /// Connections that each worker has taken.
    async fn connections(&self) -> anyhow::Result<BTreeMap<usize, u64>> {
        let stats = self.envoy.stats().await?.into_iter();
        let of_worker = |(name, count): (String, u64)| {
            let name = name.strip_prefix("listener.")?;
            let name = name.strip_suffix(".downstream_cx_total")?;
            let (_, worker) = name.split_once(".worker_")?;
            Some((worker.parse().ok()?, count))
        };
        Ok(stats.filter_map(of_worker).collect())
    }

    /// Waits until a request that was sent whole has come to a host whole, or was answered without.
    pub(crate) async fn arrive(&self, open: &mut Open<'a>) -> anyhow::Result<()> {
        let (wire, engines) = (&open.wire, &self.engines);
        let there = until("it comes to a host", || async {
            let got = wire.got();
            if let (Some(error), None) = (&got.error, got.status) {
                bail!("{error}");
            }
            Ok(engines.has_whole(&wire.number) || got.ended)
        });
        let there = there.await.with_context(|| open.request.name.clone());
        open.hangs = match there {
            Err(error) if !error.is::<NotInTime>() => return Err(error),
            there => there.is_err(),
        };
        if self.engines.arrivals(&open.wire.number).is_empty() {
            open.local_reply = open.wire.got().status.map(u32::from);
        }
        Ok(())
    }

    pub(crate) async fn respond(&mut self, response: &Response) -> anyhow::Result<()> {
        let mut open = self.take(&response.to)?;
        let body = response.body.concat();
        self.engines.answer(&open.wire.number, response);
        let wire = &open.wire;
        let answered = until("its answer", || async {
            let got = wire.got();
            if let Some(error) = got.error.filter(|_| got.status != Some(101)) {
                bail!("{error}");
            }
            let is_there = got.body.len() >= body.len() && got.status.is_some();
            Ok(got.ended || (response.goes_on && is_there) || got.status == Some(101))
        });
        answered.await.with_context(|| response.to.clone())?;
        let got = open.wire.got();
        ensure!(
            got.status == Some(response.status),
            "{}: the client got {:?}: {}; it came to {:?}",
            response.to,
            got.status,
            String::from_utf8_lossy(&got.body),
            self.engines
                .arrivals(&open.wire.number)
                .iter()
                .map(|arrival| &arrival.at)
                .collect::<Vec<_>>()
        );
        // The gateway's own answer, where no host was there to give one.
        let is_own = open.local_reply.take().is_some();
        let has_body = !is_own && open.request.method != "HEAD";
        ensure!(
            !has_body || got.body == body.as_bytes(),
            "{}: the answer's body was changed: {:?}",
            response.to,
            String::from_utf8_lossy(&got.body)
        );
        if response.goes_on {
            self.open.insert(response.to.clone(), open);
        } else {
            self.note(&open);
        }
        Ok(())
    }

    pub(crate) fn note(&mut self, open: &Open<'a>) {
        let name = &open.request.name;
        let arrivals = self.engines.arrivals(&open.wire.number);
        let first = arrivals.first().cloned().unwrap_or_default();
        let pick = first.headers.get(PICK_COPY_HEADER).map(String::as_str);
        let picked = pick.filter(|list| !matches!(*list, "" | "-"));
        let picked = picked.map(|list| first_of(list).to_owned());
        if let Some(picked) = &picked
            && *picked != first.at
        {
            let error = format!("{name}: {picked} was picked, {} was asked", first.at);
            self.outcome.errors.push(error);
        }
        let sent = open.wire.sent_body();
        let is_untouched = |arrival: &Arrival| {
            if arrival.ended {
                arrival.body == sent
            } else {
                sent.starts_with(&arrival.body)
            }
        };
        let mut upstream_headers = first.headers.clone();
        upstream_headers.remove(PICK_COPY_HEADER);
        let mut downstream_headers = open.wire.got().headers;
        let logged = downstream_headers.remove(LOGGED_HEADER);
        let outcome = RequestOutcome {
            picked,
            access_log: logged.filter(|told| told != "-"),
            body_untouched: arrivals.iter().all(is_untouched),
            hangs: open.hangs,
            local_reply: open.local_reply,
            upstream_headers,
            downstream_headers,
        };
        self.outcome.requests.insert(name.clone(), outcome);
    }
}
