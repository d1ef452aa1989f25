import CoreMetrics
import Glibc
import NIOConcurrencyHelpers
import Sockets

/// What the process costs, under the names that Prometheus' own client libraries give it.
///
/// Source: Prometheus, "Writing client libraries", standard and runtime collectors: process metrics. What cannot be read is
/// left out.
package final class ProcessMetrics: Sendable {
    /// What the metrics are.
    package static let families = [
        MetricFamily("process_cpu_seconds_total", help: "Processor time of the process, user and system, in seconds."),
        MetricFamily("process_resident_memory_bytes", help: "Memory of the process that is in RAM, in bytes."),
        MetricFamily("process_virtual_memory_bytes", help: "Address space of the process, in bytes."),
        MetricFamily("process_open_fds", help: "Open file descriptors."),
        MetricFamily("process_max_fds", help: "How many file descriptors the process may have open."),
        MetricFamily("process_start_time_seconds", help: "When the process began, in seconds since 1970."),
    ]

    private let factory: any MetricsFactory
    private let processor: any FloatingPointCounterHandler
    /// What the counter has, in seconds.
    private let processorTime = NIOLockedValueBox(0.0)

    /// - Parameter factory: where it is measured.
    package init(factory: any MetricsFactory) {
        self.factory = factory
        processor = factory.makeFloatingPointCounter(label: "process_cpu_seconds_total", dimensions: [])
    }

    /// Measures everything once.
    package func measure() {
        var usage = rusage()
        if getrusage(Self.thisProcess, &usage) == 0 {
            let time = Self.seconds(usage.ru_utime) + Self.seconds(usage.ru_stime)
            let new = processorTime.withLockedValue { counted in
                defer { counted = max(time, counted) }
                return time - counted
            }
            if new > 0 { processor.increment(by: new) }
        }
        // The command's name, which may hold anything, ends with the last parenthesis; behind it is field 3.
        if let stat = Self.contents("/proc/self/stat"), let end = stat.lastIndex(of: ")") {
            let fields = stat[end...].split(separator: " ").dropFirst().map { Double($0) }
            set("process_virtual_memory_bytes", fields.count > 20 ? fields[20] : nil)
            set("process_resident_memory_bytes", fields.count > 21 ? fields[21].map { $0 * Self.pageSize } : nil)
            set("process_start_time_seconds", fields.count > 19 ? Self.startTime(ticks: fields[19]) : nil)
        }
        set("process_open_fds", Self.openFiles())
        set("process_max_fds", DescriptorLimit.current.map(Double.init))
    }

    private func set(_ name: String, _ value: Double?) {
        if let value { factory.makeMeter(label: name, dimensions: []).set(value) }
    }

    private static let thisProcess = __rusage_who_t(RUSAGE_SELF.rawValue)

    private static var pageSize: Double { Double(sysconf(Int32(_SC_PAGESIZE))) }

    private static func seconds(_ time: timeval) -> Double { Double(time.tv_sec) + Double(time.tv_usec) / 1e6 }

    private static func startTime(ticks: Double?) -> Double? {
        guard let ticks, let stat = contents("/proc/stat"),
            let line = stat.split(separator: "\n").first(where: { $0.hasPrefix("btime ") }),
            let boot = Double(line.dropFirst(6))
        else { return nil }
        return boot + ticks / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    private static func openFiles() -> Double? {
        guard let directory = opendir("/proc/self/fd") else { return nil }
        defer { closedir(directory) }
        // `.`, `..`, and the directory itself.
        var count = -3.0
        while readdir(directory) != nil { count += 1 }
        return max(0, count)
    }

    private static func contents(_ path: String) -> String? {
        let file = open(path, O_RDONLY | O_CLOEXEC)
        guard file >= 0 else { return nil }
        defer { close(file) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 4096)
        while true {
            let count = read(file, &chunk, chunk.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0 else { break }
            bytes += chunk[..<count]
        }
        return bytes.isEmpty ? nil : String(decoding: bytes, as: UTF8.self)
    }
}
