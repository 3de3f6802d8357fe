//! One host call in flight: arguments, the guest's memory, the guest's allocator.

use wasmtime::{Caller, Extern, Memory, Val};

use super::state::VmState;
use super::status::Status;

/// Why a host call ended early.
pub(super) enum Stop {
    /// The guest gets this status.
    Status(Status),
    /// The guest trapped in its allocator.
    Trap(wasmtime::Error),
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}

/// What a host function gives: nothing = OK.
pub(super) type Answer = Result<(), Stop>;

pub(super) struct Call<'a, 'b> {
    caller: Caller<'a, VmState>,
    arguments: &'b [Val],
}

impl<'a, 'b> Call<'a, 'b> {
    pub(super) fn new(caller: Caller<'a, VmState>, arguments: &'b [Val]) -> Self {
        Self { caller, arguments }
    }

    pub(super) fn state(&mut self) -> &mut VmState {
        self.caller.data_mut()
    }

    /// The argument at `place` as the 32 bits that it is.
    pub(super) fn word(&self, place: usize) -> u32 {
        self.arguments
            .get(place)
            .and_then(Val::i32)
            .map_or(0, i32::cast_unsigned)
    }

    pub(super) fn long(&self, place: usize) -> i64 {
        self.arguments.get(place).and_then(Val::i64).unwrap_or(0)
    }

    fn memory(&mut self) -> Result<Memory, Status> {
        self.caller
            .get_export("memory")
            .and_then(Extern::into_memory)
            .ok_or(Status::INVALID_MEMORY_ACCESS)
    }

    /// Linear memory of the guest, bytes.
    pub(super) fn memory_bytes(&mut self) -> Result<usize, Status> {
        Ok(self.memory()?.data_size(&self.caller))
    }

    /// The bytes of the pointer argument at `place` and the length after it.
    pub(super) fn bytes(&mut self, place: usize) -> Result<Vec<u8>, Status> {
        let (start, size) = (self.word(place) as usize, self.word(place + 1) as usize);
        let memory = self.memory()?;
        let end = start
            .checked_add(size)
            .ok_or(Status::INVALID_MEMORY_ACCESS)?;
        let bytes = memory
            .data(&self.caller)
            .get(start..end)
            .ok_or(Status::INVALID_MEMORY_ACCESS)?;
        Ok(bytes.to_vec())
    }

    /// The same as text.
    pub(super) fn text(&mut self, place: usize) -> Result<String, Status> {
        String::from_utf8(self.bytes(place)?).map_err(|_| Status::BAD_ARGUMENT)
    }

    fn write(&mut self, pointer: u32, bytes: &[u8]) -> Result<(), Status> {
        let memory = self.memory()?;
        memory
            .write(&mut self.caller, pointer as usize, bytes)
            .map_err(|_| Status::INVALID_MEMORY_ACCESS)
    }

    /// Writes a word through the out pointer at `place`.
    pub(super) fn give_word(&mut self, place: usize, value: u32) -> Result<(), Status> {
        self.write(self.word(place), &value.to_le_bytes())
    }

    /// Writes eight bytes through the out pointer at `place`.
    pub(super) fn give_long(&mut self, place: usize, value: u64) -> Result<(), Status> {
        self.write(self.word(place), &value.to_le_bytes())
    }

    /// Hands bytes over: allocated by the guest itself, owned by it, announced through the out pointers
    /// at `place` (address) and after it (size). No bytes are a null pointer.
    pub(super) fn give_bytes(&mut self, place: usize, bytes: &[u8]) -> Answer {
        let size = u32::try_from(bytes.len()).map_err(|_| Status::INVALID_MEMORY_ACCESS)?;
        let address = if size == 0 { 0 } else { self.allocate(size)? };
        if size > 0 {
            self.write(address, bytes)?;
        }
        self.give_word(place, address)?;
        self.give_word(place + 1, size)?;
        Ok(())
    }

    fn allocate(&mut self, size: u32) -> Result<u32, Stop> {
        let export = ["proxy_on_memory_allocate", "malloc"]
            .into_iter()
            .find_map(|name| self.caller.get_export(name).and_then(Extern::into_func))
            .ok_or(Status::INVALID_MEMORY_ACCESS)?;
        let allocator = export.typed::<u32, u32>(&self.caller).map_err(Stop::Trap)?;
        match allocator.call(&mut self.caller, size) {
            Ok(0) => Err(Status::INVALID_MEMORY_ACCESS.into()),
            Ok(address) => Ok(address),
            Err(trap) => Err(Stop::Trap(trap)),
        }
    }
}
