-- Announces tokens that are about to be added to the set of invalid ones to the processes that keep a filter of it. What adds
-- tokens does this first: a token that is announced and not added costs only a look-up, one that is added and not announced is sent to.
--
-- KEYS  1 invalid-tokens:changes  STREAM of a bounded number of entries
-- ARGV  1 tokens...               lower-case hex with commas between them, an entry each
-- Reply the number of entries

local changes = KEYS[1]

local wrong = wrong_type({ [changes] = 'stream' })
if wrong then
    return wrong
end

write_when_full(changes)
for _, tokens in ipairs(ARGV) do
    redis.call('XADD', changes, 'MAXLEN', '~', CHANGES, '*', 'added', tokens)
end
return #ARGV
