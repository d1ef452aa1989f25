-- Writes what is known of invalid tokens, each unless something newer is known of it.
--
-- KEYS  1 invalid-tokens:details  HASH
-- ARGV  token, at, details...     for each: lower-case hex, since when it is invalid (ms since 1970), and what is known of it
-- Reply 1
--
-- For a Cluster, where the set is with another server (see `mark`). Run twice, the second run changes nothing.

local wrong = wrong_type({ [KEYS[1]] = 'hash' })
if wrong then
    return wrong
end

for index = 1, #ARGV, 3 do
    describe(KEYS[1], ARGV[index], tonumber(ARGV[index + 1]), ARGV[index + 2])
end
return 1
