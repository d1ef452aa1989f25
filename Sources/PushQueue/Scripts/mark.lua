-- Adds tokens to the set of invalid ones, with what is known of each, except tokens whose devices have registered since.
--
-- KEYS  1 invalid-tokens          SET
--       2 registrations           HASH token -> when its device last registered (ms since 1970)
--       3 invalid-tokens:details  HASH token -> JSON
-- ARGV  token, at, details...     for each: lower-case hex, since when it is invalid (ms since 1970), and what is known of it
-- Reply { outcome... }            for each: 1 it was added, 0 it was there already, -1 its device has registered since
--
-- Details replace only older ones: feedback arrives late. Run twice, the second run changes nothing and replies 0 for 1.

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
                described[#described + 1] = ARGV[index + 2]
            end
        end
    end
end

for first = 1, #ARGV, 3 * CHUNK do
    look(first, math.min(first + 3 * CHUNK - 1, #ARGV))
end

write_when_full(set)
for first = 1, #added, CHUNK do
    redis.call('SADD', set, unpack(added, first, math.min(first + CHUNK - 1, #added)))
end
for first = 1, #described, CHUNK do
    redis.call('HSET', details, unpack(described, first, math.min(first + CHUNK - 1, #described)))
end
return outcomes
