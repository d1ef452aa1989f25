import PushQueue

// What a worker that runs takes up of another configuration.
extension WorkerConfiguration {
    /// This configuration with everything of another one that a worker that runs can take up: the apps, and when and how often
    /// is tried again.
    func reloaded(from other: WorkerConfiguration) -> WorkerConfiguration {
        var merged = self
        merged.apps = other.apps
        merged.retry = other.retry
        merged.appPause = other.appPause
        return merged
    }
}

/// What became of the apps when a configuration was loaded anew, by name.
public struct ReloadReport: Sendable, Equatable {
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    public var added: [String] = []
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    public var changed: [String] = []
    // swift-format-ignore: AllPublicDeclarationsHaveDocumentation
    public var removed: [String] = []

    init(from old: [AppConfiguration], to new: [AppConfiguration]) {
        for app in new {
            guard let before = old.first(where: { $0.name == app.name }) else {
                added.append(app.name)
                continue
            }
            if AppDifference(from: before, to: app).isChanged { changed.append(app.name) }
        }
        removed = old.map(\.name).filter { name in !new.contains { $0.name == name } }
    }
}
