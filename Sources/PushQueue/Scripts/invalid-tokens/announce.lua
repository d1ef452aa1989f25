-- Announces invalid tokens to the processes that keep a filter of them. A process that adds tokens announces them before it counts them as
-- added. It also announces those that it found in the set, because the process that added them may have ended before its announcement.
--
-- KEYS  1 invalid-tokens:changes  STREAM of a bounded number of entries
-- ARGV  1 tokens...               lower-case hex with commas between them, an entry each
-- Reply the number of entries
-- Needs: base invalid-tokens

local changes = KEYS[1]

local wrong = wrong_type({ [changes] = 'stream' })
if wrong then
    return wrong
end

write_when_full(changes)
for _, tokens in ipairs(ARGV) do
    announce_tokens(changes, 'added', tokens)
end
return #ARGV
