-- Puts tokens into the set of invalid ones, but for those whose devices are known to have registered since.
--
-- KEYS  1 invalid-tokens          SET
--       2 registrations           HASH token → when its device last registered (ms since 1970)
--       3 invalid-tokens:details  HASH; only where one server has them all, else `describe` follows
-- ARGV  token, at, details...     for each: lower-case hex, since when it is invalid (ms since 1970), and what is known of it
-- Reply { outcome... }            1 it was added, 0 it was there already, -1 its device has registered since
--
-- Run twice, the second run finds the tokens there.

local wrong = wrong_type({ [KEYS[1]] = 'set', [KEYS[2]] = 'hash' })
    or (KEYS[3] and wrong_type({ [KEYS[3]] = 'hash' }))
if wrong then
    return wrong
end

local outcomes = {}
for index = 1, #ARGV, 3 do
    local token, at = ARGV[index], tonumber(ARGV[index + 1])
    local registered = tonumber(redis.call('HGET', KEYS[2], token) or nil)
    if registered and registered > at then
        outcomes[#outcomes + 1] = -1
    else
        outcomes[#outcomes + 1] = redis.call('SADD', KEYS[1], token)
        if KEYS[3] then
            describe(KEYS[3], token, at, ARGV[index + 2])
        end
    end
end
return outcomes
