/// Texts that are JSON and texts that are not, derived from the grammar of RFC 8259 section by section.
///
/// The names follow the convention of parsing suites: `y_` must be accepted, `n_` must be refused.
package struct JSONCase: Sendable {
    /// The name; it begins with `y_` or `n_`.
    package let name: String
    /// The document.
    package let bytes: [UInt8]

    init(_ name: String, _ text: String) {
        self.init(name, Array(text.utf8))
    }

    init(_ name: String, _ bytes: [UInt8]) {
        self.name = name
        self.bytes = bytes
    }

    /// Raw bytes between the quotes of a string in an array.
    init(_ name: String, string bytes: [UInt8]) {
        self.init(name, Array(#"[""#.utf8) + bytes + Array(#""]"#.utf8))
    }

    /// True for valid JSON.
    package var isGood: Bool { name.hasPrefix("y_") }
}

extension JSONCase {
    /// All cases.
    package static let all = structure + objects + arrays + numbers + literals + strings + utf8

    static let structure: [JSONCase] = [
        JSONCase("y_structure_lonely_string", #""a""#),
        JSONCase("y_structure_lonely_number", "42"),
        JSONCase("y_structure_lonely_negative", "-0.5"),
        JSONCase("y_structure_lonely_true", "true"),
        JSONCase("y_structure_lonely_null", "null"),
        JSONCase("y_structure_empty_string", #""""#),
        JSONCase("y_structure_whitespace_around", " \t\r\n[ \t\r\n] \t\r\n"),
        JSONCase("y_structure_trailing_newline", "[1]\n"),
        JSONCase("y_structure_depth_64", String(repeating: "[", count: 64) + String(repeating: "]", count: 64)),
        JSONCase(
            "y_structure_depth_64_mixed",
            String(repeating: #"{"a":["#, count: 32) + "1" + String(repeating: "]}", count: 32)),
        JSONCase("n_structure_depth_65", String(repeating: "[", count: 65) + String(repeating: "]", count: 65)),
        JSONCase("n_structure_100000_open_arrays", String(repeating: "[", count: 100_000)),
        JSONCase("n_structure_50000_open_array_objects", String(repeating: #"[{"":"#, count: 50_000)),
        JSONCase("n_structure_empty", ""),
        JSONCase("n_structure_only_whitespace", " \n"),
        JSONCase("n_structure_byte_order_mark", "\u{FEFF}{}"),
        JSONCase("n_structure_byte_order_mark_alone", "\u{FEFF}"),
        JSONCase("n_structure_byte_order_mark_inside", "[\u{FEFF}1]"),
        JSONCase("n_structure_no_break_space", "[\u{A0}1]"),
        JSONCase("n_structure_form_feed", "[\u{0C}1]"),
        JSONCase("n_structure_vertical_tab", "[\u{0B}1]"),
        JSONCase("n_structure_word_joiner", "[\u{2060}]"),
        JSONCase("n_structure_nul", "[\0]"),
        JSONCase("n_structure_nul_after", "[]\0"),
        JSONCase("n_structure_two_values", "[] []"),
        JSONCase("n_structure_two_numbers", "1 2"),
        JSONCase("n_structure_trailing_hash", "{}#"),
        JSONCase("n_structure_trailing_bracket", "[]]"),
        JSONCase("n_structure_trailing_brace", "{}}"),
        JSONCase("n_structure_trailing_comma", "[],"),
        JSONCase("n_structure_line_comment", "[1]//a"),
        JSONCase("n_structure_block_comment", "[/*a*/1]"),
        JSONCase("n_structure_open_array", "["),
        JSONCase("n_structure_open_object", "{"),
        JSONCase("n_structure_close_array", "]"),
        JSONCase("n_structure_close_object", "}"),
        JSONCase("n_structure_crossed_brackets", #"[{"a":1]}"#),
        JSONCase("n_structure_object_closed_by_bracket", #"{"a":1]"#),
        JSONCase("n_structure_array_closed_by_brace", "[1}"),
        JSONCase("n_structure_angle_brackets", "<>"),
        JSONCase("n_structure_lone_comma", ","),
        JSONCase("n_structure_lone_colon", ":"),
        JSONCase("n_structure_lone_quote", "\""),
        JSONCase("n_structure_lone_apostrophe", "'"),
        JSONCase("n_structure_escaped_bracket", #"\u005B]"#),
        JSONCase("n_structure_utf16le", [0x5B, 0x00, 0x5D, 0x00]),
        JSONCase("n_structure_utf16be_with_mark", [0xFE, 0xFF, 0x00, 0x5B, 0x00, 0x5D]),
        JSONCase("n_structure_invalid_byte", [0x5B, 0xE5, 0x5D]),
        JSONCase("n_structure_ascii_art_brace", "{]"),
    ]

    static let objects: [JSONCase] = [
        JSONCase("y_object_empty", "{}"),
        JSONCase("y_object_empty_with_space", "{ }"),
        JSONCase("y_object_one", #"{"a":1}"#),
        JSONCase("y_object_spaces", #" { "a" : 1 , "b" : [ ] } "#),
        JSONCase("y_object_newlines", "{\n\"a\"\n:\n1\n}"),
        JSONCase("y_object_empty_name", #"{"":0}"#),
        JSONCase("y_object_same_name_twice", #"{"a":1,"a":2}"#),
        JSONCase("y_object_escaped_name", #"{"a\u0062\n":1}"#),
        JSONCase("y_object_long_name", #"{""# + String(repeating: "x", count: 5000) + #"":1}"#),
        JSONCase("y_object_nested", #"{"a":{"b":{"c":[{}]}}}"#),
        JSONCase("n_object_number_as_name", "{1:1}"),
        JSONCase("n_object_bare_name", "{a:1}"),
        JSONCase("n_object_apostrophes", "{'a':1}"),
        JSONCase("n_object_null_as_name", "{null:1}"),
        JSONCase("n_object_array_as_name", "{[]:1}"),
        JSONCase("n_object_missing_value", #"{"a":}"#),
        JSONCase("n_object_missing_colon", #"{"a" 1}"#),
        JSONCase("n_object_missing_colon_and_value", #"{"a"}"#),
        JSONCase("n_object_comma_for_colon", #"{"a",1}"#),
        JSONCase("n_object_equals_for_colon", #"{"a"=1}"#),
        JSONCase("n_object_two_colons", #"{"a"::1}"#),
        JSONCase("n_object_trailing_comma", #"{"a":1,}"#),
        JSONCase("n_object_trailing_comma_and_space", "{\"a\":1,\n}"),
        JSONCase("n_object_two_trailing_commas", #"{"a":1,,}"#),
        JSONCase("n_object_two_commas", #"{"a":1,,"b":2}"#),
        JSONCase("n_object_leading_comma", #"{,"a":1}"#),
        JSONCase("n_object_only_comma", "{,}"),
        JSONCase("n_object_missing_comma", #"{"a":1 "b":2}"#),
        JSONCase("n_object_two_values", #"{"a":1 2}"#),
        JSONCase("n_object_unclosed", #"{"a":1"#),
        JSONCase("n_object_unclosed_after_comma", #"{"a":1,"#),
        JSONCase("n_object_unclosed_after_colon", #"{"a":"#),
        JSONCase("n_object_unclosed_name", #"{"a"#),
        JSONCase("n_object_unclosed_after_name", #"{"a""#),
        JSONCase("n_object_garbage_after_value", #"{"a":"b"c}"#),
        JSONCase("n_object_comment_after", #"{"a":1/**/}"#),
        JSONCase("n_object_name_not_utf8", Array(#"{""#.utf8) + [0xB9] + Array(#"":0}"#.utf8)),
    ]

    static let arrays: [JSONCase] = [
        JSONCase("y_array_empty", "[]"),
        JSONCase("y_array_empty_string", #"[""]"#),
        JSONCase("y_array_nested_empty", "[[]   ]"),
        JSONCase("y_array_false", "[false]"),
        JSONCase("y_array_mixed", #"[null, 1, "1", {}]"#),
        JSONCase("y_array_several_null", "[1,null,null,null,2]"),
        JSONCase("y_array_space_before", " [1]"),
        JSONCase("y_array_space_after_element", "[2 ]"),
        JSONCase("y_array_10000_elements", "[" + String(repeating: "0,", count: 9999) + "0]"),
        JSONCase("n_array_trailing_comma", "[1,]"),
        JSONCase("n_array_trailing_comma_and_newline", "[1,\n]"),
        JSONCase("n_array_only_comma", "[,]"),
        JSONCase("n_array_leading_comma", "[,1]"),
        JSONCase("n_array_two_commas", "[1,,2]"),
        JSONCase("n_array_two_trailing_commas", "[1,,]"),
        JSONCase("n_array_missing_comma", "[1 true]"),
        JSONCase("n_array_missing_comma_strings", #"["a" "b"]"#),
        JSONCase("n_array_colon_for_comma", #"["a":1]"#),
        JSONCase("n_array_semicolon_for_comma", "[1;2]"),
        JSONCase("n_array_adjacent", "[3[4]]"),
        JSONCase("n_array_unclosed", "[1"),
        JSONCase("n_array_unclosed_after_comma", "[1,"),
        JSONCase("n_array_unclosed_with_newlines", "[1,\n1\n,1"),
        JSONCase("n_array_star", "[*]"),
        JSONCase("n_array_ends_in_minus", "[-"),
        JSONCase("n_array_bare_word", "[a]"),
        JSONCase("n_array_not_utf8", [0x5B, 0xFF, 0x5D]),
    ]

    static let literals: [JSONCase] = [
        JSONCase("y_literal_true", "[true]"),
        JSONCase("y_literal_false", "[false]"),
        JSONCase("y_literal_null", "[null]"),
        JSONCase("n_literal_nul", "[nul]"),
        JSONCase("n_literal_nulls", "[nulls]"),
        JSONCase("n_literal_tru", "tru"),
        JSONCase("n_literal_truth", "truth"),
        JSONCase("n_literal_fals", "[fals"),
        JSONCase("n_literal_capital_true", "[True]"),
        JSONCase("n_literal_capitals", "[NULL]"),
        JSONCase("n_literal_undefined", "[undefined]"),
        JSONCase("n_literal_not_a_number", "[NaN]"),
        JSONCase("n_literal_minus_not_a_number", "[-NaN]"),
        JSONCase("n_literal_infinity", "[Infinity]"),
        JSONCase("n_literal_minus_infinity", "[-Infinity]"),
        JSONCase("n_literal_two", "[true false]"),
        JSONCase("n_literal_stuck_together", "[truefalse]"),
    ]

    static let numbers: [JSONCase] =
        [
            "0", "-0", "1", "-1", "10", "123456789", "0.5", "-0.5", "0.0", "1.25", "0e1", "0E1", "0e+1", "0e-1", "1e5",
            "1E5", "1e+5", "1E-5", "1.5e3", "-1.5E+3", "1e00", "123e45", "20.0001", "1e400", "-1e-400",
            "100000000000000000000000000000000000000", "0.000000000000000000000000000000000000000001",
        ].map { JSONCase("y_number_\($0)", "[\($0)]") }
        + [
            "01", "-01", "00", "-00", "012", "007.5", "1.", "-1.", ".5", "-.5", "1.e5", "1.5.5", "1e", "1E", "1e+",
            "1e-",
            "1e+-5", "1e5.5", "1e5e5", "+1", "++1", "--1", "-", "+", "- 1", "-a", "0x1F", "0b1", "0o7", "1_000",
            "1,5 6",
            "1a", "1 000", "0e", "0e+", "0.e1", "0.3e", "0.3e+", "1.8011670033376514H-308", "\u{FF11}", "1\0", "٣",
            "1/2",
        ].map { JSONCase("n_number_\($0)", "[\($0)]") }

    static let strings: [JSONCase] = [
        JSONCase("y_string_every_short_escape", #"["\"\\\/\b\f\n\r\t"]"#),
        JSONCase("y_string_unicode_escape", #"["\u0041\u00e9\u20AC"]"#),
        JSONCase("y_string_nul_escape", #"["\u0000"]"#),
        JSONCase("y_string_surrogate_pair", #"["\uD83D\uDE00"]"#),
        JSONCase("y_string_lower_case_surrogate_pair", #"["\ud83d\ude00"]"#),
        JSONCase("y_string_first_and_last_pair", #"["\uD800\uDC00\uDBFF\uDFFF"]"#),
        JSONCase("y_string_two_pairs", #"["\uD83D\uDE00\uD83D\uDE01"]"#),
        JSONCase("y_string_around_surrogates", #"["\uD7FF\uE000"]"#),
        JSONCase("y_string_noncharacters_escaped", #"["\uFFFF\uFFFE\uFDD0"]"#),
        JSONCase("y_string_escaped_backslash_u", #"["\\u12"]"#),
        JSONCase("y_string_escaped_backslash_at_end", #"["a\\"]"#),
        JSONCase("y_string_apostrophe", #"["'"]"#),
        JSONCase("y_string_slash", #"["/"]"#),
        JSONCase("y_string_comment_inside", #"["/* a */ // b"]"#),
        JSONCase("y_string_brackets_inside", #"["[{]}"]"#),
        JSONCase("y_string_del", "[\"\u{7F}\"]"),
        JSONCase("y_string_c1_control", "[\"\u{80}\u{9F}\"]"),
        JSONCase("y_string_line_separator", "[\"\u{2028}\u{2029}\"]"),
        JSONCase("y_string_emoji", "[\"\u{1F600}\"]"),
        JSONCase("y_string_byte_order_mark_inside", "[\"\u{FEFF}\"]"),
        JSONCase("y_string_long", "[\"" + String(repeating: "a", count: 100_000) + "\"]"),
        JSONCase("n_string_newline", "[\"a\nb\"]"),
        JSONCase("n_string_tab", "[\"\t\"]"),
        JSONCase("n_string_nul", "[\"a\0\"]"),
        JSONCase("n_string_unit_separator", "[\"\u{1F}\"]"),
        JSONCase("n_string_escaped_newline", "[\"\\\n\"]"),
        JSONCase("n_string_escape_a", #"["\a"]"#),
        JSONCase("n_string_escape_x", #"["\x00"]"#),
        JSONCase("n_string_escape_apostrophe", #"["\'"]"#),
        JSONCase("n_string_escape_zero", #"["\0"]"#),
        JSONCase("n_string_escape_octal", #"["\101"]"#),
        JSONCase("n_string_escape_capital_n", #"["\N"]"#),
        JSONCase("n_string_escape_capital_u", #"["\U0041"]"#),
        JSONCase("n_string_escape_emoji", "[\"\\\u{1F600}\"]"),
        JSONCase("n_string_escape_braces", #"["\u{41}"]"#),
        JSONCase("n_string_escape_space", #"["\ "]"#),
        JSONCase("n_string_unicode_short", #"["\u004"]"#),
        JSONCase("n_string_unicode_no_digits", #"["\u"]"#),
        JSONCase("n_string_unicode_not_hex", #"["\u00GG"]"#),
        JSONCase("n_string_unicode_sign", #"["\u+041"]"#),
        JSONCase("n_string_unicode_unfinished", #"["\u00"#),
        JSONCase("n_string_backslash_at_end", #"["\"]"#),
        JSONCase("n_string_three_backslashes", #"["\\\"]"#),
        JSONCase("n_string_lone_high_surrogate", #"["\uD800"]"#),
        JSONCase("n_string_lone_high_surrogate_and_text", #"["\uD800abcdef"]"#),
        JSONCase("n_string_lone_low_surrogate", #"["\uDC00"]"#),
        JSONCase("n_string_high_then_newline", #"["\uD800\n"]"#),
        JSONCase("n_string_high_then_letter", #"["\uD800\u0041"]"#),
        JSONCase("n_string_high_then_high", #"["\uD800\uD800"]"#),
        JSONCase("n_string_reversed_pair", #"["\uDC00\uD800"]"#),
        JSONCase("n_string_pair_cut_short", #"["\uD83D\uDE0"]"#),
        JSONCase("n_string_pair_cut_at_u", #"["\uD83D\u"]"#),
        JSONCase("n_string_pair_cut_at_backslash", #"["\uD83D\"]"#),
        JSONCase("n_string_unclosed", #"["a"#),
        JSONCase("n_string_closed_by_apostrophe", #"["a']"#),
        JSONCase("n_string_apostrophes", "['a']"),
        JSONCase("n_string_typographic_quotes", "[\u{201C}a\u{201D}]"),
        JSONCase("n_string_escape_outside", #"[\n]"#),
        JSONCase("n_string_escaped_quotes_outside", #"[\"a\"]"#),
    ]

    static let utf8: [JSONCase] = [
        JSONCase("y_utf8_two_bytes_first", string: [0xC2, 0x80]),
        JSONCase("y_utf8_two_bytes_last", string: [0xDF, 0xBF]),
        JSONCase("y_utf8_three_bytes_first", string: [0xE0, 0xA0, 0x80]),
        JSONCase("y_utf8_three_bytes_last", string: [0xEF, 0xBF, 0xBF]),
        JSONCase("y_utf8_before_surrogates", string: [0xED, 0x9F, 0xBF]),
        JSONCase("y_utf8_after_surrogates", string: [0xEE, 0x80, 0x80]),
        JSONCase("y_utf8_four_bytes_first", string: [0xF0, 0x90, 0x80, 0x80]),
        JSONCase("y_utf8_four_bytes_last", string: [0xF4, 0x8F, 0xBF, 0xBF]),
        JSONCase("n_utf8_overlong_slash_two", string: [0xC0, 0xAF]),
        JSONCase("n_utf8_overlong_c1", string: [0xC1, 0xBF]),
        JSONCase("n_utf8_overlong_three", string: [0xE0, 0x9F, 0xBF]),
        JSONCase("n_utf8_overlong_four", string: [0xF0, 0x8F, 0xBF, 0xBF]),
        JSONCase("n_utf8_overlong_nul", string: [0xC0, 0x80]),
        JSONCase("n_utf8_surrogate_first", string: [0xED, 0xA0, 0x80]),
        JSONCase("n_utf8_surrogate_last", string: [0xED, 0xBF, 0xBF]),
        JSONCase("n_utf8_surrogate_pair", string: [0xED, 0xA0, 0xBD, 0xED, 0xB8, 0x80]),
        JSONCase("n_utf8_beyond_last", string: [0xF4, 0x90, 0x80, 0x80]),
        JSONCase("n_utf8_f5", string: [0xF5, 0x80, 0x80, 0x80]),
        JSONCase("n_utf8_five_bytes", string: [0xF8, 0x88, 0x80, 0x80, 0x80]),
        JSONCase("n_utf8_fe_ff", string: [0xFE, 0xFF]),
        JSONCase("n_utf8_lone_continuation", string: [0x80]),
        JSONCase("n_utf8_continuation_after_letter", string: [0x61, 0xBF]),
        JSONCase("n_utf8_two_bytes_cut_by_quote", string: [0xC3]),
        JSONCase("n_utf8_three_bytes_cut_by_quote", string: [0xE2, 0x82]),
        JSONCase("n_utf8_four_bytes_cut_by_quote", string: [0xF0, 0x9F, 0x98]),
        JSONCase("n_utf8_four_bytes_cut_by_end", [0x22, 0xF0, 0x9F, 0x98]),
        JSONCase("n_utf8_letter_in_sequence", string: [0xE2, 0x61, 0xAC]),
        JSONCase("n_utf8_latin1", string: [0xE9]),
        JSONCase("n_utf8_inverted", string: [0xAC, 0x82, 0xE2]),
    ]
}
