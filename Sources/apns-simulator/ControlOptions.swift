import APNSSimulator
import ArgumentParser

/// How an application's own tests steer the simulator, and learn what it received.
struct ControlOptions: ParsableArguments {
    @Option(
        help: ArgumentHelp(
            "Listen for control requests on this port, HTTP/1.1 in the clear; 0 takes a free one. See CONTROL.",
            valueName: "port"))
    var controlPort: UInt16?

    @Option(
        help: ArgumentHelp(
            "Address of the control port. It is unauthenticated and returns every payload. (default: 127.0.0.1)",
            valueName: "address"))
    var controlHost: String?

    @Option(
        help: ArgumentHelp(
            "Append each notification to this file as it arrives, one line of JSON each; - is standard output.",
            valueName: "file"))
    var record: String?

    @Option(help: ArgumentHelp("Number of notifications that the control port keeps.", valueName: "number"))
    var recordLimit = Recorder.defaultLimit

    func validate() throws {
        guard controlHost == nil || controlPort != nil else {
            throw ValidationError("--control-host needs --control-port")
        }
        guard recordLimit >= 1 else { throw ValidationError("--record-limit must be at least 1") }
    }

    /// The file of `--record`, opened.
    func recordFile() throws -> RecordFile? {
        try record.map { path in
            try RecordFile(path: path) { StandardError.write("apns-simulator: \($0)") }
        }
    }

    func apply(to configuration: inout SimulatorConfiguration, file: RecordFile?) {
        configuration.controlPort = controlPort.map(Int.init)
        if let controlHost { configuration.controlHost = controlHost }
        if controlPort != nil || file != nil { configuration.recorder = Recorder(limit: recordLimit, file: file) }
    }
}
