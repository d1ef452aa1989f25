-- Takes tokens out of the set of invalid ones because their devices have registered again, and remembers when they did.
--
-- KEYS  1 invalid-tokens  SET
--       2 registrations   HASH token → when its device last registered (ms since 1970)
-- ARGV  token, at...      for each: lower-case hex, and when its device registered (ms since 1970)
-- Reply how many were in the set
--
-- Run twice, the second run finds none of them there.

local wrong = wrong_type({ [KEYS[1]] = 'set', [KEYS[2]] = 'hash' })
if wrong then
    return wrong
end

local removed = 0
for index = 1, #ARGV, 2 do
    local token, at = ARGV[index], tonumber(ARGV[index + 1])
    local known = tonumber(redis.call('HGET', KEYS[2], token) or nil)
    if not known or known < at then
        redis.call('HSET', KEYS[2], token, ARGV[index + 1])
    end
    removed = removed + redis.call('SREM', KEYS[1], token)
end
return removed
