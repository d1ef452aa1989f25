import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("The memory of a process with secrets")
    struct ProcessMemoryTests {
        /// No Redis listens at this address, so the commands wait for it.
        private static let environment = ["APNS_WORKER_REDIS_URL": "redis://127.0.0.1:1"]

        /// Returns the owner of a process's files in /proc, who may read its memory and its environment. The process runs as an ordinary
        /// user.
        private static func owner(_ command: [String]) async throws -> uid_t {
            // The files of a process of root always belong to root.
            let setpriv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
            let line = (geteuid() == 0 ? setpriv : []) + command
            let process = try ChildProcess(line, environment: environment)
            let name = command[0].split(separator: "/").last.map(String.init) ?? ""
            let directory = "/proc/\(process.processIdentifier)"
            try await eventually("\(name) runs") {
                let line = try String(contentsOfFile: directory + "/comm", encoding: .utf8)
                return line == "\(name)\n"
            }
            if name == "apns-worker" {
                // The process prints this text once it works.
                try await eventually("\(name) works") { process.errors.contains("Redis") }
            }
            var status = stat()
            guard stat(directory + "/environ", &status) == 0 else { throw process.failure("it has ended") }
            return status.st_uid
        }

        @Test("another process of the same user cannot read it, and there is no core dump")
        func owner() async throws {
            #expect(try await Self.owner(["sleep", "600"]) == (geteuid() == 0 ? 65534 : geteuid()))
            let program = try BuiltProgram.path("apns-worker")
            #expect(try await Self.owner([program, "run", "--simulate"]) == 0)
            #expect(try await Self.owner([program, "feedback", "--from", "-"]) == 0)
        }
    }
}
