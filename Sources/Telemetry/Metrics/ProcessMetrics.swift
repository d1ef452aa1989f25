import Glibc
import Sockets

/// The resource usage of the process, under the names used by Prometheus' client libraries.
///
/// Source: Prometheus, "Writing client libraries", standard and runtime collectors: process metrics. Values that cannot
/// be read are left out.
public enum ProcessMetrics {
    private static let processor = Metric(
        "process_cpu_seconds_total", .counter, "Processor time of the process, user and system, in seconds.")
    private static let residentMemory = Metric(
        "process_resident_memory_bytes", .gauge, "Memory of the process that is in RAM, in bytes.")
    private static let virtualMemory = Metric(
        "process_virtual_memory_bytes", .gauge, "Address space of the process, in bytes.")
    private static let openFiles = Metric("process_open_fds", .gauge, "Open file descriptors.")
    private static let maximumFiles = Metric(
        "process_max_fds", .gauge, "Maximum number of open file descriptors.")
    private static let startTime = Metric(
        "process_start_time_seconds", .gauge, "Start time of the process in seconds since 1970.")

    /// Measures everything once.
    public static func measure(on page: inout MetricsPage) {
        func set(_ metric: Metric, _ value: Double?) { if let value { page.set(metric, value) } }
        var usage = rusage()
        if getrusage(thisProcess, &usage) == 0 {
            set(processor, seconds(usage.ru_utime) + seconds(usage.ru_stime))
        }
        let fields = statusFields
        set(virtualMemory, fields.count > 20 ? fields[20] : nil)
        set(residentMemory, fields.count > 21 ? fields[21].map { $0 * pageSize } : nil)
        set(startTime, start)
        set(openFiles, openFileCount())
        set(maximumFiles, DescriptorLimit.current.map(Double.init))
    }

    /// The start of the process in seconds since 1970; `nil` if it is unknown.
    private static let start: Double? = {
        let fields = statusFields
        return fields.count > 19 ? startTime(ticks: fields[19]) : nil
    }()

    /// The start of the process in seconds since 1970, to a millisecond; now if it is unknown.
    public static let started = ((start ?? Double(time(nil))) * 1000).rounded() / 1000

    /// The numbers in `/proc/self/stat`, from field 3 on.
    private static var statusFields: [Double?] {
        // The command's name, which can contain anything, ends at the last parenthesis.
        guard let stat = contents("/proc/self/stat"), let end = stat.lastIndex(of: ")") else { return [] }
        return stat[end...].split(separator: " ").dropFirst().map { Double($0) }
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

    private static func openFileCount() -> Double? {
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
