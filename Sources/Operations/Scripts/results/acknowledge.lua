-- Acknowledges entries of a consumer group of results, and records the group's position, from which a lost group continues.
--
-- KEYS  1 results           STREAM
--       2 results-positions HASH   group -> its position
-- ARGV  1 group
--       then the entries that the group has handled; may be none
-- Reply { id, is handled, waiting }
--       id                the group has handled all entries before this one
--       is handled        1 if it has handled this entry, too, else 0
--       waiting           the number of entries that no consumer has read; -1 if Redis does not know it
--       or an error NOGROUP
--
-- Run twice, it has the same effect and reply.
-- Needs: base

local results, positions = unpack(KEYS)
local group, first = unpack(ARGV, 1, 2)

local wrong = wrong_type({ [results] = 'stream', [positions] = 'hash' })
if wrong then
    return wrong
end

local found
for _, fields in ipairs(redis.call('EXISTS', results) == 1 and redis.call('XINFO', 'GROUPS', results) or {}) do
    local values = {}
    for i = 1, #fields, 2 do
        values[fields[i]] = fields[i + 1]
    end
    if values.name == group then
        found = values
    end
end
if not found then
    return redis.error_reply('NOGROUP ' .. results .. ' has no consumer group ' .. group)
end

write_when_full(positions)
if first then
    redis.call('XACK', results, group, unpack(ARGV, 2))
end
local pending = redis.call('XPENDING', results, group)
local id, is_handled = found['last-delivered-id'], 1
if pending[1] > 0 then
    id, is_handled = pending[2], 0
end
redis.call('HSET', positions, group, is_handled .. ' ' .. id)
return { id, is_handled, tonumber(found.lag) or -1 }
