import ArgumentParser
import PushJob
import PushQueue

struct Schema: ParsableCommand {
    static let configuration = CommandConfiguration(
        abstract: "Print the JSON Schema of a job (draft 2020-12).",
        discussion: """
            For producers: validators, code generators and editors take it. What it cannot say, such as the payload's size, \
            `check --job FILE` does.

              apns-worker schema > job.schema.json
            """)

    func run() { print(JobSchema.text, terminator: "") }
}
