-- Counts the tokens in the set of invalid ones, or in a shard of it.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
-- ARGV  1 is shard                 1 or 0
-- Reply the number
--
-- Changes nothing.

local set = KEYS[1]
local is_shard = ARGV[1] == '1'

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
