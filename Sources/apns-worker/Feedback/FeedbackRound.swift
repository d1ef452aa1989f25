import Glibc
import NIOCore

/// Writes to Redis the records that an earlier run left in the spill file, then reads the feedback services of all apps
/// once, concurrently, so that a slow one does not delay the others.
struct FeedbackRound: Sendable {
    let choices: [FeedbackApp.Choice]
    let context: FeedbackDrain.Context
    /// True to show the progress on standard error.
    let showsProgress: Bool

    func run() async -> FeedbackRoundReport {
        var report = FeedbackRoundReport(apps: [])
        if await context.spill.hasLeftovers, let path = context.spill.path {
            var file = FeedbackFile(path, context)
            report.apps.append(await file.run())
            if report.isGood { await context.spill.leftoversAreWritten() }
        }
        // If the leftovers were not written, the services are not read, so they keep their records.
        if report.isGood { report.apps += await drainAll() }
        report.exec = await context.outputs.command?.finish()
        if let list = context.outputs.list, let failure = await list.failure {
            report.listError = "standard output: \(failure); \(await list.lostLines) records are not listed"
        }
        return report
    }

    private func drainAll() async -> [FeedbackReport] {
        let drawing = showsProgress ? Task { await draw() } : nil
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

    private func draw() async {
        var drawn = ""
        while !Task.isCancelled {
            let apps = choices.count == 1 ? choices[0].name : "\(choices.count) apps"
            let line = "\(apps): \(context.progress.records) records read"
            if line != drawn { Terminal.note("\r\(line)\u{1B}[K") }
            drawn = line
            do { try await Task.sleep(for: .milliseconds(100)) } catch { break }
        }
        Terminal.note("\r\u{1B}[K")
    }
}
