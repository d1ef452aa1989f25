-- Counts the tokens in the sets of invalid ones, or in a shard of them.
--
-- KEYS  1 invalid-tokens           SET; of a shard, the beginning of the keys of its sets; see the part invalid-tokens
-- ARGV  1 is shard                 1 or 0
-- Reply the number
--
-- Changes nothing.
-- Needs: base invalid-tokens

local set = KEYS[1]
local is_shard = ARGV[1] == '1'

local size = 0
for _, one in ipairs(SETS.all) do
    for part = 0, is_shard and PARTS - 1 or 0 do
        local key = set .. one[1] .. (is_shard and string.format(':%x', part) or '')
        local count = redis.pcall('SCARD', key)
        if type(count) == 'table' then
            return wrong_type({ [key] = 'set' }) or count
        end
        size = size + count
    end
end
return size
