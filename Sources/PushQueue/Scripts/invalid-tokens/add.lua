-- Adds tokens to the set of invalid ones, with their details, except tokens whose devices have registered since.
-- Removes some of the tokens that were added too long ago.
--
-- KEYS  1 invalid-tokens          SET
--       2 registrations           HASH token -> when its device last registered (ms since 1970)
--       3 invalid-tokens:details  HASH token -> JSON
-- ARGV  1 max age                 ms for which tokens are kept; 0 to keep them forever
--       then (token at details)...
--                                 lower-case hex, since when it is invalid (ms since 1970), and a JSON object about it,
--                                 which is stored with `marked_at`, Redis' time
-- Reply { outcome... }            for each: 1 added, 0 was in the set already, -1 its device has registered since
--
-- Details replace only older ones: feedback arrives late. Run twice, the second run changes nothing and replies 0
-- instead of 1.
--
-- Tokens that are too old are found the way Redis finds expired keys: a few are sampled at random, and more while many
-- of them are too old. So they remain a small part of the set, and no call takes long.

local set, registrations, details = KEYS[1], KEYS[2], KEYS[3]
local max_age = tonumber(ARGV[1])
local FIRST_TOKEN = 2

local wrong = wrong_type({ [set] = 'set', [registrations] = 'hash', [details] = 'hash' })
if wrong then
    return wrong
end

-- Returns the time in a token's details; without one, a time before all others.
local function time_of(text)
    local is_json, known = pcall(cjson.decode, text or 'null')
    return is_json and type(known) == 'table' and type(known.at) == 'number' and known.at or -math.huge
end

local now = now_ms()
local outcomes = {}
-- The state after this call, by token, as far as it is known: a token can occur twice.
local is_member, known_at = {}, {}
local added, described = {}, {}

-- Decides about the tokens whose arguments are from `first` to `last`.
local function decide(first, last)
    local tokens = {}
    for index = first, last, 3 do
        tokens[#tokens + 1] = ARGV[index]
    end
    local members = redis.call('SMISMEMBER', set, unpack(tokens))
    local registered = redis.call('HMGET', registrations, unpack(tokens))
    local known = redis.call('HMGET', details, unpack(tokens))
    for place, token in ipairs(tokens) do
        local index = first + (place - 1) * 3
        local at, text = tonumber(ARGV[index + 1]), ARGV[index + 2]
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
                described[#described + 1] = string.sub(text, 1, -2) .. string.format(',"marked_at":%d}', now)
            end
        end
    end
end

for first = FIRST_TOKEN, #ARGV, 3 * CHUNK do
    decide(first, math.min(first + 3 * CHUNK - 1, #ARGV))
end

write_when_full(set)
call_in_chunks('SADD', set, added)
call_in_chunks('HSET', details, described)

-- The size of a sample, the number of old tokens in it that leads to another round, and the maximum number of rounds.
local SAMPLE, MANY, ROUNDS = 10, 3, 50
local rounds = 0
repeat
    local old = {}
    -- With a negative count, each is chosen independently, at a cost that does not depend on the size of the hash.
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
