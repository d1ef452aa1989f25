import Foundation
import TestSupport
import Testing

@testable import TLS

@Suite("A secret's source")
struct SecretSourceTests {
    private func refusal(_ source: SecretSource) -> String {
        do {
            let bytes = try source.read()
            Issue.record("\(bytes.count) bytes were read")
            return ""
        } catch {
            return error.description
        }
    }

    @Test("is a file, an environment variable's base64, or bytes")
    func kinds() throws {
        try withTemporaryDirectory { directory in
            let path = directory.appending(path: "key").path
            try Data([1, 2, 3]).write(to: URL(filePath: path))
            #expect(try SecretSource.file(path).read() == [1, 2, 3])
            try Data([4]).write(to: URL(filePath: path))
            #expect(try SecretSource.file(path).read() == [4])
        }
        #expect(try SecretSource.base64("AQID\n", name: "APNS_KEY").read() == [1, 2, 3])
        #expect(try SecretSource.bytes([1], name: "test").read() == [1])
    }

    @Test("that cannot be read is an error with the cause, the place and a suggestion")
    func unreadable() throws {
        try withTemporaryDirectory { directory in
            let path = directory.path
            let missing = refusal(.file("\(path)/none"))
            #expect(missing.contains("\(path)/none: No such file or directory"), "\(missing)")
            #expect(refusal(.file(path)).contains("\(path) is a directory"))
            try Data().write(to: URL(filePath: "\(path)/empty"))
            #expect(refusal(.file("\(path)/empty")).contains("\(path)/empty is empty"))
            #expect(refusal(.file("\(path)/empty/x")).contains("Not a directory"))
            #expect(mkfifo("\(path)/pipe", 0o600) == 0)
            #expect(refusal(.file("\(path)/pipe")).contains("not a regular file"))
            #expect(refusal(.file("/dev/zero")).contains("not a regular file"))
            #expect(symlink("loop", "\(path)/loop") == 0)
            #expect(refusal(.file("\(path)/loop")).contains("\(path)/loop"))
        }
        #expect(refusal(.file("")).contains("No such file"))
        #expect(refusal(.base64("", name: "APNS_KEY")).contains("APNS_KEY is empty"))
        #expect(refusal(.bytes([], name: "the bytes")).contains("the bytes is empty"))
    }

    @Test("that is not base64 is an error with the position, and without the contents")
    func notBase64() {
        let garbage = refusal(.base64("c2VjcmV0*secret", name: "APNS_KEY"))
        #expect(garbage.contains("APNS_KEY is not base64 from character 9 on"), "\(garbage)")
        #expect(!garbage.contains("secret") && !garbage.contains("c2Vj"))
        let pem = refusal(.base64("-----BEGIN PRIVATE KEY-----\n", name: "APNS_KEY"))
        #expect(pem.contains("PEM text as it is") && pem.contains("base64 -w0"), "\(pem)")
    }

    @Test("is at most 1 MiB, and no more is read")
    func size() throws {
        let limit = SecretSource.maximumSize
        try withTemporaryDirectory { directory in
            let file = directory.appending(path: "big")
            try Data(repeating: 7, count: limit).write(to: file)
            #expect(try SecretSource.file(file.path).read().count == limit)
            try Data(repeating: 7, count: limit + 1).write(to: file)
            #expect(refusal(.file(file.path)).contains("larger than 1 MiB"))
            // A sparse file of 1 TiB: reading all of it would never end.
            #expect(truncate(file.path, 1 << 40) == 0)
            #expect(refusal(.file(file.path)).contains("larger than 1 MiB"))
        }
        #expect(refusal(.bytes(Array(repeating: 7, count: limit + 1), name: "x")).contains("larger than 1 MiB"))
        let text = String(repeating: "A", count: 3 * limit)
        #expect(refusal(.base64(text, name: "X")).contains("larger than 1 MiB"))
    }

    @Test(
        "warns of a key that others may read, with the mode and what to do",
        arguments: [
            (0o600, nil), (0o400, nil), (0o700, nil), (0o640, "its group (mode 0640)"),
            (0o604, "everybody (mode 0604)"),
            (0o644, "its group and all other users (mode 0644)"), (0o444, "(mode 0444)"), (0o620, nil),
        ] as [(mode_t, String?)])
    func permissions(mode: mode_t, expected: String?) throws {
        try withTemporaryDirectory { directory in
            let path = directory.appending(path: "key.p8").path
            try Data([1]).write(to: URL(filePath: path))
            #expect(chmod(path, mode) == 0)
            // Mounted secrets are chains of symbolic links, whose own mode is always 0777.
            #expect(symlink("key.p8", "\(directory.path)/..data") == 0)
            #expect(symlink("..data", "\(directory.path)/linked") == 0)
            for name in [path, "\(directory.path)/linked"] {
                let warning = SecretSource.file(name).permissionsWarning()
                #expect((warning == nil) == (expected == nil), "\(warning ?? "none")")
                if let expected, let warning {
                    #expect(warning.contains(expected) && warning.contains("chmod 600 \(name)"), "\(warning)")
                }
            }
        }
    }

    @Test("that is not a readable file has no permissions to warn of")
    func withoutPermissions() {
        for source in [
            SecretSource.file("/nowhere"), .file("/tmp"), .base64("AA==", name: "X"), .bytes([1], name: "x"),
        ] { #expect(source.permissionsWarning() == nil) }
    }

    @Test("shows no contents when printed")
    func printed() throws {
        let sources: [SecretSource] = [
            .base64("c2VjcmV0", name: "APNS_KEY"), .bytes(Array("secret".utf8), name: "raw"),
        ]
        let secrets = ["c2VjcmV0", "secret", "115"]
        for subject in sources.map({ $0 as Any }) + [sources, SecretWatch(sources, inUse: [[1], [2]])] as [Any] {
            for text in try shownTexts(of: subject) {
                for secret in secrets { #expect(!text.contains(secret), "\(text)") }
            }
        }
        #expect("\(SecretSource.file("/run/secrets/key.p8"))" == "/run/secrets/key.p8")
    }
}
