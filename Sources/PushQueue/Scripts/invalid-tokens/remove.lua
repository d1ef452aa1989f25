-- Removes tokens from the set of invalid ones, and their details. If that is because their devices have registered again, records
-- when they did. Removes some of the tokens that were added, and of the registrations that were recorded, too long ago.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
--       2 registrations            HASH token -> when its device last registered (ms since 1970); of a shard, the beginning of such keys
--       3 invalid-tokens:details   the beginning of the keys of details
--       4 invalid-tokens:changes   STREAM; not for a shard
-- ARGV  1 max age                  ms for which tokens and registrations are kept; 0 to keep them forever
--       2 is shard                 1 or 0
--       then (token at)...         lower-case hex, and when its device registered (ms since 1970), '' if that is not the reason
-- Reply the number of tokens that were in the set
--
-- Run twice, the second run finds none of them in the set.

local set, registrations, details, changes = unpack(KEYS)
local max_age, is_shard = tonumber(ARGV[1]), ARGV[2] == '1'
local FIRST_TOKEN = 3

local wrong = changes and wrong_type({ [changes] = 'stream' })
if wrong then
    return wrong
end
local tokens, reported, registered_at = {}, {}, {}
for index = FIRST_TOKEN, #ARGV, 2 do
    local token, at = ARGV[index], tonumber(ARGV[index + 1])
    local _, _, _, failure = details_at(place_of_details(details, token))
    if failure then
        return failure
    end
    tokens[#tokens + 1] = token
    if at then
        reported[#reported + 1] = token
        registered_at[token] = math.max(at, registered_at[token] or at)
    end
end
for first = 1, #tokens, CHUNK do
    local _, failure = ask('SMISMEMBER', set, { unpack(tokens, first, math.min(first + CHUNK - 1, #tokens)) }, is_shard)
    if failure then
        return failure
    end
end
for first = 1, #reported, CHUNK do
    local some = { unpack(reported, first, math.min(first + CHUNK - 1, #reported)) }
    local known, failure = ask('HMGET', registrations, some, is_shard)
    if failure then
        return failure
    end
    for place, token in ipairs(some) do
        if (tonumber(known[place] or nil) or -math.huge) >= (registered_at[token] or -math.huge) then
            registered_at[token] = nil
        end
    end
end

write_when_full(set)
for token, at in pairs(registered_at) do
    redis.call('HSET', key_of(registrations, token, is_shard), token, string.format('%d', at))
end
local removed = remove_tokens(set, details, tokens, is_shard)
local old = remove_old(set, details, registrations, max_age > 0 and now_ms() - max_age, is_shard)
announce_removed(changes, removed + old)
return removed
