-- Counts the tokens in the set of invalid ones, or in a shard of it.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
--       2 invalid-tokens:division  STRING
-- ARGV  1 generation               of the division that the caller knows
--       2 is shard                 1 or 0
-- Reply the number
-- Error DIVISION text              if there is a later division, which is in the text
--
-- Changes nothing.

local set, division = KEYS[1], KEYS[2]
local is_shard = ARGV[2] == '1'

local wrong = divided_since(division, ARGV[1])
if wrong then
    return wrong
end
local size = 0
for part = 0, is_shard and PARTS - 1 or 0 do
    local key = is_shard and string.format('%s:%x', set, part) or set
    local count = redis.pcall('SCARD', key)
    if type(count) == 'table' then
        return wrong_type({ [key] = 'set' }) or count
    end
    size = size + count
end
return size
