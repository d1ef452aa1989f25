"""Measures the dashboard with 2 million jobs and 200 workers: the response times of its pages, and Redis's slowest commands.

Prints a line per page, and fails if a page takes 300 ms (the median of five), or one of its Redis commands 10 ms."""

import argparse
import json
import statistics
import time
import urllib.request

from scene import Scene, token

FILL = """
local from, now, base = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local waiting, later, dead, invalid = {}, {}, {}, {}
for i = from, from + 999 do
  local job = string.format('{"id":"job-%d","token":"%064x","campaign":"c%d","enqueued_at":%d,'
    .. '"payload":{"aps":{"alert":{"title":"Order %d","body":"Your parcel is on its way."}}}}', i, i, i % 50, now - 60000, i)
  if i % 20 == 0 then
    dead[#dead + 1] = now - i % 86400000
    dead[#dead + 1] = '{"v":1,"reason":"PayloadTooLarge","failed_at":' .. now .. '}\\n' .. job
  elseif i % 10 == 1 then
    later[#later + 1] = now + 3600000 + i
    later[#later + 1] = job
    invalid[#invalid + 1] = string.format('%064x', i)
  else
    waiting[#waiting + 1] = job
  end
end
redis.call('RPUSH', base .. 'jobs', unpack(waiting))
redis.call('ZADD', base .. 'retry', unpack(later))
redis.call('ZADD', base .. 'dead', unpack(dead))
redis.call('SADD', ARGV[4], unpack(invalid))
"""

PAGES = ["/", "/?span=24h", "/?span=40d", "/search?q=job-1999998", "/search?q=absent", "/queues", "/queues/default",
         "/jobs", "/jobs?state=scheduled",
         "/jobs?state=retrying", "/jobs?id=job-1999998", "/jobs?match=absent", "/devices/" + token("", 1999998),
         "/campaigns", "/campaigns/c7", "/dead", "/dead?reason=PayloadTooLarge", "/dead?reason=Absent", "/apps",
         "/invalid", "/invalid?reason=Absent", "/workers", "/redis", "/try", "/activity", "/api/v1/status"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=200)
    parser.add_argument("--lanes", type=int, default=2)
    chosen = parser.parse_args()
    scene = Scene()
    try:
        scene.start_redis()
        scene.redis("PING")
        now = int(time.time() * 1000)
        for start in range(0, chosen.jobs, 1000):
            scene.redis("EVAL", FILL, 0, start, now, "push:{default}:", "push:{shared}:invalid-tokens")
        for number in range(chosen.workers):
            for lane in range(chosen.lanes):
                process = f"host-{number}.{1000 + number}.{number:08x}"
                scene.redis("ZADD", "push:{default}:workers", now + 900_000, f"{process}.{lane}")
                scene.redis("HSET", "push:{default}:worker-info", f"{process}.{lane}", json.dumps({
                    "v": 1, "updated_at": now + 60_000, "started_at": now - 3_600_000, "process": process,
                    "host": f"host-{number}", "pid": 1000 + number, "version": "0.1.0", "lane": lane,
                    "lanes": chosen.lanes, "state": "running", "in_flight": 12, "done": 5000, "delivered": 5000,
                    "rate": 40.0, "redis": "single", "apps": [
                        {"name": f"app-{app}", "endpoint": "api.push.apple.com:443", "usable": 2, "connecting": 0,
                         "streams": 12, "stream_limit": 1000, "token_issued_at": now - 60_000} for app in range(3)],
                    "more_apps": 0}))
        _, address = scene.start_web()
        scene.redis("CONFIG", "SET", "slowlog-log-slower-than", 1000, "slowlog-max-len", 1000)
        slow_pages, slow_commands = [], []
        for path in PAGES:
            scene.redis("SLOWLOG", "RESET")
            times = []
            for _ in range(5):
                begin = time.monotonic()
                with urllib.request.urlopen(address + path, timeout=60) as answer:
                    answer.read(1)
                    first = time.monotonic() - begin
                    size = 1 + len(answer.read())
                times.append(first * 1000)
                time.sleep(0.3)
            median = statistics.median(times)
            log = scene.redis("SLOWLOG", "GET", 1000)
            slowest = max(log, key=lambda one: one[2], default=None)
            command = ""
            if slowest:
                command = f"{slowest[2] / 1000:.1f} ms {' '.join(slowest[3][:4])[:70]!r}"
                if slowest[2] >= 10_000:
                    slow_commands.append(f"{path}: {command}")
            print(f"{median:7.0f} ms  {times[0]:7.0f} ms first  {size // 1024:5} KiB  {path[:60]:60}  {command}", flush=True)
            if median >= 300:
                slow_pages.append(f"{path}: {median:.0f} ms")
        print("slow pages:", "; ".join(slow_pages) or "none")
        print("slow commands:", "; ".join(slow_commands) or "none")
        raise SystemExit(1 if slow_pages or slow_commands else 0)
    finally:
        scene.close()


if __name__ == "__main__":
    main()
