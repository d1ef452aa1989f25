import Foundation
import TestSupport
import Testing

@testable import TLS

@Suite("A watch over secrets")
struct SecretWatchTests {
    private struct Bad: Error {}

    struct Story: Sendable, CustomTestStringConvertible {
        let testDescription: String
        /// The contents of the file at each look, `nil` for a missing file; and the beginning of the result.
        let looks: [(contents: String?, result: String)]
    }

    static let stories = [
        Story(
            testDescription: "two looks in a row find the change",
            looks: [
                ("old", "unchanged"), ("old", "unchanged"), ("new", "unchanged"), ("new", "renewed new"),
                ("new", "unchanged"), ("old", "unchanged"), ("old", "renewed old"),
            ]),
        Story(
            testDescription: "a file that keeps changing, or changes back",
            looks: ["new", "newer", "new", "newer", "new", "old", "new", "old"].map { ($0, "unchanged") }),
        Story(
            testDescription: "unusable contents are refused once, until they change",
            looks: [
                ("bad", "unchanged"), ("bad", "failed Bad()"), ("bad", "unchanged"), ("bad", "unchanged"),
                ("new", "unchanged"), ("new", "renewed new"), ("bad", "unchanged"), ("bad", "failed Bad()"),
            ]),
        Story(
            testDescription: "unusable contents are refused again if those in use were present in between",
            looks: [
                ("bad", "unchanged"), ("bad", "failed Bad()"), ("old", "unchanged"), ("bad", "unchanged"),
                ("bad", "failed Bad()"),
            ]),
        Story(
            testDescription: "an unreadable file is reported once for each problem",
            looks: [
                (nil, "failed cannot read"), (nil, "unchanged"), ("", "failed file is empty"), ("", "unchanged"),
                ("old", "unchanged"), (nil, "failed cannot read"),
                // Contents that were seen before a failure must be found twice again.
                ("new", "unchanged"), (nil, "failed cannot read"), ("new", "unchanged"), ("new", "renewed new"),
            ]),
    ]

    @Test("builds again when a file has changed for good, and otherwise keeps the old one", arguments: stories)
    func looks(story: Story) throws {
        try withTemporaryDirectory { directory in
            let file = directory.appending(path: "file")
            try Data("old".utf8).write(to: file)
            let sources = [SecretSource.file(file.path), .bytes([9], name: "passphrase")]
            var watch = SecretWatch(sources, inUse: try sources.map { try $0.read() })
            #expect(watch.canChange)
            var inUse = "old"
            for (number, look) in story.looks.enumerated() {
                if let contents = look.contents {
                    try Data(contents.utf8).write(to: file)
                } else if FileManager.default.fileExists(atPath: file.path) {
                    try FileManager.default.removeItem(at: file)
                }
                let renewal = watch.renew { contents in
                    let text = String(decoding: contents[0], as: UTF8.self)
                    #expect(contents == [Array(text.utf8), [9]])
                    if text == "bad" { throw Bad() }
                    return text
                }
                let result: String
                switch renewal {
                case .unchanged: result = "unchanged"
                case .renewed(let text):
                    result = "renewed \(text)"
                    inUse = text
                case .failed(let error): result = "failed \(error)".replacing("\(directory.path)/", with: "")
                }
                #expect(result.hasPrefix(look.result), "look \(number): \(result)")
                #expect(watch.isInUse == (look.contents == inUse), "look \(number)")
            }
        }
    }

    @Test("has nothing to watch if no source is a file")
    func constant() {
        #expect(!SecretWatch([.base64("AQ==", name: "X"), .bytes([1], name: "x")], inUse: [[1], [1]]).canChange)
    }
}
