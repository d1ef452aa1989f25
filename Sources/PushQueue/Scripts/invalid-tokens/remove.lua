-- Removes tokens from the set of invalid ones, and their details. If that is because their devices have registered again, records
-- when they did. Removes some of the tokens that were added, and of the registrations that were recorded, too long ago.
--
-- KEYS  1 invalid-tokens          SET
--       2 registrations           HASH token -> when its device last registered (ms since 1970)
--       3 invalid-tokens:details  the beginning of the keys of details; see the part invalid-tokens
--       4 invalid-tokens:changes  STREAM, for the filters of processes
-- ARGV  1 max age                 ms for which tokens and registrations are kept; 0 to keep them forever
--       then (token at)...        lower-case hex, and when its device registered (ms since 1970), '' if that is not the reason
-- Reply the number of tokens that were in the set
--
-- Run twice, the second run finds none of them in the set.

local set, registrations, details, changes = unpack(KEYS)
local max_age = tonumber(ARGV[1])
local FIRST_TOKEN = 2

local wrong = wrong_type({ [set] = 'set', [registrations] = 'hash', [changes] = 'stream' })
if wrong then
    return wrong
end
local tokens, registered = {}, {}
for index = FIRST_TOKEN, #ARGV, 2 do
    local token, at = ARGV[index], tonumber(ARGV[index + 1])
    local _, _, _, failure = details_at(place_of_details(details, token))
    if failure then
        return failure
    end
    tokens[#tokens + 1] = token
    local known = registered[token] or tonumber(redis.call('HGET', registrations, token) or nil)
    if at and not (known and known >= at) then
        registered[token] = at
    end
end

write_when_full(set)
for token, at in pairs(registered) do
    redis.call('HSET', registrations, token, string.format('%d', at))
end
local removed = remove_tokens(set, details, tokens)
local now = now_ms()
announce(changes, {}, removed + remove_old(set, details, registrations, max_age > 0 and now - max_age))
return removed
