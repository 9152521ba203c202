//! A source file as the rules see it: what is code, what is test, where functions are.

/// One tracked file.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Path from the root of the repository.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl SourceFile {
    pub fn new(path: &str, text: &str) -> Self {
        SourceFile { path: path.to_string(), text: text.to_string() }
    }

    pub fn has_extension(&self, extensions: &[&str]) -> bool {
        let extension = self.path.rsplit_once('.').map_or("", |(_, extension)| extension);
        extensions.contains(&extension)
    }

    /// Whether the whole file is test code.
    pub fn is_test(&self) -> bool {
        let name = self.path.rsplit('/').next().unwrap_or("");
        self.path.split('/').any(|part| matches!(part, "tests" | "test" | "benches"))
            || name == "tests.rs"
            || name.starts_with("test_")
            || name == "conftest.py"
    }

    /// Lines outside of `#[cfg(test)]` modules, numbered from 1; none of a file of tests.
    pub fn product_lines(&self) -> Vec<(usize, &str)> {
        if self.is_test() {
            return Vec::new();
        }
        product(self.text.lines().enumerate().map(|(index, line)| (index + 1, line)))
    }

    /// The same lines with comments, strings and characters blanked out (Rust only).
    pub fn product_code(&self) -> Vec<(usize, String)> {
        let masked = mask(&self.text);
        let numbers: std::collections::HashSet<usize> =
            self.product_lines().into_iter().map(|(number, _)| number).collect();
        let lines = masked.lines().enumerate().map(|(index, line)| (index + 1, line.to_string()));
        lines.filter(|(number, _)| numbers.contains(number)).collect()
    }
}

/// Leaves out `#[cfg(test)]` modules written in place.
fn product<'a>(lines: impl Iterator<Item = (usize, &'a str)>) -> Vec<(usize, &'a str)> {
    let mut kept: Vec<(usize, &str)> = Vec::new();
    let mut inside = false;
    for (number, line) in lines {
        let is_module =
            ["mod ", "pub mod ", "pub(crate) mod "].iter().any(|it| line.starts_with(it));
        let opens = is_module && line.ends_with('{');
        let marked = kept.last().is_some_and(|(_, last)| last.starts_with("#[cfg(test)]"));
        if opens && marked {
            inside = true;
            kept.pop();
        }
        if !inside {
            kept.push((number, line));
        } else if line == "}" {
            inside = false;
        }
    }
    kept
}

/// Blanks out comments, strings and character literals of Rust; lines stay where they are.
pub fn mask(text: &str) -> String {
    let letters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < letters.len() {
        let end = literal_end(&letters, at);
        if end == at {
            out.push(letters[at]);
            at += 1;
            continue;
        }
        for letter in &letters[at..end.min(letters.len())] {
            out.push(if *letter == '\n' { '\n' } else { ' ' });
        }
        at = end;
    }
    out
}

/// Where the comment or literal that begins at `at` ends; `at` itself when none begins there.
fn literal_end(letters: &[char], at: usize) -> usize {
    let next = letters.get(at + 1).copied().unwrap_or(' ');
    let before = if at == 0 { ' ' } else { letters[at - 1] };
    match letters[at] {
        '/' if next == '/' => find(letters, at, |rest| rest[0] == '\n'),
        '/' if next == '*' => block_comment_end(letters, at),
        '"' => string_end(letters, at + 1),
        'r' if !before.is_alphanumeric() && before != '_' && matches!(next, '"' | '#') => {
            raw_string_end(letters, at)
        }
        '\'' if next == '\\' => find(letters, at + 3, |rest| rest[0] == '\'') + 1,
        '\'' if letters.get(at + 2) == Some(&'\'') => at + 3,
        _ => at,
    }
}

fn find(letters: &[char], from: usize, is_end: impl Fn(&[char]) -> bool) -> usize {
    (from..letters.len()).find(|at| is_end(&letters[*at..])).unwrap_or(letters.len())
}

fn string_end(letters: &[char], mut at: usize) -> usize {
    while at < letters.len() && letters[at] != '"' {
        at += if letters[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

fn raw_string_end(letters: &[char], at: usize) -> usize {
    let hashes = letters[at + 1..].iter().take_while(|letter| **letter == '#').count();
    let open = at + 1 + hashes;
    if letters.get(open) != Some(&'"') {
        return at;
    }
    let closes = |rest: &[char]| {
        rest[0] == '"' && rest[1..].iter().take(hashes).filter(|it| **it == '#').count() == hashes
    };
    find(letters, open + 1, closes) + 1 + hashes
}

fn block_comment_end(letters: &[char], at: usize) -> usize {
    let mut depth = 0;
    let mut at = at;
    while at < letters.len() {
        match (letters[at], letters.get(at + 1)) {
            ('/', Some('*')) => depth += 1,
            ('*', Some('/')) => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return at;
        }
    }
    at
}

/// A function: its name, its first line and its number of lines.
pub type Function = (String, usize, usize);

/// Functions of a formatted file, found by their indentation. Test code has none.
pub fn functions(file: &SourceFile) -> Vec<Function> {
    let lines = file.product_lines();
    let begin: fn(&str) -> Option<String> = match file.path.rsplit('.').next() {
        Some("rs") => rust_function,
        Some("py") => python_function,
        Some("cpp" | "hpp") => cpp_function,
        _ => return Vec::new(),
    };
    let python = file.path.ends_with(".py");
    let mut found = Vec::new();
    for (index, (number, line)) in lines.iter().enumerate() {
        let Some(name) = begin(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let rest = lines[index + 1..].iter();
        let length = match python {
            true => python_length(rest.map(|(_, line)| *line), indent),
            false => braced_length(rest.map(|(_, line)| *line), line, indent),
        };
        if let Some(length) = length {
            found.push((name, *number, length));
        }
    }
    found
}

fn braced_length<'a>(
    rest: impl Iterator<Item = &'a str>,
    first: &str,
    indent: usize,
) -> Option<usize> {
    if first.ends_with('}') || first.ends_with(';') {
        return Some(1);
    }
    let closing = format!("{}}}", " ".repeat(indent));
    let tabs = format!("{}}}", "\t".repeat(indent));
    for (index, line) in rest.enumerate() {
        if line == closing || line == tabs {
            return Some(index + 2);
        }
        // A declaration without body.
        if line.trim_end().ends_with(';') && line.starts_with(&format!("{})", " ".repeat(indent))) {
            return None;
        }
    }
    None
}

fn python_length<'a>(rest: impl Iterator<Item = &'a str>, indent: usize) -> Option<usize> {
    let mut length = 1;
    for (index, line) in rest.enumerate() {
        let inside = line.len() - line.trim_start().len() > indent || line.trim().is_empty();
        if !inside && !line.trim_start().starts_with(')') {
            break;
        }
        if !line.trim().is_empty() {
            length = index + 2;
        }
    }
    Some(length)
}

fn rust_function(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    loop {
        match words.next()? {
            "fn" => break,
            word if word.starts_with("pub") || word.starts_with('"') => {}
            "async" | "const" | "unsafe" | "extern" => {}
            _ => return None,
        }
    }
    let name = words.next()?.split(['(', '<']).next()?;
    Some(name.to_string())
}

fn python_function(line: &str) -> Option<String> {
    let line = line.trim_start();
    let rest = line.strip_prefix("async ").unwrap_or(line).strip_prefix("def ")?;
    Some(rest.split('(').next()?.to_string())
}

/// A definition at the top level: `Type Name(...) {`, not a declaration, type or namespace.
fn cpp_function(line: &str) -> Option<String> {
    let opens = line.starts_with(|first: char| first.is_alphabetic()) && line.ends_with('{');
    let keyword = line.split([' ', '(']).next()?;
    if !opens
        || !line.contains('(')
        || matches!(keyword, "namespace" | "extern" | "struct" | "class")
    {
        return None;
    }
    line.split('(').next()?.split_whitespace().last().map(str::to_string)
}
