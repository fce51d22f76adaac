//! Operations that must be atomic on the server, because they depend on the owner of an entry.
//!
//! Redis lets any client acknowledge and claim any entry. A consumer that was too slow must not nack or reject an entry that another
//! consumer owns by now: so a script first compares the owner of an entry and its delivery count. Together they identify a delivery.

use super::{
    entry_id::EntryId,
    group::{ConsumerGroup, NACKED_CONSUMER},
};
use redis::Cmd;
use std::time::Duration;

/// For each entry: its id, its delivery count, the operation, and its idle time afterwards. Returns for each 1, 0 when the delivery is
/// not ours, or why the entry could not be rejected.
const STEP_SCRIPT: &str = "
local stream, reject_to = KEYS[1], KEYS[2]
local group, me, nacked, deletes = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local function reject(id)
    if reject_to then
        local entry = redis.call('XRANGE', stream, id, id)[1]
        if entry and #entry[2] > 7000 then return 'the entry has too many fields to be copied to the reject stream' end
        local added = entry and redis.pcall('XADD', reject_to, '*', unpack(entry[2]))
        if type(added) == 'table' and added.err then return added.err end
    end
    redis.call('XACK', stream, group, id)
    if deletes == '1' then redis.call('XDEL', stream, id) end
    return 1
end
local results = {}
for i = 5, #ARGV, 4 do
    local id, deliveries, step, idle = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local pending = redis.call('XPENDING', stream, group, id, id, 1)[1]
    if not pending or pending[2] ~= me or pending[4] ~= tonumber(deliveries) then
        results[#results + 1] = 0
    elseif step == 'reject' then
        results[#results + 1] = reject(id)
    else
        local owner = step == 'extend' and me or nacked
        redis.call('XCLAIM', stream, group, owner, 0, id, 'IDLE', idle, 'JUSTID')
        results[#results + 1] = 1
    end
end
return results";

/// Nacks up to a thousand pending entries of a consumer. Returns their number.
const RELEASE_SCRIPT: &str = "
local stream, group, me, nacked, idle = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local pending = redis.call('XPENDING', stream, group, '-', '+', 1000, me)
for _, entry in ipairs(pending) do
    redis.call('XCLAIM', stream, group, nacked, 0, entry[1], 'IDLE', idle, 'JUSTID')
end
return #pending";

/// Removes a consumer name, unless it has pending entries: they would be lost with it.
const REMOVE_SCRIPT: &str = "
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
if #redis.call('XPENDING', stream, group, '-', '+', 1, consumer) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
return 1";

/// The operation on a delivery that is ours.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeliveryStep {
    Nack(Duration),
    Extend,
    Reject,
}

impl DeliveryStep {
    /// The name of the operation, and the entry's idle time afterwards in milliseconds: at the ack deadline it may be claimed.
    fn arguments(self, group: &ConsumerGroup) -> (&'static str, u64) {
        match self {
            Self::Nack(after) => ("nack", group.ack_deadline_millis().saturating_sub(rounded_up(after))),
            Self::Extend => ("extend", 0),
            Self::Reject => ("reject", 0),
        }
    }
}

/// Never too early: includes the fraction of a millisecond, and one that the server may cut off.
fn rounded_up(after: Duration) -> u64 {
    match after.as_millis() {
        0 if after.is_zero() => 0,
        millis => u64::try_from(millis).unwrap_or(u64::MAX).saturating_add(2),
    }
}

/// Applies each operation, if its delivery is still ours.
pub(super) fn apply<'a>(
    group: &ConsumerGroup,
    steps: impl Iterator<Item = (EntryId, u32, DeliveryStep)> + 'a,
) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(STEP_SCRIPT).arg(1 + usize::from(group.reject_to.is_some())).arg(&group.stream);
    if let Some(reject_to) = &group.reject_to {
        command.arg(reject_to);
    }
    command.arg(&group.name).arg(&*group.consumer).arg(NACKED_CONSUMER).arg(u8::from(group.delete_when_done));
    for (id, deliveries, step) in steps {
        let (name, idle) = step.arguments(group);
        command.arg(id.to_string()).arg(deliveries).arg(name).arg(idle);
    }
    command
}

/// Nacks the pending entries of this consumer: they may be claimed at once.
pub(super) fn release(group: &ConsumerGroup) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(RELEASE_SCRIPT).arg(1).arg(&group.stream).arg(&group.name).arg(&*group.consumer);
    command.arg(NACKED_CONSUMER).arg(group.ack_deadline_millis());
    command
}

/// Removes a consumer name that is not used any more.
pub(super) fn remove(group: &ConsumerGroup, consumer: &str) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(REMOVE_SCRIPT).arg(1).arg(&group.stream).arg(&group.name).arg(consumer);
    command
}
