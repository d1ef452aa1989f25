import APNS
import ArgumentParser
import FoundationEssentials
import Glibc
import NIOCore
import Operations
import PushWorker

/// The options that select an app's channels, and the form of output.
struct ChannelOptions: ParsableArguments {
    @OptionGroup(title: "App") var settings: SettingFlags<WorkerFlags<AppFlags>>
    @OptionGroup(title: "Binary gateway (--transport gateway)") var gateway: SettingFlags<WorkerFlags<GatewayFlags>>

    @Option(help: "App. (default: the only app)")
    var app: String?

    @OptionGroup var server: SettingFlags<ChannelFlags>

    @Flag(help: "Print JSON.")
    var json = false

    /// Returns the app whose channels are managed.
    private func configuration(_ all: Settings) throws -> AppConfiguration {
        let apps = try WorkerSettings(all).apps()
        let names = apps.map(\.name).joined(separator: ", ")
        guard let app else {
            guard apps.count == 1 else {
                throw CommandFailure(.usage, "there are several apps: choose one with --app \(names)")
            }
            return apps[0]
        }
        guard let chosen = apps.first(where: { $0.name == app }) else {
            throw CommandFailure(.usage, "unknown app \(app); known apps: \(names)")
        }
        return chosen
    }

    private func endpoint(of app: AppConfiguration, _ all: Settings) throws -> APNSEndpoint {
        guard let given = all.given(.managementEndpoint, app: app.name) else { return app.endpoint.channelManagement }
        return try given.endpoint { APNSEndpoint(channelManagement: $0) }
    }

    /// Returns the client that manages the app's channels.
    func place() throws -> ChannelPlace {
        let all = try server.settings(settings.given, gateway.given)
        let app = try configuration(all)
        guard !app.usesGateway else {
            throw CommandFailure(
                .configuration,
                "the app \(app.name) uses the binary gateway, which does not support channels; choose an app whose "
                    + "transport is http2")
        }
        let bundleID: BundleID
        do {
            bundleID = try BundleID(topic: app.topic)
        } catch {
            throw CommandFailure(.configuration, "\(error)")
        }
        var dialer = Dialer(
            endpoint: try endpoint(of: app, all), tls: try app.tlsContext(for: app.credential), proxy: app.proxy)
        dialer.connectTimeout = .milliseconds(Int64(app.connectTimeout))
        let client = ChannelClient(
            bundleID: bundleID, dialer, providerTokens: app.credential.tokenSources,
            requestTimeout: .milliseconds(Int64(app.requestTimeout)), wallClock: { Int64(time(nil)) })
        return ChannelPlace(client: client, environment: app.endpoint.environment)
    }

    /// Prints the result: a sentence, or everything as JSON.
    func report(_ sentence: String, _ report: ChannelReport) throws {
        guard json else { return print(sentence) }
        print(try JSONLine.text(report))
    }
}

/// The channels of one app in one environment.
struct ChannelPlace {
    let client: ChannelClient
    /// `production`, `sandbox`, or a server's address.
    let environment: String

    /// Sends a request to APNs.
    /// - Throws: ``CommandFailure``.
    func ask<Answer>(_ body: (ChannelClient) async throws -> Answer) async throws -> Answer {
        do {
            return try await body(client)
        } catch let error as ChannelManagementError {
            throw CommandFailure(Self.status(error), "\(error)")
        } catch {
            // APNs did not answer.
            throw CommandFailure(.unavailable, "\(error)")
        }
    }

    private static func status(_ error: ChannelManagementError) -> ExitStatus {
        switch error {
        case .malformedID: .usage
        case .unexpected: .unavailable
        case .refused(let refusal):
            switch refusal.response.status {
            case 401, 403: .refused
            case 429, 500...: .unavailable
            default: .attention
            }
        }
    }

    /// The channels, for sentences.
    var words: String { "\(client.bundleID) (\(environment))" }

    /// A report without a channel.
    var report: ChannelReport { ChannelReport(bundleID: client.bundleID.description, environment: environment) }
}

/// The JSON report of a command.
struct ChannelReport: Encodable {
    let bundleID: String
    let environment: String
    var channel: String?
    var channels: [String]?
    var storage: String?
    var pushType: String?
    var isDeleted: Bool?

    enum CodingKeys: String, CodingKey {
        case bundleID = "bundle_id"
        case environment, channel, channels, storage
        case pushType = "push_type"
        case isDeleted = "deleted"
    }
}

/// The storage policies of channels, by their names on the command line.
enum ChannelStorage: String, CaseIterable, ExpressibleByArgument {
    case none
    case latest

    var policy: MessageStoragePolicy { self == .none ? .none : .mostRecent }

    static func word(_ policy: MessageStoragePolicy) -> String {
        allCases.first { $0.policy == policy }?.rawValue ?? "\(policy.rawValue)"
    }

    static func sentence(_ policy: MessageStoragePolicy) -> String {
        switch policy {
        case .none: "keeps no messages"
        case .mostRecent: "keeps the latest message"
        default: "has the message storage policy \(policy.rawValue)"
        }
    }
}
