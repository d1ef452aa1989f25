-- Removes marks of tokens, and removes tokens without marks from the sets of invalid ones. Records the registrations of devices that have
-- registered again. Also removes some of the marks and registrations that are too old.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
--       2 registrations            HASH token -> when its device last registered (ms since 1970); of a shard, the beginning of such keys
--       3 invalid-tokens:details   the beginning of the keys of details
--       4 invalid-tokens:facts     HASH number -> JSON
--       5 invalid-tokens:changes   STREAM; not for a shard
-- ARGV  1 max age                  ms for which marks and registrations are kept; 0 to keep them forever
--       2 is shard                 1 or 0
--       then (token why at environment topic)...
--                                  lower-case hex, and what to remove:
--                                    all         everything
--                                    registered  marks before `at`, when its device registered (ms since 1970)
--                                    accepted    the mark for this environment and topic, '' for all; APNs has accepted the own topic of an
--                                                app, so the token also leaves the set of the environment, whatever marks it has
--                                    mark        the mark for this environment and topic
-- Reply the number of removals that found something to remove
--
-- Run twice, the second run finds none of them.
-- Needs: time base invalid-tokens

local set, registrations, details, facts, changes = unpack(KEYS)
local max_age, is_shard = tonumber(ARGV[1]), ARGV[2] == '1'
local FIRST_TOKEN, MEMBERS = 3, 5

local wrong = SETS.wrong_form(set, registrations, facts, changes, is_shard)
if wrong then
    return wrong
end
local now = now_ms()
local scope = MARKS.scopes_in(facts)
local states, registered_at, count = {}, {}, 0

local function apply(state, why, at, environment, topic)
    local left = {}
    for _, mark in ipairs(state.marks) do
        local is_named = scope(mark.facts).text == MARKS.scope_text(environment, topic)
        if why == 'registered' and mark.at >= at or (why == 'accepted' or why == 'mark') and not is_named then
            left[#left + 1] = mark
        end
    end
    local sets = state.sets
    if why == 'accepted' then
        local own = environment == 'sandbox' and SETS.sandbox or SETS.production
        sets = SETS.has(sets, own) and sets - own or sets
        sets = #left == 0 and SETS.has(sets, SETS.other) and sets - SETS.other or sets
    elseif why ~= 'mark' or #left < #state.marks then
        sets = #left > 0 and sets or 0
    end
    if #left > 0 then
        sets = SETS.left(sets, left, scope)
    end
    if #left < #state.marks or sets ~= state.sets then
        count = count + 1
    end
    state.marks, state.sets = left, sets
end

for first = FIRST_TOKEN, #ARGV, MEMBERS * CHUNK do
    local last = math.min(first + MEMBERS * CHUNK - 1, #ARGV)
    local stored, wrong_key = SETS.read(set, registrations, first, last, MEMBERS, is_shard)
    if not stored then
        return wrong_key
    end
    for place, token in ipairs(stored.tokens) do
        local index = first + (place - 1) * MEMBERS
        local why, at = ARGV[index + 1], math.min(tonumber(ARGV[index + 2]) or 0, now)
        if not states[token] then
            local marks, failure = MARKS.at(place_of_details(details, token))
            if failure then
                return failure
            end
            local sum = stored.sums[place] or 0
            states[token] = { was = sum, sets = sum, marks = marks }
        end
        local known = registered_at[token] or stored.registered[place] or -math.huge
        local latest = math.max(at, math.min(known, now))
        if why == 'registered' and latest ~= known then
            registered_at[token] = latest
        end
        if states[token].sets > 0 then
            apply(states[token], why, at, ARGV[index + 3], ARGV[index + 4])
        end
    end
end

write_when_full(set)
for token, at in pairs(registered_at) do
    redis.call('HSET', key_of(registrations, token, is_shard), token, string.format('%d', at))
end
local removed = 0
for token, state in pairs(states) do
    if state.was > 0 then
        removed = removed + SETS.move(set, details, token, state.was, state.sets, state.marks, is_shard)
    end
end
local oldest = max_age > 0 and now - max_age
announce_removed(changes, math.max(0, removed) + remove_old(set, details, facts, registrations, oldest, is_shard))
return count
