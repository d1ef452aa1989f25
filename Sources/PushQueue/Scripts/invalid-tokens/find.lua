-- Finds the tokens of a list that are invalid, and their details.
--
-- KEYS  1 invalid-tokens          SET
--       2 invalid-tokens:details  HASH token -> JSON
-- ARGV  1 tokens                  with a comma between them
-- Reply { index, details... }     for each invalid token: its index in the list from 0, ascending, and its details, '' for none
--
-- The tokens are one argument, and the reply holds only the invalid ones, which are few: one argument and one reply for each
-- token cost the worker a twentieth of the cost of a notification.
--
-- Changes nothing.

local set, details = KEYS[1], KEYS[2]
local list = ARGV[1]

local wrong = wrong_type({ [set] = 'set', [details] = 'hash' })
if wrong then
    return wrong
end

local reply, tokens, looked_up = {}, {}, 0

local function look_up()
    local places, found = {}, {}
    for index, is_member in ipairs(redis.call('SMISMEMBER', set, unpack(tokens))) do
        if is_member == 1 then
            places[#places + 1] = looked_up + index - 1
            found[#found + 1] = tokens[index]
        end
    end
    if #found > 0 then
        for index, known in ipairs(redis.call('HMGET', details, unpack(found))) do
            reply[#reply + 1] = places[index]
            reply[#reply + 1] = known or ''
        end
    end
    looked_up = looked_up + #tokens
    tokens = {}
end

for token in string.gmatch(list, '[^,]+') do
    tokens[#tokens + 1] = token
    if #tokens == CHUNK then
        look_up()
    end
end
if #tokens > 0 then
    look_up()
end
return reply
