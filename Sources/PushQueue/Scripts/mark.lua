-- Adds tokens to the set of invalid ones, with what is known of each, except tokens whose devices have registered since.
-- Removes some of those that were added too long ago.
--
-- KEYS  1 invalid-tokens          SET
--       2 registrations           HASH token -> when its device last registered (ms since 1970)
--       3 invalid-tokens:details  HASH token -> JSON
-- ARGV  1 max age                how long tokens are kept, ms; 0 for ever
--       then token, at, details...   for each: lower-case hex, since when it is invalid (ms since 1970), and what is known
--                                 of it: a JSON object, which is stored with `marked_at`, Redis' time
-- Reply { outcome... }            for each: 1 it was added, 0 it was there already, -1 its device has registered since
--
-- Details replace only older ones: feedback arrives late. Run twice, the second run changes nothing and replies 0 for 1.
--
-- Tokens that are too old are found as Redis finds expired keys: by looking at some at random, and at more while many of
-- them are too old. So they remain a small part of the set, and no call takes long.

local set, registrations, details = KEYS[1], KEYS[2], KEYS[3]
local wrong = wrong_type({ [set] = 'set', [registrations] = 'hash', [details] = 'hash' })
if wrong then
    return wrong
end

-- The time that a token's details name; before all times where they name none.
local function time_of(text)
    local is_json, known = pcall(cjson.decode, text or 'null')
    return is_json and type(known) == 'table' and type(known.at) == 'number' and known.at or -math.huge
end

local now = now_ms()
local outcomes = {}
-- By token, what it is to be afterwards, as far as this call has got: a token may be named twice.
local is_member, known_at = {}, {}
local added, described = {}, {}

local function look(first, last)
    local tokens = {}
    for index = first, last, 3 do
        tokens[#tokens + 1] = ARGV[index]
    end
    local members = redis.call('SMISMEMBER', set, unpack(tokens))
    local registered = redis.call('HMGET', registrations, unpack(tokens))
    local known = redis.call('HMGET', details, unpack(tokens))
    for place, token in ipairs(tokens) do
        local index = first + (place - 1) * 3
        local at = tonumber(ARGV[index + 1])
        local registered_at = tonumber(registered[place] or nil)
        if registered_at and registered_at > at then
            outcomes[#outcomes + 1] = -1
        else
            if is_member[token] == nil then
                is_member[token], known_at[token] = members[place] == 1, time_of(known[place])
            end
            outcomes[#outcomes + 1] = is_member[token] and 0 or 1
            if not is_member[token] then
                is_member[token] = true
                added[#added + 1] = token
            end
            if at > known_at[token] then
                known_at[token] = at
                described[#described + 1] = token
                described[#described + 1] = string.sub(ARGV[index + 2], 1, -2) .. string.format(',"marked_at":%d}', now)
            end
        end
    end
end

for first = 2, #ARGV, 3 * CHUNK do
    look(first, math.min(first + 3 * CHUNK - 1, #ARGV))
end

write_when_full(set)
for first = 1, #added, CHUNK do
    redis.call('SADD', set, unpack(added, first, math.min(first + CHUNK - 1, #added)))
end
for first = 1, #described, CHUNK do
    redis.call('HSET', details, unpack(described, first, math.min(first + CHUNK - 1, #described)))
end

-- How many are looked at together, how many of them must be too old for more to be looked at, and how often.
local SAMPLE, MANY, ROUNDS = 10, 3, 50
local max_age, rounds = tonumber(ARGV[1]), 0
repeat
    local old = {}
    -- A negative count: each is chosen by itself, which costs the same whatever the size.
    local sample = max_age > 0 and redis.call('HRANDFIELD', details, -SAMPLE, 'WITHVALUES') or {}
    for i = 1, #sample, 2 do
        local marked_at = tonumber(string.match(sample[i + 1], '"marked_at":(%d+)}$'))
        if marked_at and marked_at < now - max_age then
            old[#old + 1] = sample[i]
        end
    end
    if #old > 0 then
        redis.call('SREM', set, unpack(old))
        redis.call('HDEL', details, unpack(old))
    end
    rounds = rounds + 1
until #old < MANY or rounds == ROUNDS
return outcomes
