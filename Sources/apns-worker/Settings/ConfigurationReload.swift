import APNS
import ArgumentParser
import Glibc
import Logging
import PushWorker
import ServiceLifecycle
import Telemetry
import UnixSignals

/// Applies a changed configuration to a running worker: at SIGHUP, and when the file has changed.
final class ConfigurationReload: Service {
    /// The interval between checks of the file. A changed file is read after two checks.
    private static let interval = Duration.seconds(5)

    private let worker: Worker
    private let load: @Sendable () throws -> (Settings, WorkerConfiguration)
    private let level: SharedLogLevel
    private let systemd: SystemdNotifier?
    private let logger: Logger
    private let initial: Settings
    private let hangups: UnixSignalsSequence
    private let file: FileIdentity?

    /// - Parameters:
    ///   - hangups: SIGHUPs, trapped before the settings were read, so that no change is missed.
    ///   - initial: the settings with which the worker was started.
    ///   - systemd: notified of each reload; `nil` without systemd.
    ///   - load: reads all settings again.
    init(
        _ worker: Worker, at hangups: UnixSignalsSequence, initial: Settings, level: SharedLogLevel,
        systemd: SystemdNotifier?, logger: Logger,
        load: @escaping @Sendable () throws -> (Settings, WorkerConfiguration)
    ) {
        self.worker = worker
        self.initial = initial
        self.hangups = hangups
        file = initial.filePath.flatMap(FileIdentity.init)
        self.level = level
        self.systemd = systemd
        self.logger = logger
        self.load = load
    }

    func run() async throws {
        let path = initial.filePath
        await cancelWhenGracefulShutdown {
            await withTaskGroup(of: Void.self) { group in
                let (reasons, continuation) = AsyncStream.makeStream(
                    of: String.self, bufferingPolicy: .bufferingNewest(1))
                group.addTask { for await _ in self.hangups { continuation.yield("SIGHUP") } }
                if let path {
                    group.addTask {
                        var changes = FileChanges(self.file)
                        // A cancelled sleep ends the loop.
                        while (try? await Task.sleep(for: Self.interval)) != nil {
                            if changes.update(FileIdentity(path)) { continuation.yield("\(path) has changed") }
                        }
                    }
                }
                var current = self.initial
                for await reason in reasons {
                    if let new = await self.reload(from: current, because: reason) { current = new }
                }
                group.cancelAll()
            }
        }
    }

    /// - Returns: the settings that are then in force; `nil` if the new ones could not be used.
    private func reload(from old: Settings, because reason: String) async -> Settings? {
        await systemd?.reloadBegan()
        do {
            let (settings, configuration) = try load()
            let report = try await worker.reload(configuration)
            worker.recordReload(problem: nil)
            if let text = settings.text(.logLevel), let new = Logger.Level(rawValue: text) { level.level = new }
            log(report, try difference(old, settings), reason)
            await systemd?.reloadEnded()
            return settings
        } catch {
            let sentence = (error as? ValidationError)?.message ?? "\(error)"
            worker.recordReload(problem: sentence)
            logger.error(
                "the configuration was not reloaded; the previous one stays in force: \(sentence)",
                metadata: ["event": "configuration_refused", "reason": "\(reason)"])
            await systemd?.reloadEnded()
            return nil
        }
    }

    private func log(_ report: ReloadReport, _ keys: (reloaded: [String], left: [String]), _ reason: String) {
        var metadata: Logger.Metadata = ["event": "configuration_reloaded", "reason": "\(reason)"]
        for (name, values) in [
            ("apps_added", report.added), ("apps_changed", report.changed), ("apps_removed", report.removed),
            ("changed", keys.reloaded),
        ] where !values.isEmpty {
            metadata[name] = "\(values.joined(separator: ", "))"
        }
        logger.notice("configuration reloaded", metadata: metadata)
        guard !keys.left.isEmpty else { return }
        logger.warning(
            "these settings have changed and need a restart: \(keys.left.joined(separator: ", "))",
            metadata: ["event": "restart_needed", "reason": "\(reason)"])
    }

    /// Returns the names of the settings that have changed.
    private func difference(_ old: Settings, _ new: Settings) throws -> (reloaded: [String], left: [String]) {
        let before = try EffectiveSettings(old, includesDefaults: true)
        let after = try EffectiveSettings(new, includesDefaults: true)
        var (reloaded, left): ([String], [String]) = ([], [])
        for key in Set(before.values.keys).union(after.values.keys).sorted() {
            guard before.values[key]?.text != after.values[key]?.text else { continue }
            let isReloadable = (before.values[key] ?? after.values[key])?.isReloadable ?? false
            if isReloadable { reloaded.append(key) } else { left.append(key) }
        }
        return (reloaded, left)
    }
}

/// The facts that show that a file was changed or replaced. Links are followed, because Kubernetes mounts files as links.
struct FileIdentity: Equatable {
    private let device: UInt64
    private let inode: UInt64
    private let size: Int64
    private let seconds: Int
    private let nanoseconds: Int

    /// - Returns: `nil` if there is no file.
    init?(_ path: String) {
        var facts = stat()
        guard stat(path, &facts) == 0 else { return nil }
        device = UInt64(facts.st_dev)
        inode = UInt64(facts.st_ino)
        size = Int64(facts.st_size)
        seconds = facts.st_mtim.tv_sec
        nanoseconds = facts.st_mtim.tv_nsec
    }
}

/// Detects that a file has changed and is complete: a check may happen while it is being written. No I/O.
struct FileChanges {
    private var known: FileIdentity?
    private var seen: FileIdentity?

    init(_ identity: FileIdentity?) {
        known = identity
        seen = identity
    }

    /// Records the result of a check. A missing file (`nil`) is ignored.
    /// - Returns: true if the file must be read, because it differs from the known one and did not change since the last check.
    mutating func update(_ identity: FileIdentity?) -> Bool {
        defer { seen = identity }
        guard let identity, identity != known, identity == seen else { return false }
        known = identity
        return true
    }
}
