//! Log, clock, ticks, contexts, foreign functions.

use crate::host::call::{Answer, Call};
use crate::host::gateway::Profile;
use crate::host::state::{LogLine, ROOT};
use crate::host::status::Status;

pub(in crate::host) fn log(call: &mut Call<'_, '_>) -> Answer {
    let level = call.word(0);
    if level > 5 {
        return Err(Status::BAD_ARGUMENT.into());
    }
    let message = String::from_utf8_lossy(&call.bytes(1)?).into_owned();
    let state = call.state();
    if level >= state.gateway.options().log_level {
        state.logs.push(LogLine { level, message });
    }
    Ok(())
}

pub(in crate::host) fn get_log_level(call: &mut Call<'_, '_>) -> Answer {
    let level = call.state().gateway.options().log_level;
    Ok(call.give_word(0, level)?)
}

pub(in crate::host) fn get_current_time(call: &mut Call<'_, '_>) -> Answer {
    let now_ms = call.state().gateway.now_ms();
    Ok(call.give_long(0, now_ms.saturating_mul(1_000_000))?)
}

pub(in crate::host) fn set_tick_period(call: &mut Call<'_, '_>) -> Answer {
    call.state().tick_period_ms = call.word(0);
    Ok(())
}

pub(in crate::host) fn set_effective_context(call: &mut Call<'_, '_>) -> Answer {
    let context = call.word(0);
    let state = call.state();
    if context != ROOT && !state.streams.contains_key(&context) {
        return Err(Status::BAD_ARGUMENT.into());
    }
    state.effective_context = context;
    Ok(())
}

pub(in crate::host) fn done(call: &mut Call<'_, '_>) -> Answer {
    let state = call.state();
    let context = state.effective_context;
    state.done_contexts.push(context);
    Ok(())
}

/// The status of the last gRPC call: there is none.
pub(in crate::host) fn get_status(call: &mut Call<'_, '_>) -> Answer {
    call.give_word(0, 0)?;
    call.give_bytes(1, &[])
}

/// The names that a gateway knows do nothing here and say OK.
pub(in crate::host) fn call_foreign_function(call: &mut Call<'_, '_>) -> Answer {
    let name = call.text(0)?;
    call.bytes(2)?;
    let known = match call.state().gateway.profile() {
        Profile::Envoy | Profile::Higress => ["clear_route_cache", "declare_property"],
    };
    if !known.contains(&name.as_str()) {
        return Err(Status::NOT_FOUND.into());
    }
    call.give_bytes(4, &[])
}
