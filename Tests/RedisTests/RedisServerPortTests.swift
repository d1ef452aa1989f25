import Foundation
import TestSupport
import Testing

@Suite("A redis-server of the tests", .timeLimit(.minutes(10)))
struct RedisServerPortTests {
    @Test("starts on the next port when another server has the first", arguments: [false, true])
    func takenPort(cluster: Bool) throws {
        let other = try RedisServer(cluster: cluster)
        var attempts = 0
        let server = try RedisServer(cluster: cluster) {
            attempts += 1
            return attempts == 1 ? other.port : try RedisServer.freePort()
        }
        #expect(attempts > 1 && server.port != other.port)
        let processIdentifier = try #require(server.processIdentifier)
        #expect(try server.run("INFO", "server").text?.contains("process_id:\(processIdentifier)\r\n") == true)
        #expect(try other.run("PING") == .status("PONG"))
    }

    @Test("waits for its old port when another server has it for a while")
    func takenOnRestart() throws {
        let server = try RedisServer()
        server.stop()
        let port = server.port
        let other = try RedisServer { port }
        Thread.detachNewThread {
            while !server.log.contains("Address already in use") { usleep(10_000) }
            other.stop()
        }
        try server.start()
        #expect(try server.run("PING") == .status("PONG"))
        #expect(other.processIdentifier == nil)
    }
}
