-- Marks tokens as invalid, except those whose devices have registered since: the later of mark and registration counts. A time that is
-- ahead of Redis' clock counts as now. Also removes some of the marks and registrations that are too old.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
--       2 registrations            HASH token -> when its device last registered (ms since 1970); of a shard, the beginning of such keys
--       3 invalid-tokens:details   the beginning of the keys of details
--       4 invalid-tokens:facts     HASH number -> JSON
--       5 invalid-tokens:changes   STREAM; not for a shard
-- ARGV  1 max age                  ms for which marks are kept; 0 to keep them forever
--       2 is shard                 1 or 0
--       then (token at facts day sets registered_at)...
--                                  lower-case hex, since when it is invalid (ms since 1970; '' if nothing is known about it), a JSON object
--                                  of the other facts, the day on which it was marked (since 1970; '' for today), the sum of the sets that
--                                  it is in ('' if that follows from the facts), and a registration that may not be recorded ('' for none)
-- Reply { outcome... }             for each token: 1 if the mark is new, 0 if it was known, -1 if its device has registered since
--
-- A mark replaces only an older one for the same topic and environment, because feedback arrives late. Run twice, the second run changes
-- nothing and replies 0 instead of 1.
-- Needs: time base invalid-tokens

local set, registrations, details, facts, changes = unpack(KEYS)
local max_age, is_shard = tonumber(ARGV[1]), ARGV[2] == '1'
local FIRST_TOKEN, MEMBERS = 3, 6
-- The largest time and day that details can hold.
local LATEST, LAST_DAY = 2 ^ 48 - 1, 65535

local wrong = SETS.wrong_form(set, registrations, facts, changes, is_shard)
if wrong then
    return wrong
end

local now = now_ms()
local outcomes = {}
-- The tokens of this call with their sets and marks, before and after it. A token can occur twice.
local states = {}
-- The registrations to write, by token.
local registered = {}
-- The numbers of facts by their texts, and the facts to write by their numbers.
local numbers, new_facts = {}, {}
local stored_scope, given_scopes = MARKS.scopes_in(facts), {}

-- Returns the number of facts, which is derived from their text; 0 if that number and the next ones have other facts.
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

-- Returns the scope of a mark's facts, which are stored or new.
local function scope(number)
    return new_facts[number] and MARKS.scope_of(new_facts[number]) or stored_scope(number)
end

-- Adds a mark to those of a token, or replaces an older one of its scope. Returns true if the scope is new.
local function add_mark(marks, at, text, day)
    local own = given_scopes[text]
    local place
    for index, mark in ipairs(marks) do
        if scope(mark.facts).text == own.text then
            place = index
        end
    end
    local is_new = not place
    if place and at <= marks[place].at then
        return false
    end
    if not place and #marks == MARKS.maximum then
        place = 1
        for index, mark in ipairs(marks) do
            place = mark.at < marks[place].at and index or place
        end
    end
    marks[place or #marks + 1] = {
        at = math.max(0, math.min(at, LATEST)),
        day = math.min(day or math.floor(now / MS_PER_DAY), LAST_DAY),
        facts = number_of(text),
    }
    return is_new
end

-- Returns the sum of a token's sets and further sets. A token that is invalid for an own topic is not in `other`.
local function entered(sets, more)
    local sum = 0
    for _, one in ipairs(SETS.all) do
        sum = sum + ((SETS.has(sets, one[2]) or SETS.has(more, one[2])) and one[2] or 0)
    end
    return sum > SETS.other and sum - SETS.other or sum
end

-- Decides what to write for the tokens whose arguments are from `first` to `last`. Returns an error reply if a key has another type.
local function decide(first, last)
    local stored, wrong_key = SETS.read(set, registrations, first, last, MEMBERS, is_shard)
    if not stored then
        return wrong_key
    end
    for place, token in ipairs(stored.tokens) do
        local index = first + (place - 1) * MEMBERS
        local at, text, day = tonumber(ARGV[index + 1]), ARGV[index + 2], tonumber(ARGV[index + 3])
        local known = registered[token] or stored.registered[place]
        local latest = math.min(math.max(known or -math.huge, tonumber(ARGV[index + 5]) or -math.huge), now)
        if latest > -math.huge and latest ~= known then
            registered[token] = latest
        end
        if not states[token] then
            local marks, failure = MARKS.at(place_of_details(details, token))
            if failure then
                return failure
            end
            local sum = stored.sums[place] or 0
            -- If the token is in no set, another program has removed it, and its marks are left over. A token without marks is already
            -- invalid for all topics.
            states[token] = { was = sum, sets = sum, marks = sum > 0 and marks or {}, is_bare = sum > 0 and #marks == 0 }
        end
        local state = states[token]
        if at and latest > at then
            outcomes[#outcomes + 1] = -1
        else
            given_scopes[text] = given_scopes[text] or MARKS.scope_of(text)
            local sets = entered(state.sets, tonumber(ARGV[index + 4]) or given_scopes[text].set)
            local is_new = sets ~= state.sets
            state.sets = sets
            if at and add_mark(state.marks, math.min(at, now), text, day) then
                is_new = is_new or not state.is_bare
            end
            outcomes[#outcomes + 1] = is_new and 1 or 0
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
for token, at in pairs(registered) do
    redis.call('HSET', key_of(registrations, token, is_shard), token, string.format('%d', at))
end
for number, text in pairs(new_facts) do
    redis.call('HSET', facts, number, text)
end
local removed = 0
for token, state in pairs(states) do
    if state.sets > 0 then
        removed = removed + math.max(0, SETS.move(set, details, token, state.was, state.sets, state.marks, is_shard))
    end
end
local oldest = max_age > 0 and now - max_age
announce_removed(changes, removed + remove_old(set, details, facts, registrations, oldest, is_shard))
return outcomes
