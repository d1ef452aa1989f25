-- Adds an entry to the audit log.
--
-- KEYS  1 audit           STREAM the last actions on all queues
-- ARGV  1 max entries     the approximate number of entries that are kept
--       then any number of (field value)...
-- Reply                   the id of the entry
--
-- Run twice, it adds a second entry.

local audit, max_entries = KEYS[1], ARGV[1]

local wrong = wrong_type({ [audit] = 'stream' })
if wrong then
    return wrong
end
write_when_full(audit)
return redis.call('XADD', audit, 'MAXLEN', '~', max_entries, '*', unpack(ARGV, 2))
