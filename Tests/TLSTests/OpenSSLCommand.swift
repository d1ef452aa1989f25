import Foundation
import TestSupport

/// An `openssl` command that runs beside a test and is controlled over its standard input and output.
final class OpenSSLCommand {
    /// The command ended before it printed the expected text.
    struct Ended: Error, CustomStringConvertible {
        let description: String
    }

    private let process = Process()
    private let input: FileHandle
    private var chunks: AsyncStream<String>.Iterator
    /// The output so far, on standard output and error.
    private(set) var output = ""

    init(_ arguments: [String]) throws {
        let (standardInput, standardOutput) = (try ChildPipe(), try ChildPipe())
        input = standardInput.writing
        let (stream, continuation) = AsyncStream.makeStream(of: String.self)
        chunks = stream.makeAsyncIterator()
        // The shell joins both outputs, because Foundation sometimes never reports the end of one pipe for both.
        process.executableURL = URL(filePath: "/bin/sh")
        process.arguments = ["-c", "exec openssl \"$@\" 2>&1", "sh"] + arguments
        process.standardInput = standardInput.reading
        process.standardOutput = standardOutput.writing
        try process.run()
        try standardInput.reading.close()
        try standardOutput.writing.close()
        Thread.detachNewThread {
            while case let data = standardOutput.reading.availableData, !data.isEmpty {
                continuation.yield(String(decoding: data, as: UTF8.self))
            }
            continuation.finish()
        }
    }

    deinit { if process.isRunning { process.terminate() } }

    func send(_ text: String) throws { try input.write(contentsOf: Data(text.utf8)) }

    func hangUp() throws { try input.close() }

    /// Waits until the command has printed a text.
    func expect(_ text: String) async throws {
        while !output.contains(text) {
            guard let chunk = await chunks.next() else {
                throw Ended(description: "openssl ended without \"\(text)\": \(output)")
            }
            output += chunk
        }
    }

    /// Waits until the command has ended.
    func end() async { while let chunk = await chunks.next() { output += chunk } }

    /// Starts a server on a free port.
    static func server(_ arguments: [String]) async throws -> (command: OpenSSLCommand, port: Int) {
        let certificate = try [
            "-cert", TestCertificates.path("server.pem"), "-key", TestCertificates.path("server-key.pem"),
        ]
        let command = try OpenSSLCommand(["s_server", "-accept", "127.0.0.1:0"] + certificate + arguments)
        let text = try await command.line(after: "ACCEPT 127.0.0.1:")
        guard let port = Int(text) else { throw Ended(description: "openssl names no port: \(text)") }
        return (command, port)
    }

    /// Waits until the command has printed a text, and returns the rest of its line.
    private func line(after beginning: String) async throws -> String {
        try await expect(beginning)
        while true {
            if let start = output.firstRange(of: beginning)?.upperBound,
                let end = output[start...].firstIndex(where: \.isNewline)
            {
                return String(output[start..<end])
            }
            guard let chunk = await chunks.next() else { throw Ended(description: "openssl ended: \(output)") }
            output += chunk
        }
    }
}
