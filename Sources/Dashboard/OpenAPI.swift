enum OpenAPI { static func text(base: String) -> String { "{}" } }
