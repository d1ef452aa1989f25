import Dispatch
import Glibc

/// The signals the simulator lives by, as a stream.
struct Signals {
    enum Request {
        case stop, writeAccount
    }

    let stream: AsyncStream<Request>
    private let sources: [any DispatchSourceSignal]

    init() {
        let (stream, continuation) = AsyncStream.makeStream(of: Request.self)
        self.stream = stream
        // Whoever reads the recording may go; the simulator stays.
        signal(SIGPIPE, SIG_IGN)
        let requests: [(Int32, Request)] = [(SIGTERM, .stop), (SIGINT, .stop), (SIGUSR1, .writeAccount)]
        sources = requests.map { number, request in
            // The default would end the process before the source sees anything.
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number)
            source.setEventHandler { continuation.yield(request) }
            source.resume()
            return source
        }
    }
}

/// A line to a file descriptor at once: standard output into a pipe is buffered, and the reader waits for the line.
enum StandardOutput {
    static func write(_ line: String) { writeLine(line, to: STDOUT_FILENO) }
}

/// Lines for people.
enum StandardError {
    static func write(_ line: String) { writeLine(line, to: STDERR_FILENO) }
}

private func writeLine(_ line: String, to descriptor: Int32) {
    let bytes = Array((line + "\n").utf8)
    var offset = 0
    while offset < bytes.count {
        let count = bytes[offset...].withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
        // Nobody reads: there is nobody to tell.
        guard count > 0 else { return }
        offset += count
    }
}
