//! Shared data with compare-and-swap, shared queues.

use crate::host::call::{Answer, Call};
use crate::host::status::Status;

pub(in crate::host) fn get(call: &mut Call<'_, '_>) -> Answer {
    let key = call.bytes(0)?;
    let state = call.state();
    let entry = state.gateway.shared_data(&state.options.vm_id, &key);
    let (value, cas) = entry.ok_or(Status::NOT_FOUND)?;
    call.give_bytes(2, &value)?;
    Ok(call.give_word(4, cas)?)
}

pub(in crate::host) fn set(call: &mut Call<'_, '_>) -> Answer {
    let (key, value, cas) = (call.bytes(0)?, call.bytes(2)?, call.word(4));
    let state = call.state();
    Ok(state
        .gateway
        .lock()
        .data
        .set(&state.options.vm_id, &key, value, cas)?)
}

pub(in crate::host) fn register_queue(call: &mut Call<'_, '_>) -> Answer {
    let name = call.bytes(0)?;
    let state = call.state();
    let id = state
        .gateway
        .lock()
        .queues
        .register(&state.options.vm_id, name);
    Ok(call.give_word(2, id)?)
}

pub(in crate::host) fn resolve_queue(call: &mut Call<'_, '_>) -> Answer {
    let (vm_id, name) = (call.text(0)?, call.bytes(2)?);
    let id = call.state().gateway.lock().queues.resolve(&vm_id, &name);
    Ok(call.give_word(4, id.ok_or(Status::NOT_FOUND)?)?)
}

pub(in crate::host) fn enqueue(call: &mut Call<'_, '_>) -> Answer {
    let (id, message) = (call.word(0), call.bytes(1)?);
    call.state()
        .gateway
        .lock()
        .queues
        .queue(id)?
        .push_back(message);
    Ok(())
}

pub(in crate::host) fn dequeue(call: &mut Call<'_, '_>) -> Answer {
    let id = call.word(0);
    let message = call.state().gateway.lock().queues.queue(id)?.pop_front();
    call.give_bytes(1, &message.ok_or(Status::EMPTY)?)
}
