-- Records registrations of devices that another shard has, unless later ones are known.
--
-- KEYS  1 registrations            the beginning of the keys of a shard, or the HASH token -> when its device last registered (ms since 1970)
--       2 invalid-tokens:division  STRING
-- ARGV  1 generation               of the division that the caller knows
--       2 is shard                 1 or 0
--       then (token at)...
-- Reply the number that was recorded
-- Error DIVISION text              if there is a later division, which is in the text
--
-- Run twice, the second run changes nothing.

local registrations, division = KEYS[1], KEYS[2]
local is_shard = ARGV[2] == '1'
local FIRST_TOKEN = 3

local wrong = divided_since(division, ARGV[1])
if wrong then
    return wrong
end
local later = {}
for index = FIRST_TOKEN, #ARGV, 2 do
    local token, at = ARGV[index], tonumber(ARGV[index + 1])
    local known, failure = ask('HMGET', registrations, { token }, is_shard)
    if failure then
        return failure
    end
    if at and at > (tonumber(known[1] or nil) or -math.huge) then
        later[#later + 1] = { key_of(registrations, token, is_shard), token, ARGV[index + 1] }
    end
end

for _, registration in ipairs(later) do
    redis.call('HSET', unpack(registration))
end
return #later
