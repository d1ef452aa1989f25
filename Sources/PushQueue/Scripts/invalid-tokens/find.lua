-- Finds the tokens of a list that are invalid, and their details.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
--       2 invalid-tokens:details   the beginning of the keys of details
--       3 invalid-tokens:facts     HASH number -> JSON
-- ARGV  1 tokens                   with a comma between them
--       2 is shard                 1 or 0
-- Reply { index, at, day, facts... }
--                                  for each invalid token: its index in the list from 0, ascending, since when it is invalid (ms since
--                                  1970), the day on which it was marked (since 1970; both -1 if unknown), and the other facts about it
--                                  as JSON, '' for none
--
-- The tokens are one argument, and the reply holds only the invalid ones, which are few: one argument and one reply for each
-- token cost the worker a twentieth of the cost of a notification.
--
-- Changes nothing.

local set, details, facts = unpack(KEYS)
local list, is_shard = ARGV[1], ARGV[2] == '1'

local wrong = wrong_type({ [facts] = 'hash' })
if wrong then
    return wrong
end

local reply, tokens, looked_up = {}, {}, 0
local known_facts = { [0] = '' }

-- Returns an error reply if a key has another type.
local function look_up()
    local members, failure = ask('SMISMEMBER', set, tokens, is_shard)
    if failure then
        return failure
    end
    for index, is_member in ipairs(members) do
        if is_member == 1 then
            local at, day, number, wrong_details = details_at(place_of_details(details, tokens[index]))
            if wrong_details then
                return wrong_details
            end
            number = number or 0
            known_facts[number] = known_facts[number] or redis.call('HGET', facts, number) or ''
            reply[#reply + 1] = looked_up + index - 1
            reply[#reply + 1] = at or -1
            reply[#reply + 1] = day or -1
            reply[#reply + 1] = known_facts[number]
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
