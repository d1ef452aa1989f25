import Foundation
import PackagePlugin

/// Embeds a module's resources, such as its Lua scripts, as constants of its `PackageResources`. The constants are string literals, which
/// compile at once. The package manager's own `.embedInCode` makes lists of integers, which took the compiler a minute.
@main
struct EmbedResources: BuildToolPlugin {
    func createBuildCommands(context: PluginContext, target: Target) throws -> [Command] {
        let files = FileManager.default.enumerator(at: target.directoryURL, includingPropertiesForKeys: nil)?
            .compactMap { $0 as? URL }
            .filter { ["lua", "js", "css", "svg", "json", "txt"].contains($0.pathExtension) }
            .sorted { $0.path < $1.path }
        guard let files, !files.isEmpty else { throw NoFiles(target: target.name) }
        let script = context.package.directoryURL.appending(path: "Sources/EmbedResources/embed")
        let output = context.pluginWorkDirectoryURL.appending(path: "PackageResources.swift")
        return [
            .buildCommand(
                displayName: "Embedding the resources of \(target.name)", executable: URL(filePath: "/bin/sh"),
                arguments: [script.path, output.path] + files.map(\.path), inputFiles: [script] + files,
                outputFiles: [output])
        ]
    }

    private struct NoFiles: Error, CustomStringConvertible {
        let target: String
        var description: String { "the module \(target) has no file to embed" }
    }
}
