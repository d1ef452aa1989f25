-- Removes tokens from the set of invalid ones because their devices have registered again, and records when they did.
--
-- KEYS  1 invalid-tokens          SET
--       2 registrations           HASH token -> when its device last registered (ms since 1970)
--       3 invalid-tokens:details  HASH token -> JSON
-- ARGV  (token at)...             lower-case hex, and when its device registered (ms since 1970)
-- Reply the number of tokens that were in the set
--
-- Run twice, the second run finds none of them in the set.

local set, registrations, details = KEYS[1], KEYS[2], KEYS[3]

local wrong = wrong_type({ [set] = 'set', [registrations] = 'hash', [details] = 'hash' })
if wrong then
    return wrong
end

write_when_full(set)
local removed = 0
for index = 1, #ARGV, 2 do
    local token, at = ARGV[index], ARGV[index + 1]
    local known = tonumber(redis.call('HGET', registrations, token) or nil)
    if not (known and known >= tonumber(at)) then
        redis.call('HSET', registrations, token, at)
    end
    removed = removed + redis.call('SREM', set, token)
    redis.call('HDEL', details, token)
end
return removed
