import Foundation
import NIOCore
import TLS
import TestSupport
import Testing

@testable import APNSSimulator

extension APNSSimulatorServer {
    /// Sends frames to the gateway on a new connection.
    func connect(sending bytes: [UInt8]) async throws -> BinaryClient {
        let client = try await BinaryClient.connect(gatewayPort)
        try await client.send(bytes)
        return client
    }

    /// Checks that the gateway accepts one notification on a new connection.
    func acceptsOne() async throws {
        let accepted = account.gateway.accepted
        let client = try await connect(sending: GatewayBytes.frame(1))
        try await eventually("it is counted") { self.account.gateway.accepted == accepted + 1 }
        try await client.close()
    }
}

/// Runs a simulator with a gateway and a feedback service, for clients with certificates of the test authority.
func withGateway(
    _ rules: [String] = [], _ change: (inout SimulatorConfiguration) throws -> Void = { _ in },
    _ body: (APNSSimulatorServer) async throws -> Void
) async throws {
    try await withSimulator(asksForCertificates: true) {
        $0.gatewayPort = 0
        $0.feedbackPort = 0
        $0.gatewayRules = try rules.map { try GatewayRule($0) }
        try change(&$0)
    } _: {
        try await body($0)
    }
}

@Suite("The simulator's gateway", .timeLimit(.minutes(10)))
struct GatewayServerTests {
    @Test("accepts notifications and sends nothing until one is invalid")
    func packet() async throws {
        try await withGateway { server in
            let client = try await server.connect(sending: GatewayBytes.frame(1) + GatewayBytes.frame(2))
            try await eventually("both are counted") { server.account.gateway.accepted == 2 }
            #expect(client.received.isEmpty && client.isOpen)
            try await client.send(GatewayBytes.frame(3) + GatewayBytes.frame(4, token: []) + GatewayBytes.frame(5))
            let ending = try await client.ending()
            #expect(ending.bytes == GatewayBytes.packet(2, 4) && ending.isClean)
            let account = server.account
            #expect(account.accepted == 3 && account.gateway.dropped == 1 && account.requests == 0)
            #expect(account.gateway.connections == 1 && account.gateway.closes == 1)
        }
    }

    @Test("works with a third-party client")
    func foreign() async throws {
        try await withGateway { server in
            let frames = GatewayBytes.enhanced(0x4142_4344) + GatewayBytes.enhanced(0x4546_4748, payload: [])
            let result = try await Command.run(
                "/usr/bin/openssl",
                [
                    "s_client", "-quiet", "-connect", "127.0.0.1:\(try #require(server.gatewayPort))", "-CAfile",
                    try TestCertificates.path("ca.pem"), "-verify_return_error", "-cert",
                    try TestCertificates.path("client.pem"), "-key", try TestCertificates.path("client-key.pem"),
                ], input: Data(frames))
            #expect(result.output.hasSuffix("EFGH"))
            #expect(server.account.gateway.packets == ["4 MissingPayload": 1])
        }
    }

    @Test("completes the handshake of a client that it refuses, and closes", arguments: ["none", "other", "topic"])
    func refusesClients(_ fault: String) async throws {
        let workshop = try OpenSSLWorkshop()
        try workshop.openssl(
            "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "own-key.pem",
            "-out", "own.pem", "-subj", "/UID=com.example.app/CN=own")
        var configuration = TLSClientConfiguration()
        configuration.trust = .file(try TestCertificates.path("ca.pem"))
        configuration.identity = try TLSIdentity(
            certificateFile: workshop.path("own.pem"), keyFile: workshop.path("own-key.pem"))
        try await withGateway {
            if fault == "topic" { $0.topics = ["com.example.other"] }
        } _: { server in
            for port in [server.gatewayPort, server.feedbackPort] {
                let client =
                    switch fault {
                    case "none": try await BinaryClient.connect(port, identity: nil)
                    case "other": try await BinaryClient.connect(port, try TLSContext.client(configuration))
                    default: try await BinaryClient.connect(port)
                    }
                let ending = try await client.ending()
                #expect(ending.bytes.isEmpty && ending.isClean)
            }
            let account = server.account
            #expect(account.gateway.refusedClients == 1 && account.gateway.connections == 0)
            #expect(account.feedback.refusedClients == 1 && account.feedback.connections == 0)
        }
    }

    @Test("refuses such a client in the handshake if configured")
    func refusesHandshake() async throws {
        try await withGateway {
            $0.refusesHandshake = true
        } _: { server in
            for port in [server.gatewayPort, server.feedbackPort] {
                // With TLS 1.3, the client's handshake ends before the server's alert arrives.
                let client = try await BinaryClient.connect(port, identity: nil)
                let errors = try await client.ending().errors
                // Certificate required (RFC 8446, section 6.2).
                #expect(errors.compactMap { ($0 as? TLSError)?.kind } == [.alert(TLSAlert(code: 116))])
            }
            #expect(server.account.gateway.refusedClients == 1 && server.account.feedback.refusedClients == 1)
            try await server.acceptsOne()
        }
    }

    @Test("accepts any certificate if no authorities are configured, but no client without one")
    func anyCertificate() async throws {
        try await withGateway {
            $0.clientTrust = nil
        } _: { server in
            try await server.acceptsOne()
            let ending = try await BinaryClient.connect(server.gatewayPort, identity: nil).ending()
            #expect(ending.isClean && server.account.gateway.refusedClients == 1)
        }
    }

    @Test("resets, so that the client sees no clean end")
    func reset() async throws {
        try await withGateway(["answer=reset"]) { server in
            let ending = try await server.connect(sending: GatewayBytes.frame(1)).ending()
            #expect(ending.bytes.isEmpty && !ending.isClean)
            #expect(ending.errors.contains { ($0 as? IOError)?.errnoCode == ECONNRESET })
            #expect(server.account.gateway.resets == 1)
        }
    }

    @Test("hangs, so that a client can write until the buffers are full")
    func hang() async throws {
        try await withGateway(["prefix=dd,answer=hang"]) { server in
            let client = try await server.connect(sending: GatewayBytes.frame(1, to: 0xDD))
            try await eventually("it hangs") { server.account.gateway.hangs == 1 }
            // The frames are larger than the buffers of both sockets, so the write ends only if the server reads.
            let flood = Array(repeating: UInt8(0), count: 32 << 20)
            let write = Task { try await client.send(flood) }
            for round in 1...20 {
                try await server.connect(sending: GatewayBytes.frame(2, to: UInt8(round))).close()
            }
            try await eventually("other connections are served") { server.account.gateway.connections == 21 }
            #expect(server.account.gateway.bytesReceived < 2 << 20)
            #expect(client.isOpen)
            try await client.close()
            await #expect(throws: (any Error).self) { try await write.value }
        }
    }

    @Test("sends Shutdown with the last accepted notification when the server stops")
    func stops() async throws {
        var endings: [[UInt8]] = []
        var clients: [BinaryClient] = []
        try await withGateway { server in
            for identifier in [UInt32(0), 7] {
                let client = try await BinaryClient.connect(server.gatewayPort)
                if identifier > 0 { try await client.send(GatewayBytes.frame(identifier)) }
                clients.append(client)
            }
            try await eventually("one is counted") {
                server.account.gateway.accepted == 1 && server.account.gateway.connections == 2
            }
        }
        for client in clients { endings.append(try await client.ending().bytes) }
        #expect(endings == [GatewayBytes.packet(10, 0), GatewayBytes.packet(10, 7)])
    }
}
