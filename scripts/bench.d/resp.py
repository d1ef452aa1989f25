"""A minimal Redis client."""

import socket


class RedisError(Exception):
    pass


class Redis:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = self.socket.makefile("rb")
        self.commands = 0

    def close(self):
        self.reader.close()
        self.socket.close()

    def send(self, *arguments):
        parts = [b"*%d\r\n" % len(arguments)]
        for argument in arguments:
            data = argument if isinstance(argument, bytes) else str(argument).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
        self.socket.sendall(b"".join(parts))

    def __call__(self, *arguments):
        self.send(*arguments)
        self.commands += 1
        return self.reply()

    def reply(self):
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise RedisError("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b":":
            return int(rest)
        if kind == b"-":
            raise RedisError(rest.decode())
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self.reader.read(size + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        raise RedisError(f"not a reply of Redis: {line!r}")

    def info(self, section):
        text = self("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)

    def cpu_us(self):
        """Returns the CPU time of the server in microseconds."""
        info = self.info("cpu")
        return 1e6 * (float(info["used_cpu_user"]) + float(info["used_cpu_sys"]))

    def written(self):
        """Returns the bytes that Redis has sent to all clients."""
        return int(self.info("stats")["total_net_output_bytes"])

    def others_calls(self):
        """Returns the number of commands that other clients and their scripts have called."""
        own = self.commands
        return calls(self.info("commandstats")) - own

    def others_reads(self):
        """Returns how often the server has read from other clients. One read may contain several commands."""
        own = self.commands
        return int(self.info("stats")["total_reads_processed"]) - own


def calls(commandstats):
    """Returns the number of calls of all commands in a section of INFO: {"cmdstat_rpush": "calls=5,usec=…"}."""
    return sum(int(fields.split(",")[0].removeprefix("calls=")) for fields in commandstats.values())
