import Foundation
import Logging
import Synchronization
import Telemetry
import Testing

@Suite("Writing the log")
struct LogOutputTests {
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
        let output = LogOutput(descriptor: writing, format: .json)
        let logger = Logger(label: "test", factory: output.handlers(SharedLogLevel(.info)))
        let reader = PipeReader(reading)
        DispatchQueue.concurrentPerform(iterations: 8) { thread in
            for number in 0..<50 {
                let filler = String(repeating: "\(thread)", count: number % 5 == 0 ? 7000 : 10)
                logger.info("\(filler)", metadata: ["number": "\(thread).\(number)"])
            }
        }
        output.flush(within: .seconds(60))
        close(writing)
        let lines = reader.text().split(separator: "\n")
        #expect(lines.count == 8 * 50)
        let numbers = try Set(
            lines.map { line in
                let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: String])
                #expect(Set(object["message"] ?? "").count == 1)
                return try #require(object["number"])
            })
        #expect(numbers.count == 8 * 50)
    }

    @Test("An output that cannot be written, such as a full disk or a pipe without a reader, has no further effects")
    func lost() throws {
        let full = open("/dev/full", O_WRONLY | O_CLOEXEC)
        try #require(full >= 0)
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        close(ends[0])
        for descriptor in [full, ends[1]] {
            let output = LogOutput(descriptor: descriptor, format: .json)
            Logger(label: "test", factory: output.handlers(SharedLogLevel(.info))).error("lost")
            output.flush(within: .seconds(60))
            #expect(output.lost == 1)
            close(descriptor)
        }
    }

    @Test("The number of lost lines is reported as soon as lines can be written again")
    func loss() throws {
        try withFile { descriptor, file in
            let output = LogOutput(descriptor: descriptor, format: .json)
            let logger = Logger(label: "test", factory: output.handlers(SharedLogLevel(.info)))
            logger.info("one")
            output.flush(within: .seconds(60))
            // The output becomes unavailable and returns.
            let full = open("/dev/full", O_WRONLY | O_CLOEXEC)
            let aside = dup(descriptor)
            dup2(full, descriptor)
            logger.info("two")
            logger.info("three")
            output.flush(within: .seconds(60))
            dup2(aside, descriptor)
            close(full)
            close(aside)
            logger.info("four")
            output.flush(within: .seconds(60))
            let lines = try String(contentsOf: file, encoding: .utf8).split(separator: "\n")
            #expect(lines.count == 3)
            #expect(
                lines[1].contains(#""event":"log_lines_lost""#) && lines[1].contains(#""count":2"#)
                    && lines[2].contains("four"))
        }
    }

    @Test("Logging never waits for a reader that has stalled; excess lines are counted, and the others stay whole")
    func stalled() throws {
        var ends: [Int32] = [-1, -1]
        try #require(pipe(&ends) == 0)
        let output = LogOutput(descriptor: ends[1], format: .json)
        let logger = Logger(label: "test", factory: output.handlers(SharedLogLevel(.info)))
        let total = 5_000
        // Several times the size of the buffer. If logging waited, the test would not end.
        for number in 0..<total {
            logger.info("\(String(repeating: "x", count: 300))", metadata: ["number": "\(number)"])
        }
        output.flush(within: .milliseconds(10))
        let lost = output.lost
        #expect(lost > 0 && lost < total)
        let reader = PipeReader(ends[0])
        output.flush(within: .seconds(60))
        close(ends[1])
        var (numbers, reported): ([Int], [Int]) = ([], [])
        for line in reader.text().split(separator: "\n") {
            let object = try #require(try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
            if object["event"] as? String == "log_lines_lost" {
                reported.append(try #require(object["count"] as? Int))
            } else {
                numbers.append(try #require((object["number"] as? String).flatMap { Int($0) }))
            }
        }
        #expect(reported == [lost] && numbers.count == total - lost && numbers == numbers.sorted())
    }

    @Test("uses a level that can be changed at any time, except for loggers with their own")
    func level() throws {
        try withFile { descriptor, file in
            let level = SharedLogLevel(.notice)
            let output = LogOutput(descriptor: descriptor, format: .text)
            let logger = Logger(label: "test", factory: output.handlers(level))
            var own = logger
            own.logLevel = .error
            for (number, changed) in [Logger.Level.notice, .debug, .critical].enumerated() {
                level.level = changed
                #expect(logger.logLevel == changed && own.logLevel == .error)
                logger.info("info \(number)")
                own.warning("own \(number)")
                own.error("error \(number)")
            }
            output.flush(within: .seconds(60))
            let words = try String(contentsOf: file, encoding: .utf8).split(separator: "\n").map {
                $0.split(separator: " ").dropFirst(2).joined(separator: " ")
            }
            #expect(words == ["error 0", "info 1", "error 1", "error 2"])
        }
    }

    @Test("has the metadata of the logger and the line, which takes precedence")
    func metadata() throws {
        try withFile { descriptor, file in
            let output = LogOutput(descriptor: descriptor, format: .text)
            var logger = Logger(label: "test", factory: output.handlers(SharedLogLevel(.info)))
            logger[metadataKey: "app"] = "shop"
            logger[metadataKey: "queue"] = "default"
            logger.info("x", metadata: ["queue": "bulk"])
            output.flush(within: .seconds(60))
            let text = try String(contentsOf: file, encoding: .utf8)
            #expect(text.hasSuffix(" info x app=shop queue=bulk\n"))
        }
    }
}

/// Reads a pipe to its end in a thread, and closes it.
private final class PipeReader: Sendable {
    private let bytes = Mutex<[UInt8]>([])
    private let hasEnded = DispatchSemaphore(value: 0)

    init(_ descriptor: Int32) {
        let reader = Thread { [self] in
            var portion = [UInt8](repeating: 0, count: 1 << 16)
            while case let count = read(descriptor, &portion, portion.count), count > 0 {
                bytes.withLock { $0 += portion[..<count] }
            }
            close(descriptor)
            hasEnded.signal()
        }
        reader.start()
    }

    func text() -> String {
        hasEnded.wait()
        return String(decoding: bytes.withLock { $0 }, as: UTF8.self)
    }
}
