-- Adds an entry to the audit log. Works on a Redis whose memory is full, which is when operators act; the log is small,
-- and the oldest entries make room.
--
-- KEYS  1 audit           STREAM the last actions of operators
-- ARGV  1 max entries     the approximate number of entries that are kept
--       then the fields and values of the entry, a few short ones
-- Reply the entry's id, `<ms since 1970>-<number>`
--
-- Run twice, it adds two entries.

local audit, max_entries = KEYS[1], ARGV[1]

write_when_full(audit)
return redis.call('XADD', audit, 'MAXLEN', '~', max_entries, '*', unpack(ARGV, 2))
