/// The version of the program, wherever it is told.
public enum WorkerVersion {
    /// Such as `1.2.3`.
    public static let current = "0.1.0"
}
