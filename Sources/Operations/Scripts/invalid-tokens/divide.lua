-- Records how the set of invalid tokens is divided, unless a later division is recorded.
--
-- KEYS  1 invalid-tokens:division  STRING
-- ARGV  1 division                 `<generation> <shards>`, and more while that is being changed
--       2 lifetime                 ms for which it is kept; 0 for ever
-- Reply the division that is recorded now
--
-- Run twice, the second run changes nothing.

local division = KEYS[1]
local text, lifetime = ARGV[1], tonumber(ARGV[2])

local wrong = wrong_type({ [division] = 'string' })
if wrong then
    return wrong
end
local known = redis.call('GET', division)
if known and generation_of(known) >= generation_of(text) then
    return known
end
if lifetime > 0 then
    redis.call('SET', division, text, 'PX', lifetime)
else
    redis.call('SET', division, text)
end
return text
