import Foundation
import Logging
import Synchronization
import Telemetry
import Testing

@Suite("Writing the log")
struct LogOutputTests {
    private func logger(
        _ descriptor: Int32, _ format: LogFormat = .json, level: SharedLogLevel = SharedLogLevel(.info)
    ) -> Logger {
        let output = LogOutput(descriptor: descriptor)
        return Logger(label: "test") { LineLogHandler(label: $0, format: format, output: output, level: level) }
    }

    private func withFile(_ body: (Int32, URL) throws -> Void) throws {
        let file = FileManager.default.temporaryDirectory.appending(path: "log-\(UUID().uuidString)")
        let descriptor = open(file.path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        try #require(descriptor >= 0)
        defer {
            close(descriptor)
            try? FileManager.default.removeItem(at: file)
        }
        try body(descriptor, file)
    }

    @Test("keeps the lines of many threads separate, also those longer than a pipe accepts at once")
    func threads() throws {
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        let (reading, writing) = (ends[0], ends[1])
        let logger = logger(writing)
        let text = Mutex("")
        let hasEnded = DispatchSemaphore(value: 0)
        let reader = Thread {
            var bytes = [UInt8](repeating: 0, count: 1 << 16)
            var all: [UInt8] = []
            while case let count = read(reading, &bytes, bytes.count), count > 0 { all += bytes[..<count] }
            text.withLock { $0 = String(decoding: all, as: UTF8.self) }
            close(reading)
            hasEnded.signal()
        }
        reader.start()
        DispatchQueue.concurrentPerform(iterations: 8) { thread in
            for number in 0..<200 {
                let filler = String(repeating: "\(thread)", count: number % 2 == 0 ? 10 : 7000)
                logger.info("\(filler)", metadata: ["number": "\(thread).\(number)"])
            }
        }
        close(writing)
        hasEnded.wait()
        let lines = text.withLock { $0 }.split(separator: "\n")
        #expect(lines.count == 8 * 200)
        let numbers = try Set(
            lines.map { line in
                let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: String])
                #expect(Set(object["message"] ?? "").count == 1)
                return try #require(object["number"])
            })
        #expect(numbers.count == 8 * 200)
    }

    @Test("survives output that cannot be written: a full disk, a pipe without a reader")
    func lost() throws {
        let full = open("/dev/full", O_WRONLY | O_CLOEXEC)
        try #require(full >= 0)
        logger(full).error("lost")
        close(full)
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        close(ends[0])
        logger(ends[1]).error("lost")
        close(ends[1])
    }

    @Test("reports the number of lost lines as soon as it can")
    func loss() throws {
        try withFile { descriptor, file in
            let logger = logger(descriptor)
            logger.info("one")
            // The output becomes unavailable and returns.
            let full = open("/dev/full", O_WRONLY | O_CLOEXEC)
            let aside = dup(descriptor)
            dup2(full, descriptor)
            logger.info("two")
            logger.info("three")
            dup2(aside, descriptor)
            close(full)
            close(aside)
            logger.info("four")
            let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
            #expect(lines.count == 3)
            #expect(
                lines[1].contains(#""event":"log_lines_lost""#) && lines[1].contains(#""count":2"#)
                    && lines[2].contains("four"))
        }
    }

    @Test("uses a level that can be changed at any time, except for loggers with their own")
    func level() throws {
        try withFile { descriptor, file in
            let level = SharedLogLevel(.notice)
            let logger = logger(descriptor, .text, level: level)
            var own = logger
            own.logLevel = .error
            for (number, changed) in [Logger.Level.notice, .debug, .critical].enumerated() {
                level.level = changed
                #expect(logger.logLevel == changed && own.logLevel == .error)
                logger.info("info \(number)")
                own.warning("own \(number)")
                own.error("error \(number)")
            }
            let words = try String(contentsOf: file, encoding: .utf8).split(separator: "\n").map {
                $0.split(separator: " ").dropFirst(2).joined(separator: " ")
            }
            #expect(words == ["error 0", "info 1", "error 1", "error 2"])
        }
    }

    @Test("has the metadata of the logger and the line, which takes precedence")
    func metadata() throws {
        try withFile { descriptor, file in
            var logger = logger(descriptor, .text)
            logger[metadataKey: "app"] = "shop"
            logger[metadataKey: "queue"] = "default"
            logger.info("x", metadata: ["queue": "bulk"])
            let text = try String(contentsOf: file, encoding: .utf8)
            #expect(text.hasSuffix(" info x app=shop queue=bulk\n"))
        }
    }
}
