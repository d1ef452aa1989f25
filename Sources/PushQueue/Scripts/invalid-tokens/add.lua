-- Adds tokens to the set of invalid ones, with their details, except tokens whose devices have registered since.
-- Removes some of the tokens that were added, and of the registrations that were recorded, too long ago.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
--       2 registrations            HASH token -> when its device last registered (ms since 1970); of a shard, the beginning of such keys
--       3 invalid-tokens:details   the beginning of the keys of details
--       4 invalid-tokens:facts     HASH number -> JSON
--       5 invalid-tokens:changes   STREAM; not for a shard
-- ARGV  1 max age                  ms for which tokens are kept; 0 to keep them forever
--       2 is shard                 1 or 0
--       then (token at facts day)...
--                                  lower-case hex, since when it is invalid (ms since 1970; '' if nothing is known about it), a JSON object
--                                  of the other facts, and the day on which it was marked (since 1970; '' for today)
-- Reply { outcome... }             for each: 1 added, 0 was in the set already, -1 its device has registered since
--
-- Details replace only older ones: feedback arrives late. Run twice, the second run changes nothing and replies 0
-- instead of 1.

local set, registrations, details, facts, changes = unpack(KEYS)
local max_age, is_shard = tonumber(ARGV[1]), ARGV[2] == '1'
local FIRST_TOKEN, MEMBERS = 3, 4
-- The largest time and day that details can hold.
local LATEST, LAST_DAY = 2 ^ 48 - 1, 65535

local wrong = wrong_type({ [facts] = 'hash' })
    or not is_shard and wrong_type({ [set] = 'set', [registrations] = 'hash', [changes] = 'stream' })
if wrong then
    return wrong
end

local now = now_ms()
local outcomes = {}
-- The state after this call, by token, as far as it is known: a token can occur twice.
local is_member, known_at, places = {}, {}, {}
-- Tokens to add; the numbers of facts, and the facts to write by their numbers; details to write, by token.
local added, numbers, new_facts, described = {}, {}, {}, {}

-- Returns the number of facts, which follows from their text. 0 if it and the next ones have other facts.
local function number_of(text)
    if not numbers[text] then
        local first = tonumber(string.sub(redis.sha1hex(text), 1, 4), 16)
        numbers[text] = 0
        for number = first, first + TRIES - 1 do
            number = number % 65535 + 1
            local known = new_facts[number] or redis.call('HGET', facts, number)
            if not known or known == text then
                numbers[text] = number
                new_facts[number] = not known and text or new_facts[number]
                break
            end
        end
    end
    return numbers[text]
end

-- Decides about the tokens whose arguments are from `first` to `last`. Returns an error reply if a key has another type.
local function decide(first, last)
    local tokens = {}
    for index = first, last, MEMBERS do
        tokens[#tokens + 1] = ARGV[index]
    end
    local members, wrong_set = ask('SMISMEMBER', set, tokens, is_shard)
    local registered, wrong_hash = ask('HMGET', registrations, tokens, is_shard)
    if wrong_set or wrong_hash then
        return wrong_set or wrong_hash
    end
    for place, token in ipairs(tokens) do
        local index = first + (place - 1) * MEMBERS
        local at, text, day = tonumber(ARGV[index + 1]), ARGV[index + 2], tonumber(ARGV[index + 3])
        local registered_at = tonumber(registered[place] or nil)
        if at and registered_at and registered_at > at then
            outcomes[#outcomes + 1] = -1
        else
            if is_member[token] == nil then
                local key, field = place_of_details(details, token)
                local known, _, _, failure = details_at(key, field)
                if failure then
                    return failure
                end
                is_member[token], known_at[token] = members[place] == 1, known or -math.huge
                places[token] = { key, field }
            end
            outcomes[#outcomes + 1] = is_member[token] and 0 or 1
            if not is_member[token] then
                is_member[token] = true
                added[#added + 1] = token
            end
            if at and at > known_at[token] then
                known_at[token] = at
                described[token] = struct.pack('>I6I2I2', math.max(0, math.min(at, LATEST)),
                    math.min(day or math.floor(now / MS_PER_DAY), LAST_DAY), number_of(text))
            end
        end
    end
end

for first = FIRST_TOKEN, #ARGV, MEMBERS * CHUNK do
    local failure = decide(first, math.min(first + MEMBERS * CHUNK - 1, #ARGV))
    if failure then
        return failure
    end
end

write_when_full(facts)
for key, group in pairs(by_key(set, added, is_shard)) do
    call_in_chunks('SADD', key, group.tokens)
end
for number, text in pairs(new_facts) do
    redis.call('HSET', facts, number, text)
end
for token, value in pairs(described) do
    redis.call('HSET', places[token][1], places[token][2], value)
end
announce_removed(changes, remove_old(set, details, registrations, max_age > 0 and now - max_age, is_shard))
return outcomes
