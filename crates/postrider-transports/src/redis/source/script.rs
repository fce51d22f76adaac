//! What has to happen in one step on the server, because it depends on whose an entry is.
//!
//! Redis lets anybody acknowledge and claim anything. A consumer that was too slow must not take back what another one has by now, nor put
//! it away as refused: so the owner of an entry and how often it was delivered are compared first. Together they are a delivery.

use super::{
    group::{Group, WAITING},
    place::Place,
};
use redis::Cmd;
use std::time::Duration;

/// For each entry: its place, how often it was delivered, what to do, and as how old it counts afterwards. Tells for each 1, 0 when it is
/// not ours, or why it was refused.
const HELD: &str = "
local stream, refused = KEYS[1], KEYS[2]
local group, me, waiting, deletes = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local function refuse(id)
    if refused then
        local entry = redis.call('XRANGE', stream, id, id)[1]
        if entry and #entry[2] > 7000 then return 'it has too many fields to be put elsewhere' end
        local put = entry and redis.pcall('XADD', refused, '*', unpack(entry[2]))
        if type(put) == 'table' and put.err then return put.err end
    end
    redis.call('XACK', stream, group, id)
    if deletes == '1' then redis.call('XDEL', stream, id) end
    return 1
end
local told = {}
for i = 5, #ARGV, 4 do
    local id, deliveries, what, idle = ARGV[i], ARGV[i + 1], ARGV[i + 2], ARGV[i + 3]
    local held = redis.call('XPENDING', stream, group, id, id, 1)[1]
    if not held or held[2] ~= me or held[4] ~= tonumber(deliveries) then
        told[#told + 1] = 0
    elseif what == 'refuse' then
        told[#told + 1] = refuse(id)
    else
        local whose = what == 'extend' and me or waiting
        redis.call('XCLAIM', stream, group, whose, 0, id, 'IDLE', idle, 'JUSTID')
        told[#told + 1] = 1
    end
end
return told";

/// Hands back what a consumer has, up to a thousand entries. Tells how many it were.
const HAND_BACK: &str = "
local stream, group, me, waiting, idle = KEYS[1], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local had = redis.call('XPENDING', stream, group, '-', '+', 1000, me)
for _, entry in ipairs(had) do
    redis.call('XCLAIM', stream, group, waiting, 0, entry[1], 'IDLE', idle, 'JUSTID')
end
return #had";

/// Removes a consumer's name, unless it has something: that would be gone with it.
const REMOVE: &str = "
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
if #redis.call('XPENDING', stream, group, '-', '+', 1, consumer) > 0 then return 0 end
redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
return 1";

/// What is to be done with an entry that is ours.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    Again(Duration),
    Extend,
    Refuse,
}

impl Step {
    /// The word for it, and as how old the entry counts afterwards, in milliseconds: at the age of the hold it may be claimed.
    fn words(self, group: &Group) -> (&'static str, u64) {
        match self {
            Self::Again(after) => ("again", group.hold_millis().saturating_sub(rounded_up(after))),
            Self::Extend => ("extend", 0),
            Self::Refuse => ("refuse", 0),
        }
    }
}

/// Never too early: a part of a millisecond, and the one that the server may cut off, are waited for.
fn rounded_up(after: Duration) -> u64 {
    match after.as_millis() {
        0 if after.is_zero() => 0,
        millis => u64::try_from(millis).unwrap_or(u64::MAX).saturating_add(2),
    }
}

/// Does this with those of these deliveries that are ours.
pub(super) fn held<'a>(group: &Group, steps: impl Iterator<Item = (Place, u32, Step)> + 'a) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(HELD).arg(1 + usize::from(group.refused_to.is_some())).arg(&group.stream);
    if let Some(refused) = &group.refused_to {
        command.arg(refused);
    }
    command.arg(&group.name).arg(&*group.consumer).arg(WAITING).arg(u8::from(group.deletes));
    for (place, deliveries, step) in steps {
        let (what, idle) = step.words(group);
        command.arg(place.to_string()).arg(deliveries).arg(what).arg(idle);
    }
    command
}

/// What this consumer has may be claimed at once.
pub(super) fn hand_back(group: &Group) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(HAND_BACK).arg(1).arg(&group.stream).arg(&group.name).arg(&*group.consumer).arg(WAITING);
    command.arg(group.hold_millis());
    command
}

/// This name is not used any more.
pub(super) fn remove(group: &Group, consumer: &str) -> Cmd {
    let mut command = redis::cmd("EVAL");
    command.arg(REMOVE).arg(1).arg(&group.stream).arg(&group.name).arg(consumer);
    command
}
