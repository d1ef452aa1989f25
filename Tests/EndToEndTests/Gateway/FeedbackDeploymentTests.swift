import Foundation
import TestSupport
import Testing

extension EndToEnd {
    @Suite("Feedback by systemd, cron and Kubernetes")
    struct FeedbackDeploymentTests {
        /// Returns the arguments of the command in a file. /var/lib/apns-worker becomes another directory.
        private static func arguments(_ name: String, _ directory: String) throws -> [String] {
            for line in try DeployFolder.text(name).split(separator: "\n") where !line.hasPrefix("#") {
                if let match = line.firstMatch(of: /args: \[(.*)\]/) {
                    return match.1.replacing("/var/lib/apns-worker", with: directory).split(separator: ", ")
                        .map { $0.trimmingCharacters(in: ["\""]) }
                }
                guard let match = line.firstMatch(of: /apns-worker (feedback .*)$/) else { continue }
                return match.1.replacing("/var/lib/apns-worker", with: directory).split(separator: " ").map(String.init)
            }
            throw ChildProcess.Failure(description: "\(name) has no command")
        }

        static let files = [
            "systemd/apns-worker-feedback.service", "cron/apns-worker-feedback",
            "helm/apns-worker/templates/feedback-cronjob.yaml",
        ]

        @Test("the command in each file reads the feedback service", arguments: files)
        func command(file: String) async throws {
            let scene = try await FeedbackScene(script: FeedbackScene.sending(0..<10))
            let arguments = try Self.arguments(file, scene.redis.directory.path)
            #expect(arguments.first == "feedback" && arguments.count > 1, "\(arguments)")
            // systemd sets the variable for its StateDirectory.
            let elsewhere = file.hasPrefix("systemd/") ? [:] : ["STATE_DIRECTORY": "/does/not/exist"]
            try await CommandLineTests.run(arguments, environment: scene.environment.merging(elsewhere) { $1 })
                .succeeds()
            #expect(try scene.has(0..<10))
            // The command keeps its records in the directory of the deployment's state.
            #expect(FileManager.default.fileExists(atPath: scene.spill.path))
        }

        @Test("the variables in each file are known to the program", arguments: files)
        func variables(file: String) async throws {
            let help = try await CommandLineTests.run(["feedback", "--help-hidden"]).output
            let named = try DeployFolder.text(file).matches(of: /APNS_WORKER_[A-Z_]+/).map { String($0.0) }
            #expect(named.count > 2)
            for variable in Set(named) {
                // The variable must be a word, not a part of another variable's name.
                let isKnown = help.split { !($0.isLetter || $0.isNumber || $0 == "_") }.contains { $0 == variable }
                #expect(isKnown, "\(variable)")
            }
        }

        @Test("systemd accepts the units")
        func units() async throws {
            let folder = try TemporaryFolder()
            let paths = try ["service", "timer"].map { kind in
                let name = "apns-worker-feedback.\(kind)"
                // systemd-analyze checks that the program exists.
                let text = try DeployFolder.text("systemd/\(name)")
                return try folder.write(text.replacing("/usr/local/bin/apns-worker", with: "/bin/true"), as: name)
            }
            let verify = try ChildProcess("systemd-analyze", ["verify", "--man=no"] + paths)
            #expect(try await verify.wait() == .exited(0))
            #expect(verify.errors.isEmpty, "\(verify.errors)")
        }
    }
}
