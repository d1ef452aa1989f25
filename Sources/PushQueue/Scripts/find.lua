-- Finds those of some tokens that are in the set of invalid ones.
--
-- KEYS  1 invalid-tokens  SET
-- ARGV  1 tokens          with a comma between them
-- Reply { place... }      of those that are in it, from 0, in ascending order
--
-- The tokens are one argument, and what is told are only those that are found, which are few: as an argument and an answer
-- each, looking them up cost the worker a twentieth of what a notification does.
--
-- Changes nothing.

local wrong = wrong_type({ [KEYS[1]] = 'set' })
if wrong then
    return wrong
end

local found, tokens, place = {}, {}, 0

local function look()
    for index, is_member in ipairs(redis.call('SMISMEMBER', KEYS[1], unpack(tokens))) do
        if is_member == 1 then
            found[#found + 1] = place + index - 1
        end
    end
    place = place + #tokens
    tokens = {}
end

for token in string.gmatch(ARGV[1], '[^,]+') do
    tokens[#tokens + 1] = token
    if #tokens == CHUNK then
        look()
    end
end
if #tokens > 0 then
    look()
end
return found
