//! Counters, gauges, histograms.

use crate::host::call::{Answer, Call};

pub(in crate::host) fn define(call: &mut Call<'_, '_>) -> Answer {
    let (kind, name) = (call.word(0), call.text(1)?);
    let id = call.state().gateway.lock().metrics.define(kind, &name)?;
    Ok(call.give_word(3, id)?)
}

pub(in crate::host) fn increment(call: &mut Call<'_, '_>) -> Answer {
    let (id, offset) = (call.word(0), call.long(1));
    Ok(call.state().gateway.lock().metrics.increment(id, offset)?)
}

pub(in crate::host) fn record(call: &mut Call<'_, '_>) -> Answer {
    let (id, value) = (call.word(0), call.long(1).cast_unsigned());
    Ok(call.state().gateway.lock().metrics.record(id, value)?)
}

pub(in crate::host) fn get(call: &mut Call<'_, '_>) -> Answer {
    let id = call.word(0);
    let value = call.state().gateway.lock().metrics.get(id)?;
    Ok(call.give_long(1, value)?)
}
