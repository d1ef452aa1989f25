import Dispatch
import Glibc
import Sockets

/// The signals that control the simulator, as a stream.
struct Signals {
    enum Request {
        case stop, writeAccount
    }

    let stream: AsyncStream<Request>
    private let sources: [any DispatchSourceSignal]

    init() {
        let (stream, continuation) = AsyncStream.makeStream(of: Request.self)
        self.stream = stream
        // The simulator must survive when the reader of the recording closes the pipe.
        signal(SIGPIPE, SIG_IGN)
        let requests: [(Int32, Request)] = [(SIGTERM, .stop), (SIGINT, .stop), (SIGUSR1, .writeAccount)]
        sources = requests.map { number, request in
            // The default action would end the process before the source is notified.
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number)
            source.setEventHandler { continuation.yield(request) }
            source.resume()
            return source
        }
    }
}

/// Writes lines to standard output without buffering, because the reader of a pipe waits for each line.
enum StandardOutput {
    static func write(_ line: String) {
        let limit = ContinuousClock.now + .seconds(1)
        _ = DescriptorOutput.write(line + "\n", to: STDOUT_FILENO) { ContinuousClock.now < limit }
    }
}

/// Writes messages to standard error.
enum StandardError {
    static func write(_ line: String) { DescriptorOutput.note(line + "\n") }
}
