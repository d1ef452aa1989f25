-- Takes tokens out of the set of invalid ones because their devices have registered again, and remembers when they did.
--
-- KEYS  1 invalid-tokens          SET
--       2 registrations           HASH token -> when its device last registered (ms since 1970)
--       3 invalid-tokens:details  HASH token -> JSON
-- ARGV  token, at...              for each: lower-case hex, and when its device registered (ms since 1970)
-- Reply how many were in the set
--
-- Run twice, the second run finds none of them there.

local set, registrations, details = KEYS[1], KEYS[2], KEYS[3]
local wrong = wrong_type({ [set] = 'set', [registrations] = 'hash', [details] = 'hash' })
if wrong then
    return wrong
end

write_when_full(set)
local removed = 0
for index = 1, #ARGV, 2 do
    local token, at = ARGV[index], tonumber(ARGV[index + 1])
    local known = tonumber(redis.call('HGET', registrations, token) or nil)
    if not (known and known >= at) then
        redis.call('HSET', registrations, token, ARGV[index + 1])
    end
    removed = removed + redis.call('SREM', set, token)
    redis.call('HDEL', details, token)
end
return removed
