package enum WorkerVersion {
    /// The release, such as `1.2.3`.
    package static let release = "0.1.0"

    /// The release and the commit, such as `1.2.3+a1b2c3d4e5f6`; only the release in a build from a work tree.
    ///
    /// `git archive` writes the commit into the file that is embedded here. Packages are built from an archive.
    package static let current: String = {
        let commit = String(decoding: PackageResources.commit_txt, as: UTF8.self).prefix { $0.isHexDigit }
        return commit.isEmpty ? release : "\(release)+\(commit.prefix(12))"
    }()
}
