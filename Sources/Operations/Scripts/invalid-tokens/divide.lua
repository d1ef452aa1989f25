-- Records how the set of invalid tokens is divided, unless the record has changed since it was read.
--
-- KEYS  1 invalid-tokens:division  STRING
-- ARGV  1 former                   the record that was read
--       2 next                     the new record
-- Reply the record before this call
--
-- Run twice, the second run changes nothing: it finds another record than the former.
-- Needs: base

local division = KEYS[1]
local former, next_record = ARGV[1], ARGV[2]
-- The record of one set, which is missing until the set is divided for the first time.
local ONE_SET = '1'

local wrong = wrong_type({ [division] = 'string' })
if wrong then
    return wrong
end
local known = redis.call('GET', division) or ONE_SET
if known == former then
    redis.call('SET', division, next_record)
end
return known
