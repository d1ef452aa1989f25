-- Finds the tokens of a list that are invalid for some topic, and their marks.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
--       2 invalid-tokens:details   the beginning of the keys of details
--       3 invalid-tokens:facts     HASH number -> JSON
--       4 registrations            HASH token -> when its device last registered (ms since 1970); of a shard, the beginning of such keys
-- ARGV  1 tokens                   with a comma between them
--       2 is shard                 1 or 0
-- Reply { (index sets registered_at marks (at day facts)...)... }
--                                  for each invalid token: its index in the list from 0, ascending, the sum of its sets, when its device
--                                  last registered (-1 if unknown), and the number of its marks; for each mark since when the token is
--                                  invalid (ms since 1970), the day on which it was marked (since 1970), and the other facts as JSON, ''
--                                  for none
--
-- The tokens are one argument, and the reply has only the invalid ones, which are few. An argument and a reply for each token would cost
-- the worker a twentieth of the cost of a notification.
--
-- Changes nothing.
-- Needs: time base invalid-tokens

local set, details, facts, registrations = unpack(KEYS)
local list, is_shard = ARGV[1], ARGV[2] == '1'

local wrong = wrong_type({ [facts] = 'hash' })
if wrong then
    return wrong
end

local now = now_ms()
local reply, tokens, looked_up = {}, {}, 0
local known_facts = { [0] = '' }

-- Returns an error reply if a key has another type.
local function look_up()
    local sums, failure = SETS.of(set, tokens, is_shard)
    if failure then
        return failure
    end
    for index = 1, #tokens do
        if sums[index] then
            local marks, wrong_details = MARKS.at(place_of_details(details, tokens[index]))
            local registered, wrong_hash = ask('HMGET', registrations, { tokens[index] }, is_shard)
            if wrong_details or wrong_hash then
                return wrong_details or wrong_hash
            end
            reply[#reply + 1] = looked_up + index - 1
            reply[#reply + 1] = sums[index]
            -- A time that is ahead of Redis' clock counts as now.
            reply[#reply + 1] = math.min(tonumber(registered[1] or nil) or -1, now)
            reply[#reply + 1] = #marks
            for _, mark in ipairs(marks) do
                known_facts[mark.facts] = known_facts[mark.facts] or redis.call('HGET', facts, mark.facts) or ''
                reply[#reply + 1] = mark.at
                reply[#reply + 1] = mark.day
                reply[#reply + 1] = known_facts[mark.facts]
            end
        end
    end
    looked_up = looked_up + #tokens
    tokens = {}
end

for token in string.gmatch(list, '[^,]+') do
    tokens[#tokens + 1] = token
    if #tokens == CHUNK then
        local failure = look_up()
        if failure then
            return failure
        end
    end
end
return #tokens > 0 and look_up() or reply
