import FoundationEssentials
import Glibc
import LegacyAPNS
import Logging
import NIOCore
import Operations
import PushQueue
import ServiceLifecycle
import Synchronization

/// Reads the feedback services once, or periodically until the process receives a signal to end.
final class FeedbackService: Service {
    private let choices: [FeedbackApp.Choice]
    private let options: Feedback
    private let context: FeedbackDrain.Context
    private let interval: TimeAmount?
    /// True if the last round failed.
    let hasFailed = Atomic(false)

    init(
        _ choices: [FeedbackApp.Choice], _ options: Feedback, _ context: FeedbackDrain.Context,
        every interval: TimeAmount?
    ) {
        (self.choices, self.options, self.context, self.interval) = (choices, options, context, interval)
    }

    func run() async throws {
        let stop = context.stop
        try await withGracefulShutdownHandler {
            guard options.from == nil, let interval else { return try await ask() }
            var schedule = FeedbackSchedule(interval: interval, now: .now(), random: Double.random(in: 0..<1))
            while true {
                let pause = schedule.next - .now()
                await cancelWhenGracefulShutdown {
                    do {
                        try await Task.sleep(for: .nanoseconds(max(0, pause.nanoseconds)))
                    } catch {
                        // The process must end.
                    }
                }
                if stop.isStopped { break }
                try await ask()
                schedule.finished(now: .now())
            }
        } onGracefulShutdown: {
            stop.stop()
        }
    }

    private func ask() async throws {
        var context = context
        context.progress = FeedbackProgress()
        let patience = Duration.nanoseconds(context.silence.nanoseconds)
        if options.list {
            context.outputs.list = LineOutput(
                STDOUT_FILENO, closesDescriptor: false, patience: patience, stop: context.stop)
        }
        context.outputs.command = options.exec.map {
            ExecCommand($0, variables: options.execEnv, patience: patience, stop: context.stop)
        }
        let report: FeedbackRoundReport
        if let path = options.from {
            var file = FeedbackFile(path, context)
            report = FeedbackRoundReport(apps: [await file.run()])
        } else {
            report = await round(context)
        }
        hasFailed.store(!report.isGood, ordering: .relaxed)
        try printReport(report)
    }

    /// Writes the records that an earlier run left in the spill file to Redis. Then reads the feedback services of all apps once,
    /// concurrently, so that a slow one does not delay the others.
    private func round(_ context: FeedbackDrain.Context) async -> FeedbackRoundReport {
        var report = FeedbackRoundReport(apps: [])
        if await context.spill.hasLeftovers, let path = context.spill.path {
            var file = FeedbackFile(path, context)
            report.apps.append(await file.run())
            if report.isGood { await context.spill.leftoversAreWritten() }
        }
        // If the leftovers were not written, the services are not read, so they keep their records.
        if report.isGood { report.apps += await drainAll(context) }
        report.exec = await context.outputs.command?.finish()
        if let list = context.outputs.list, let failure = await list.failure {
            report.listError = "standard output: \(failure); \(await list.lostLines) records are not listed"
        }
        return report
    }

    private func drainAll(_ context: FeedbackDrain.Context) async -> [FeedbackReport] {
        let showsProgress = !options.quiet && !options.json && isatty(STDERR_FILENO) == 1
        let drawing = showsProgress ? Task { await draw(context.progress) } : nil
        let reports = await withTaskGroup(of: (Int, FeedbackReport).self) { group in
            for (index, choice) in choices.enumerated() {
                group.addTask {
                    switch choice.app {
                    case .failure(let error):
                        var report = FeedbackReport(app: choice.name)
                        report.error = error.message
                        return (index, report)
                    case .success(let app):
                        var drain = FeedbackDrain(app, context)
                        return (index, await drain.run())
                    }
                }
            }
            return await group.reduce(into: []) { $0.append($1) }
        }
        drawing?.cancel()
        await drawing?.value
        return reports.sorted { $0.0 < $1.0 }.map(\.1)
    }

    private func draw(_ progress: FeedbackProgress) async {
        var drawn = ""
        while !Task.isCancelled {
            let apps = choices.count == 1 ? choices[0].name : "\(choices.count) apps"
            let line = "\(apps): \(progress.records) records read"
            if line != drawn { Terminal.note("\r\(line)\u{1B}[K") }
            drawn = line
            do { try await Task.sleep(for: .milliseconds(100)) } catch { break }
        }
        Terminal.note("\r\u{1B}[K")
    }

    private func printReport(_ report: FeedbackRoundReport) throws {
        for app in report.apps {
            if let error = app.error { Terminal.note("\(app.app): FAILED: \(error)\n") }
        }
        if let error = report.exec?.error { Terminal.note("--exec: FAILED: \(error)\n") }
        if let error = report.listError { Terminal.note("--list: FAILED: \(error)\n") }
        if options.json {
            if !options.quiet || report.apps.contains(where: \.isEventful) { print(try report.json()) }
        } else {
            for app in report.apps
            where app.records > 0 || app.incompleteBytes > 0 || (app.error == nil && !options.quiet) {
                // With --list, standard output is for the records.
                if options.list { Terminal.note("\(app.line)\n") } else { print(app.line) }
            }
        }
    }
}

/// The outputs for records besides Redis.
struct FeedbackOutputs: Sendable {
    /// Standard output, for `--list`.
    var list: LineOutput?
    var command: ExecCommand?

    /// True if there is any output.
    var isWanted: Bool { list != nil || command != nil }

    /// Writes records to all outputs; a slow one does not delay the others.
    func write(_ lines: ByteBuffer, count: Int) async {
        async let listed: Void? = list?.write(lines, count: count)
        async let handed: Void? = command?.write(lines, count: count)
        _ = await (listed, handed)
    }
}

/// The number of records read so far, for all apps.
final class FeedbackProgress: Sendable {
    private let count = Atomic(0)

    var records: Int { count.load(ordering: .relaxed) }

    func add(_ records: Int) { count.add(records, ordering: .relaxed) }
}

// MARK: Reports

/// The result of reading one app's feedback service.
struct FeedbackReport: Encodable, Sendable {
    let app: String
    var topic: String?
    var environment: String?
    var endpoint: String?
    /// The number of complete tuples read.
    var records = 0
    var added = 0
    var known = 0
    var registeredSince = 0
    /// The number of records that Redis did not accept.
    var spilled = 0
    /// The number of bytes of an incomplete tuple.
    var incompleteBytes = 0
    /// The number of tuples without a token.
    var withoutToken = 0
    var seconds = 0.0
    /// The reason why the service was not read to its end, or not all records were written.
    var error: String?

    /// Counts the result for a record; `nil` if Redis did not accept it.
    mutating func count(_ marking: InvalidToken.Marking?) {
        switch marking {
        case .added: added += 1
        case .known: known += 1
        case .registeredSince: registeredSince += 1
        case nil: spilled += 1
        }
    }

    mutating func ended(after time: Duration) {
        let parts = time.components
        seconds = Double(parts.seconds * 1000 + parts.attoseconds / 1_000_000_000_000_000) / 1000
    }

    /// The result as a line of text.
    var line: String {
        var parts = ["\(added) added", "\(known) already known"]
        if registeredSince > 0 { parts.append("\(registeredSince) skipped, registered since") }
        if spilled > 0 { parts.append("\(spilled) NOT WRITTEN to Redis") }
        if withoutToken > 0 { parts.append("\(withoutToken) without a token") }
        if incompleteBytes > 0 { parts.append("\(incompleteBytes) bytes of an incomplete record") }
        return "\(app): \(records == 1 ? "1 record" : "\(records) records"): \(parts.joined(separator: ", ")); "
            + "\(seconds) s"
    }

    /// True if there is something to report even in quiet mode.
    var isEventful: Bool { records > 0 || error != nil || incompleteBytes > 0 || withoutToken > 0 }
}

/// The result of reading all apps' feedback services.
struct FeedbackRoundReport: Sendable {
    var apps: [FeedbackReport]
    /// The result of the program that received the records.
    var exec: ExecCommand.Ending?
    /// The error of standard output, if any.
    var listError: String?

    var isGood: Bool { apps.allSatisfy { $0.error == nil } && exec?.error == nil && listError == nil }

    func json() throws -> String {
        struct Object: Encodable {
            let apps: [FeedbackReport]
            let exec: ExecCommand.Ending?
            let listError: String?
            let ok: Bool
        }
        return try JSONLine.text(
            Object(apps: apps, exec: exec, listError: listError, ok: isGood), keys: .convertToSnakeCase)
    }
}
