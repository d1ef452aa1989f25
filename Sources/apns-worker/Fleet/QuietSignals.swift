import Dispatch
import Glibc
import PushWorker
import ServiceLifecycle

/// SIGTSTP makes a worker quiet, and SIGCONT ends that.
struct QuietSignals: Service {
    private let worker: Worker

    init(_ worker: Worker) { self.worker = worker }

    func run() async throws {
        // Else the first of them would stop the process, with its leases. SIGCONT lets a stopped process go on all the same.
        let sources = [(SIGTSTP, "SIGTSTP"), (SIGCONT, "SIGCONT")].map { number, name in
            signal(number, SIG_IGN)
            let source = DispatchSource.makeSignalSource(signal: number)
            source.setEventHandler { [worker] in worker.setQuiet(number == SIGTSTP, because: name) }
            source.resume()
            return source
        }
        try? await gracefulShutdown()
        for source in sources { source.cancel() }
    }
}
