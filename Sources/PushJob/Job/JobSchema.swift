/// The JSON Schema (draft 2020-12) of a job as producers write it.
public enum JobSchema {
    /// The schema's text, which ends with a line feed.
    public static var text: String { String(decoding: PackageResources.job_schema_json, as: UTF8.self) }
}
