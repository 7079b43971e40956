//! Rust source taken apart as far as the rules need it: what is code, what is comment, what belongs to tests.

/// A source file in two views of its own layout: in each, what belongs to the other is blank, line for line and column
/// for column. The contents of strings and characters are blank in both.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) code: String,
    pub(crate) comments: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Text,
}

impl Source {
    /// Takes `text` apart.
    pub(crate) fn new(text: &str) -> Source {
        let chars: Vec<char> = text.chars().collect();
        let mut source = Source { code: String::new(), comments: String::new() };
        let mut i = 0;
        while i < chars.len() {
            let (kind, len) = token(&chars, i);
            for (n, &c) in chars[i..i + len].iter().enumerate() {
                // The first and last of a text stay in the code: an argument that is a string is still one.
                let quote = kind == Kind::Text && (n == 0 || n + 1 == len);
                let blank = if c == '\n' { '\n' } else { ' ' };
                source.code.push(if kind == Kind::Code || quote { c } else { blank });
                source.comments.push(if kind == Kind::Comment { c } else { blank });
            }
            i += len;
        }
        source
    }

    /// For each line, whether it belongs to a `#[cfg(test)]` item.
    pub(crate) fn test_lines(&self) -> Vec<bool> {
        let mut lines = vec![false; self.code.lines().count()];
        let mut from = 0;
        while let Some(at) = self.code[from..].find("#[cfg(") {
            let start = from + at;
            from = start + 1;
            let Some(attribute) = self.code[start..].find(']') else { break };
            let condition = &self.code[start..start + attribute];
            if !words(condition).any(|(_, w)| w == "test") || condition.contains("not(test") {
                continue;
            }
            let end = start + attribute + item_len(&self.code[start + attribute..]);
            for line in &mut lines[line_of(&self.code, start)..=line_of(&self.code, end)] {
                *line = true;
            }
            from = end;
        }
        lines
    }
}

/// The kind of what begins at `i`, and its length.
fn token(chars: &[char], i: usize) -> (Kind, usize) {
    let at = |n: usize| chars.get(i + n).copied().unwrap_or('\0');
    let rest = chars.len() - i;
    let until = |len: Option<usize>| len.unwrap_or(rest).min(rest);
    if at(0) == '/' && at(1) == '/' {
        return (Kind::Comment, until(chars[i..].iter().position(|&c| c == '\n')));
    }
    if at(0) == '/' && at(1) == '*' {
        return (Kind::Comment, block_comment(&chars[i..]));
    }
    if at(0) == '"' {
        return (Kind::Text, quoted(&chars[i..], '"'));
    }
    if at(0) == '\'' && (at(1) == '\\' || at(2) == '\'') {
        return (Kind::Text, quoted(&chars[i..], '\''));
    }
    let first_of_word = i == 0
        || !is_word(chars[i - 1])
        || (matches!(chars[i - 1], 'b' | 'c') && { i == 1 || !is_word(chars[i - 2]) });
    if at(0) == 'r' && first_of_word {
        let hashes = chars[i + 1..].iter().take_while(|&&c| c == '#').count();
        if at(1 + hashes) == '"' {
            let open = hashes + 2;
            let close: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            let len = chars[i + open..].windows(hashes + 1).position(|w| w == close);
            return (Kind::Text, until(len.map(|len| open + len + hashes + 1)));
        }
    }
    (Kind::Code, 1)
}

/// The length of the quoted text that `chars` begins with.
fn quoted(chars: &[char], quote: char) -> usize {
    let mut i = 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            c if c == quote => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// The length of the block comment that `chars` begins with. They nest.
fn block_comment(chars: &[char]) -> usize {
    let (mut depth, mut i) = (0, 0);
    while i < chars.len() {
        match (chars[i], chars.get(i + 1)) {
            ('/', Some('*')) => (depth, i) = (depth + 1, i + 2),
            ('*', Some('/')) => (depth, i) = (depth - 1, i + 2),
            _ => i += 1,
        }
        if depth == 0 {
            return i;
        }
    }
    chars.len()
}

/// The length of the item that follows in `code`: to its closing brace, or to its semicolon.
fn item_len(code: &str) -> usize {
    let mut depth = 0;
    for (i, c) in code.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return i,
            '}' => depth -= 1,
            ';' if depth == 0 => return i,
            _ => {}
        }
    }
    code.len().saturating_sub(1)
}

/// The index of the line that byte `at` of `text` is on.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count()
}

/// Whether `c` can stand in an identifier.
pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The words of `text` and where they begin.
pub(crate) fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let start = rest + text[rest..].find(is_word)?;
        let len = text[start..].find(|c| !is_word(c)).unwrap_or(text.len() - start);
        rest = start + len;
        Some((start, &text[start..rest]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> String {
        Source::new(text).code
    }

    #[test]
    fn comments_are_not_code() {
        assert_eq!(code("a // b\nc"), "a     \nc");
        assert_eq!(code("a /* b /* c */ d */ e"), "a                   e");
        assert_eq!(Source::new("a // b\nc").comments, "  // b\n ");
    }

    #[test]
    fn what_strings_hold_is_neither() {
        for text in
            [r#"f("// x \" y") g"#, "f(r#\"// x \" y\"#) g", r#"f(b"// x") g"#, r#"f('"', '\'', '/') g"#]
        {
            let source = Source::new(text);
            assert_eq!(source.code.chars().count(), text.chars().count());
            assert!(source.code.starts_with("f(") && source.code.ends_with(") g"), "{}", source.code);
            assert!(!source.code.contains('x') && source.comments.trim().is_empty(), "{text}");
        }
    }

    #[test]
    fn lifetimes_are_code() {
        assert_eq!(code("fn f<'a>(x: &'a T) {} // y"), "fn f<'a>(x: &'a T) {}     ");
    }

    #[test]
    fn test_items_are_told_apart() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n#[cfg(not(test))]\nfn d() {}\n";
        let tests = Source::new(text).test_lines();
        assert_eq!(tests, [false, true, true, true, true, false, false, false]);
    }

    #[test]
    fn words_and_where() {
        assert_eq!(words("a::b_1 (c)").collect::<Vec<_>>(), [(0, "a"), (3, "b_1"), (8, "c")]);
    }
}
