import Foundation

/// The files of the repository that is tested.
package enum Repository {
    package static let root = URL(filePath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .deletingLastPathComponent()

    package static func path(_ name: some StringProtocol) -> String { root.appending(path: name).path }

    package static func text(_ name: some StringProtocol) throws -> String {
        try String(contentsOfFile: path(name), encoding: .utf8)
    }
}
